//! Turns, providers and the way out.

use std::sync::Arc;
use std::time::Duration;

use crate::world::{Traced, asks, compiled, line, says, schema, text};
use dormouse_engine::{END, GraphBuilder, Invocation, Observer, Operation, Phases, State, Update, operation_ended};
use dormouse_harness::{
    DispatchPath, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnTracer,
};
use dormouse_http::{App, Parts};
use dormouse_otel::Telemetry;
use dormouse_tests::{map, parts_in_memory};
use opentelemetry::global;
use opentelemetry::trace::{Status, TraceContextExt, Tracer};
use opentelemetry_sdk::metrics::data::ScopeMetrics;
use serde_json::json;

#[tokio::test]
async fn the_global_provider_is_neither_set_nor_used() {
    let traced = Traced::new();
    let seen = move |_: State| async {
        assert!(!opentelemetry::Context::current().has_active_span());
        Ok(Update::none())
    };
    let graph = GraphBuilder::new("g", schema()).entry("look").function("look", seen).edge("look", END);
    traced.run(&compiled(graph), Invocation::default()).await.unwrap();
    let span = global::tracer("somebody else").start("theirs");
    assert!(!opentelemetry::trace::Span::span_context(&span).is_valid(), "there is no provider but the empty one");
    assert_eq!(traced.trees(), ["invocation[look]"]);
}

#[tokio::test]
async fn calls_of_models_have_no_spans_where_others_make_them_and_are_measured_all_the_same() {
    let calls = |_: State| async {
        for name in ["openarmature.llm.complete", "openarmature.tool.call"] {
            let at = jiff::Timestamp::UNIX_EPOCH;
            let attributes = Vec::new();
            operation_ended(Operation { name, is_remote: true, attributes, error: None, started: at, ended: at });
        }
        Ok(Update::none())
    };
    let graph = GraphBuilder::new("g", schema()).entry("call").function("call", calls).edge("call", END);
    let graph = compiled(graph);
    let traced = Traced::on(Telemetry::in_memory().measuring());
    let observer = traced.telemetry.observer();
    for (observer, inside) in [
        (observer.clone(), "invocation[call[openarmature.llm.complete openarmature.tool.call]]"),
        (observer.without_model_spans(), "invocation[call[openarmature.tool.call]]"),
    ] {
        traced.telemetry.clear();
        let observer: Arc<dyn Observer> = Arc::new(observer);
        let call = Invocation { observers: vec![(observer, Phases::default())], ..Invocation::default() };
        traced.stage.engine().invoke(&graph, call).await.unwrap();
        graph.drain(&*traced.stage.clock, None).await;
        assert_eq!(traced.trees(), [inside]);
        let measured = traced.telemetry.take_measurements();
        let mut metrics = measured.scope_metrics().flat_map(ScopeMetrics::metrics);
        assert!(metrics.any(|metric| metric.name() == "openarmature.gen_ai.client.operation.duration"));
    }
}

#[tokio::test]
async fn a_turn_is_a_span_around_its_invocation_where_somebody_asks_for_it() {
    let traced = Traced::new();
    let ask = GraphBuilder::new("ask", schema()).entry("ask").function("ask", asks).function("then", says("then"));
    let graph = compiled(ask.edge("ask", "then").edge("then", END));
    graph.attach_observer(Arc::new(traced.telemetry.observer()), Phases::default());
    let config =
        HarnessConfig { turn_tracer: Some(Arc::new(traced.telemetry.turns())), ..HarnessConfig::new(Mode::Sessioned) };
    let harness = Harness::new(
        traced.stage.engine(),
        GraphRegistry::new([graph.clone()]),
        traced.stage.subscriptions.clone(),
        traced.stage.bus.clone(),
        config,
    );
    let start = FreshTurn { session_id: Some("s-9".into()), ..FreshTurn::new("ask", map(json!({}))) };
    harness.turn(start).await;
    harness.turn(Transmission::signal("sig-7", map(json!({ "answer": 3 })))).await;
    graph.drain(&*traced.stage.clock, None).await;
    let mut trees = traced.trees();
    trees.sort();
    assert_eq!(trees, ["dormouse.turn[invocation[ask]]", "dormouse.turn[invocation[then]]"]);
    let turn = traced.span("dormouse.turn");
    assert_eq!(
        (text(&turn, "openarmature.session_id"), text(&turn, "openarmature.outcome")),
        ("s-9".into(), "suspended".into())
    );
}

#[test]
fn a_turn_that_is_dropped_says_so() {
    let telemetry = Telemetry::in_memory();
    let transmission = Transmission::signal("sig-7", map(json!({})));
    drop(telemetry.turns().begin(&transmission, DispatchPath::Stateless));
    let spans = telemetry.spans();
    let [turn] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(text(turn, "openarmature.outcome"), "abandoned");
    assert_eq!(turn.status, Status::error("the turn was dropped"));
}

/// A collector that keeps what it is sent, by path.
async fn collector() -> (String, tokio::sync::mpsc::UnboundedReceiver<(String, String)>) {
    let (seen, kept) = tokio::sync::mpsc::unbounded_channel();
    let take = move |uri: axum::http::Uri, body: axum::body::Bytes| async move {
        seen.send((uri.path().to_owned(), String::from_utf8_lossy(&body).into_owned())).unwrap();
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, axum::Router::new().fallback(take)).into_future());
    (address, kept)
}

#[tokio::test]
async fn what_is_finished_goes_to_the_collector_when_it_is_flushed() {
    let (address, mut kept) = collector().await;
    let traced = Traced::on(Telemetry::otlp(&address, "night-shift").unwrap());
    traced.run(&compiled(line("g")), Invocation::default()).await.unwrap();
    assert_eq!(traced.telemetry.spans().len(), 3);
    traced.telemetry.flush().await.unwrap();
    assert!(traced.telemetry.spans().is_empty() && traced.telemetry.logs().is_empty());
    let (path, spans) = kept.recv().await.unwrap();
    assert!(path == "/v1/traces" && spans.contains("openarmature.invocation") && spans.contains("night-shift"));
    let (path, logs) = kept.recv().await.unwrap();
    assert!(path == "/v1/logs" && logs.contains("node b") && logs.contains("openarmature.correlation_id"));
}

#[tokio::test]
async fn a_collector_that_is_away_is_an_error_and_nothing_more() {
    let telemetry = Telemetry::otlp("http://127.0.0.1:1", "dormouse").unwrap();
    telemetry.flush().await.expect("there was nothing to send");
    let traced = Traced::on(telemetry);
    traced.run(&compiled(line("g")), Invocation::default()).await.unwrap();
    traced.telemetry.flush().await.unwrap_err();
    let refused = Telemetry::otlp("https://collector.example.com", "dormouse").unwrap_err().to_string();
    assert!(refused.contains("a collector on this machine"), "{refused}");
}

/// The application, on memory, which sends what `telemetry` has.
fn app(telemetry: Telemetry) -> App {
    let (store, clock, bus) = (Arc::default(), Arc::default(), Arc::default());
    let parts = parts_in_memory(&store, &clock, &bus, &dormouse_app::agents());
    App::new(Parts { telemetry: Some(Arc::new(telemetry)), ..parts })
}

/// A turn may need all of its time: its spans are those that somebody will look for.
#[tokio::test]
async fn what_there_is_no_time_to_send_waits_for_the_next_event() {
    let traced = Traced::on(Telemetry::otlp("http://127.0.0.1:1", "dormouse").unwrap());
    traced.run(&compiled(line("g")), Invocation::default()).await.unwrap();
    let app = app(traced.telemetry.clone());
    app.flush(Duration::ZERO).await;
    assert_eq!(traced.telemetry.spans().len(), 3);
    app.flush(Duration::from_secs(10)).await;
    assert!(traced.telemetry.spans().is_empty(), "they were sent, and nobody took them");
}
