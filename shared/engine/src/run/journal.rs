//! Entries that the nodes of a run record, until they are committed.
//!
//! An entry counts when the node that recorded it has succeeded, as its update does: what a failed attempt recorded is
//! gone with it. Of a node that pauses, what it recorded before counts with the pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_ports::{
    Category, EntryKind, InvalidEntry, InvocationId, InvocationWrite, Journal, JournalEntry, Owner, RecordedEntries,
};

use super::cancellation::Watch;
use super::pause::PauseEntries;
use crate::{EngineError, NodeError, ambient};

/// Entries that completed nodes of one graph have recorded, in order.
#[derive(Default)]
pub(crate) struct EntryBuffer(Mutex<Vec<JournalEntry>>);

impl EntryBuffer {
    /// A node completed.
    pub(super) fn add(&self, recorded: Vec<JournalEntry>) -> Result<(), InvalidEntry> {
        if recorded.is_empty() {
            return Ok(());
        }
        let mut entries = self.lock();
        JournalEntry::check(entries.iter().chain(&recorded))?;
        entries.extend(recorded);
        Ok(())
    }

    /// Takes the entries of `kind` back.
    pub(super) fn retract(&self, kind: &EntryKind) {
        self.lock().retain(|entry| entry.kind != *kind);
    }

    pub(super) fn take(&self) -> Vec<JournalEntry> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JournalEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claim under which an invocation runs that others may take over.
#[derive(Clone)]
pub(crate) struct HeldClaim {
    pub(super) generation: u64,
    pub(super) owner: Owner,
}

/// Entries that the nodes of a run have recorded since its last commit.
pub(crate) struct RunJournal {
    invocation_id: InvocationId,
    claim: Mutex<Option<HeldClaim>>,
    /// Of the outermost graph.
    completed: Arc<EntryBuffer>,
    /// True if the next durable step keeps its worker.
    keeps_worker: AtomicBool,
}

impl RunJournal {
    pub(super) fn new(invocation_id: InvocationId, claim: Option<HeldClaim>) -> Self {
        Self {
            invocation_id,
            claim: Mutex::new(claim),
            completed: Arc::default(),
            keeps_worker: AtomicBool::new(false),
        }
    }

    /// Others may take the invocation over once `claim` has ended.
    pub(super) fn hold_on(&self, claim: HeldClaim) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
    }

    /// True once if a node has asked to keep its worker since the last durable step.
    pub(super) fn takes_keeping(&self) -> bool {
        self.keeps_worker.swap(false, Ordering::Relaxed)
    }

    pub(super) fn completed(&self) -> &Arc<EntryBuffer> {
        &self.completed
    }

    /// Journal of a commit that ends the turn, at the end of its graph or with an error.
    pub(super) fn at_end(&self) -> Journal {
        self.of(self.completed.lock().clone())
    }

    /// Journal of a commit that writes a pause in which `recorded` was recorded.
    pub(super) fn at_pause(&self, recorded: &PauseEntries) -> Result<Journal, EngineError> {
        let mut entries = self.completed.lock().clone();
        entries.extend(recorded.completed.iter().chain(&recorded.asking).cloned());
        JournalEntry::check(&entries).map_err(|error| too_much(&error))?;
        Ok(self.of(entries))
    }

    /// A journal of `entries`.
    fn of(&self, entries: Vec<JournalEntry>) -> Journal {
        let invocation_id = self.invocation_id.clone();
        let recorded = (!entries.is_empty()).then_some(RecordedEntries { invocation_id, entries });
        Journal { recorded, ..Journal::default() }
    }

    /// Condition that the claim still stands, where there is one: a worker that takes the invocation over begins its
    /// turn anew, and records anew.
    fn hold(&self) -> Option<InvocationWrite> {
        let claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let HeldClaim { generation, owner } = claim?;
        Some(InvocationWrite::AssertClaimed { invocation_id: self.invocation_id.clone(), generation, owner })
    }
}

/// The error of a node that has recorded too much.
pub(super) fn too_much(refused: &InvalidEntry) -> EngineError {
    EngineError::new(Category::LimitExceeded, refused.to_string())
}

/// Records an act of the node for the followers of the task: it is published in the transaction that writes the outcome
/// of the node (the next pause, save of the session or end of the turn), or never.
///
/// An entry counts when its node does. The entries of an attempt that failed, and is tried again perhaps, are gone; so
/// are those of a turn that was thrown away, since its worker died, or the turn is to be tried again. An entry that was
/// committed with [`save_session`](crate::save_session) stays, like the save itself. Of a node that pauses, the entries
/// recorded before are published with the pause; one that [runs again](crate::suspend_and_rerun) then records anew.
/// Parts of a node that ran side by side are published in their order, not in that of time. Checkpoints hold no
/// entries.
///
/// An invocation that is no task has no followers; its entries are checked, and not published. So are those of a task
/// that was put aside, and therefore has failed for its clients, when it is tried again.
///
/// # Errors
/// `limit_exceeded` for an entry that is [too large](dormouse_ports::limits::ENTRY), or one too many before a commit.
/// Outside of a node's own body, for example in middleware: a plain error.
///
/// ```
/// use dormouse_engine::{NodeError, State, Update, record};
/// use dormouse_ports::{EntryKind, JournalEntry};
///
/// async fn search(_state: State) -> Result<Update, NodeError> {
///     record(JournalEntry::new(EntryKind::ToolCompleted).with("tool", "search").with("hits", 3))?;
///     Ok(Update::none().with("hits", 3))
/// }
/// ```
pub fn record(entry: JournalEntry) -> Result<(), NodeError> {
    let recorded = ambient::change(|scope| {
        let body = scope.body.as_ref()?;
        let admitted = {
            let completed = body.journal.completed.lock();
            JournalEntry::admit(completed.iter().chain(&scope.recorded), &entry)
        };
        if admitted.is_ok() {
            scope.recorded.push(entry);
        }
        Some(admitted)
    });
    match recorded.flatten() {
        Some(admitted) => {
            admitted.map_err(|refused| NodeError::new(refused.to_string()).with_category(Category::LimitExceeded))
        }
        None => Err(NodeError::new("record() was called outside of a node")),
    }
}

/// Number of entries that are recorded and not committed yet, and their bytes of JSON; nothing outside of a node.
pub fn uncommitted() -> (usize, usize) {
    let look = |scope: &ambient::CallScope| {
        let sizes = |entries: &[JournalEntry]| entries.iter().map(JournalEntry::size).sum::<usize>();
        let completed = scope.body.as_ref().map(|body| body.journal.completed.lock());
        let before = completed.as_ref().map_or((0, 0), |entries| (entries.len(), sizes(entries)));
        (before.0 + scope.recorded.len(), before.1 + sizes(&scope.recorded))
    };
    ambient::look(look).unwrap_or_default()
}

/// Keeps the worker over the next durable step, although its time may be over: the node has prepared something that only
/// this process can go on with, and that is in doubt for any other. Outside of a node it does nothing.
pub fn keep_worker() {
    let keep = |scope: &ambient::CallScope| {
        if let Some(body) = &scope.body {
            body.journal.keeps_worker.store(true, Ordering::Relaxed);
        }
    };
    let _ = ambient::look(keep);
}

/// The part of a save in the midst of a run beside the session: all entries recorded before it. Until the outcome of
/// the save is known, it is open whether they were published: the run does not go on without it.
pub(super) struct SavedEntries {
    journal: Arc<RunJournal>,
    watch: Arc<Watch>,
    completed: Vec<JournalEntry>,
    own: Vec<JournalEntry>,
    under_way: bool,
}

impl SavedEntries {
    /// Takes what the node that runs here and those before it have recorded; `None` outside of a node.
    pub(super) fn take() -> Option<Self> {
        ambient::change(|scope| {
            let body = scope.body.as_ref()?;
            let journal = body.journal.clone();
            let watch = body.watch.clone();
            let completed = journal.completed.take();
            let own = std::mem::take(&mut scope.recorded);
            Some(Self { journal, watch, completed, own, under_way: false })
        })
        .flatten()
    }

    /// Journal to be written of them, and the condition that the claim is still the worker's, where there are some or the record
    /// of the session `lags` behind noted steps.
    pub(super) fn write(&mut self, lags: bool) -> (Journal, Option<InvocationWrite>) {
        let entries: Vec<_> = self.completed.iter().chain(&self.own).cloned().collect();
        self.under_way = !entries.is_empty();
        let hold = (self.under_way || lags).then(|| self.journal.hold()).flatten();
        (self.journal.of(entries), hold)
    }

    /// They were written.
    pub(super) fn written(mut self) {
        self.under_way = false;
    }

    /// They were not written, and cannot be any more: they are committed later.
    pub(super) fn give_back(mut self) {
        self.under_way = false;
        prepend(&mut self.journal.completed.lock(), &mut self.completed);
        // The save was requested by a node.
        let _ = ambient::change(|scope| prepend(&mut scope.recorded, &mut self.own));
    }
}

fn prepend(entries: &mut Vec<JournalEntry>, before: &mut Vec<JournalEntry>) {
    before.append(entries);
    std::mem::swap(entries, before);
}

impl Drop for SavedEntries {
    fn drop(&mut self) {
        if self.under_way {
            self.watch.note_doubt();
        }
    }
}
