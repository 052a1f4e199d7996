//! Tells of what happens to tasks, in the transactions in which it happens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_harness::chat::{HISTORY_LENGTH, MESSAGES};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, InvocationId, InvocationWrite, Journal, Map,
    PausedInvocation, Records, StateStore, StoreError, StoreLayer, SuspendFrom,
};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::TaskId;
use dormouse_protocol::resource::{Part, Role, Task, TaskStatus};
use dormouse_protocol::{ProtocolError, resource};
use jiff::Timestamp;
use serde_json::Value;

use crate::Bell;
use crate::answers::{question_of, request_of, status_of};
use crate::conversation::shown;
use crate::documents::Stored;
use crate::ending::{Ending, end, say};
use crate::ledger::{By, Ledger};

/// How often a commit is tried again because somebody else wrote to the session of its task.
const ATTEMPTS: u32 = 64;

/// After how many attempts there is a pause before each one, and how long it is.
const HASTY_ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// The most messages that one event batch tells of; the newest.
const MOST_SAID: usize = 50;

/// A [`StateStore`] that adds to each commit of a task's invocation what clients are told of it: the task's new status,
/// messages, artifact, outcome and events. To be given to engine and harness in the place of `store`. Commits of other
/// invocations, and those that bring a journal of their own, pass through without a read.
///
/// An invocation is a task when it has the id of one. When somebody else writes to its session meanwhile, only the
/// telling is done again.
#[derive(Clone)]
pub struct Chronicle {
    store: Arc<dyn StateStore>,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    bell: Bell,
}

impl fmt::Debug for Chronicle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chronicle")
    }
}

impl Chronicle {
    /// Tells of what is committed to `store`, whose journals `records` reads.
    pub fn new(store: Arc<dyn StateStore>, records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        Self { store, records, clock, bell: Bell::default() }
    }

    /// The same, which rings `bell` for each stream that a commit appended to.
    #[must_use]
    pub fn ringing(self, bell: Bell) -> Self {
        Self { bell, ..self }
    }

    async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        self.store.commit(commit).await?;
        commit.journal.appends.iter().for_each(|append| self.bell.ring(&append.stream));
        Ok(())
    }

    /// The task, and a ledger of its session that nobody has written to; `None` for what is no task, or has ended.
    async fn open(&self, id: &TaskId, now: Timestamp) -> Result<Option<(Stored<Task>, Ledger)>, StoreError> {
        let Some(task) = Stored::<Task>::load(&*self.records, id, now).await? else { return Ok(None) };
        if task.kept.resource.status.is_terminal() {
            return Ok(None);
        }
        let session = &task.kept.resource.session_id;
        let session = Stored::<resource::Session>::load(&*self.records, session, now).await?;
        let session = session.ok_or_else(|| StoreError::Corrupt(format!("the session of {id} is not there")))?;
        let persona = task.kept.resource.persona_id.as_ref();
        let by = By { actor: persona.map_or_else(String::new, ToString::to_string), key: None };
        Ok(Some((task, Ledger::open(session, by, now))))
    }

    /// What is to be told of `commit`; `None` if nothing is.
    async fn tell(&self, id: &TaskId, commit: &Commit) -> Result<Option<Journal>, StoreError> {
        let Some((mut task, mut ledger)) = self.open(id, commit.now).await? else { return Ok(None) };
        let told = match &commit.invocation {
            Some(InvocationWrite::Suspend { paused, from, claim, .. }) => {
                let before = match from {
                    SuspendFrom::Fresh => None,
                    SuspendFrom::Claimed { previous, .. } => Some(&**previous),
                };
                suspended(&mut ledger, &mut task, paused, before, claim.is_some())
            }
            Some(InvocationWrite::Complete { paused, state, .. }) => {
                let (said, conversation) = said_since(&mut task, Some(paused), state);
                let state = (!conversation).then_some(state);
                end(&mut ledger, &mut task, Ending::Completed { said, state })
            }
            Some(InvocationWrite::Fail { failure, .. } | InvocationWrite::PutAside { failure, .. }) => {
                end(&mut ledger, &mut task, Ending::Failed(failure))
            }
            Some(InvocationWrite::Cancel { cancellation, .. }) => {
                end(&mut ledger, &mut task, Ending::Canceled { reason: cancellation.reason.as_deref() })
            }
            Some(InvocationWrite::Release { invocation_id, generation: 1.., .. }) => {
                let record = self.store.load_invocation(invocation_id).await?;
                match record.filter(|_| task.kept.resource.status == TaskStatus::Working) {
                    Some(record) => waiting(&mut ledger, &mut task, &record.paused),
                    None => return Ok(None),
                }
            }
            Some(
                InvocationWrite::Accept { .. }
                | InvocationWrite::Deliver { .. }
                | InvocationWrite::Release { .. }
                | InvocationWrite::Hold { .. }
                | InvocationWrite::Keep { .. }
                | InvocationWrite::Retry { .. }
                | InvocationWrite::Advance { .. }
                | InvocationWrite::Answer { .. }
                | InvocationWrite::Forestall { .. }
                | InvocationWrite::Conclude { .. },
            )
            | None => return Ok(None),
        };
        told.and_then(|()| ledger.close()).map(|(_, journal)| Some(journal)).map_err(corrupt)
    }

    /// Tells that the wait of a task is over, as long as the claim holds: who tells it late would tell of a task that sleeps
    /// again. That it is told matters less than that it goes on.
    async fn tell_woken(&self, id: &TaskId, generation: u64, request: &ClaimRequest) -> Result<(), CommitError> {
        let Some((mut task, mut ledger)) = self.open(id, request.now).await? else { return Ok(()) };
        if !task.kept.resource.status.is_suspended() {
            return Ok(());
        }
        ledger.advance(&mut task, TaskStatus::Working, None, Map::new());
        let journal = ledger.put_task(&task).and_then(|()| ledger.close()).map_err(corrupt)?.1;
        let (invocation_id, owner) = (request.invocation_id.clone(), request.owner.clone());
        let commit = Commit {
            id: format!("{}-woken", request.owner),
            now: request.now,
            session: None,
            invocation: Some(InvocationWrite::Hold { invocation_id, generation, owner }),
            journal,
            growing: dormouse_ports::GrowingLists::default(),
        };
        self.write(&commit).await
    }
}

fn corrupt(error: ProtocolError) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// The id of the task that `invocation` is, by its form.
fn task_called(invocation: &InvocationId) -> Option<TaskId> {
    let rest = invocation.as_str().strip_prefix(TaskId::OBJECT)?;
    rest.starts_with('_').then(|| TaskId::from(invocation.as_str()))
}

/// The task that `commit` may move.
fn task_of(commit: &Commit) -> Option<TaskId> {
    if !commit.journal.is_empty() {
        return None;
    }
    match commit.invocation.as_ref()? {
        InvocationWrite::Suspend { paused, .. }
        | InvocationWrite::Complete { paused, .. }
        | InvocationWrite::Fail { paused, .. }
        | InvocationWrite::PutAside { paused, .. }
        | InvocationWrite::Cancel { paused, .. } => task_called(&paused.invocation_id),
        InvocationWrite::Release { invocation_id, .. } => task_called(invocation_id),
        InvocationWrite::Accept { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Advance { .. }
        | InvocationWrite::Answer { .. }
        | InvocationWrite::Forestall { .. }
        | InvocationWrite::Hold { .. }
        | InvocationWrite::Keep { .. }
        | InvocationWrite::Retry { .. }
        | InvocationWrite::Conclude { .. } => None,
    }
}

/// The task went to sleep, after the pause `before`. Where the signal was there already it works on.
fn suspended(
    ledger: &mut Ledger,
    task: &mut Stored<Task>,
    paused: &PausedInvocation,
    before: Option<&PausedInvocation>,
    works_on: bool,
) -> Result<(), ProtocolError> {
    // Nobody told when the wait before was over: it was while this turn ran.
    ledger.advance(task, TaskStatus::Working, None, Map::new());
    let (mut said, _) = said_since(task, before, paused.outermost_state());
    if said.is_empty() {
        said.extend(question_of(&paused.descriptor).map(|question| (Role::Agent, vec![Part::text(question)])));
    }
    for (role, parts) in said {
        say(ledger, task, role, parts)?;
    }
    if works_on { ledger.put_task(task) } else { waiting(ledger, task, paused) }
}

fn waiting(ledger: &mut Ledger, task: &mut Stored<Task>, paused: &PausedInvocation) -> Result<(), ProtocolError> {
    ledger.advance(task, status_of(&paused.descriptor), None, request_of(paused));
    ledger.put_task(task)
}

/// What the graph has said since its clients were told last, and whether it leads a conversation at all. At first that
/// is what it has said since the user did, which `before` knows.
fn said_since(
    task: &mut Stored<Task>,
    before: Option<&PausedInvocation>,
    state: &Map,
) -> (Vec<(Role, Vec<Part>)>, bool) {
    let began = before.and_then(|before| before.carried.get(HISTORY_LENGTH)).and_then(Value::as_u64);
    let messages = state.get(MESSAGES).and_then(Value::as_array);
    let (Some(began), Some(messages)) = (began, messages) else { return (Vec::new(), false) };
    let told = task.kept.own.told.replace(messages.len() as u64).unwrap_or(began);
    let new = usize::try_from(told).ok().and_then(|told| messages.get(told..)).unwrap_or_default();
    let newest = new.get(new.len().saturating_sub(MOST_SAID)..).unwrap_or_default();
    (newest.iter().filter_map(shown).collect(), true)
}

#[async_trait]
impl StoreLayer for Chronicle {
    fn below(&self) -> &dyn StateStore {
        &*self.store
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let Some(task) = task_of(commit) else { return self.write(commit).await };
        let mut told = commit.clone();
        for attempt in 0..ATTEMPTS {
            if attempt >= HASTY_ATTEMPTS {
                self.clock.sleep(PAUSE).await;
            }
            let Some(journal) = self.tell(&task, commit).await? else { return self.write(commit).await };
            told.journal = journal;
            // Another content is another commit: a store may answer a known id with what it said before.
            told.id = format!("{}-{attempt}", commit.id);
            match self.write(&told).await {
                Err(CommitError::Journal(_)) => {}
                done => return done,
            }
        }
        Err(CommitError::Store(StoreError::Unavailable(format!("others write to the session of {task} all the time"))))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.store.claim(request).await?;
        if let (ClaimOutcome::Granted(record), Some(_), Some(task)) =
            (&outcome, &request.payload, task_called(&request.invocation_id))
            && let Err(error) = self.tell_woken(&task, record.paused.generation, request).await
        {
            tracing::info!(%error, %task, "that the task goes on is told with what comes of it");
        }
        Ok(outcome)
    }
}
