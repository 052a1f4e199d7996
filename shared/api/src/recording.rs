//! Records what happens to tasks, in the transactions in which it happens.

mod commit;
mod told;
mod writing;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{admit_answer, answer_under_way};
use dormouse_harness::WorkCall;
use dormouse_harness::chat::MESSAGES;
use dormouse_json::Items;
use dormouse_ports::{
    Category, Claim, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, DocumentWrite, EventBus, Hearing,
    InvocationId, InvocationRecord, InvocationStatus, InvocationWrite, Journal, JournalEntry, Map, PausedInvocation,
    Records, Resolution, Said, StepWritten, StoreError, SuspendFrom, TurnStore,
};
use dormouse_protocol::id::TaskId;
use dormouse_protocol::resource::{Message, Task, TaskStatus};
use dormouse_protocol::{ProtocolError, resource};
use jiff::Timestamp;

use crate::broken_off::break_off;
use crate::change::{By, SessionChange};
use crate::conversation::{heard_entry, joining};
use crate::documents::{Kept, Resource, Stored};
use crate::ending::{TaskEnd, end, say};
use crate::quotas;
use crate::receipts::{AnsweredApproval, RecentTallies, Recorded, TaskTally, note_approval};
use crate::recent::{RecentTask, RecentTasks};
use crate::refusal::unsigned;
use crate::tasks::stretches;
use crate::{AppendNotifier, Receipts, transcript};

pub(crate) use commit::task_called;
use commit::{ends, goes_on};
pub(crate) use told::publish;
use told::{TaskPause, messages_since, record, suspended, waiting};
use writing::WrittenAs;

/// Number of attempts at a commit that fails because another writer wrote to the session of its task.
pub(crate) const ATTEMPTS: u32 = 64;

/// After how many attempts there is a pause before each one, and how long it is.
const HASTY_ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// The most messages that one event batch publishes; the newest.
const MOST_SAID: usize = 50;

/// A [`TurnStore`] that adds to each commit of a task's invocation what is published to clients: the task's new status,
/// messages, artifact, outcome and events, and as events of the task what its nodes have [recorded]. A server demands
/// it: its engine is a [`RecordingEngine`](crate::RecordingEngine).
///
/// What a commit brings in a journal of its own is written as well. Only where that journal writes the document of the
/// task itself, its author publishes for the task, and nothing is added. Commits of other invocations pass through
/// without a read; what their nodes recorded is published to no client.
///
/// An invocation is a task when it has the id of one. When another writer writes to its session meanwhile, only the
/// publication is made again.
///
/// [recorded]: fn@dormouse_engine::record
#[derive(Clone)]
pub struct RecordingStore {
    store: TurnStore,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    notifier: AppendNotifier,
    recent: Arc<RecentTasks>,
    tallies: Arc<RecentTallies>,
    receipts: Option<Receipts>,
    bus: Option<Arc<dyn EventBus>>,
}

impl fmt::Debug for RecordingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordingStore")
    }
}

impl RecordingStore {
    /// Publishes what is committed to `store`; `records` reads its journals.
    pub fn new(store: impl Into<TurnStore>, records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store: store.into(),
            records,
            clock,
            notifier: AppendNotifier::default(),
            recent: Arc::default(),
            tallies: Arc::default(),
            receipts: None,
            bus: None,
        }
    }

    /// The same, which has `receipts` issue a receipt of each task that ends, and of each answer to a question for a
    /// permission.
    #[must_use]
    pub fn with_receipts(self, receipts: Option<Receipts>) -> Self {
        Self { receipts, ..self }
    }

    /// The same, which calls over `bus` for workers for what it accepts, deliveries of webhooks, and for the queued task
    /// that may begin because another one has ended or sleeps. Without it the sweep calls.
    #[must_use]
    pub fn calling(self, bus: Arc<dyn EventBus>) -> Self {
        Self { bus: Some(bus), ..self }
    }

    /// The reads of its journals.
    pub(crate) fn records(&self) -> &dyn Records {
        &*self.records
    }

    /// Issuer of receipts.
    pub(crate) fn receipts(&self) -> Option<&Receipts> {
        self.receipts.as_ref()
    }

    /// The same, which rings `notifier` for each stream that a commit appended to, and for its feed.
    #[must_use]
    pub fn with_notifier(self, notifier: AppendNotifier) -> Self {
        Self { notifier, ..self }
    }

    /// Waits before an attempt that follows several others.
    pub(crate) async fn rest_before(&self, attempt: u32) {
        if attempt >= HASTY_ATTEMPTS {
            self.clock.sleep(PAUSE).await;
        }
    }

    /// The time that it goes by.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        self.write_as(commit, WrittenAs::Commit).await.map(|_| ())
    }

    /// Calls for a worker for `invocation_id`. A call that is lost is made by the sweep.
    async fn call_for(&self, invocation_id: InvocationId) {
        let Some(bus) = &self.bus else { return };
        if let Err(error) = bus.publish(WorkCall::new(invocation_id.clone()).event()).await {
            tracing::warn!(%error, %invocation_id, "no worker could be called for accepted work; the next sweep calls one");
        }
    }

    /// The `R` called `id`, as it is stored.
    pub(crate) async fn find<R: Resource>(&self, id: &R::Id, now: Timestamp) -> Result<Option<Stored<R>>, StoreError> {
        Stored::load(&*self.records, id, now).await
    }

    /// The task, and a change of its session that no other writer has written to; `None` for what is no task, or has
    /// ended. What is `known` of it is not read.
    pub(crate) async fn open(
        &self,
        id: &TaskId,
        known: Option<RecentTask>,
        now: Timestamp,
    ) -> Result<Option<OpenedTask>, StoreError> {
        let Some(found) = self.look(id, known, now).await? else { return Ok(None) };
        self.opened(id, found, now)
    }

    /// The task, unless it has ended, and its session, unless that was erased.
    async fn look(
        &self,
        id: &TaskId,
        known: Option<RecentTask>,
        now: Timestamp,
    ) -> Result<Option<(Stored<Task>, Option<Stored<resource::Session>>)>, StoreError> {
        let (task, session) = match known {
            Some(RecentTask { document, session }) => (Some(Stored::read(document)?), Some(session)),
            None => (self.find::<Task>(id, now).await?, None),
        };
        let Some(task) = task.filter(|task| !task.kept.resource.status.is_terminal()) else { return Ok(None) };
        let session = match session {
            Some(session) => Some(session),
            None => self.find::<resource::Session>(&task.kept.resource.session_id, now).await?,
        };
        Ok(Some((task, session)))
    }

    fn opened(
        &self,
        id: &TaskId,
        (task, session): (Stored<Task>, Option<Stored<resource::Session>>),
        now: Timestamp,
    ) -> Result<Option<OpenedTask>, StoreError> {
        let session = session.ok_or_else(|| StoreError::Corrupt(format!("the session of {id} is not there")))?;
        let as_stored = task.write().map_err(corrupt)?;
        let Some(task) = task.known_to(&session) else { return Ok(None) };
        let persona = task.kept.resource.persona_id.as_ref();
        let by = By { actor: persona.map_or_else(String::new, ToString::to_string), key: None };
        let change = SessionChange::open(session, by, now).issuing(self.receipts.clone());
        Ok(Some(OpenedTask { task, change, as_stored }))
    }

    /// Publication of `commit`; `None` if there is none.
    ///
    /// # Errors
    /// [`CommitError::Said`] where something was said to the run that it may hear, and has not heard.
    async fn emit(
        &self,
        id: &TaskId,
        known: Option<RecentTask>,
        commit: &Commit,
    ) -> Result<Option<Emitted>, CommitError> {
        let is_canceled = matches!(commit.invocation, Some(InvocationWrite::Cancel { .. }));
        let is_known = known.is_some();
        let Some(found) = self.look(id, known, commit.now).await? else { return Ok(None) };
        if is_canceled && found.1.is_none() {
            // Its session was erased while it was submitted: nobody is left to be told.
            return Ok(None);
        }
        let Some(opened) = self.opened(id, found, commit.now)? else { return Ok(None) };
        let OpenedTask { mut task, mut change, as_stored } = opened;
        let Hearing { is_open, heard } = &commit.journal.hearing;
        if let Some(last) = heard.last() {
            change.thread_mut().heard(id, last.upto);
        }
        if *is_open && let Some(said) = self.said((id, task.kept.own.shows), &mut change).await? {
            return Err(CommitError::Said(Box::new(said)));
        }
        let recorded = commit.journal.recorded.as_ref().map_or(&[][..], |recorded| &recorded.entries);
        let entries: Cow<'_, [JournalEntry]> = match heard_entry(commit) {
            Some(entry) => [recorded, &[entry]].concat().into(),
            None => recorded.into(),
        };
        let entries = &*entries;
        if goes_on(commit) {
            self.note_untold_answer(&mut change, &mut task).await?;
        }
        let mut tally = self.tally(&task, ends(commit)).await?;
        if let Some(tally) = &mut tally {
            tally.add_entries(entries);
        }
        let told = match &commit.invocation {
            Some(InvocationWrite::Suspend { paused, from, claim, .. }) => {
                let before = match from {
                    SuspendFrom::Fresh => None,
                    SuspendFrom::Claimed { previous, .. } => Some(&**previous),
                };
                let pause = TaskPause { paused, before, works_on: claim.is_some() };
                let told = suspended(&mut change, &mut task, entries, pause);
                if let Some(claim) = claim {
                    change.note_answer(paused, &claim.payload);
                }
                told
            }
            Some(InvocationWrite::Complete { paused, state, .. }) => {
                record(&mut change, &mut task, entries).map_err(corrupt)?;
                quotas::used(&task.kept.own.quotas, entries).for_each(|write| change.count(write));
                let messages = state.get(MESSAGES).and_then(Items::of);
                let (said, conversation) = messages_since(&mut task, Some(paused), (messages, heard));
                let ending = TaskEnd::Completed { said, state, converses: conversation };
                end(&mut change, &mut task, ending, &tally.take().unwrap_or_default())
            }
            Some(InvocationWrite::Fail { paused, failure, .. } | InvocationWrite::PutAside { paused, failure, .. }) => {
                record(&mut change, &mut task, entries).map_err(corrupt)?;
                quotas::used(&task.kept.own.quotas, entries).for_each(|write| change.count(write));
                // What was put aside may be tried again, and keeps what it was given. A message that no model takes is not
                // given to the next one as well.
                let is_over = matches!(commit.invocation, Some(InvocationWrite::Fail { .. }));
                let is_saved = commit.session.as_ref().is_some_and(|session| session.save.is_some());
                if is_over && !is_saved && is_of_provider(&failure.category) {
                    change.thread_mut().not_kept(&task.kept);
                }
                let told = end(&mut change, &mut task, TaskEnd::Failed(failure), &tally.take().unwrap_or_default());
                change.note_state(paused.outermost_state());
                told
            }
            Some(InvocationWrite::Cancel { paused, cancellation }) => {
                let state = self.state_by_now(paused).await?;
                let ending = TaskEnd::Canceled { reason: cancellation.reason.as_deref() };
                let mut tally = tally.take().unwrap_or_default();
                let told = break_off(&mut change, &mut task, &state, &mut tally)
                    .and_then(|()| end(&mut change, &mut task, ending, &tally));
                change.note_state(&state);
                told
            }
            Some(InvocationWrite::Release { invocation_id, generation: 1.., .. }) => {
                let record = self.store.invocations.load_invocation(invocation_id).await?;
                match record.filter(|_| task.kept.resource.status == TaskStatus::Working) {
                    Some(record) => waiting(&mut change, &mut task, &record.paused),
                    None => return Ok(None),
                }
            }
            Some(InvocationWrite::Progress { paused, claim, .. }) => {
                if is_known && claim.is_some() {
                    // The worker goes on with it, and reports it with what comes, or who takes the task over does.
                    change.report_later(self.clock.now());
                }
                change.advance(&mut task, TaskStatus::Working, None, Map::new());
                record(&mut change, &mut task, entries).map_err(corrupt)?;
                quotas::stepped(&task.kept.own.quotas, entries).for_each(|write| change.count(write));
                let (said, _) = messages_since(&mut task, Some(paused), (paused.outermost_items(MESSAGES), heard));
                let said =
                    said.into_iter().try_for_each(|(role, parts)| say(&mut change, &task, role, parts).map(|_| ()));
                said.and_then(|()| change.put_task(&task))
            }
            Some(InvocationWrite::AssertClaimed { .. }) if !entries.is_empty() => {
                record(&mut change, &mut task, entries).map_err(corrupt)?;
                quotas::used(&task.kept.own.quotas, entries).for_each(|write| change.count(write));
                change.put_task(&task)
            }
            Some(
                InvocationWrite::Accept { .. }
                | InvocationWrite::Deliver { .. }
                | InvocationWrite::Release { .. }
                | InvocationWrite::AssertClaimed { .. }
                | InvocationWrite::Keep { .. }
                | InvocationWrite::Retry { .. }
                | InvocationWrite::Advance { .. }
                | InvocationWrite::Answer { .. }
                | InvocationWrite::CancelBeforeStart { .. }
                | InvocationWrite::Conclude { .. },
            )
            | None => return Ok(None),
        };
        told.map_err(corrupt)?;
        let freed = change.freed();
        change.sign_receipts().await.map_err(unsigned)?;
        let (session, journal) = change.close().map_err(corrupt)?;
        let recorded = task.kept.own.receipts.recorded;
        Ok(Some(Emitted { journal, as_stored, session, freed, recorded, tally }))
    }

    /// The outermost state of the invocation of `paused`, which is to be canceled, as it is now: a step of it may have ended
    /// since whoever cancels it read it. Of one that ends behind this the session has grown, so that all is told again.
    async fn state_by_now(&self, paused: &PausedInvocation) -> Result<Map, StoreError> {
        let record = match self.store.invocations.load_invocation(&paused.invocation_id).await {
            Err(StoreError::Corrupt(_)) => None,
            record => record?,
        };
        let newest = record.as_ref().map_or(paused, |record| &record.paused);
        Ok(newest.outermost_state().clone())
    }

    /// What was said to the run of the task `id`, and it has not heard; with its images, where its conversation `shows` them.
    async fn said(&self, (id, shows): (&TaskId, bool), change: &mut SessionChange) -> Result<Option<Said>, StoreError> {
        let positions = change.thread_mut().unheard_by(id);
        let Some(upto) = positions.iter().max().copied() else { return Ok(None) };
        let said = self.said_at(change, &positions).await?;
        let messages: Vec<_> = said.into_iter().map(|(_, message)| message).collect();
        let joins = joining(&messages, shows);
        if joins.is_empty() {
            // Nothing that a model could be told is left of them.
            change.thread_mut().heard(id, upto);
            return Ok(None);
        }
        let names = messages.iter().map(|message| message.envelope.id.to_string()).collect();
        Ok(Some(Said { names, upto, update: Map::from_iter([(MESSAGES.to_owned(), joins.into())]) }))
    }

    /// The messages at `positions`, which are in order, of the stream of the session of `change`, with their positions.
    pub(crate) async fn said_at(
        &self,
        change: &SessionChange,
        positions: &[u64],
    ) -> Result<Vec<(u64, Message)>, StoreError> {
        let missed = stretches(change.stream(), positions);
        let mut said = Vec::new();
        transcript::walk(&*self.records, &missed, &mut |(_, position), message| {
            if positions.contains(&position) {
                said.push((position, message));
            }
            true
        })
        .await
        .map_err(corrupt)?;
        Ok(said)
    }

    /// What the nodes of `task` have recorded so far, where receipts tell of it: read where this process has not seen all
    /// of it and the task `ends`, else unknown.
    async fn tally(&self, task: &Stored<Task>, ends: bool) -> Result<Option<TaskTally>, StoreError> {
        let Kept { resource, own, .. } = &task.kept;
        if self.receipts.is_none() || own.receipts.off {
            return Ok(None);
        }
        let id = &resource.envelope.id;
        match self.tallies.get(id, own.receipts.recorded) {
            None if ends => {
                let stream = resource.session_id.as_str();
                let recorded = Recorded { records: &*self.records, stream, first: own.first, task: id };
                TaskTally::read(recorded).await.map(Some)
            }
            known => Ok(known),
        }
    }

    /// Issues the receipt of the answer `payload` to `paused`, if that is one to a question for a permission.
    fn note_answer(
        &self,
        change: &mut SessionChange,
        task: &mut Stored<Task>,
        (paused, payload): (&PausedInvocation, &Map),
    ) -> Result<(), ProtocolError> {
        if paused.fan_in.is_some() || self.receipts.is_none() {
            return Ok(());
        }
        let signed = answer_under_way().filter(|answer| answer.payload == *payload);
        let actor = signed.as_ref().map(|answer| answer.by.as_str());
        note_approval(change, task, AnsweredApproval { paused, part: None, payload, actor }).map(|_| ())
    }

    /// The same, where the end of the wait of `task` could not be published when the answer came.
    async fn note_untold_answer(&self, change: &mut SessionChange, task: &mut Stored<Task>) -> Result<(), StoreError> {
        if !task.kept.resource.status.is_suspended() {
            return Ok(());
        }
        let id = InvocationId::from(task.kept.resource.envelope.id.as_str());
        let Some(record) = self.store.invocations.load_invocation(&id).await? else { return Ok(()) };
        match &record.status {
            InvocationStatus::Resuming(claim) => {
                if task.kept.resource.status == TaskStatus::AuthRequired {
                    self.note_answer(change, task, (&record.paused, &claim.payload)).map_err(corrupt)?;
                }
                change.advance(task, TaskStatus::Working, None, Map::new());
                change.note_answer(&record.paused, &claim.payload);
                Ok(())
            }
            InvocationStatus::Suspended
            | InvocationStatus::Accepted { .. }
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => Ok(()),
        }
    }

    /// Publishes that the wait of a task is over, as long as the claim holds: a late publication would be about a task
    /// that sleeps again. Publishing it matters less than that the task goes on.
    async fn emit_woken(
        &self,
        id: &TaskId,
        woken: &InvocationRecord,
        request: &ClaimRequest,
    ) -> Result<(), CommitError> {
        let generation = woken.paused.generation;
        // That of `request` does not count where one was there before.
        let InvocationStatus::Resuming(Claim { payload, .. }) = &woken.status else { return Ok(()) };
        let is_answer = woken.paused.fan_in.is_none() && Resolution::of(payload) == Resolution::Signalled;
        if is_answer && admit_answer(&woken.paused, payload.clone()).is_err() {
            // It is refused, and the task waits on.
            return Ok(());
        }
        let Some(opened) = self.open(id, None, request.now).await? else { return Ok(()) };
        let OpenedTask { mut task, mut change, .. } = opened;
        if !task.kept.resource.status.is_suspended() {
            return Ok(());
        }
        self.note_answer(&mut change, &mut task, (&woken.paused, payload)).map_err(corrupt)?;
        change.advance(&mut task, TaskStatus::Working, None, Map::new());
        change.note_answer(&woken.paused, payload);
        change.put_task(&task).map_err(corrupt)?;
        change.sign_receipts().await.map_err(unsigned)?;
        let journal = change.close().map_err(corrupt)?.1;
        let invocation_id = request.invocation_id.clone();
        let owner = request.owner.clone();
        let commit = Commit {
            invocation: Some(InvocationWrite::AssertClaimed { invocation_id, generation, owner }),
            journal,
            ..Commit::new(format!("{}-woken", request.owner), request.now)
        };
        self.write(&commit).await
    }
}

/// A task, and a change of its session that no other writer has written to.
pub(crate) struct OpenedTask {
    pub(crate) task: Stored<Task>,
    pub(crate) change: SessionChange,
    /// The document of the task, before what its session knows of it.
    as_stored: DocumentWrite,
}

/// Publication of a commit.
struct Emitted {
    journal: Journal,
    /// The document of the task as it was found.
    as_stored: DocumentWrite,
    /// The session as it is behind the commit.
    session: Stored<resource::Session>,
    /// The queued task that may begin from now on.
    freed: Option<TaskId>,
    /// Number of entries that the nodes have recorded by now.
    recorded: u64,
    /// Their tally, where it is known and goes on.
    tally: Option<TaskTally>,
}

pub(crate) fn corrupt(error: ProtocolError) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

impl From<RecordingStore> for TurnStore {
    fn from(recording: RecordingStore) -> Self {
        let store = recording.store.clone();
        Self { commits: Arc::new(recording), ..store }
    }
}

#[async_trait]
impl Commits for RecordingStore {
    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.publishing(commit, WrittenAs::Commit).await.map(|_| ())
    }

    async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        self.publishing(commit, WrittenAs::Step).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.in_turn(self.store.commits.claim(request).await?, request).await?;
        if let (ClaimOutcome::Granted(record), Some(_), Some(task)) =
            (&outcome, &request.payload, task_called(&request.invocation_id))
            && let Err(error) = self.emit_woken(&task, record, request).await
        {
            tracing::info!(
                %error, %task,
                "the event that the task goes on could not be written; it is written together with the outcome"
            );
        }
        Ok(outcome)
    }
}

/// True for a failure that lies with a model or its provider, and not with what the model was told.
fn is_of_provider(category: &Category) -> bool {
    matches!(
        category,
        Category::ProviderAuthentication
            | Category::ProviderUnavailable
            | Category::ProviderInvalidModel
            | Category::ProviderModelNotLoaded
            | Category::ProviderRateLimit
            | Category::ProviderInvalidResponse
    )
}
