//! Log records and whose they are.

use std::sync::Arc;

use crate::world::{Traced, compiled, line, text, with_inner};
use dormouse_engine::{Invocation, SessionPolicy};
use dormouse_otel::Telemetry;
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
    let (traced, lines) = (Traced::new(), Lines::default());
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
