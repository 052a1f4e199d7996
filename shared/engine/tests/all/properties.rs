//! Laws of the reducers, on arbitrary values.

use std::sync::Arc;

use crate::stage::Stage;
use dormouse_engine::{END, Field, FieldType, GraphBuilder, Invocation, Outcome, Reducer, State, StateSchema, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Merges `updates` one after the other into a field that starts as `prior`, each by a node of its own.
fn merged(reducer: Reducer, prior: Value, updates: Vec<Value>) -> Result<Value, String> {
    let schema = StateSchema::new().field("f", Field::new(FieldType::Any, prior).reduced_by(reducer));
    let mut graph = GraphBuilder::new("g", schema).entry("n0");
    let last = updates.len() - 1;
    for (index, update) in updates.into_iter().enumerate() {
        let node = move |_: State| futures::future::ready(Ok(Update::none().with("f", update.clone())));
        graph = graph.function(format!("n{index}"), node);
        graph = if index == last {
            graph.edge(format!("n{index}"), END)
        } else {
            graph.edge(format!("n{index}"), format!("n{}", index + 1))
        };
    }
    let graph = Arc::new(graph.compile().map_err(|error| error.to_string())?);
    let engine = Stage::default().engine();
    match futures::executor::block_on(engine.invoke(&graph, Invocation::default())) {
        Ok(Outcome::Completed(done)) => Ok(done.state.get("f").cloned().unwrap_or_default()),
        Ok(Outcome::Suspended(_)) => Err("it suspended".to_owned()),
        Err(error) => Err(error.category().to_string()),
    }
}

fn ints() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(0_i64..8, 0..8)
}

fn rows() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec((0_u8..4, any::<u8>()), 0..6)
}

fn records(rows: &[(u8, u8)]) -> Value {
    rows.iter().map(|(key, value)| json!({ "k": key, "v": value })).collect()
}

proptest! {
    #[test]
    fn append_keeps_everything_in_order(a in ints(), b in ints(), c in ints()) {
        let all = merged(Reducer::Append, json!(a), vec![json!(b), json!(c)]).unwrap();
        prop_assert_eq!(all, json!([a, b, c].concat()));
    }

    #[test]
    fn bounded_append_keeps_the_newest(a in ints(), b in ints(), max_len in 1_i64..6) {
        let all = merged(Reducer::BoundedAppend { max_len }, json!(a), vec![json!(b)]).unwrap();
        let joined = [a.clone(), b.clone()].concat();
        let most = if b.is_empty() { joined.len() } else { max_len as usize };
        prop_assert_eq!(all, json!(&joined[joined.len().saturating_sub(most)..]));
    }

    #[test]
    fn dedupe_append_adds_each_new_item_once(a in ints(), b in ints()) {
        let all = merged(Reducer::DedupeAppend { key: None }, json!(a), vec![json!(b)]).unwrap();
        let mut expected = a.clone();
        for item in b {
            if !expected.contains(&item) {
                expected.push(item);
            }
        }
        prop_assert_eq!(all, json!(expected));
    }

    #[test]
    fn dedupe_append_and_merge_by_key_change_nothing_the_second_time(a in rows(), b in rows()) {
        for reducer in [
            Reducer::DedupeAppend { key: Some(Reducer::key_field("k")) },
            Reducer::MergeByKey { key: Some(Reducer::key_field("k")) },
        ] {
            let once = merged(reducer.clone(), records(&a), vec![records(&b)]).unwrap();
            let twice = merged(reducer, records(&a), vec![records(&b), records(&b)]).unwrap();
            prop_assert_eq!(once, twice);
        }
    }

    #[test]
    fn merge_by_key_replaces_the_last_of_equals_and_keeps_order(a in rows(), b in rows()) {
        let all = merged(Reducer::MergeByKey { key: Some(Reducer::key_field("k")) }, records(&a), vec![records(&b)]).unwrap();
        let mut expected = a.clone();
        for (key, value) in b {
            match expected.iter().rposition(|(other, _)| *other == key) {
                Some(at) => expected[at] = (key, value),
                None => expected.push((key, value)),
            }
        }
        prop_assert_eq!(all, records(&expected));
    }

    #[test]
    fn no_reducer_guesses_from_a_wrong_shape(value in prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!(null))]) {
        for reducer in [
            Reducer::Append,
            Reducer::ConcatFlatten,
            Reducer::BoundedAppend { max_len: 2 },
            Reducer::DedupeAppend { key: None },
            Reducer::MergeByKey { key: Some(Reducer::key_field("k")) },
        ] {
            prop_assert_eq!(merged(reducer, json!([]), vec![value.clone()]).unwrap_err(), "reducer_error");
        }
        for reducer in [Reducer::Merge, Reducer::MergeAll] {
            prop_assert_eq!(merged(reducer, json!({}), vec![value.clone()]).unwrap_err(), "reducer_error");
        }
    }
}
