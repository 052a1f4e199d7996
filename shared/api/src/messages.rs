//! Messages of a session: its transcript.

use dormouse_ports::{InvocationId, InvocationWrite};
use dormouse_protocol::envelope::List;
use dormouse_protocol::event::Draft;
use dormouse_protocol::id::{MessageId, TaskId};
use dormouse_protocol::request::ListQuery;
use dormouse_protocol::resource::{AppendMessageRequest, Message, MessageInput, Role, Session, Task, TaskMessageKind};
use dormouse_protocol::{Envelope, ProtocolError, Scope};
use jiff::Timestamp;

use crate::answers::takes_no_word;
use crate::api::{Api, Change, by, found};
use crate::change::{NewMessage, SessionChange};
use crate::documents::{Stored, TaskStanding};
use crate::lists::Lists;
use crate::page::{fitting, scope};
use crate::reads::Reads;
use crate::refusal::{conflict, store};
use crate::transcript::{self, Spot};
use crate::{Actor, Call, CallAnswer, Proof};

/// Number of events that are looked at for one page of messages.
const LOOKED_AT: usize = 2_000;

impl Lists {
    /// The transcript, the oldest message first.
    pub(crate) async fn list_messages(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let session = self.reads.named::<Session>(call, "session_id").await?;
        let query = ListQuery::read(&call.query)?;
        let scope = scope(call, session.kept.resource.envelope.id.as_str());
        let position = self.position(call, &scope, query.cursor.as_deref())?;
        let after = match position.as_slice() {
            [stream, position] => position.parse().ok().map(|position| (stream.clone(), position)),
            _ => None,
        };
        let transcript = &session.kept.own.transcript;
        let bounds = (query.limit + 1, LOOKED_AT);
        let mut reading = transcript::read(self.reads.records(), transcript, after.as_ref(), bounds).await?;
        let fitting = fitting(reading.messages.iter().map(|(_, message)| message), query.limit)?;
        if reading.messages.len() > fitting {
            reading.messages.truncate(fitting);
            reading.upto = reading.messages.last().map(|(spot, _)| spot.clone());
        }
        let seal = |(stream, position): Spot| self.cursor(call, &scope, &[stream, position.to_string()]);
        let next = reading.upto.map(seal).transpose()?;
        found(&List::page(reading.messages.into_iter().map(|(_, message)| message).collect::<Vec<_>>(), next))
    }
}

impl Reads {
    /// The message of the event that its id leads to.
    pub(crate) async fn get_message(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let id = MessageId::from(call.params.get("message_id"));
        let not_found = || ProtocolError::not_found("message");
        let (stream, position) = id.place().ok_or_else(not_found)?;
        let owner = self.find::<Session>(&stream.into(), call.now).await?;
        owner.filter(|session| session.is_seen_by(&call.actor)).ok_or_else(not_found)?;
        let before = position.checked_sub(1).ok_or_else(not_found)?;
        let entries = self.records().entries(stream, before, 1).await.map_err(store)?;
        let entry = entries.into_iter().next().ok_or_else(not_found)?;
        let message = transcript::message_of(&transcript::event_of(entry.entry)?);
        found(&message.filter(|message| message.envelope.id == id).ok_or_else(not_found)?)
    }
}

impl Api {
    /// Appends to the transcript. Where exactly one task waits and the user's message holds what it waits for, that is
    /// its answer, if its sender may answer tasks; where its run rests since its model could not be asked, that goes on.
    pub(crate) async fn append_message(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: AppendMessageRequest = call.body.clone().decode()?;
        let session = self.reads.named::<Session>(call, "session_id").await?;
        if !session.kept.resource.state.is_open() {
            return Err(conflict("the session is closed"));
        }
        let waiting = match may_answer(&call.actor) {
            true => self.waiting(&session, &request.message, call).await?,
            false => None,
        };
        if let Some(task) = &waiting
            && let Some(change) = self.answer_if_it_fits(call, &session, task.clone(), &request.message).await?
        {
            return Ok(change);
        }
        let mut change = SessionChange::open(session, by(call), call.now);
        let said = NewMessage { message: unplaced(request.message, None, call.now), heard: false };
        let message = change.append_message(said, Draft::message_appended)?;
        let invocation = match waiting {
            Some(mut task) => self.end_rest(&mut change, &mut task).await?,
            None => None,
        };
        let work = match &invocation {
            Some(InvocationWrite::Deliver { invocation_id, .. }) => Some(invocation_id.clone()),
            Some(_) | None => None,
        };
        Ok(Change { invocation, work, ..Change::new(change.close()?.1, 201, &message)? })
    }

    /// The task that waits, if it is the only open one and the user speaks.
    async fn waiting(
        &self,
        session: &Stored<Session>,
        message: &MessageInput,
        call: &Call,
    ) -> Result<Option<Stored<Task>>, ProtocolError> {
        let mut open = session.kept.own.open.iter();
        match (open.next(), open.next(), message.role) {
            (Some((id, task)), None, Role::User) if task.standing() == TaskStanding::Waits => {
                let task = self.reads.find::<Task>(id, call.now).await?;
                Ok(task.filter(|task| !task.kept.resource.status.is_terminal()).and_then(|task| task.known_to(session)))
            }
            _ => Ok(None),
        }
    }

    /// The answer to what `task` waits for, if `message` is one. What a machine or an event brings is told by who names the
    /// task: data that somebody says in the session is no outcome of a tool.
    async fn answer_if_it_fits(
        &self,
        call: &Call,
        session: &Stored<Session>,
        task: Stored<Task>,
        message: &MessageInput,
    ) -> Result<Option<Change>, ProtocolError> {
        let id = InvocationId::from(task.kept.resource.envelope.id.as_str());
        let invocations = &self.parts().harness.engine().ports().store.invocations;
        let record = invocations.load_invocation(&id).await.map_err(store)?;
        if record.is_some_and(|record| takes_no_word(&record.paused)) {
            return Ok(None);
        }
        let kind = TaskMessageKind::Input;
        match self.answer(call, session.clone(), task, (kind, message.clone())).await {
            Ok(taken) => Ok(Some(taken.change)),
            Err(refusal) if refusal.status() < 500 => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// True if what `actor` says in a session may answer the task that waits there: that takes the right to write tasks, as at
/// the task itself. What a connector delivers is what whoever made it wants done.
fn may_answer(actor: &Actor) -> bool {
    actor.proof == Proof::Signature || actor.scopes.contains(&Scope::TasksWrite)
}

/// `input` as a message, before it has its id.
pub(crate) fn unplaced(input: MessageInput, task_id: Option<TaskId>, now: Timestamp) -> Message {
    let MessageInput { role, parts, metadata } = input;
    let envelope = Envelope::new(MessageId::new(""), now).with_metadata(metadata);
    Message { envelope, session_id: None, task_id, role, parts }
}
