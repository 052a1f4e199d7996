//! Sessions.
//!
//! - A session is the OpenArmature session of the same id, with its transcript and its stream of events.
//! - `state` follows from its tasks: `ACTIVE` while one works, `PAUSED` while all open ones wait, else `IDLE`.
//! - Closing lets open tasks go on and takes their answers; new messages, tasks, branches and truncations are refused.
//! - A fork refers to the messages of its parent up to a point, and begins its own stream. Its agent begins with the
//!   conversation of the parent's, cut at that point, and with what that has noted. Where the parent's agent has none it is
//!   given the transcript with its first task.
//! - A truncation hides the messages behind the first N. What the agent remembers of the conversation is cut there in
//!   the same transaction. While a task is open the session is locked.

use dormouse_ports::Document;
use dormouse_protocol::envelope::Object;
use dormouse_protocol::event::{Draft, EventKind};
use dormouse_protocol::id::{EventId, MessageId, SessionId, WorkspaceId};
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{
    Branch, CreateSessionRequest, ForkSessionRequest, Memory, MemoryContent, MessageInput, Part, Role, Session,
    SessionState, Transcript, TruncateSessionRequest, TruncateSessionResponse, UpdateSessionRequest, Vault,
};
use dormouse_protocol::{Envelope, ErrorCode, Identifier, ProtocolError};
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::api::{Api, Change, by, found};
use crate::change::{NewMessage, SessionChange};
use crate::deletion::place_write;
use crate::documents::{SessionIndex, Stored, TranscriptSegment};
use crate::lists::Lists;
use crate::messages::unplaced;
use crate::page::{Narrowed, PageSource};
use crate::reads::Reads;
use crate::refusal::{conflict, store};
use crate::remembered::Past;
use crate::transcript::{self, clip};
use crate::{Call, CallAnswer};

/// The event of a changed summary or changed metadata; the narrative has none.
const UPDATED: &str = "vendor.dormouse.session_updated";

/// The most vaults, memories and skills together that a session is created with.
const MOST_GIVEN: usize = 20;

impl Lists {
    pub(crate) async fn list_sessions(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, .. } = Filters::read(&call.query)?;
        let wanted = |session: &Stored<Session>| {
            let is_in = |workspace: &WorkspaceId| session.kept.resource.workspace_id == *workspace;
            workspace_id.as_ref().is_none_or(is_in)
        };
        let session = async |document| match Stored::<Session>::seen(document, &call.actor).filter(wanted) {
            Some(session) => {
                let tip = self.reads.records().tip(session.kept.resource.envelope.id.as_str()).await.map_err(store)?;
                Ok(session.with_end(tip).map_err(store)?.map(|session| session.kept.resource))
            }
            None => Ok(None),
        };
        let all = |documents: Vec<Document>| try_join_all(documents.into_iter().map(session)).boxed();
        let narrowed = Narrowed::to(None, workspace_id.as_ref());
        self.page_of(call, &[PageSource::list::<Session>(&call.actor.tenant, narrowed)], all).await
    }
}

impl Reads {
    pub(crate) async fn get_session(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.named::<Session>(call, "session_id").await?.kept.resource)
    }
}

impl Api {
    pub(crate) async fn create_session(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: CreateSessionRequest = call.body.clone().decode()?;
        let quotas = self.reads.quotas_of(call, &request.workspace_id).await?;
        if let Some(persona) = &request.persona_id {
            self.chosen_persona(call, Some(&request.workspace_id), Some(persona)).await?;
        }
        let memories = self.given(call, &request).await?;
        let id: SessionId = self.fresh(call.now);
        let session = Session {
            envelope: Envelope::new(id.clone(), call.now).with_metadata(request.metadata),
            workspace_id: request.workspace_id.clone(),
            state: SessionState::Idle,
            transcript: link(&id),
            persona_id: request.persona_id,
            root_session_id: None,
            parent_session_id: None,
            branch_id: None,
            last_event_id: None,
            summary: None,
            expires_at: None,
        };
        let thread = SessionIndex { transcript: vec![own(&id, 1)], quotas, ..SessionIndex::new() };
        let stored = Stored::new(&call.actor.tenant, Some(request.workspace_id), session, thread);
        let mut change = SessionChange::open(stored, by(call), call.now);
        let draft = Draft::session_created(change.session());
        change.emit_for_session(draft);
        for memory in memories {
            let session = change.session();
            let read = json!({"memory_id": memory.envelope.id, "scope": memory.scope, "owner_id": memory.owner_id});
            let draft = Draft::new(EventKind::AgentMemoryRead, memory.envelope.id.pointer(), read);
            let draft = draft.within(Some(&session.workspace_id), Some(&session.envelope.id), None);
            change.emit_new(draft);
            let said = NewMessage { message: unplaced(recalled(&memory), None, call.now), heard: false };
            change.append_message(said, Draft::message_appended)?;
        }
        for message in request.initial_messages {
            let said = NewMessage { message: unplaced(message, None, call.now), heard: false };
            change.append_message(said, Draft::message_appended)?;
        }
        let (session, mut journal) = change.close()?;
        journal.documents.push(place_write(&session.kept.resource.workspace_id));
        Change::new(journal, 201, &session.kept.resource)
    }

    /// The memories that the new session is given; vaults and skills that it names are looked at only.
    ///
    /// # Errors
    /// `resource_not_found` for what is not there, or not for the caller and the session's workspace.
    async fn given(&self, call: &Call, request: &CreateSessionRequest) -> Result<Vec<Memory>, ProtocolError> {
        let named = request.vault_ids.len() + request.memory_ids.len() + request.skill_ids.len();
        if named > MOST_GIVEN {
            let message = format!("a session is given at most {MOST_GIVEN} vaults, memories and skills");
            return Err(ProtocolError::invalid("memory_ids", message));
        }
        let is_here = |workspace: Option<&WorkspaceId>| workspace.is_none_or(|id| *id == request.workspace_id);
        for id in &request.vault_ids {
            let vault = self.reads.see::<Vault>(call, id).await?;
            if !is_here(vault.kept.workspace.as_ref()) {
                return Err(ProtocolError::not_found("vault"));
            }
        }
        for id in &request.skill_ids {
            self.skill_called(call, id).await?;
        }
        let mut memories = Vec::new();
        for id in &request.memory_ids {
            let memory = self.reads.remembered(call, id).await?;
            if !is_here(memory.kept.workspace.as_ref()) {
                return Err(ProtocolError::not_found("memory"));
            }
            memories.push(memory.kept.resource);
        }
        Ok(memories)
    }

    pub(crate) async fn update_session(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: UpdateSessionRequest = call.body.clone().decode()?;
        let mut change = SessionChange::open(self.reads.named(call, "session_id").await?, by(call), call.now);
        let changed: Vec<&str> = [("summary", request.summary.is_some()), ("metadata", request.metadata.is_some())]
            .into_iter()
            .filter_map(|(field, is_given)| is_given.then_some(field))
            .collect();
        if changed.is_empty() {
            return Change::nothing(200, change.session());
        }
        let draft =
            Draft::new(EventKind::from(UPDATED), change.session().envelope.id.pointer(), json!({"changed": changed}));
        let session = change.session_mut();
        session.summary = request.summary.unwrap_or_else(|| session.summary.take());
        session.envelope.metadata = request.metadata.unwrap_or_else(|| std::mem::take(&mut session.envelope.metadata));
        let draft = draft.within(Some(&session.workspace_id), Some(&session.envelope.id), None);
        change.emit_for_session(draft);
        let (session, journal) = change.close()?;
        Change::new(journal, 200, &session.kept.resource)
    }

    /// Closing what is closed changes nothing.
    pub(crate) async fn close_session(&self, call: &Call) -> Result<Change, ProtocolError> {
        let mut change = SessionChange::open(self.reads.named(call, "session_id").await?, by(call), call.now);
        if !change.session().state.is_open() {
            return Change::nothing(200, change.session());
        }
        change.session_mut().state = SessionState::Closed;
        let draft = Draft::session_closed(change.session());
        change.emit_for_session(draft);
        let (session, journal) = change.close()?;
        Change::new(journal, 200, &session.kept.resource)
    }

    pub(crate) async fn fork_session(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: ForkSessionRequest = call.body.clone().decode()?;
        let parent = self.reads.named::<Session>(call, "session_id").await?;
        if let Some(branch) = &request.branch_id {
            self.reads.see::<Branch>(call, branch).await?;
        }
        let (mut transcript, messages) = self.past(&parent, request.at_event_id.as_ref()).await?;
        let id: SessionId = self.fresh(call.now);
        transcript.push(own(&id, 1));
        let known = self.remembered_of(&parent).await?;
        let undelivered_from = (messages > 0 && known.is_none()).then_some(0);
        let known = match known {
            Some(known) => {
                // All of it is taken over as it is.
                let is_whole = request.at_event_id.is_none() && parent.kept.own.is_at_rest();
                let told = if is_whole { Vec::new() } else { self.told(&parent, true).await? };
                let past = Past { told: &told, stay: usize::try_from(messages).unwrap_or(usize::MAX) };
                Some(known.cut(&past).anew(id.as_str()))
            }
            None => None,
        };
        let quotas = parent.kept.own.quotas.clone();
        let thread = SessionIndex { transcript, messages, undelivered_from, quotas, ..SessionIndex::new() };
        let origin = &parent.kept.resource;
        let session = Session {
            envelope: Envelope::new(id.clone(), call.now).with_metadata(request.metadata),
            workspace_id: origin.workspace_id.clone(),
            state: SessionState::Idle,
            transcript: link(&id),
            persona_id: origin.persona_id.clone(),
            root_session_id: origin.root_session_id.clone().or_else(|| Some(origin.envelope.id.clone())),
            parent_session_id: Some(origin.envelope.id.clone()),
            branch_id: request.branch_id.or_else(|| origin.branch_id.clone()),
            last_event_id: None,
            summary: None,
            expires_at: None,
        };
        let workspace = Some(session.workspace_id.clone());
        let mut fork =
            SessionChange::open(Stored::new(&call.actor.tenant, workspace, session, thread), by(call), call.now);
        let draft = Draft::session_created(fork.session());
        fork.emit_for_session(draft);
        let mut parent = SessionChange::open(parent, by(call), call.now);
        let draft = Draft::session_forked(parent.session(), &id, request.at_event_id.as_ref());
        parent.emit_for_session(draft);
        let (session, mut journal) = fork.close()?;
        let (_, told) = parent.close()?;
        journal.documents.extend(told.documents);
        journal.appends.extend(told.appends);
        journal.documents.push(place_write(&session.kept.resource.workspace_id));
        Ok(Change { session: known, ..Change::new(journal, 201, &session.kept.resource)? })
    }

    /// Transcript that a fork of `session` takes over: all of it, or that up to `at`; and the number of its messages.
    async fn past(
        &self,
        session: &Stored<Session>,
        at: Option<&EventId>,
    ) -> Result<(Vec<TranscriptSegment>, u64), ProtocolError> {
        let thread = &session.kept.own;
        let stream = session.kept.resource.envelope.id.as_str();
        let Some(at) = at else {
            let whole = clip(&thread.transcript, (stream, thread.position)).unwrap_or_default();
            return Ok((whole, thread.messages));
        };
        let unknown = || ProtocolError::invalid("at_event_id", "expected an event of the session");
        let (of, position) = at.place().ok_or_else(unknown)?;
        if of == stream && position > thread.position {
            return Err(unknown());
        }
        // What was cut off shows no more: of an event before that all stays that stands before its own stream.
        let inherited = || {
            let before = thread.transcript.iter().take_while(|segment| segment.stream != stream);
            before.cloned().collect::<Vec<_>>()
        };
        let of_own = || (of == stream && position > 0).then(inherited);
        let past = clip(&thread.transcript, (of, position)).or_else(of_own).ok_or_else(unknown)?;
        let mut count = 0;
        transcript::walk(self.reads.records(), &past, &mut |_, _| {
            count += 1;
            true
        })
        .await?;
        Ok((past, count))
    }

    pub(crate) async fn truncate_session(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: TruncateSessionRequest = call.body.clone().decode()?;
        let stored = self.reads.named::<Session>(call, "session_id").await?;
        if !stored.kept.resource.state.is_open() {
            return Err(conflict("the session is closed"));
        }
        if !stored.kept.own.open.is_empty() {
            return Err(ProtocolError::new(ErrorCode::ResourceLocked, "a task of the session has not ended"));
        }
        let id = stored.kept.resource.envelope.id.clone();
        let kept = request.keep_first.min(stored.kept.own.messages);
        let before = stored.kept.own.messages;
        let answer = |tip: Option<MessageId>, session: &Session| TruncateSessionResponse {
            object: Object::new(),
            session_id: id.clone(),
            kept_turn_count: kept,
            removed_turn_count: before - kept,
            new_tip_turn_id: tip,
            session: session.clone(),
        };
        if kept == before {
            let own = &stored.kept.own;
            let last = transcript::last(self.reads.records(), &own.transcript, own.position).await?;
            return Change::nothing(200, &answer(last.map(|message| message.envelope.id), &stored.kept.resource));
        }
        let known = self.remembered_of(&stored).await?;
        let told = self.told(&stored, known.is_some()).await?;
        let stay = usize::try_from(kept).unwrap_or(usize::MAX);
        let tip = told.iter().take(stay).next_back();
        let spot = tip.map(|told| told.spot.clone());
        let tip = tip.map(|told| told.id.clone());
        let known = known.map(|known| known.cut(&Past { told: &told, stay }));
        let mut change = SessionChange::open(stored, by(call), call.now);
        let next = change.next();
        let thread = change.thread_mut();
        let clipped = spot.and_then(|(stream, position)| clip(&thread.transcript, (&stream, position)));
        thread.transcript = clipped.unwrap_or_default();
        thread.transcript.push(own(&id, next));
        thread.messages = kept;
        thread.delivered_but((kept > 0 && known.is_none()).then_some(0));
        let draft = Draft::session_truncated(change.session(), kept, before - kept, request.reason.as_deref());
        change.emit_for_session(draft);
        let (session, journal) = change.close()?;
        Ok(Change {
            session: known.map(|known| known.again(id.as_str())),
            ..Change::new(journal, 200, &answer(tip, &session.kept.resource))?
        })
    }
}

/// What `memory` says, as the first words of a session.
fn recalled(memory: &Memory) -> MessageInput {
    let part = match &memory.content {
        MemoryContent::Text(text) => Part::text(text.clone()),
        MemoryContent::Object(object) => Part::json(Value::Object(object.clone())),
    };
    let metadata = [("memory_id".to_owned(), json!(memory.envelope.id))].into_iter().collect();
    MessageInput { role: Role::System, parts: vec![part], metadata }
}

/// Address at which the messages of the session are listed.
fn link(id: &SessionId) -> Transcript {
    Transcript::Link(format!("/v1/sessions/{id}/messages"))
}

/// The stretch of its own stream, from `first` on.
fn own(id: &SessionId, first: u64) -> TranscriptSegment {
    TranscriptSegment { stream: id.to_string(), first, last: None }
}
