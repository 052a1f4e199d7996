//! Metadata that is added in the midst of an invocation, on spans that are open then (observability §3.4).

use crate::world::{Traced, attribute, compiled, schema, text, with_inner};
use dormouse_engine::{END, FanOut, GraphBuilder, Invocation, NodeError, State, Update, augment_metadata};
use dormouse_tests::map;
use opentelemetry_sdk::trace::SpanData;
use serde_json::json;

const ADDED: &str = "openarmature.user.product";

async fn adds(state: State) -> Result<Update, NodeError> {
    let product = format!("product {}", state.get("item").cloned().unwrap_or_default());
    augment_metadata(map(json!({ "product": product }))).unwrap();
    tokio::task::yield_now().await;
    Ok(Update::none())
}

#[tokio::test]
async fn in_one_serial_flow_it_is_on_everything_that_was_open_and_on_what_comes_later() {
    let traced = Traced::new();
    let inner = GraphBuilder::new("inner", schema()).entry("adds").function("adds", adds).edge("adds", END);
    traced.run(&with_inner(compiled(inner)), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[before sub[adds] after]"]);
    assert_eq!(attribute(&traced.span("before"), ADDED), None, "it had ended");
    for name in ["openarmature.invocation", "sub", "adds", "after"] {
        assert_eq!(text(&traced.span(name), ADDED), "product 0", "{name}");
    }
}

#[tokio::test]
async fn what_an_instance_adds_is_neither_on_its_siblings_nor_on_what_they_share() {
    let traced = Traced::new();
    let worker = GraphBuilder::new("worker", schema()).entry("adds").function("adds", adds).edge("adds", END);
    let each = FanOut::over(compiled(worker)).items("items", "item").collect("item", "log");
    let graph = GraphBuilder::new("g", schema()).entry("each").fan_out("each", each).edge("each", END);
    traced.run(&compiled(graph), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[each[each[adds] each[adds]]]"]);
    let spans = traced.telemetry.spans();
    let index = |span: &SpanData| text(span, "openarmature.node.fan_out_index");
    for (number, product) in [("0", "product 1"), ("1", "product 2")] {
        let own: Vec<_> = spans.iter().filter(|span| index(span) == number).map(|span| text(span, ADDED)).collect();
        assert_eq!(own, [product, product], "the node and its instance");
    }
    let shared: Vec<_> = spans.iter().filter(|span| index(span).is_empty()).collect();
    assert_eq!(shared.len(), 2, "the invocation and the node of the fan-out");
    assert!(shared.iter().all(|span| attribute(span, ADDED).is_none()));
}

#[tokio::test]
async fn a_caller_with_much_metadata_hides_no_outcome() {
    let traced = Traced::new();
    let metadata = (0..500).map(|number| (format!("key-{number:03}"), json!(number))).collect();
    let fails = |_: State| async { Err::<Update, _>(NodeError::new("no")) };
    let graph = GraphBuilder::new("g", schema()).entry("fails").function("fails", fails).edge("fails", END);
    traced.run(&compiled(graph), Invocation { metadata, ..Invocation::default() }).await.unwrap_err();
    for name in ["openarmature.invocation", "fails"] {
        let span = traced.span(name);
        assert_eq!(text(&span, "openarmature.error.category"), "node_exception", "{name}");
        assert_eq!(text(&span, "openarmature.user.key-000"), "0", "{name}");
    }
    assert_eq!(text(&traced.span("openarmature.invocation"), "openarmature.outcome"), "errored");
}
