//! Tasks. A task is an invocation under the same id; its document is the client's view of it, moved in the same
//! transactions. While it is open, what moves is in the document of its session.
//!
//! A submitted task is accepted, not run: one commit writes the invocation (generation 0, without an owner), the task,
//! its message and its first events. It is answered as `WORKING` already, unless another task of the session works: then
//! it is `SUBMITTED` and waits in the [queue](crate::queue) of its session. A worker that receives the work takes it up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_harness::FreshTurn;
use dormouse_harness::chat::converses;
use dormouse_ports::{Cancellation, Document, InvocationId, InvocationWrite, StoreError, Subscription, WORKSPACE};
use dormouse_protocol::event::Draft;
use dormouse_protocol::id::{SessionId, TaskId, WorkspaceId};
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{
    Branch, CancelTaskRequest, Message, ReceiptPolicy, Session, SubmitInput, SubmitTaskRequest, Task, TaskInput,
    TaskStatus,
};
use dormouse_protocol::{ErrorCode, Map, ProtocolError};
use futures::FutureExt;
use futures::future::try_join_all;

use crate::api::{Api, Change, by, found};
use crate::broken_off::break_off;
use crate::change::{NewMessage, SessionChange};
use crate::conversation::{first_state, is_confidential, shows_images};
use crate::documents::{HEARD_AT_ONCE, Kept, Stored, TaskIndex, TaskStanding, TranscriptSegment};
use crate::ending::{TaskEnd, end};
use crate::idempotency::Sighting;
use crate::lists::Lists;
use crate::messages::unplaced;
use crate::page::{Narrowed, PageSource};
use crate::personas::ChosenPersona;
use crate::quotas;
use crate::reads::Reads;
use crate::receipts::{ReceiptNotes, Recorded, TaskTally};
use crate::refusal::{conflict, internal, refused, store};
use crate::{Call, CallAnswer, PersonaSpec, queue, transcript};

/// Positions of a stream that are so near to each other are read at once.
const NEAR: u64 = 100;

impl Lists {
    pub(crate) async fn list_tasks(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, session_id, .. } = Filters::read(&call.query)?;
        let of_path = Some(call.params.get("session_id")).filter(|id| !id.is_empty()).map(SessionId::from);
        if let Some(session) = &of_path {
            self.reads.see::<Session>(call, session).await?;
        }
        let session_id = of_path.or(session_id);
        let narrowed = Narrowed::to(session_id.as_ref().map(AsRef::as_ref), workspace_id.as_ref());
        let wanted = |task: &Stored<Task>| {
            let is_in = |workspace: &WorkspaceId| task.kept.resource.workspace_id == *workspace;
            workspace_id.as_ref().is_none_or(is_in)
        };
        let tasks = |documents: Vec<Document>| {
            let seen = documents.into_iter().map(|document| Stored::<Task>::seen(document, &call.actor).filter(wanted));
            let (places, tasks): (Vec<bool>, Vec<_>) = seen.map(|task| (task.is_some(), task)).unzip();
            let tasks = tasks.into_iter().flatten().collect();
            async move {
                let mut present = self.reads.present(tasks, call).await?.into_iter();
                let at = |is_there: bool| if is_there { present.next() } else { None };
                Ok(places.into_iter().map(at).map(|task| task.map(|task| task.kept.resource)).collect())
            }
            .boxed()
        };
        self.page_of(call, &[PageSource::list::<Task>(&call.actor.tenant, narrowed)], tasks).await
    }
}

impl Reads {
    pub(crate) async fn get_task(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let task = self.named::<Task>(call, "task_id").await?;
        let task = self.present(vec![task], call).await?.pop();
        found(&task.ok_or_else(|| internal(&"a task that was found"))?.kept.resource)
    }

    /// `tasks` as their sessions know them.
    pub(crate) async fn present(
        &self,
        tasks: Vec<Stored<Task>>,
        call: &Call,
    ) -> Result<Vec<Stored<Task>>, ProtocolError> {
        let is_open = |task: &&Stored<Task>| !task.kept.resource.status.is_terminal();
        let sessions: BTreeSet<_> = tasks.iter().filter(is_open).map(|task| &task.kept.resource.session_id).collect();
        let found = try_join_all(sessions.into_iter().map(|id| self.find::<Session>(id, call.now))).await?;
        let sessions: BTreeMap<_, _> =
            found.iter().flatten().map(|session| (&session.kept.resource.envelope.id, session)).collect();
        let mut present = Vec::new();
        for task in tasks {
            let session = sessions.get(&task.kept.resource.session_id);
            let Some(session) = session.filter(|_| is_open(&&task)) else {
                present.push(task);
                continue;
            };
            present.push(match task.clone().known_to(session) {
                Some(task) => task,
                // It has ended in the meantime.
                None => self.find::<Task>(&task.kept.resource.envelope.id, call.now).await?.unwrap_or(task),
            });
        }
        Ok(present)
    }

    /// `task`, if it is one of `session` and has ended by then.
    pub(crate) async fn ended_in(
        &self,
        session: &Stored<Session>,
        task: Stored<Task>,
        call: &Call,
    ) -> Result<Option<Stored<Task>>, ProtocolError> {
        let Task { envelope, session_id, status, .. } = &task.kept.resource;
        let Kept { resource, own, .. } = &session.kept;
        if *session_id != resource.envelope.id || own.open.contains_key(&envelope.id) {
            return Ok(None);
        }
        // Where it was open when it was read, it has ended in the meantime.
        if status.is_terminal() { Ok(Some(task)) } else { self.find::<Task>(&envelope.id, call.now).await }
    }

    /// The session of `task`.
    pub(crate) async fn session_of(&self, task: &Stored<Task>, call: &Call) -> Result<Stored<Session>, ProtocolError> {
        let found = self.find::<Session>(&task.kept.resource.session_id, call.now).await?;
        // The session is being erased, and its task with it.
        found.ok_or_else(|| ProtocolError::not_found("task"))
    }
}

impl Api {
    pub(crate) async fn submit(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: SubmitTaskRequest = call.body.clone().decode()?;
        let session = self.session_for(call, &request).await?;
        let keeping = match self.repetitions.sight(call, &session).await? {
            Sighting::Again(status, answer) => return Ok(Change::repeated(status, answer)),
            Sighting::New(keeping) => keeping,
        };
        let persona = request.persona_id.as_ref().or(session.kept.resource.persona_id.as_ref());
        let ChosenPersona { id: persona_id, spec, quota } =
            self.chosen_persona(call, Some(&session.kept.resource.workspace_id), persona).await?;
        let graph = self.graph(&spec).await?;
        if let Some(branch) = &request.branch_id {
            self.reads.see::<Branch>(call, branch).await?;
        }
        if let Some(parent) = &request.parent_task_id {
            self.reads.see::<Task>(call, parent).await?;
        }
        let is_queued = session.kept.own.open.values().any(|other| other.standing() == TaskStanding::Works);
        if is_queued {
            session.kept.own.check_room()?;
        }
        // A queued one is given it when its turn comes.
        let takes_all = converses(&graph) && !is_queued;
        let undelivered = if takes_all { self.undelivered(&session).await? } else { Vec::new() };
        let own_stream = session.kept.resource.envelope.id.to_string();
        let (places, undelivered): (Vec<_>, Vec<_>) = undelivered.into_iter().unzip();
        let mut given: Vec<u64> =
            places.into_iter().filter(|(stream, _)| *stream == own_stream).map(|(_, position)| position).collect();
        let given_all = takes_all && session.kept.own.undelivered_from == Some(0);
        let state = first_state(&graph, &request.input, &undelivered)?;

        let mut quotas = session.kept.own.quotas.clone();
        quotas.extend([quota, call.actor.quota_id.clone()].into_iter().flatten());

        let id: TaskId = self.fresh(call.now);
        // How it was queued is nowhere written once its turn has come.
        let keeping = if is_queued { keeping.apart() } else { keeping };
        let mut change = SessionChange::open(session, by(call), call.now).keeping(keeping);
        if takes_all {
            change.thread_mut().delivered_but_awaited();
        }
        let place = (change.session().workspace_id.clone(), change.session().envelope.id.clone());
        let task = Task {
            persona_id: Some(persona_id),
            branch_id: request.branch_id.or_else(|| change.session().branch_id.clone()),
            parent_task_id: request.parent_task_id,
            quota_id: quotas.first().cloned(),
            ..Task::submitted(id.clone(), place, TaskInput::Payload(Map::new()), &call.actor.name, call.now)
        };
        let is_confidential = match &request.input {
            SubmitInput::Message(message) => is_confidential(&message.parts),
            SubmitInput::Payload(_) => false,
        };
        let first = change.next();
        let receipts = self.receipt_terms(&spec)?;
        quotas::accepted(&quotas).for_each(|take| change.count(take));
        let graph_name = spec.graph.clone();
        let progress = TaskIndex {
            first,
            graph: graph_name,
            is_confidential,
            receipts,
            quotas,
            hears: converses(&graph) && graph.hears(),
            shows: shows_images(&graph),
            given_all,
            is_unsaid: is_queued && matches!(request.input, SubmitInput::Message(_)),
            ..TaskIndex::default()
        };
        let workspace = Some(task.workspace_id.clone());
        let mut task = Stored::new(&call.actor.tenant, workspace, task, progress);
        task.kept.resource.envelope.metadata = request.metadata;
        let draft = Draft::task_submitted(&task.kept.resource);
        change.emit_for_task(&mut task, draft);
        task.kept.resource.input = match request.input {
            SubmitInput::Message(message) if is_queued => TaskInput::Payload(queue::unsaid(&message)),
            SubmitInput::Message(message) => {
                given.push(change.next());
                let said = NewMessage { message: unplaced(message, Some(id.clone()), call.now), heard: true };
                TaskInput::Message(Box::new(change.append_message(said, Draft::message_appended)?))
            }
            SubmitInput::Payload(payload) => TaskInput::Payload(payload),
        };
        if converses(&graph) {
            task.kept.own.given = given;
        }
        if is_queued {
            change.thread_mut().queue.push(id.clone());
        } else {
            change.advance(&mut task, TaskStatus::Working, None, Map::new());
        }
        change.put_task(&task)?;
        let metadata = if is_queued { queue::marked() } else { Map::new() };
        self.keep_definitions(call, &task.kept.resource.workspace_id, &spec).await?;
        let invocation = self.accept(&spec, &task, (state, metadata)).await?;
        let work = (!is_queued).then(|| InvocationId::from(id.as_str()));
        let change = Change::new(change.close()?.1, 202, &task.kept.resource)?;
        Ok(Change { invocation: Some(invocation), work, ..change })
    }

    /// The session that a task is submitted to.
    async fn session_for(&self, call: &Call, request: &SubmitTaskRequest) -> Result<Stored<Session>, ProtocolError> {
        let of_path = Some(call.params.get("session_id")).filter(|id| !id.is_empty()).map(SessionId::from);
        let id = match (of_path, &request.session_id) {
            (Some(path), Some(body)) if path != *body => {
                return Err(ProtocolError::invalid("session_id", "the path names another session"));
            }
            (Some(path), _) => path,
            (None, Some(body)) => body.clone(),
            (None, None) => return Err(ProtocolError::invalid("session_id", "missing required field")),
        };
        let session = self.reads.see::<Session>(call, &id).await?;
        if request.workspace_id.as_ref().is_some_and(|given| *given != session.kept.resource.workspace_id) {
            return Err(ProtocolError::invalid("workspace_id", "the session is in another workspace"));
        }
        if session.kept.resource.state.is_open() { Ok(session) } else { Err(conflict("the session is closed")) }
    }

    /// Messages of the transcript that the agent of `session` has not been given yet, the newest of them; without those that
    /// a run of it is to hear.
    async fn undelivered(&self, session: &Stored<Session>) -> Result<Vec<(transcript::Spot, Message)>, ProtocolError> {
        let thread = &session.kept.own;
        let stream = session.kept.resource.envelope.id.to_string();
        let missed = match thread.undelivered_from {
            None => stretches(&stream, &thread.undelivered),
            Some(0) => thread.transcript.clone(),
            Some(first) => vec![TranscriptSegment { stream, first, last: None }],
        };
        let awaited = thread.awaited();
        let is_missed = |position: &u64| {
            thread.undelivered_from.is_some() || (thread.undelivered.contains(position) && !awaited.contains(position))
        };
        let mut newest = VecDeque::new();
        transcript::walk(self.reads.records(), &missed, &mut |spot, message| {
            if is_missed(&spot.1) {
                newest.push_back((spot, message));
            }
            if newest.len() > HEARD_AT_ONCE {
                newest.pop_front();
            }
            true
        })
        .await?;
        Ok(newest.into())
    }

    /// Calls off what has not ended. What was canceled stays so; what ended otherwise cannot be.
    pub(crate) async fn cancel(&self, call: &Call) -> Result<Change, ProtocolError> {
        let CancelTaskRequest { reason } = call.body.clone().decode()?;
        let task = self.reads.named::<Task>(call, "task_id").await?;
        self.call_off(call, task, reason).await
    }

    /// Ends `task` for good.
    pub(crate) async fn call_off(
        &self,
        call: &Call,
        task: Stored<Task>,
        reason: Option<String>,
    ) -> Result<Change, ProtocolError> {
        match task.kept.resource.status {
            TaskStatus::Canceled => return Change::nothing(200, &task.kept.resource),
            TaskStatus::Completed | TaskStatus::Failed => return Err(conflict("the task has ended already")),
            TaskStatus::Submitted | TaskStatus::Working | TaskStatus::InputRequired | TaskStatus::AuthRequired => {}
        }
        let session = self.reads.session_of(&task, call).await?;
        // It has ended in the meantime.
        let id_of_task = task.kept.resource.envelope.id.clone();
        let Some(mut task) = task.known_to(&session) else {
            let task = self.reads.see::<Task>(call, &id_of_task).await?;
            return Box::pin(self.call_off(call, task, reason)).await;
        };
        // Read behind its session, which grows with each step of the run: what is told of its calls is still so when it is
        // written.
        let id = InvocationId::from(id_of_task.as_str());
        let harness = &self.parts().harness;
        let paused = match harness.engine().ports().store.invocations.load_invocation(&id).await {
            Err(StoreError::Corrupt(reason)) => {
                tracing::warn!(%id, reason, "a task was canceled although its invocation cannot be read");
                harness.remains(&id).await.map_err(|error| internal(&error.message))?
            }
            record => record.map_err(store)?.map(|record| record.paused),
        };
        let paused = paused.ok_or_else(|| internal(&"a task without an invocation"))?;
        let mut tally = self.tally_of(&task).await?;
        let mut change = SessionChange::open(session, by(call), call.now).issuing(self.parts().receipts.clone());
        let draft = Draft::cancel_requested(&task.kept.resource, reason.as_deref());
        change.emit_for_task(&mut task, draft);
        break_off(&mut change, &mut task, paused.outermost_state(), &mut tally)?;
        end(&mut change, &mut task, TaskEnd::Canceled { reason: reason.as_deref() }, &tally)?;
        change.note_state(paused.outermost_state());
        let woken = paused.wake.due.is_some() || paused.wake.event.is_some();
        let ended = (woken && paused.has_paused()).then(|| Subscription {
            invocation_id: id,
            generation: paused.generation,
            descriptor: paused.descriptor.clone(),
            wake: paused.wake.clone(),
        });
        let cancellation = Cancellation { reason, at: call.now };
        let invocation = Some(InvocationWrite::Cancel { paused: Box::new(paused), cancellation });
        let work = change.freed().map(|next| InvocationId::from(next.as_str()));
        change.sign_receipts().await?;
        let change = Change::new(change.close()?.1, 200, &task.kept.resource)?;
        Ok(Change { invocation, ended, work, ..change })
    }

    /// What the nodes of `task` have recorded, where a receipt is to tell of it.
    async fn tally_of(&self, task: &Stored<Task>) -> Result<TaskTally, ProtocolError> {
        let Kept { resource, own, .. } = &task.kept;
        if self.parts().receipts.is_none() || own.receipts.off || own.receipts.recorded == 0 {
            return Ok(TaskTally::default());
        }
        let stream = resource.session_id.as_str();
        let task = &resource.envelope.id;
        TaskTally::read(Recorded { records: self.reads.records(), stream, first: own.first, task }).await.map_err(store)
    }

    /// What receipts of the tasks of `spec` need to know.
    ///
    /// # Errors
    /// `policy_violation` where the persona demands receipts, and the server issues none.
    fn receipt_terms(&self, spec: &PersonaSpec) -> Result<ReceiptNotes, ProtocolError> {
        match (&self.parts().receipts, spec.receipts) {
            (None, ReceiptPolicy::Required) => {
                let message = "the persona demands receipts, and this server issues none: give it a key to sign with";
                Err(ProtocolError::new(ErrorCode::PolicyViolation, message))
            }
            (None, ReceiptPolicy::Optional | ReceiptPolicy::Disabled) => Ok(ReceiptNotes::default()),
            (Some(_), ReceiptPolicy::Disabled) => Ok(ReceiptNotes { off: true, ..ReceiptNotes::default() }),
            (Some(_), policy @ (ReceiptPolicy::Required | ReceiptPolicy::Optional)) => {
                let owed = policy == ReceiptPolicy::Required;
                Ok(ReceiptNotes { owed, tier: Some(spec.autonomy_tier), ..ReceiptNotes::default() })
            }
        }
    }

    /// The write that accepts `task` for `spec` with its first state, and the metadata of its invocation.
    async fn accept(
        &self,
        spec: &PersonaSpec,
        task: &Stored<Task>,
        (state, mut metadata): (Map, Map),
    ) -> Result<InvocationWrite, ProtocolError> {
        let tenant = Some(task.kept.tenant.clone());
        let task = &task.kept.resource;
        metadata.insert(WORKSPACE.to_owned(), task.workspace_id.as_str().into());
        let turn = FreshTurn {
            metadata,
            tenant,
            session_id: Some(task.session_id.as_str().into()),
            invocation_id: Some(task.envelope.id.as_str().into()),
            correlation_id: Some(task.envelope.id.to_string()),
            version: spec.version.clone(),
            ..FreshTurn::new(&spec.graph, state)
        };
        let paused = self.parts().harness.accept(turn).await.map_err(|error| refused("input", error))?;
        let again_at = paused.metadata.contains_key(queue::QUEUED).then(|| queue::looked_for_at(paused.suspended_at));
        Ok(InvocationWrite::Accept { paused: Box::new(paused), again_at })
    }
}

/// Stretches of `stream` that hold all of `positions`, which are in order.
pub(crate) fn stretches(stream: &str, positions: &[u64]) -> Vec<TranscriptSegment> {
    let mut found: Vec<TranscriptSegment> = Vec::new();
    for &position in positions {
        match found.last_mut() {
            Some(before) if before.last.is_some_and(|last| position - last <= NEAR) => before.last = Some(position),
            Some(_) | None => {
                found.push(TranscriptSegment { stream: stream.to_owned(), first: position, last: Some(position) });
            }
        }
    }
    found
}
