#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::{
    AfterError, END, GraphBuilder, Invocation, LeaseTerms, MetadataError, NodeError, NodeEvent, Observer, Outcome,
    Phases, Projection, Resume, augment_metadata, current, suspend,
};
use dormouse_ports::{Category, Map, SignalDescriptor};
use dormouse_testkit::map;
use serde_json::{Value, json};

use super::cast::{compiled, down, retry, says, schema, watched};

fn visible() -> Value {
    Value::Object(current().unwrap().metadata.clone())
}

fn add(entries: Value) {
    augment_metadata(map(entries)).unwrap();
}

/// Notes which metadata is in scope at every event.
#[derive(Default)]
struct Sees(Mutex<Vec<(String, Value)>>);

#[async_trait]
impl Observer for Sees {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        self.0.lock().unwrap().push((format!("{} {}", event.phase.as_str(), event.node_name), visible()));
        Ok(())
    }
}

#[tokio::test]
async fn what_a_node_adds_is_seen_by_all_that_comes_later() {
    let stage = Stage::default();
    let sees = Arc::new(Sees::default());
    let inner = GraphBuilder::new("inner", schema())
        .entry("adds")
        .function("adds", |_| async {
            assert_eq!(visible(), json!({ "tenant": "t" }));
            add(json!({ "product": 7 }));
            Ok(says("x"))
        })
        .edge("adds", END);
    let graph = GraphBuilder::new("outer", schema())
        .entry("in")
        .subgraph("in", compiled(inner), Projection::by_name())
        .function("after", |_| async {
            assert_eq!(visible(), json!({ "tenant": "t", "product": 7 }));
            add(json!({ "tenant": "u" }));
            Ok(says("y"))
        })
        .edge("in", "after")
        .edge("after", END);
    let graph = compiled(graph);
    let call = Invocation {
        metadata: map(json!({ "tenant": "t" })),
        observers: vec![(sees.clone(), Phases::default())],
        ..Invocation::default()
    };
    stage.engine().invoke(&graph, call).await.unwrap();
    graph.drain(&*stage.clock, None).await;
    let expected = [
        ("started adds".to_owned(), json!({ "tenant": "t" })),
        ("completed adds".to_owned(), json!({ "tenant": "t", "product": 7 })),
        ("started after".to_owned(), json!({ "tenant": "t", "product": 7 })),
        ("completed after".to_owned(), json!({ "tenant": "u", "product": 7 })),
    ];
    assert_eq!(*sees.0.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_failed_attempt_takes_its_entries_with_it() {
    let stage = Stage::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let graph = GraphBuilder::new("g", schema())
        .entry("work")
        .function("work", move |_| {
            let note = note.clone();
            async move {
                let before = visible();
                let attempt = note.lock().unwrap().len();
                note.lock().unwrap().push(before);
                add(json!({ format!("attempt{attempt}"): true }));
                if attempt == 0 { Err(down("x")) } else { Ok(says("x")) }
            }
        })
        .function("after", |_| async {
            assert_eq!(visible(), json!({ "attempt1": true }));
            Ok(says("y"))
        })
        .wrap("work", Arc::new(retry(&stage, 2)))
        .edge("work", "after")
        .edge("after", END);
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    ended.unwrap();
    assert_eq!(*seen.lock().unwrap(), [json!({}), json!({})]);
    assert_eq!(told.lines()[..2], ["started work 0", "augmented {\"attempt0\":true}"]);
}

#[tokio::test]
async fn a_pause_keeps_what_was_added() {
    let stage = Stage::default();
    let graph = GraphBuilder::new("g", schema())
        .entry("ask")
        .function("ask", |_| async {
            add(json!({ "asked": "yes" }));
            Err(suspend(SignalDescriptor::new("s")).await)
        })
        .function("after", |_| async {
            assert_eq!(visible(), json!({ "asked": "yes" }));
            Ok(says("after"))
        })
        .edge("ask", "after")
        .edge("after", END);
    let graph = compiled(graph);
    let Outcome::Suspended(pause) = stage.engine().invoke(&graph, Invocation::default()).await.unwrap() else {
        panic!("it did not suspend")
    };
    let call = Resume {
        payload: Map::new(),
        generation: None,
        claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    };
    stage.engine().resume(&graph, &pause.invocation_id, call).await.unwrap();
}

#[tokio::test]
async fn reserved_names_and_nested_values_are_refused_at_every_door() {
    let stage = Stage::default();
    for (entry, reserved) in [
        (json!({ "openarmature.x": 1 }), true),
        (json!({ "gen_ai.system": "x" }), true),
        (json!({ "namespace": "x" }), true),
        (json!({ "good": 1, "bad": { "x": 1 } }), false),
        (json!({ "bad": null }), false),
        (json!({ "bad": [1, "x"] }), false),
        (json!({ "bad": [[1]] }), false),
    ] {
        let refused = augment_metadata(map(entry.clone())).unwrap_err();
        assert_eq!(matches!(refused, MetadataError::Reserved(_)), reserved, "{entry}");
        let graph = compiled(super::cast::single(super::cast::Flaky::default()));
        let call = Invocation { metadata: map(entry), ..Invocation::default() };
        let error = stage.engine().invoke(&graph, call.clone()).await.unwrap_err();
        assert_eq!(error.category(), &Category::RequestInvalid);
        let error = stage.engine().resume_checkpoint(&graph, &"any".into(), call).await.unwrap_err();
        assert_eq!(error.category(), &Category::RequestInvalid);
    }
    let fine = json!({ "text": "a", "number": 1.5, "flag": true, "list": ["a", "b"], "none": [], "namespaces": 1 });
    assert_eq!(augment_metadata(map(fine)), Ok(()), "outside of an invocation nothing happens");
}

#[tokio::test]
async fn an_invocation_inside_another_is_one_of_its_own() {
    let stage = Arc::new(Stage::default());
    let inner = GraphBuilder::new("inner", schema())
        .entry("work")
        .function("work", |_| async {
            assert_eq!((visible(), &*current().unwrap().correlation_id), (json!({}), "inner"));
            add(json!({ "x": 1 }));
            Ok(says("x"))
        })
        .edge("work", END);
    let engine = stage.engine();
    let inner = compiled(inner);
    let graph = GraphBuilder::new("outer", schema())
        .entry("calls")
        .function("calls", move |_| {
            let engine = engine.clone();
            let inner = inner.clone();
            async move {
                add(json!({ "outer": 1 }));
                let call = Invocation { correlation_id: Some("inner".into()), ..Invocation::default() };
                engine.invoke(&inner, call).await?;
                assert_eq!(visible(), json!({ "outer": 1 }));
                Ok(says("y"))
            }
        })
        .edge("calls", END);
    stage.engine().invoke(&compiled(graph), Invocation::default()).await.unwrap();
}
