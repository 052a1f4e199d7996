//! Branches: marks of alternative paths. A branch belongs to the session that it was made in.

use dormouse_protocol::event::Draft;
use dormouse_protocol::id::BranchId;
use dormouse_protocol::resource::{Branch, CreateBranchRequest, Session, Task};
use dormouse_protocol::{Envelope, ProtocolError};

use crate::api::{Api, Change, by, found};
use crate::change::SessionChange;
use crate::documents::Stored;
use crate::lists::Lists;
use crate::page::Narrowed;
use crate::reads::Reads;
use crate::refusal::conflict;
use crate::{Call, CallAnswer};

impl Lists {
    pub(crate) async fn list_branches(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let session = self.reads.named::<Session>(call, "session_id").await?;
        self.page::<Branch>(call, Narrowed::Parent(session.kept.resource.envelope.id.as_str()), |_| true).await
    }
}

impl Reads {
    pub(crate) async fn get_branch(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.named::<Branch>(call, "branch_id").await?.kept.resource)
    }
}

impl Api {
    pub(crate) async fn create_branch(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: CreateBranchRequest = call.body.clone().decode()?;
        let session = self.reads.named::<Session>(call, "session_id").await?;
        if !session.kept.resource.state.is_open() {
            return Err(conflict("the session is closed"));
        }
        if let Some(parent) = &request.parent_branch_id {
            self.reads.see::<Branch>(call, parent).await?;
        }
        let ended = match &request.task_id {
            Some(task) => self.reads.ended_in(&session, self.reads.see::<Task>(call, task).await?, call).await?,
            None => None,
        };
        let id: BranchId = self.fresh(call.now);
        let workspace_id = session.kept.resource.workspace_id.clone();
        let session_id = session.kept.resource.envelope.id.clone();
        let branch = Branch {
            envelope: Envelope::new(id, call.now).with_metadata(request.metadata),
            workspace_id: workspace_id.clone(),
            kind: request.kind,
            base_ref: request.base_ref,
            parent_branch_id: request.parent_branch_id,
            session_id: Some(session_id),
            task_id: request.task_id,
            worktree_uri: None,
            created_by: Some(call.actor.name.clone()),
            merged_into: None,
        };
        let mut change = SessionChange::open(session, by(call), call.now);
        change.emit_new(Draft::branch_created(&branch));
        if let Some(task) = ended {
            change.names_ended(task)?;
        }
        change.put(&Stored::new(&call.actor.tenant, Some(workspace_id), branch.clone(), ()))?;
        Change::new(change.close()?.1, 201, &branch)
    }
}
