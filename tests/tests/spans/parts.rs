//! Spans of fan-outs and parallel branches.

use std::sync::Arc;

use crate::world::{Traced, attribute, compiled, line, says, schema, text};
use async_trait::async_trait;
use dormouse_engine::{
    Amount, Branch, CompiledGraph, END, ErrorPolicy, FanOut, Field, FieldType, GraphBuilder, Invocation, Node,
    NodeError, ParallelBranches, Projection, State, StateSchema, Update,
};
use dormouse_otel::Detached;
use opentelemetry::Value as Attribute;
use serde_json::Value;

fn worker() -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("item", Field::new(FieldType::Int, 0));
    let work = |state: State| async move {
        for _ in 0..state.get("item").and_then(Value::as_u64).unwrap_or_default() {
            tokio::task::yield_now().await;
        }
        tracing::info!("working");
        Ok(Update::none())
    };
    compiled(GraphBuilder::new("worker", schema).entry("work").function("work", work).edge("work", END))
}

fn fan_out(graph: Arc<CompiledGraph>) -> FanOut {
    FanOut::over(graph).items("items", "item").collect("item", "log").concurrency(Some(Amount::Fixed(2)))
}

#[tokio::test]
async fn instances_are_spans_between_the_fan_out_and_their_nodes() {
    let traced = Traced::new();
    let each = fan_out(worker()).error_policy(ErrorPolicy::Collect);
    let graph = GraphBuilder::new("g", schema()).entry("each").fan_out("each", each).edge("each", END);
    traced.run(&compiled(graph), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[each[each[work] each[work]]]"]);
    let spans = traced.telemetry.spans();
    let node = spans.iter().find(|span| attribute(span, "openarmature.fan_out.item_count").is_some()).unwrap();
    assert_eq!(attribute(node, "openarmature.fan_out.item_count"), Some(Attribute::I64(2)));
    assert_eq!(attribute(node, "openarmature.fan_out.concurrency"), Some(Attribute::I64(2)));
    assert_eq!(text(node, "openarmature.fan_out.error_policy"), "collect");
    for instance in spans.iter().filter(|span| span.parent_span_id == node.span_context.span_id()) {
        assert_eq!(text(instance, "openarmature.fan_out.parent_node_name"), "each");
        let work = spans.iter().find(|span| span.parent_span_id == instance.span_context.span_id()).unwrap();
        let index = "openarmature.node.fan_out_index";
        assert_eq!(attribute(work, index), attribute(instance, index));
    }
}

#[tokio::test]
async fn fan_outs_inside_of_instances_do_not_mix() {
    let traced = Traced::new();
    let inner = GraphBuilder::new("inner", schema()).entry("each").fan_out("each", fan_out(worker())).edge("each", END);
    let outer = GraphBuilder::new("outer", schema()).entry("all").fan_out("all", fan_out(compiled(inner)));
    traced.run(&compiled(outer.edge("all", END)), Invocation::default()).await.unwrap();
    let instance = "all[each[each[work] each[work]]]";
    assert_eq!(traced.trees(), [format!("invocation[all[{instance} {instance}]]")]);
}

fn call(work: impl Node + 'static) -> Branch {
    Branch::call(Arc::new(work))
}

#[derive(Clone, Copy)]
struct Says(&'static str);

#[async_trait]
impl Node for Says {
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        says(self.0)(state).await
    }
}

#[tokio::test]
async fn branches_are_spans_of_their_own_name_and_end_in_declared_order() {
    let traced = Traced::new();
    let slow = compiled(line("slow"));
    let branches = ParallelBranches::new()
        .branch("slow", Branch::subgraph(slow, Projection::by_name()))
        .branch("a", Branch::subgraph(worker(), Projection::by_name()))
        .branch("plain", call(Says("plain")))
        .branch("never", call(Says("never")).when(Arc::new(|_| false)));
    let graph = GraphBuilder::new("g", schema()).entry("both").parallel_branches("both", branches).edge("both", END);
    traced.run(&compiled(graph), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[both[plain slow[a b] a[work]]]"]);
    let node = traced.span("both");
    let plain = traced.span("plain");
    assert_eq!(attribute(&node, "openarmature.parallel_branches.branch_count"), Some(Attribute::I64(3)));
    assert_eq!(text(&plain, "openarmature.node.branch_name"), "plain");
    assert_eq!(text(&plain, "openarmature.parallel_branches.parent_node_name"), "both");
    assert_eq!(text(&traced.span("work"), "openarmature.node.branch_name"), "a");
}

#[tokio::test]
async fn each_instance_of_a_detached_fan_out_has_a_trace_and_a_failure_shows_in_both() {
    let traced = Traced::detaching(Detached { fan_outs: ["each".to_owned()].into(), ..Detached::default() });
    let schema = StateSchema::new().field("item", Field::new(FieldType::Int, 0));
    let second = |state: State| async move {
        match state.get("item").and_then(Value::as_i64) {
            Some(2) => Err(NodeError::new("boom")),
            Some(_) | None => Ok(Update::none()),
        }
    };
    let worker = GraphBuilder::new("worker", schema).entry("work").function("work", second).edge("work", END);
    let each = fan_out(compiled(worker)).error_policy(ErrorPolicy::Collect);
    let graph = GraphBuilder::new("g", crate::world::schema()).entry("each").fan_out("each", each).edge("each", END);
    traced.run(&compiled(graph), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation![each![work!]]", "invocation[each[work]]", "invocation[each]"]);
    let spans = traced.telemetry.spans();
    let node = spans.iter().find(|span| attribute(span, "openarmature.fan_out.item_count").is_some()).unwrap();
    let linked: Vec<_> = node.links.iter().map(|link| link.span_context.trace_id()).collect();
    let works = spans.iter().filter(|span| span.name == "work").map(|span| span.span_context.trace_id());
    assert_eq!(linked, works.collect::<Vec<_>>());
}
