//! Log records and whose they are.

use std::sync::Arc;

use crate::world::{Traced, compiled, line, says, schema, text, with_inner};
use async_trait::async_trait;
use dormouse_engine::{
    END, FanOut, Field, FieldType, GraphBuilder, Invocation, Middleware, Next, NodeError, Projection, SessionPolicy,
    State, StateSchema, Update,
};
use dormouse_otel::{Detached, Telemetry};
use opentelemetry::trace::SpanId;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;

/// The log records as `body`, trace id, span id and attributes.
fn logged(telemetry: &Telemetry) -> Vec<(String, String, SpanId, Vec<String>)> {
    let record = |(record, _): dormouse_otel::LogRecord| {
        let context = record.trace_context().unwrap();
        let attributes = record.attributes_iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        (format!("{:?}", record.body().unwrap()), context.trace_id.to_string(), context.span_id, attributes)
    };
    telemetry.logs().into_iter().map(record).collect()
}

#[tokio::test]
async fn spans_and_log_records_name_the_session_and_each_other() {
    let traced = Traced::new();
    let call = Invocation { session_id: Some("s-1".into()), ..Invocation::default() };
    let graph = compiled(line("g").sessions(SessionPolicy::default()));
    traced.run(&graph, call).await.unwrap();
    for span in traced.telemetry.spans() {
        assert_eq!(text(&span, "openarmature.session_id"), "s-1", "{}", span.name);
    }
    let ours: Vec<_> = logged(&traced.telemetry).into_iter().filter(|log| log.0.contains("node ")).collect();
    assert_eq!(ours.len(), 2);
    for ((body, trace, span_id, attributes), name) in ours.into_iter().zip(["a", "b"]) {
        let span = traced.span(name);
        assert!(body.contains(&format!("node {name}")), "{body}");
        assert_eq!((trace, span_id), (span.span_context.trace_id().to_string(), span.span_context.span_id()));
        let session = r#"openarmature.session_id=String(Owned("s-1"))"#;
        assert!(attributes.iter().any(|one| one == session), "{attributes:?}");
        assert!(attributes.iter().any(|one| one.starts_with("openarmature.correlation_id=")), "{attributes:?}");
        assert!(attributes.iter().any(|one| one.starts_with("openarmature.invocation_id=")), "{attributes:?}");
    }
}

#[test]
fn a_log_record_names_the_request_that_it_is_of_and_nothing_else_of_what_is_around_it() {
    let telemetry = Telemetry::in_memory();
    let subscriber = tracing_subscriber::registry().with(telemetry.log_bridge());
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::error_span!(
            "request",
            request_id = "req_1",
            method = "GET",
            operation = tracing::field::Empty,
            said = "hush"
        );
        let _inside = span.enter();
        span.record("operation", "getTask");
        tracing::info!(status = 200, "answered");
    });
    let records = telemetry.logs();
    let told: Vec<String> = records[0].0.attributes_iter().map(|(key, value)| format!("{key}={value:?}")).collect();
    for (name, value) in [("request_id", "req_1"), ("method", "GET"), ("operation", "getTask"), ("status", "200")] {
        assert!(told.iter().any(|one| one.starts_with(name) && one.contains(value)), "{name}: {told:?}");
    }
    assert!(!format!("{records:?}").contains("hush"), "{told:?}");
}

/// Logs before it calls on.
struct Speaks;

#[async_trait]
impl Middleware for Speaks {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        tracing::info!("node wrapper");
        next.run(state).await
    }
}

#[tokio::test]
async fn log_records_from_inside_name_the_detached_trace_of_their_own_round_and_instance() {
    let detached = Detached { subgraphs: ["inner".to_owned()].into(), fan_outs: ["each".to_owned()].into() };
    let traced = Traced::detaching(detached);
    let again = |state: &State| {
        let said = state.get("log").and_then(Value::as_array);
        let rounds = said.map_or(0, |said| said.iter().filter(|word| **word == "back").count());
        Ok(if rounds < 2 { "sub".into() } else { END })
    };
    let inner = compiled(line("inner").wrap("b", Arc::new(Speaks)));
    let worker = StateSchema::new().field("item", Field::new(FieldType::Int, 0));
    let worker = GraphBuilder::new("worker", worker).entry("work");
    let worker = worker.function("work", |_| async {
        tracing::info!("node work");
        Ok(Update::none())
    });
    let each = FanOut::over(compiled(worker.edge("work", END))).items("items", "item").collect("item", "log");
    let graph = GraphBuilder::new("g", schema())
        .entry("each")
        .fan_out("each", each)
        .subgraph("sub", inner, Projection::by_name())
        .function("back", says("back"))
        .edge("each", "sub")
        .edge("sub", "back")
        .route("back", again);
    traced
        .run(&compiled(graph), Invocation { correlation_id: Some("c".to_owned()), ..Invocation::default() })
        .await
        .unwrap();
    assert_eq!(traced.trees().iter().filter(|tree| *tree == "invocation[inner[a b]]").count(), 2);
    assert_eq!(traced.trees().iter().filter(|tree| *tree == "invocation[each[work]]").count(), 2);
    let spans = traced.telemetry.spans();
    let mut logs = logged(&traced.telemetry);
    logs.retain(|log| log.0.contains("node "));
    assert_eq!(logs.len(), 2 + 2 * 4);
    let mut traces = std::collections::BTreeMap::<_, usize>::new();
    for (body, trace, span_id, attributes) in logs {
        let span = spans.iter().find(|span| span.span_context.span_id() == span_id);
        let span = span.unwrap_or_else(|| panic!("{body} names no span"));
        assert_eq!(span.span_context.trace_id().to_string(), trace, "{body}");
        let expected = if body.contains("wrapper") { "openarmature.invocation".into() } else { span.name.clone() };
        assert_eq!(span.name, expected, "{body}");
        assert!(attributes.iter().any(|one| one == r#"openarmature.correlation_id=String(Owned("c"))"#));
        *traces.entry(trace).or_default() += 1;
    }
    // Two instances, the call itself with `back` twice, and two rounds.
    let mut counts: Vec<_> = traces.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 2, 3, 3]);
}

#[tokio::test]
async fn invocations_side_by_side_do_not_mix() {
    let traced = Traced::new();
    let graph = with_inner(compiled(line("inner")));
    let of = |id: &str| Invocation { correlation_id: Some(id.to_owned()), ..Invocation::default() };
    let (one, two) = tokio::join!(traced.run(&graph, of("one")), traced.run(&graph, of("two")));
    one.and(two).unwrap();
    assert_eq!(traced.trees(), ["invocation[before sub[a b] after]"; 2]);
    let spans = traced.telemetry.spans();
    for id in ["one", "two"] {
        let of_id: Vec<_> = spans.iter().filter(|span| text(span, "openarmature.correlation_id") == id).collect();
        assert_eq!(of_id.len(), 6);
        assert!(of_id.iter().all(|span| span.span_context.trace_id() == of_id[0].span_context.trace_id()));
        let logs =
            logged(&traced.telemetry).into_iter().filter(|log| log.3.iter().any(|a| a.contains(&format!("\"{id}\""))));
        let traces: Vec<_> = logs.map(|log| log.1).collect();
        assert_eq!(traces, vec![of_id[0].span_context.trace_id().to_string(); 4]);
    }
}

/// Log lines as a process writes them.
#[derive(Clone, Default)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn plain_log_lines_carry_the_ids_too() {
    let traced = Traced::new();
    let lines = Lines::default();
    let writer = lines.clone();
    let json = tracing_subscriber::fmt::layer().json().flatten_event(true).with_span_list(true);
    let subscriber = tracing_subscriber::registry().with(json.with_writer(move || writer.clone()));
    let of = |session: Option<&str>| Invocation {
        invocation_id: Some("i-1".into()),
        correlation_id: Some("c-1".to_owned()),
        session_id: session.map(Into::into),
        ..Invocation::default()
    };
    let graph = compiled(line("g"));
    let work = async {
        traced.stage.engine().invoke(&graph, of(Some("s-1"))).await.unwrap();
        traced.stage.engine().invoke(&graph, of(None)).await.unwrap();
    };
    work.with_subscriber(subscriber).await;
    let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let said = written.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ids: Vec<_> = said.map(|line| line["spans"][0].clone()).collect();
    let unbound = json!({ "name": "invocation", "invocation_id": "i-1", "correlation_id": "c-1" });
    let mut bound = unbound.clone();
    bound["session_id"] = json!("s-1");
    assert_eq!(ids, [bound.clone(), bound, unbound.clone(), unbound]);
}
