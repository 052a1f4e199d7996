//! What is noted of a durable step, and records behind it.

use std::collections::BTreeMap;

use dormouse_ports::{InvocationId, InvocationRecord, Map, PausedInvocation, SharedMap, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a batch holds of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepNote {
    #[serde(rename = "id")]
    pub(super) invocation_id: InvocationId,
    /// Of the pause, without its state.
    #[serde(default, skip_serializing_if = "Change::is_empty")]
    pub(super) pause: Change,
    /// Of the state, without its growing lists.
    #[serde(default, skip_serializing_if = "Change::is_empty")]
    pub(super) state: Change,
    /// The growing lists that are longer than before: from where on, and what was added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) lists: BTreeMap<String, (usize, Vec<Value>)>,
    /// The fields of the state that its session keeps; as in the note before where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) saves: Option<Vec<String>>,
}

/// How an object has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Change {
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    set: Map,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<String>,
}

impl Change {
    pub(super) fn between(before: &Map, after: &Map) -> Self {
        let set = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        Self { set: set.map(|(name, value)| (name.clone(), value.clone())).collect(), gone: gone.cloned().collect() }
    }

    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.gone.is_empty()
    }

    fn apply(self, to: &mut Map) {
        to.retain(|name, _| !self.gone.contains(name));
        to.extend(self.set);
    }
}

impl StepNote {
    /// Makes its changes in a pause that is without its state, and in its state.
    fn apply(self, pause: &mut Map, state: &mut Map) -> Result<(), StoreError> {
        self.pause.apply(pause);
        self.state.apply(state);
        for (name, (from, items)) in self.lists {
            let list = state.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new()));
            match list.as_array_mut() {
                Some(list) if list.len() == from => list.extend(items),
                Some(_) | None => {
                    let reason = format!("a step was noted with a list {name} that does not fit the step before");
                    return Err(StoreError::Corrupt(reason));
                }
            }
        }
        Ok(())
    }
}

/// `paused` without its state, and without what a step leaves as it is beside it.
pub(super) fn without_state(paused: &PausedInvocation) -> Result<Map, StoreError> {
    let rest =
        PausedInvocation { state: SharedMap::default(), session_version: None, begun_for: None, ..paused.clone() };
    match serde_json::to_value(rest) {
        Ok(Value::Object(rest)) => Ok(rest),
        Ok(_) => Err(StoreError::Invalid("a pause is an object".to_owned())),
        Err(error) => Err(StoreError::Invalid(format!("cannot be stored: {error}"))),
    }
}

/// `record` behind `notes`, which are in order.
pub(super) fn with_notes(record: InvocationRecord, notes: Vec<StepNote>) -> Result<InvocationRecord, StoreError> {
    let InvocationRecord { status, mut paused, stored, .. } = record;
    let (begun_for, session_version) = (paused.begun_for.clone(), paused.session_version);
    let saved = std::mem::take(&mut paused.state);
    let mut state = saved.clone().into_map();
    let mut pause = without_state(&paused)?;
    for note in notes {
        note.apply(&mut pause, &mut state)?;
    }
    let pause = serde_json::from_value(Value::Object(pause));
    let pause: PausedInvocation =
        pause.map_err(|error| StoreError::Corrupt(format!("the steps that were noted: {error}")))?;
    let paused = PausedInvocation { state: state.into(), begun_for, session_version, ..pause };
    Ok(InvocationRecord { status, paused, stored, saved: Some(saved) })
}

#[cfg(test)]
mod tests {
    use dormouse_ports::InvocationStatus;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map {
        let Value::Object(object) = value else { panic!("{value} is no object") };
        object
    }

    fn record() -> InvocationRecord {
        let paused = PausedInvocation {
            state: object(json!({ "messages": ["a"], "count": 1, "draft": "b" })).into(),
            session_version: Some(3),
            begun_for: Some("acme".to_owned()),
            step: 6,
            ..PausedInvocation::before_first_pause("run_1".into(), "agent", Timestamp::UNIX_EPOCH)
        };
        InvocationRecord { status: InvocationStatus::Suspended, paused, stored: Vec::new(), saved: None }
    }

    /// A note of a step that has set this of the pause and of the state, and added to lists from there on.
    fn note(pause: Value, state: Value, lists: &[(&str, usize, &[&str])]) -> StepNote {
        let set = |value| Change { set: object(value), gone: Vec::new() };
        let added = |items: &[&str]| items.iter().map(|item| json!(item)).collect::<Vec<_>>();
        StepNote {
            invocation_id: "run_1".into(),
            pause: set(pause),
            state: set(state),
            lists: lists.iter().map(|(name, from, items)| ((*name).to_owned(), (*from, added(items)))).collect(),
            saves: None,
        }
    }

    #[test]
    fn a_change_makes_what_is_after_it_of_what_was_before() {
        let objects = [
            json!({}),
            json!({ "a": 1, "b": { "c": [1] } }),
            json!({ "b": { "c": [1, 2] }, "d": null }),
            json!({ "d": false, "a": 1 }),
        ]
        .map(object);
        for before in &objects {
            for after in &objects {
                let change = Change::between(before, after);
                assert_eq!(change.is_empty(), before == after, "{change:?}");
                let stored = serde_json::to_value(&change).expect("it can be stored");
                let read: Change = serde_json::from_value(stored).expect("it can be read");
                assert_eq!(read, change);
                let mut made = before.clone();
                read.apply(&mut made);
                assert_eq!(made, *after, "{change:?}");
            }
        }
        assert_eq!(Change::between(&objects[1], &objects[2]).set.keys().collect::<Vec<_>>(), ["b", "d"]);
        assert_eq!(Change::between(&objects[1], &objects[2]).gone, ["a"]);
    }

    #[test]
    fn a_record_is_told_behind_its_notes_with_what_its_session_was_saved_with() {
        let mut last = note(json!({ "step": 8 }), json!({ "count": 2 }), &[("messages", 3, &["d"]), ("calls", 0, &[])]);
        last.state.gone.push("draft".to_owned());
        let notes = vec![note(json!({ "step": 7 }), json!({}), &[("messages", 1, &["b", "c"])]), last];
        let behind = with_notes(record(), notes).expect("they fit");
        assert_eq!(behind.paused.state, object(json!({ "messages": ["a", "b", "c", "d"], "count": 2, "calls": [] })));
        assert_eq!(behind.saved, Some(record().paused.state));
        assert_eq!(behind.paused.step, 8);
        let PausedInvocation { session_version, begun_for, .. } = behind.paused;
        assert_eq!((session_version, begun_for.as_deref()), (Some(3), Some("acme")), "no step changes those");
    }

    #[test]
    fn notes_that_do_not_fit_the_record_are_not_taken() {
        let nothing = || json!({});
        for (note, reason) in [
            (note(nothing(), nothing(), &[("messages", 0, &["b"])]), "messages"),
            (note(nothing(), nothing(), &[("messages", 2, &["b"])]), "messages"),
            (note(nothing(), nothing(), &[("calls", 1, &["b"])]), "calls"),
            (note(nothing(), nothing(), &[("count", 0, &["b"])]), "count"),
            (note(json!({ "step": "seven" }), nothing(), &[]), "seven"),
        ] {
            let error = with_notes(record(), vec![note]).expect_err("it does not fit");
            assert!(matches!(&error, StoreError::Corrupt(told) if told.contains(reason)), "{error}");
        }
    }
}
