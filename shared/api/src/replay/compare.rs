//! Where a run and its replay part.

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{JournalEntry, Map, PastEnd, PastEntry, RUN_MARK, ReplayMaterial, Unmarked};
use dormouse_protocol::event::redact;
use serde_json::Value;

use super::store::RunCommit;

/// Fields of entries that are no part of what a run came to: they tell how long something took, or in which word of its own a
/// provider said why it stopped. A replay has the answer without the provider.
pub const PASSING_FIELDS: [&str; 3] = ["duration_ms", "elapsed_ms", "stop_word"];
/// Fields of a state of a conversation that are no part of what a run came to: how long it worked, what its tools noted
/// for later, output that was not shown, how large its images are and which model refused them, how its last pause ended, of which a replay has none where the run slept for its
/// model, and what it knew of its session, which earlier versions did not keep.
const BESIDE: [&str; 12] = [
    "usage",
    "notes",
    "outputs",
    "image_bytes",
    "images_refused",
    "dormouse_resolution",
    "waiting",
    "unanswered",
    "last_agent",
    "agent_before",
    "takes_over",
    "measured",
];
/// Fields that earlier versions did not record.
const ADDED: [&str; 4] = ["source", "output_digest", "gen_ai.provider.name", "gen_ai.request.model"];
/// Fields of entries that earlier versions did not record: about outcomes that came later, from elsewhere, and about calls
/// that were not made since their run ended.
const NEW_ENTRIES: [&str; 2] = ["later", "given_up"];
/// The kind of entries about calls in doubt, and the field of those about what a person reported of one. Earlier versions did not
/// record the doubt that a dead worker left, and no report.
const TOOL_UNCERTAIN: &str = "vendor.dormouse.tool_uncertain";
const REPORTED: &str = "reported";
/// The kind of entries about what a person said of a call.
const TOOL_DECIDED: &str = "vendor.dormouse.tool_decided";
/// The kind of entries about hooks.
const HOOK_RUN: &str = "vendor.dormouse.hook_run";

/// The first place at which a replay differs from what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The recorded event at that place.
    pub(super) event_id: Option<String>,
    /// Difference, in words.
    pub(super) what: String,
    /// True if the replay only lacks what comes behind.
    pub(super) is_missing_end: bool,
}

impl Difference {
    pub(super) fn of_end(what: &str) -> Self {
        Self { event_id: None, what: what.to_owned(), is_missing_end: false }
    }
}

/// Compares what a replay recorded and came to with the recorded run.
pub(super) fn first_difference(
    material: &ReplayMaterial,
    written: &[RunCommit],
    state: &Option<Map>,
    converses: bool,
) -> Option<Difference> {
    // Earlier versions recorded nothing of some calls.
    let is_new = |kind: &str, payload: &Map| {
        kind == TOOL_DECIDED || NEW_ENTRIES.iter().any(|field| payload.contains_key(*field))
    };
    let knows_new = material.entries.iter().any(|past| is_new(&past.kind, &past.payload));
    let knows_doubts = material.entries.iter().any(|past| past.kind == TOOL_UNCERTAIN);
    let knows_reports = material.entries.iter().any(|past| past.payload.contains_key(REPORTED));
    let was_told = |entry: &&JournalEntry| {
        let (kind, payload) = (entry.kind.as_str(), &entry.payload);
        (knows_new || !is_new(kind, payload))
            && (knows_doubts || kind != TOOL_UNCERTAIN)
            && (knows_reports || !payload.contains_key(REPORTED))
    };
    let mut made = written.iter().flat_map(|written| &written.entries).filter(was_told);
    for past in &material.entries {
        let at = |what: String, is_missing_end| {
            Some(Difference { event_id: Some(past.event_id.clone()), what, is_missing_end })
        };
        match made.next() {
            Some(entry) if is_same(past, entry) => {}
            Some(entry) if entry.kind.as_str() == past.kind => {
                return at(format!("{} has another content", past.kind), false);
            }
            Some(entry) => return at(format!("{} in the place of {}", entry.kind, past.kind), false),
            None => return at(format!("{} is missing", past.kind), true),
        }
    }
    if let Some(entry) = made.next() {
        return Some(Difference::of_end(&format!("{} was not recorded then", entry.kind)));
    }
    match (state, &material.end) {
        (Some(state), PastEnd::Completed) => field_that_differs(&material.state, state, converses)
            .map(|field| Difference::of_end(&format!("`{field}` of the final state is another"))),
        (Some(_), PastEnd::Failed(_) | PastEnd::Canceled) | (None, _) => None,
    }
}

fn is_same(past: &PastEntry, made: &JournalEntry) -> bool {
    let mut made_payload = redact::object(made.payload.clone());
    made_payload.retain(|name, _| !ADDED.contains(&name.as_str()) || past.payload.contains_key(name));
    made.kind.as_str() == past.kind && lasting(&past.kind, &past.payload) == lasting(&past.kind, &made_payload)
}

/// The payload without what passes.
pub(super) fn lasting(kind: &str, payload: &Map) -> Map {
    let mut lasting = payload.clone();
    let passes = |name: &str| PASSING_FIELDS.contains(&name) || (kind == HOOK_RUN && name == "input_digest");
    lasting.retain(|name, _| !passes(name));
    if let Some(Value::Object(usage)) = lasting.get_mut("usage") {
        usage.shift_remove("active_ms");
    }
    lasting
}

fn field_that_differs(past: &Map, now: &Map, converses: bool) -> Option<String> {
    let matters = |name: &&String| !converses || !BESIDE.contains(&name.as_str());
    let names = past.keys().chain(now.keys()).filter(matters);
    names.into_iter().find(|name| !is_equal(name, past.get(*name), now.get(*name))).cloned()
}

/// True if a field is what it was. Messages of earlier versions do not name their run.
fn is_equal(name: &str, past: Option<&Value>, now: Option<&Value>) -> bool {
    let (Some(Value::Array(past)), Some(Value::Array(now))) = (past, now) else { return past == now };
    let is_same = |(past, now): (&Value, &Value)| match (past, now) {
        (Value::Object(fields), now) if name == MESSAGES && !fields.contains_key(RUN_MARK) => Unmarked(now).is(past),
        (past, now) => past == now,
    };
    past.len() == now.len() && past.iter().zip(now).all(is_same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_word_in_which_a_provider_stopped_is_no_part_of_what_a_run_came_to() {
        let span = |span: Value| span.as_object().cloned().unwrap_or_default();
        let past = span(json!({ "finish_reason": "stop", "stop_word": "end_turn", "duration_ms": 3 }));
        let now = span(json!({ "finish_reason": "stop", "duration_ms": 1 }));
        assert_eq!(lasting("span.completed", &past), lasting("span.completed", &now));
    }

    #[test]
    fn a_message_of_an_earlier_version_is_the_same_without_the_mark_of_its_run() {
        let call = json!({ "role": "assistant", "tool_calls": [{ "id": "1" }] });
        let mut marked = call.clone();
        marked[RUN_MARK] = "0a1b2c3d".into();
        let same = |name, past: &Value, now: &Value| is_equal(name, Some(&json!([past])), Some(&json!([now])));
        assert!(same(MESSAGES, &call, &marked));
        assert!(!same("notes", &call, &marked), "of messages alone");
        assert!(!same(MESSAGES, &marked, &call), "what was recorded is there");
        let mut other = marked.clone();
        other["tool_calls"] = json!([{ "id": "2" }]);
        assert!(!same(MESSAGES, &call, &other));
    }
}
