//! Which spans there are, and what is inside of what.

use std::sync::Arc;
use std::time::Duration;

use crate::world::{Traced, asks, attribute, compiled, fails, line, quotes, says, schema, text, with_inner};
use async_trait::async_trait;
use dormouse_engine::middleware::{FailureIsolation, Retry};
use dormouse_engine::{END, GraphBuilder, Invocation, Middleware, Next, NodeError, SessionPolicy, State, Update};
use dormouse_otel::Detached;
use dormouse_ports::Category;
use dormouse_testkit::MemoryCheckpointer;
use dormouse_tests::map;
use opentelemetry::Value as Attribute;
use opentelemetry::trace::Status;
use serde_json::json;

#[tokio::test]
async fn a_line_of_nodes_hangs_under_the_invocation() {
    let traced = Traced::new();
    let call = Invocation {
        correlation_id: Some("request-7".to_owned()),
        metadata: map(json!({ "tenant": "acme", "seats": 42 })),
        ..Invocation::default()
    };
    traced.run(&compiled(line("g")), call).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[a b]"]);
    let root = traced.span("openarmature.invocation");
    assert_eq!(text(&root, "openarmature.graph.entry_node"), "a");
    assert_eq!(text(&root, "openarmature.outcome"), "completed");
    assert_eq!(text(&root, "openarmature.implementation.name"), dormouse_otel::IMPLEMENTATION);
    assert!(!text(&root, "openarmature.invocation_id").is_empty());
    let b = traced.span("b");
    assert_eq!(attribute(&b, "openarmature.node.step"), Some(Attribute::I64(1)));
    assert_eq!(text(&b, "openarmature.node.namespace"), r#"["b"]"#);
    assert_eq!(attribute(&b, "openarmature.implementation.name"), None);
    for span in traced.telemetry.spans() {
        assert_eq!(text(&span, "openarmature.correlation_id"), "request-7");
        assert_eq!(text(&span, "openarmature.user.tenant"), "acme");
        assert_eq!(attribute(&span, "openarmature.user.seats"), Some(Attribute::I64(42)));
        assert_eq!(attribute(&span, "openarmature.session_id"), None, "no session was named");
    }
}

#[tokio::test]
async fn a_failure_marks_its_node_and_the_invocation() {
    let traced = Traced::new();
    let graph = GraphBuilder::new("g", schema()).entry("a").function("a", says("a")).function("bad", fails);
    traced.run(&compiled(graph.edge("a", "bad").edge("bad", END)), Invocation::default()).await.unwrap_err();
    assert_eq!(traced.trees(), ["invocation![a bad!]"]);
    let bad = traced.span("bad");
    assert_eq!(bad.status, Status::error("node_exception"));
    assert_eq!(text(&bad, "openarmature.error.category"), "node_exception");
    let exception = bad.events.first().unwrap();
    assert_eq!(exception.name, "exception");
    assert!(exception.attributes.iter().any(|attribute| attribute.value.as_str() == "boom"));
    assert_eq!(text(&traced.span("openarmature.invocation"), "openarmature.outcome"), "errored");
}

async fn down(_: State) -> Result<Update, NodeError> {
    Err(NodeError::new("down").with_category(Category::ProviderUnavailable))
}

#[tokio::test]
async fn a_subgraph_in_which_a_failure_is_caught_did_not_fail() {
    let traced = Traced::new();
    let retry = Retry::new(traced.stage.clock.clone(), Arc::new(|| 0.5)).max_attempts(2).backoff(|_| Duration::ZERO);
    let inner = GraphBuilder::new("inner", schema()).entry("work").function("work", down);
    let inner = inner.wrap("work", Arc::new(FailureIsolation::with("caught", Update::none())));
    let inner = inner.wrap("work", Arc::new(retry)).edge("work", END);
    traced.run(&with_inner(compiled(inner)), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[before sub[work! work!] after]"]);
    assert_eq!(attribute(&traced.span("sub"), "openarmature.error.category"), None);

    // What nobody catches fails all around it.
    let traced = Traced::new();
    let inner = GraphBuilder::new("inner", schema()).entry("work").function("work", down).edge("work", END);
    traced.run(&with_inner(compiled(inner)), Invocation::default()).await.unwrap_err();
    assert_eq!(traced.trees(), ["invocation![before sub![work!]]"]);
}

#[tokio::test]
async fn what_an_error_quotes_is_in_no_span_however_deep_it_was_raised() {
    let traced = Traced::new();
    let inner = GraphBuilder::new("inner", schema()).entry("bad").function("bad", quotes).edge("bad", END);
    let error = traced.run(&with_inner(compiled(inner)), Invocation::default()).await.unwrap_err();
    assert!(error.message().contains("hush"), "{error}");
    let spans = traced.telemetry.spans();
    for name in ["bad", "openarmature.invocation"] {
        let told = format!("{:?}", traced.span(name).events);
        assert!(told.contains("what was written does not fit"), "{name}: {told}");
    }
    assert!(!format!("{spans:?}").contains("hush"), "{spans:?}");
}

#[tokio::test]
async fn an_edge_that_goes_nowhere_marks_the_node_before_it() {
    let traced = Traced::new();
    let graph = GraphBuilder::new("g", schema()).entry("a").function("a", says("a"));
    let graph = graph.route("a", |_: &State| Ok(dormouse_engine::Target::Node("nowhere".into())));
    traced.run(&compiled(graph), Invocation::default()).await.unwrap_err();
    assert_eq!(traced.trees(), ["invocation![a!]"]);
    assert_eq!(text(&traced.span("a"), "openarmature.error.category"), "routing_error");
}

#[tokio::test]
async fn a_subgraph_is_a_span_around_its_nodes() {
    let traced = Traced::new();
    let graph = with_inner(with_inner(compiled(line("innermost"))));
    traced.run(&graph, Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[before sub[before sub[a b] after] after]"]);
    let spans = traced.telemetry.spans();
    let subgraphs: Vec<_> = spans.iter().filter(|span| span.name == "sub").collect();
    let names: Vec<_> = subgraphs.iter().map(|span| text(span, "openarmature.subgraph.name")).collect();
    assert_eq!(names, ["innermost", "outer"], "the inner one ends first");
}

/// Calls on once more after a failure.
struct Again;

#[async_trait]
impl Middleware for Again {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        match next.run(state.clone()).await {
            Err(_) => next.run(state).await,
            done => done,
        }
    }
}

#[tokio::test]
async fn attempts_are_siblings_and_carry_what_was_raised() {
    let traced = Traced::new();
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let flaky = move |_: State| {
        let first = tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let away = || NodeError::new("away").with_category(Category::ProviderUnavailable);
        futures::future::ready(if first { Err(away()) } else { Ok(Update::none()) })
    };
    let graph = GraphBuilder::new("g", schema()).entry("flaky").function("flaky", flaky).edge("flaky", END);
    traced.run(&compiled(graph.wrap("flaky", Arc::new(Again))), Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[flaky! flaky]"]);
    assert_eq!(text(&traced.span("flaky"), "openarmature.error.category"), "provider_unavailable");
}

#[tokio::test]
async fn a_pause_is_no_failure_and_its_resumption_is_linked() {
    let traced = Traced::new();
    let inner = GraphBuilder::new("inner", schema()).entry("ask").function("ask", asks).function("then", says("then"));
    let graph = with_inner(compiled(inner.edge("ask", "then").edge("then", END)));
    let paused = traced.run(&graph, Invocation::default()).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[before sub[ask]]"]);
    let first = traced.span("openarmature.invocation");
    let ask = traced.span("ask");
    assert_eq!(text(&first, "openarmature.outcome"), "suspended");
    assert_eq!(attribute(&first, "openarmature.suspension.signal_id"), None);
    assert_eq!(text(&ask, "openarmature.outcome"), "suspended");
    assert_eq!(text(&ask, "openarmature.suspension.signal_id"), "sig-7");
    assert_eq!(text(&ask, "openarmature.suspension.metadata.kind"), "approval");
    assert_eq!(attribute(&ask, "openarmature.suspension.metadata.amount"), Some(Attribute::I64(12)));
    for content in ["deep", "description", "reason"] {
        let told = attribute(&ask, &format!("openarmature.suspension.metadata.{content}"));
        assert_eq!(told, None, "{content} may be content");
    }

    traced.telemetry.clear();
    traced.resume(&graph, paused, json!({ "answer": 1 })).await;
    assert_eq!(traced.trees(), ["invocation[sub[then] after]"]);
    let second = traced.span("openarmature.invocation");
    let id = "openarmature.invocation_id";
    assert_eq!(attribute(&second, id), attribute(&first, id));
    assert_ne!(second.span_context.trace_id(), first.span_context.trace_id());
    let linked: Vec<_> = second.links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(linked, [first.span_context.span_id()]);
}

#[tokio::test]
async fn a_detached_subgraph_has_a_trace_of_its_own_and_a_link_leads_there() {
    let traced = Traced::detaching(Detached { subgraphs: ["long".to_owned()].into(), ..Detached::default() });
    let graph = with_inner(compiled(line("long")));
    let call = Invocation { metadata: map(json!({ "tenant": "acme" })), ..Invocation::default() };
    traced.run(&graph, call).await.unwrap();
    assert_eq!(traced.trees(), ["invocation[long[a b]]", "invocation[before sub after]"]);
    let spans = traced.telemetry.spans();
    let roots: Vec<_> = spans.iter().filter(|span| span.name == "openarmature.invocation").collect();
    let [own, call] = roots[..] else { panic!("{roots:?}") };
    let id = "openarmature.invocation_id";
    assert_eq!((text(own, id), text(own, "openarmature.graph.entry_node")), (text(call, id), "a".to_owned()));
    assert_eq!(text(own, "openarmature.user.tenant"), "acme");
    assert_ne!(own.span_context.trace_id(), call.span_context.trace_id());
    let links: Vec<_> = traced.span("sub").links.iter().map(|link| link.span_context.clone()).collect();
    assert_eq!(links, std::slice::from_ref(&own.span_context));
    let detached = ["long", "a", "b"].map(|name| traced.span(name).span_context.trace_id());
    assert_eq!(detached, [own.span_context.trace_id(); 3]);
}

#[tokio::test]
async fn a_checkpoint_whose_session_does_not_open_shows_a_failed_invocation() {
    let traced = Traced::new();
    let memory = Arc::new(MemoryCheckpointer::default());
    let graph = |version: &str| {
        let graph = GraphBuilder::new("g", schema().with_version(version)).entry("a").function("a", says("a"));
        let graph = graph.edge("a", END).sessions(SessionPolicy::full_state());
        compiled(graph.checkpointer(memory.clone()))
    };
    let call = |id: &str| Invocation {
        invocation_id: Some(id.into()),
        session_id: Some("s".into()),
        observers: traced.observers(),
        ..Invocation::default()
    };
    // A later version of the graph saved the session; nothing leads back from there.
    traced.run(&graph("1"), Invocation { session_id: None, ..call("first") }).await.unwrap();
    traced.run(&graph("2"), call("second")).await.unwrap();
    traced.telemetry.clear();
    let graph = graph("1");
    let error = traced.stage.engine().resume_checkpoint(&graph, &"first".into(), call("ignored")).await.unwrap_err();
    graph.drain(&*traced.stage.clock, None).await;
    assert_eq!(traced.trees(), ["invocation!"]);
    let span = traced.span("openarmature.invocation");
    assert_eq!(text(&span, "openarmature.error.category"), error.category().as_str());
    assert_eq!(error.category(), &Category::SessionStateMigrationMissing);
}
