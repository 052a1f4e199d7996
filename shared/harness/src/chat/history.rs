use std::sync::Arc;

use dormouse_engine::{Carry, CompiledGraph, Reducer, State};
use dormouse_ports::Map;
use serde_json::Value;

use crate::outcome::TurnOutcome;

/// The state field that holds the conversation (§4).
pub const MESSAGES: &str = "messages";

/// Key under which a chat turn carries along how long its history was when it began, the user's message included.
pub const HISTORY_LENGTH: &str = "history_length";

/// Reason for which a turn of `graph` cannot be told as part of a conversation, if there is one: what a turn said is what stands
/// behind the messages before it (§4, §7).
pub fn unfit(graph: &CompiledGraph) -> Option<String> {
    let messages = graph.schema().fields().find(|(name, _)| ***name == *MESSAGES);
    let (Some(policy), Some((_, messages))) = (graph.sessions(), messages) else {
        return Some(format!("it needs a field `{MESSAGES}` and a session policy"));
    };
    if !policy.keeps(MESSAGES) {
        return Some(format!(
            "it has a field `{MESSAGES}`, and its sessions do not keep it, so that each message would begin anew: name the field \
             in the session policy"
        ));
    }
    (!matches!(messages.reducer, Reducer::Append)).then(|| {
        format!(
            "its field `{MESSAGES}` has the reducer {}, and what a turn says is known by its place behind the earlier messages: \
             give it the reducer append, and show a model the newest of them",
            messages.reducer.name()
        )
    })
}

/// True if `graph` leads a conversation.
pub fn converses(graph: &CompiledGraph) -> bool {
    graph.schema().declares(MESSAGES) && graph.sessions().is_some()
}

/// Data that a turn of `graph` keeps of its first state, however it begins.
pub(crate) fn carry_of(graph: &CompiledGraph) -> Option<Carry> {
    converses(graph).then(|| -> Carry { Arc::new(carry) })
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
