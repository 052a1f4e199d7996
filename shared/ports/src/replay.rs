//! What a run that has ended left behind, for running it again without anything outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

use crate::{FailureRecord, IdSource, Map};

/// An entry that a node of the run recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct PastEntry {
    /// Id of the event that it became.
    pub event_id: String,
    /// Its kind.
    pub kind: String,
    /// Its payload, as clients see it.
    pub payload: Map,
    /// What was recorded with it for replays alone ([`JournalEntry::material`](crate::JournalEntry::material)).
    pub material: Map,
}

/// An answer with which a pause of the run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct PastAnswer {
    /// Id of the event that recorded it.
    pub event_id: String,
    /// The node of the outermost graph that slept.
    pub node: String,
    /// The fields with which it went on.
    pub payload: Map,
    /// Instant at which it did.
    pub at: Timestamp,
}

/// End of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum PastEnd {
    /// It reached END.
    Completed,
    /// It failed.
    Failed(FailureRecord),
    /// It was canceled.
    Canceled,
}

/// The first piece that a replay needs and that was not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Its kind: those of overrides (`llm_provider_response`, `tool_result`, `host_fact`, `event_payload`), or `event`,
    /// `artifact`, `memory`, `receipt`.
    pub kind: &'static str,
    /// Its name: the key of the override that could stand for it.
    pub id: String,
    /// Reason why it is needed, or what is there instead.
    pub reason: String,
}

/// What a run left behind, and what is to stand in the place of some of it.
#[derive(Debug)]
pub struct ReplayMaterial {
    /// Instant at which it began.
    pub began: Timestamp,
    /// Entries that its nodes recorded, in order.
    pub entries: Vec<PastEntry>,
    /// What was recorded of calls in whose midst it was canceled, by whoever canceled it.
    pub broken_off: Vec<PastEntry>,
    /// The answers to its pauses, in order.
    pub answers: Vec<PastAnswer>,
    /// Its last state that is known.
    pub state: Map,
    /// End of the run.
    pub end: PastEnd,
    /// Replacements by their keys: `llm:main:2`, `tool:CALL`, `event:ID`, `time:started_at`.
    pub overrides: BTreeMap<String, Value>,
    unavailable: Mutex<Option<Unavailable>>,
    /// Number of answers that were given again, or passed over.
    answered: AtomicUsize,
}

impl ReplayMaterial {
    /// Material of a run that began at `began` and ended by `end`.
    pub fn new(began: Timestamp, state: Map, end: PastEnd) -> Self {
        Self {
            began,
            entries: Vec::new(),
            broken_off: Vec::new(),
            answers: Vec::new(),
            state,
            end,
            overrides: BTreeMap::new(),
            unavailable: Mutex::new(None),
            answered: AtomicUsize::new(0),
        }
    }

    /// True if nothing is replaced: each difference from what was recorded is a mistake then.
    pub fn is_exact(&self) -> bool {
        self.overrides.is_empty()
    }

    /// Notes that so many more of the [answers](Self::answers) were given again, or passed over.
    pub fn pass(&self, answers: usize) {
        self.answered.fetch_add(answers, Ordering::Relaxed);
    }

    /// The last answer that was given again, or passed over.
    pub fn last_passed(&self) -> Option<&PastAnswer> {
        self.answers.get(self.answered.load(Ordering::Relaxed).checked_sub(1)?)
    }

    /// True if no answer is left.
    pub fn has_passed_all(&self) -> bool {
        self.answered.load(Ordering::Relaxed) >= self.answers.len()
    }

    /// Notes that a piece is missing. The first one counts.
    pub fn lack(&self, kind: &'static str, id: impl Into<String>, reason: impl Into<String>) {
        let mut unavailable = self.unavailable.lock().unwrap_or_else(PoisonError::into_inner);
        unavailable.get_or_insert_with(|| Unavailable { kind, id: id.into(), reason: reason.into() });
    }

    /// The first piece that was missing, if any was.
    pub fn unavailable(&self) -> Option<Unavailable> {
        self.unavailable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Ids of a replay: numbers, the same each time. Those that the run had stand in what it recorded.
#[derive(Debug, Default)]
pub struct ReplayIds(AtomicU64);

impl IdSource for ReplayIds {
    fn fresh(&self) -> String {
        format!("replayed-{}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}
