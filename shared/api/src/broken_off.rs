//! Calls of tools in whose midst a task is canceled: the run that made them records nothing any more.

use dormouse_ports::{EntryKind, JournalEntry, Map};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::resource::Task;
use serde::Deserialize;
use serde_json::Value;

use crate::change::SessionChange;
use crate::documents::Stored;
use crate::receipts::TaskTally;
use crate::recording::publish;

/// The field of a run's state with the calls of its step.
const CALLS: &str = "calls";
/// Field of entries about such calls: no run recorded them, and a replay does not make them.
pub(crate) const CANCELED: &str = "canceled";

/// A call as the state of an agent has it.
#[derive(Deserialize)]
struct PlannedCall {
    id: String,
    tool: String,
    origin: String,
    digest: String,
    effect: String,
    status: Standing,
}

/// What is to be done next about a call.
#[derive(Deserialize)]
struct Standing {
    is: String,
}

impl PlannedCall {
    /// Those of `state` that have no result. State of another shape has none.
    fn open_of(state: &Map) -> impl Iterator<Item = Self> {
        let calls = state.get(CALLS).and_then(Value::as_array).into_iter().flatten();
        calls.filter_map(|call| Self::deserialize(call).ok()).filter(|call| call.status.is != "answered")
    }

    /// True if it was not begun.
    fn is_unmade(&self) -> bool {
        // One that is safe runs as it is: whether it was begun is not written down before.
        self.status.is == "needs_approval" || (self.status.is == "ready" && self.effect != "safe")
    }

    /// What is recorded of it.
    fn entry(&self) -> JournalEntry {
        let entry = JournalEntry::new(EntryKind::ToolFailed)
            .with("tool_call_id", self.id.as_str())
            .with("tool", self.tool.as_str())
            .with("source", self.origin.as_str())
            .with("input_digest", self.digest.as_str())
            .with(CANCELED, true);
        match (self.is_unmade(), self.effect.as_str()) {
            (true, _) => entry.with("message", "the task was canceled before the call was made").with("made", false),
            (false, "safe") => entry.with("message", "the task was canceled in the midst of the call"),
            (false, _) => {
                let message =
                    "the task was canceled in the midst of the call: whether it has had its effect is not known";
                entry.with("message", message)
            }
        }
    }
}

/// Tells how the calls ended that the run of `task` has not recorded in `state`, and has the receipt tell of them.
///
/// # Errors
/// `internal_error` when it cannot be written.
pub(crate) fn break_off(
    change: &mut SessionChange,
    task: &mut Stored<Task>,
    state: &Map,
    tally: &mut TaskTally,
) -> Result<(), ProtocolError> {
    let entries: Vec<JournalEntry> = PlannedCall::open_of(state).map(|call| call.entry()).collect();
    tally.add_entries(&entries);
    publish(change, task, &entries)
}
