//! Workspaces: where sessions, artifacts and branches belong. They have no events of their own. [`crate::deletion`]
//! deletes them.

use std::collections::BTreeMap;

use dormouse_ports::Journal;
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::resource::{CreateWorkspaceRequest, UpdateWorkspaceRequest, Workspace};
use dormouse_protocol::{Envelope, ErrorCode, ProtocolError};
use serde_json::json;

use crate::api::{Api, Change, found};
use crate::documents::Stored;
use crate::files::first_files;
use crate::lists::Lists;
use crate::page::Narrowed;
use crate::reads::Reads;
use crate::refusal::{check_length, check_line};
use crate::{Call, CallAnswer};

/// Characters of the longest name, and of the longest root.
const LONGEST_NAME: usize = 256;
const LONGEST_ROOT: usize = 1024;

impl Lists {
    pub(crate) async fn list_workspaces(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        self.page::<Workspace>(call, Narrowed::Nothing, |_| true).await
    }
}

impl Reads {
    pub(crate) async fn get_workspace(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.named::<Workspace>(call, "workspace_id").await?.kept.resource)
    }
}

impl Api {
    /// Creates a workspace, with the files of a template and of the request in the same commit. What a sandbox would need
    /// is kept in the metadata: there is none here.
    pub(crate) async fn create_workspace(&self, call: &Call) -> Result<Change, ProtocolError> {
        if call.actor.workspaces.is_some() {
            let message = "the key is bound to workspaces and cannot make others";
            return Err(ProtocolError::new(ErrorCode::PermissionDenied, message));
        }
        let request: CreateWorkspaceRequest = call.body.clone().decode()?;
        check_line("name", &request.name, LONGEST_NAME)?;
        check_length("root", &request.root, LONGEST_ROOT)?;
        let mut metadata = request.metadata;
        let sandbox = [
            ("image", json!(request.image)),
            ("packages", json!(request.packages)),
            ("network_policy", json!(request.network_policy)),
            ("sandbox_backend", json!(request.sandbox_backend)),
        ];
        for (name, value) in sandbox {
            let is_empty = value.is_null() || value == json!([]) || value == json!({});
            if !is_empty && !metadata.contains_key(name) {
                metadata.insert(name.to_owned(), value);
            }
        }
        let id: WorkspaceId = self.fresh(call.now);
        let workspace = Workspace {
            envelope: Envelope::new(id.clone(), call.now).with_metadata(metadata),
            name: request.name,
            root: request.root,
            default_branch_id: None,
            host: None,
            repository: None,
            tenant_id: Some(call.actor.tenant.clone()),
            capabilities: Vec::new(),
            connectors: Vec::new(),
            quota_id: None,
        };
        let files = match request.template {
            Some(template) => self.begun_with(&template, request.files.unwrap_or_default()).await?,
            None => request.files.unwrap_or_default(),
        };
        let files = first_files(call, &id, files)?;
        let mut change = write(&Stored::new(&call.actor.tenant, Some(id), workspace, ()), 201)?;
        change.journal.documents.extend(files);
        Ok(change)
    }

    async fn begun_with(
        &self,
        template: &str,
        files: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ProtocolError> {
        match &self.parts().templates {
            Some(templates) => Ok(templates.begin(template, files).await?),
            None => Err(ProtocolError::invalid("template", "this server has no templates")),
        }
    }

    pub(crate) async fn update_workspace(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: UpdateWorkspaceRequest = call.body.clone().decode()?;
        request.name.as_ref().map_or(Ok(()), |name| check_line("name", name, LONGEST_NAME))?;
        let mut stored = self.reads.named::<Workspace>(call, "workspace_id").await?;
        self.reads.check_counting(call, request.quota_id.as_ref()).await?;
        let workspace = &mut stored.kept.resource;
        workspace.quota_id = request.quota_id.unwrap_or_else(|| workspace.quota_id.take());
        workspace.name = request.name.unwrap_or_else(|| workspace.name.clone());
        workspace.capabilities = request.capabilities.unwrap_or_else(|| std::mem::take(&mut workspace.capabilities));
        workspace.envelope.metadata =
            request.metadata.unwrap_or_else(|| std::mem::take(&mut workspace.envelope.metadata));
        workspace.envelope.updated_at = call.now;
        write(&stored, 200)
    }
}

fn write(workspace: &Stored<Workspace>, status: u16) -> Result<Change, ProtocolError> {
    let journal = Journal::new(vec![workspace.write()?], Vec::new());
    Change::new(journal, status, &workspace.kept.resource)
}
