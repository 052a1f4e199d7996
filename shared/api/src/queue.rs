//! The queue of a session: tasks that were submitted while another one worked.
//!
//! Its order stands at the end of the session's stream and is the same for every process. A queued task is accepted work
//! like any other, but a worker begins it only when it is the first and nothing else of the session works: that it begins
//! is written on the condition that no other writer has changed the session. Each end or sleep of a task calls for the
//! next; where the call is lost the sweep calls.
//!
//! What was said before and no run has kept a queued task is given when it begins, and its own message joins the transcript
//! behind that, all in the same commit: the transcript has the order in which tasks worked, and holds nothing of one that was
//! canceled while it waited.

use std::collections::{BTreeSet, VecDeque};

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, CommitError, InvocationId, InvocationRecord, InvocationStatus, InvocationWrite,
    Journal, Map, Records, StoreError, limits,
};
use dormouse_protocol::event::{Draft, redact};
use dormouse_protocol::id::TaskId;
use dormouse_protocol::resource::{
    Message, MessageInput, PartVisibility, ReorderQueueRequest, Session, SessionQueue, Task, TaskInput, TaskStatus,
};
use dormouse_protocol::{ErrorCode, List, ProtocolError};
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{ATTEMPTS as WRITES, Api, Change, by, found};
use crate::change::{By, NewMessage, SessionChange};
use crate::conversation::joining;
use crate::documents::{HEARD_AT_ONCE, OpenTask, SessionIndex, Stored, TaskStanding};
use crate::messages::unplaced;
use crate::reads::Reads;
use crate::recording::{ATTEMPTS, OpenedTask, RecordingStore, corrupt, task_called};
use crate::refusal::{busy, conflict, internal};
use crate::{Call, CallAnswer, transcript};

/// Time from a look at a queued task that may not begin to the next one, where nobody calls for it: it is called for when the
/// task before it has ended or sleeps.
const LOOKED_FOR: SignedDuration = SignedDuration::from_secs(30);

/// Number of queued tasks that are read at once, each of which may have much to do.
const READ_AT_ONCE: usize = 25;

/// Number of seconds after which a task may be sent again for which the queue has no room.
const SENT_AGAIN: u32 = 30;

/// Instant from which on a queued task is looked for that may not begin at `now`.
pub(crate) fn looked_for_at(now: Timestamp) -> Timestamp {
    now.saturating_add(LOOKED_FOR).unwrap_or(Timestamp::MAX)
}

/// Field of the metadata of an invocation whose task was queued when it was accepted.
pub(crate) const QUEUED: &str = "dormouse.queued";

/// The metadata of the invocation of a task that is queued.
pub(crate) fn marked() -> Map {
    Map::from_iter([(QUEUED.to_owned(), Value::Bool(true))])
}

impl SessionIndex {
    /// The queued task that may begin: the first, where nothing else works.
    pub(crate) fn ready(&self) -> Option<&TaskId> {
        self.queue.first().filter(|_| self.working().next().is_none())
    }

    /// The tasks that work.
    pub(crate) fn working(&self) -> impl Iterator<Item = &TaskId> {
        let queued: BTreeSet<&str> = self.queue.iter().map(TaskId::as_str).collect();
        let works = move |(id, task): &(&TaskId, &OpenTask)| {
            task.standing() == TaskStanding::Works && !queued.contains(id.as_str())
        };
        self.open.iter().filter(works).map(|(id, _)| id)
    }

    /// Checks that one more task may wait for its turn: each event of the session is written with the whole queue.
    ///
    /// # Errors
    /// `rate_limited` where as many wait as may.
    pub(crate) fn check_room(&self) -> Result<(), ProtocolError> {
        if self.queue.len() < limits::QUEUED {
            return Ok(());
        }
        let message = format!(
            "{} tasks of the session wait for their turn: send it when one of them has begun, or to another session",
            limits::QUEUED
        );
        let refusal = ProtocolError::new(ErrorCode::RateLimited, message).with_detail("limit", "queued_tasks");
        Err(refusal.retry_after(SENT_AGAIN))
    }

    /// Puts `task` before all others, if it is queued.
    pub(crate) fn put_first(&mut self, task: &TaskId) {
        if let Some(at) = self.queue.iter().position(|queued| queued == task) {
            self.queue[..=at].rotate_right(1);
        }
    }
}

impl RecordingStore {
    /// What a claim came to, of which a queued task is given back that may not begin yet.
    pub(crate) async fn in_turn(
        &self,
        outcome: ClaimOutcome,
        request: &ClaimRequest,
    ) -> Result<ClaimOutcome, StoreError> {
        match outcome {
            ClaimOutcome::Granted(record) if waits_for_its_turn(&record) => {
                let id = record.paused.invocation_id.clone();
                let begun = self.begin_in_turn(record, request).await;
                // Whoever is called next would wait until the time of a claim is over that nobody knows of. Where no attempt can
                // begin it, this one counts as one that came to no end: after some of them it is put aside.
                let may_begin = matches!(begun, Err(StoreError::Unavailable(_)));
                if may_begin && let Err(error) = self.give_back(&id, request).await {
                    tracing::warn!(%error, invocation_id = %id, "a claim was not given back; it ends with its time");
                }
                begun
            }
            ClaimOutcome::Granted(_)
            | ClaimOutcome::NotFound
            | ClaimOutcome::Held { .. }
            | ClaimOutcome::AwaitingMoreSignals(_)
            | ClaimOutcome::NotClaimable(_) => Ok(outcome),
        }
    }

    async fn begin_in_turn(
        &self,
        mut record: Box<InvocationRecord>,
        request: &ClaimRequest,
    ) -> Result<ClaimOutcome, StoreError> {
        let id = &record.paused.invocation_id;
        let Some(task) = task_called(id) else { return Ok(ClaimOutcome::Granted(record)) };
        for attempt in 0..ATTEMPTS {
            self.rest_before(attempt).await;
            let Some(opened) = self.open(&task, None, request.now).await? else {
                return Ok(ClaimOutcome::Granted(record));
            };
            let OpenedTask { mut task, mut change, .. } = opened;
            if task.kept.resource.status != TaskStatus::Submitted {
                let own = &task.kept.own;
                let mut late = if own.given_past { self.past_of(&change).await? } else { Vec::new() };
                late.extend(messages(self.said_at(&change, &own.given_late).await?));
                give_late(&mut record, (&late, own.shows));
                return Ok(ClaimOutcome::Granted(record));
            }
            if !change.is_ready(&task.kept.resource.envelope.id) {
                self.give_back(id, request).await?;
                return Ok(ClaimOutcome::Held { until: request.now });
            }
            let converses = converses(&record);
            let late = if converses { self.given_late(&mut task, &mut change).await? } else { Vec::new() };
            let journal = begun(&mut task, change, converses).map_err(corrupt)?;
            let commit = Commit { journal, ..self.of_claim(id, request, &format!("begun-{attempt}")) };
            match self.write(&commit).await {
                Ok(()) => {
                    give_late(&mut record, (&late, task.kept.own.shows));
                    return Ok(ClaimOutcome::Granted(record));
                }
                Err(CommitError::Journal(_)) => {}
                // It was canceled meanwhile.
                Err(CommitError::InvocationConflict) => return Ok(ClaimOutcome::NotClaimable(record)),
                Err(CommitError::Store(error)) => return Err(error),
                Err(error) => return Err(StoreError::Unavailable(error.to_string())),
            }
        }
        Err(StoreError::Unavailable(format!("other writers changed the session of {id} at every attempt to begin it")))
    }

    /// What `task` is given besides its own when its turn comes, which it and its session note.
    async fn given_late(
        &self,
        task: &mut Stored<Task>,
        change: &mut SessionChange,
    ) -> Result<Vec<Message>, StoreError> {
        let mut late = Vec::new();
        if change.thread().undelivered_from == Some(0) {
            late = self.past_of(change).await?;
            let own = self.own_of(change).await?;
            change.thread_mut().past_delivered(own);
            task.kept.own.given_past = true;
        }
        let said = self.not_kept(change).await?;
        task.kept.own.given_late = said.iter().map(|(position, _)| *position).collect();
        change.thread_mut().delivered_late(&task.kept.own.given_late);
        late.extend(messages(said));
        Ok(late)
    }

    /// The messages that the session of `change` has of the transcript of another one, the newest of them.
    async fn past_of(&self, change: &SessionChange) -> Result<Vec<Message>, StoreError> {
        let mut past = VecDeque::new();
        self.each_of(change, |stream| stream != change.stream(), &mut |_, message| {
            past.push_back(message);
            if past.len() > HEARD_AT_ONCE {
                past.pop_front();
            }
        })
        .await?;
        Ok(past.into())
    }

    /// Where the messages of its own stream are that no task which has not ended was given with its submission.
    async fn own_of(&self, change: &SessionChange) -> Result<Vec<u64>, StoreError> {
        let open = &change.thread().open;
        let mut own = Vec::new();
        self.each_of(change, |stream| stream == change.stream(), &mut |position, message| {
            if !message.task_id.as_ref().is_some_and(|task| open.contains_key(task)) {
                own.push(position);
            }
        })
        .await?;
        Ok(own)
    }

    /// Gives `take` the messages of the transcript of `change` in the streams that `are_meant`, with their positions.
    async fn each_of(
        &self,
        change: &SessionChange,
        are_meant: impl Fn(&str) -> bool,
        take: &mut (dyn FnMut(u64, Message) + Send),
    ) -> Result<(), StoreError> {
        let segments = change.thread().transcript.iter().filter(|segment| are_meant(&segment.stream)).cloned();
        let segments: Vec<_> = segments.collect();
        transcript::walk(self.records(), &segments, &mut |(_, position), message| {
            take(position, message);
            true
        })
        .await
        .map_err(corrupt)?;
        Ok(())
    }

    /// The messages that no run was given, or those that were have not kept, with their positions.
    async fn not_kept(&self, change: &SessionChange) -> Result<Vec<(u64, Message)>, StoreError> {
        let thread = change.thread();
        if thread.undelivered_from.is_some() {
            return Ok(Vec::new());
        }
        let awaited = thread.awaited();
        let free: Vec<u64> =
            thread.undelivered.iter().filter(|position| !awaited.contains(position)).copied().collect();
        self.said_at(change, &free).await
    }

    /// A commit that is true as long as the claim of `request` is.
    fn of_claim(&self, id: &InvocationId, request: &ClaimRequest, name: &str) -> Commit {
        let (invocation_id, owner) = (id.clone(), request.owner.clone());
        let invocation = Some(InvocationWrite::AssertClaimed { invocation_id, generation: 0, owner });
        Commit { invocation, ..Commit::new(format!("{}-{name}", request.owner), request.now) }
    }

    async fn give_back(&self, id: &InvocationId, request: &ClaimRequest) -> Result<(), StoreError> {
        let (invocation_id, owner) = (id.clone(), request.owner.clone());
        let again_at = Some(looked_for_at(request.now));
        let invocation = Some(InvocationWrite::Release { invocation_id, generation: 0, owner, again_at });
        match self.write(&Commit { invocation, ..self.of_claim(id, request, "not-yet") }).await {
            // It was canceled meanwhile.
            Ok(()) | Err(CommitError::InvocationConflict) => Ok(()),
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }
}

/// What the task of `record` waits for in the queue of its session: the task that works there, or else the one before it in
/// the queue. `None` for what may begin, for what is not queued, and where the session cannot be read: whoever looks for
/// what is wrong hears the rest.
pub async fn queued_behind(records: &dyn Records, record: &InvocationRecord, now: Timestamp) -> Option<TaskId> {
    let is_accepted = matches!(record.status, InvocationStatus::Accepted { .. });
    if !is_accepted || record.paused.has_begun() {
        return None;
    }
    let id = &record.paused.invocation_id;
    match before_in_queue(records, id, now).await {
        Ok(ahead) => ahead,
        Err(error) => {
            tracing::warn!(%error, invocation_id = %id, "the queue of the session cannot be read");
            None
        }
    }
}

/// The task that works in the session of the queued task with the invocation `id`, or else the one before it in the queue.
///
/// # Errors
/// If the store does not answer, or the task or its session cannot be read.
async fn before_in_queue(
    records: &dyn Records,
    id: &InvocationId,
    now: Timestamp,
) -> Result<Option<TaskId>, StoreError> {
    let Some(id) = task_called(id) else { return Ok(None) };
    let Some(task) = Stored::<Task>::load(records, &id, now).await? else { return Ok(None) };
    let session = Stored::<Session>::load(records, &task.kept.resource.session_id, now).await?;
    let Some(index) = session.map(|session| session.kept.own) else { return Ok(None) };
    let Some(position) = index.queue.iter().position(|queued| *queued == id) else { return Ok(None) };
    let before = position.checked_sub(1).and_then(|before| index.queue.get(before));
    Ok(index.working().next().or(before).cloned())
}

/// The input of a queued task that says `message`: as clients will see it, and without an id.
pub(crate) fn unsaid(message: &MessageInput) -> Map {
    let public = message.parts.iter().filter(|part| part.visibility() == PartVisibility::Public);
    let parts = redact::parts(&public.cloned().collect::<Vec<_>>());
    let metadata = redact::object(message.metadata.clone());
    let fields = [("role", json!(message.role)), ("parts", parts), ("metadata", Value::Object(metadata))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What is written where `task` begins, whose agent `converses` or not. A message that it was submitted with joins the
/// transcript.
fn begun(task: &mut Stored<Task>, mut change: SessionChange, converses: bool) -> Result<Journal, ProtocolError> {
    let is_said_now = std::mem::take(&mut task.kept.own.is_unsaid);
    if is_said_now && let TaskInput::Payload(said) = &task.kept.resource.input {
        let said = MessageInput::deserialize(said).map_err(|error| internal(&error))?;
        let message = unplaced(said, Some(task.kept.resource.envelope.id.clone()), change.now());
        if converses {
            task.kept.own.given.push(change.next());
        }
        let author = By { actor: task.kept.resource.created_by.clone(), key: None };
        let said = NewMessage { message, heard: true };
        let said = change.authored(author, |change| change.append_message(said, Draft::message_appended))?;
        task.kept.resource.input = TaskInput::Message(Box::new(said));
    }
    change.advance(task, TaskStatus::Working, None, Map::new());
    change.put_task(task)?;
    if is_said_now && !change.puts(&task.key()) {
        change.put(task)?;
    }
    Ok(change.close()?.1)
}

/// True for an invocation that begins with a conversation, which it keeps in its session.
fn converses(record: &InvocationRecord) -> bool {
    record.paused.session_id.is_some() && record.paused.state.get(MESSAGES).is_some_and(Value::is_array)
}

/// Puts `late` before what the invocation of `record`, which has not begun, begins with;
/// with their images, where its conversation `shows` them.
fn give_late(record: &mut InvocationRecord, (late, shows): (&[Message], bool)) {
    if let Some(Value::Array(messages)) = record.paused.state.get_mut(MESSAGES) {
        messages.splice(..0, joining(late, shows));
    }
}

/// Those messages, without their positions.
fn messages(said: Vec<(u64, Message)>) -> Vec<Message> {
    said.into_iter().map(|(_, message)| message).collect()
}

fn waits_for_its_turn(record: &InvocationRecord) -> bool {
    !record.paused.has_begun() && record.paused.metadata.get(QUEUED) == Some(&Value::Bool(true))
}

impl Reads {
    pub(crate) async fn get_queue(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let session = self.named::<Session>(call, "session_id").await?;
        found(&self.queue_of(call, &session).await?)
    }

    async fn queue_of(&self, call: &Call, session: &Stored<Session>) -> Result<SessionQueue, ProtocolError> {
        let index = &session.kept.own;
        let (mut data, mut room) = (Vec::new(), AnswerRoom::default());
        for some in index.queue.chunks(READ_AT_ONCE) {
            let tasks = try_join_all(some.iter().map(|id| self.find::<Task>(id, call.now))).await?;
            for task in tasks.into_iter().flatten().filter_map(|task| task.known_to(session)) {
                data.push(room.told(task.kept.resource)?);
            }
        }
        let session_id = session.kept.resource.envelope.id.clone();
        Ok(SessionQueue { session_id, working: index.working().cloned().collect(), data })
    }
}

/// What one answer tells of many tasks.
#[derive(Debug, Default)]
struct AnswerRoom {
    /// Bytes of the tasks that it tells whole.
    bytes: usize,
}

impl AnswerRoom {
    /// `task` as it is told: without its input and its metadata, where a page of bytes has no room for them.
    fn told(&mut self, mut task: Task) -> Result<Task, ProtocolError> {
        let bytes = dormouse_json::length(&task).map_err(|error| internal(&error))?;
        if self.bytes + bytes <= limits::PAGE {
            self.bytes += bytes;
            return Ok(task);
        }
        let help = format!("too large for one answer: ask for /v1/tasks/{}", task.envelope.id);
        let omitted = json!({ "bytes": bytes, "help": help });
        task.input = TaskInput::Payload(Map::from_iter([("omitted".to_owned(), omitted)]));
        task.envelope.metadata = Map::new();
        Ok(task)
    }
}

impl Api {
    /// Puts the queue in the order that the request names.
    pub(crate) async fn reorder_queue(&self, call: &Call) -> Result<Change, ProtocolError> {
        let ReorderQueueRequest { task_ids } = call.body.clone().decode()?;
        let mut session = self.reads.named::<Session>(call, "session_id").await?;
        let queue = session.kept.own.queue.clone();
        let named: BTreeSet<&TaskId> = task_ids.iter().collect();
        let is_same = task_ids.len() == queue.len() && queue.iter().all(|queued| named.contains(queued));
        if !is_same {
            let refusal = conflict("name each queued task once: the queue is another one by now");
            return Err(refusal.with_detail("queue", json!(queue)));
        }
        let mut change = SessionChange::open(session.clone(), by(call), call.now);
        session.kept.own.queue.clone_from(&task_ids);
        let answer = self.reads.queue_of(call, &session).await?;
        if queue == task_ids {
            return Change::nothing(200, &answer);
        }
        change.thread_mut().queue.clone_from(&task_ids);
        let draft = Draft::queue_changed(change.session(), &task_ids);
        change.emit_for_session(draft);
        let work = change.freed().map(|next| InvocationId::from(next.as_str()));
        let change = Change::new(change.close()?.1, 200, &answer)?;
        Ok(Change { work, ..change })
    }

    /// Cancels what is queued, from the end, so that nothing of it begins meanwhile; the answer are the tasks that it canceled.
    pub(crate) async fn empty_queue(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        if let Some(answer) = self.repetitions.repeated(call).await? {
            return Ok(answer);
        }
        let session = self.reads.named::<Session>(call, "session_id").await?;
        let (mut canceled, mut room) = (Vec::new(), AnswerRoom::default());
        for id in session.kept.own.queue.iter().rev() {
            let is_queued = |session: &Stored<Session>| session.kept.own.queue.contains(id);
            if let Some(task) = self.cancel_while(call, id, "the queue was emptied", is_queued).await? {
                canceled.push(room.told(Task::deserialize(task).map_err(|error| internal(&error))?)?);
            }
        }
        canceled.reverse();
        let answer = self.commit(call, Change::nothing(200, &List::page(canceled, None))?).await?;
        answer.ok_or_else(busy)
    }

    /// Cancels the task `id` as long as its session is one of which `may` tells so; what it has become.
    pub(crate) async fn cancel_while(
        &self,
        call: &Call,
        id: &TaskId,
        reason: &str,
        may: impl Fn(&Stored<Session>) -> bool + Send + Sync,
    ) -> Result<Option<Value>, ProtocolError> {
        let one = Call { idempotency_key: None, ..call.clone() };
        for _ in 0..WRITES {
            let task = self.reads.see::<Task>(call, id).await?;
            let session = self.reads.session_of(&task, call).await?;
            if !may(&session) {
                return Ok(None);
            }
            let change = match self.call_off(&one, task, Some(reason.to_owned())).await {
                Ok(change) => change,
                // It has ended in the meantime.
                Err(refusal) if refusal.code() == ErrorCode::Conflict => continue,
                Err(refusal) => return Err(refusal),
            };
            if let Some(CallAnswer::Json(_, task)) = self.commit(&one, change).await? {
                return Ok(Some(task));
            }
        }
        Err(busy())
    }
}
