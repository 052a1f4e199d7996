use std::sync::Arc;

use dormouse_engine::{Carry, CompiledGraph, State};
use dormouse_ports::Map;
use serde_json::Value;

use crate::outcome::TurnOutcome;

/// The state field that holds the conversation (§4).
pub const MESSAGES: &str = "messages";

/// Key under which a chat turn carries along how long its history was when it began, the user's message included.
pub const HISTORY_LENGTH: &str = "history_length";

/// True if turns of `graph` can be a conversation.
pub(super) fn is_chat(graph: &CompiledGraph) -> bool {
    graph.schema().declares(MESSAGES) && graph.sessions().is_some()
}

/// Data that a turn of `graph` keeps of its first state, however it begins.
pub(crate) fn carry_of(graph: &CompiledGraph) -> Option<Carry> {
    is_chat(graph).then(|| -> Carry { Arc::new(carry) })
}

/// Keeps how long the history is when the turn begins, the user's message included.
pub(super) fn carry(state: &State) -> Map {
    let length = state.get(MESSAGES).and_then(Value::as_array).map_or(0, Vec::len);
    Map::from_iter([(HISTORY_LENGTH.to_owned(), length.into())])
}

/// Number of messages in `state`.
pub(super) fn history_length(state: &Map) -> usize {
    state.get(MESSAGES).and_then(Value::as_array).map_or(0, Vec::len)
}

/// The history length that a turn carries along.
pub(super) fn carried_length(outcome: &TurnOutcome) -> usize {
    let carried = match outcome {
        TurnOutcome::Completed(turn) => &turn.carried,
        TurnOutcome::Suspended(turn) => &turn.carried,
        TurnOutcome::Errored(_) | TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => return 0,
    };
    let length = carried.get(HISTORY_LENGTH).and_then(Value::as_u64);
    length.and_then(|length| usize::try_from(length).ok()).unwrap_or_default()
}
