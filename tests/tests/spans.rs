//! Spans and log records of invocations (observability §3 to §7), on exporters in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{
    AfterError, Amount, Branch, CompiledGraph, END, ErrorPolicy, FanOut, Field, FieldType, GraphBuilder, Invocation,
    LeaseTerms, Middleware, Next, Node, NodeError, Outcome, ParallelBranches, Phases, Projection, Reducer, Resume,
    SessionPolicy, State, StateSchema, Update, suspend,
};
use dormouse_harness::{GraphRegistry, Harness, HarnessConfig, Mode, Transmission};
use dormouse_otel::Telemetry;
use dormouse_ports::{Category, SignalDescriptor};
use dormouse_tests::{Stage, map};
use opentelemetry::trace::{SpanId, Status, TraceContextExt, Tracer};
use opentelemetry::{Value as Attribute, global};
use opentelemetry_sdk::trace::SpanData;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;

/// A process with telemetry in memory.
struct Traced {
    stage: Stage,
    telemetry: Telemetry,
}

impl Traced {
    fn new() -> Self {
        Self { stage: Stage::default(), telemetry: Telemetry::in_memory() }
    }

    fn observers(&self) -> Vec<(Arc<dyn dormouse_engine::Observer>, Phases)> {
        vec![(Arc::new(self.telemetry.observer()), Phases::default())]
    }

    async fn run(&self, graph: &Arc<CompiledGraph>, call: Invocation) -> Result<Outcome, dormouse_engine::EngineError> {
        let call = Invocation { observers: self.observers(), ..call };
        let subscriber = tracing_subscriber::registry().with(self.telemetry.log_bridge());
        let outcome = self.stage.engine().invoke(graph, call).with_subscriber(subscriber).await;
        graph.drain(&*self.stage.clock, None).await;
        outcome
    }

    async fn resume(&self, graph: &Arc<CompiledGraph>, outcome: Outcome, payload: Value) -> Outcome {
        let Outcome::Suspended(paused) = outcome else { panic!("it did not suspend: {outcome:?}") };
        let call = Resume {
            payload: map(payload),
            generation: None,
            claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5) },
            observers: self.observers(),
            after_error: |_| AfterError::End,
        };
        let outcome = self.stage.engine().resume(graph, &paused.invocation_id, call).await.unwrap();
        graph.drain(&*self.stage.clock, None).await;
        outcome
    }

    /// Each trace on a line of its own: names, with what is inside in brackets.
    fn trees(&self) -> Vec<String> {
        let spans = self.telemetry.spans();
        let known = |id: SpanId| spans.iter().any(|span| span.span_context.span_id() == id);
        let roots = spans.iter().filter(|span| !known(span.parent_span_id));
        roots.map(|root| shape(&spans, root)).collect()
    }

    fn span(&self, name: &str) -> SpanData {
        let found = self.telemetry.spans().into_iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no span `{name}` in {:?}", self.trees()))
    }
}

fn shape(spans: &[SpanData], span: &SpanData) -> String {
    let children = spans.iter().filter(|child| child.parent_span_id == span.span_context.span_id());
    let inside: Vec<_> = children.map(|child| shape(spans, child)).collect();
    let mark = match span.status {
        Status::Ok => "",
        Status::Error { .. } => "!",
        Status::Unset => "?",
    };
    let name = span.name.replace("openarmature.invocation", "invocation");
    if inside.is_empty() { format!("{name}{mark}") } else { format!("{name}{mark}[{}]", inside.join(" ")) }
}

fn attribute(span: &SpanData, key: &str) -> Option<Attribute> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| attribute.value.clone())
}

fn text(span: &SpanData, key: &str) -> String {
    attribute(span, key).map(|value| value.to_string()).unwrap_or_default()
}

fn schema() -> StateSchema {
    let list = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    StateSchema::new()
        .field("log", list)
        .field("items", Field::new(FieldType::List(Box::new(FieldType::Int)), json!([1, 2])))
        .field("item", Field::new(FieldType::Int, 0))
        .field("answer", Field::new(FieldType::Optional(Box::new(FieldType::Int)), Value::Null))
}

/// A node that logs its name and writes it into the state.
fn says(word: &'static str) -> impl Fn(State) -> futures::future::BoxFuture<'static, Result<Update, NodeError>> {
    move |_| {
        Box::pin(async move {
            tokio::task::yield_now().await;
            tracing::info!("node {word}");
            Ok(Update::none().with("log", json!([word])))
        })
    }
}

async fn asks(_: State) -> Result<Update, NodeError> {
    let wait = SignalDescriptor::new("sig-7").with("kind", "approval").with("amount", 12).with("deep", json!({"a": 1}));
    Err(suspend(wait).await)
}

async fn fails(_: State) -> Result<Update, NodeError> {
    Err(NodeError::new("boom"))
}

fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

fn line(name: &str) -> GraphBuilder {
    let graph = GraphBuilder::new(name, schema()).entry("a").function("a", says("a")).function("b", says("b"));
    graph.edge("a", "b").edge("b", END)
}

fn with_inner(inner: Arc<CompiledGraph>) -> Arc<CompiledGraph> {
    let graph = GraphBuilder::new("outer", schema()).entry("before").function("before", says("before"));
    let graph = graph.subgraph("sub", inner, Projection::by_name()).function("after", says("after"));
    compiled(graph.edge("before", "sub").edge("sub", "after").edge("after", END))
}

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
    let (first, ask) = (traced.span("openarmature.invocation"), traced.span("ask"));
    assert_eq!(text(&first, "openarmature.outcome"), "suspended");
    assert_eq!(attribute(&first, "openarmature.suspension.signal_id"), None);
    assert_eq!(text(&ask, "openarmature.outcome"), "suspended");
    assert_eq!(text(&ask, "openarmature.suspension.signal_id"), "sig-7");
    assert_eq!(text(&ask, "openarmature.suspension.metadata.kind"), "approval");
    assert_eq!(attribute(&ask, "openarmature.suspension.metadata.amount"), Some(Attribute::I64(12)));
    assert_eq!(text(&ask, "openarmature.suspension.metadata.deep"), r#"{"a":1}"#);

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
    let (node, plain) = (traced.span("both"), traced.span("plain"));
    assert_eq!(attribute(&node, "openarmature.parallel_branches.branch_count"), Some(Attribute::I64(3)));
    assert_eq!(text(&plain, "openarmature.node.branch_name"), "plain");
    assert_eq!(text(&plain, "openarmature.parallel_branches.parent_node_name"), "both");
    assert_eq!(text(&traced.span("work"), "openarmature.node.branch_name"), "a");
}

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
        config,
    );
    let start = Transmission { session_id: Some("s-9".into()), ..Transmission::start("ask", map(json!({}))) };
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
    let traced = Traced { stage: Stage::default(), telemetry: Telemetry::otlp(&address, "night-shift").unwrap() };
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
    let traced = Traced { stage: Stage::default(), telemetry };
    traced.run(&compiled(line("g")), Invocation::default()).await.unwrap();
    traced.telemetry.flush().await.unwrap_err();
    Telemetry::otlp("https://collector.example.com", "dormouse").unwrap_err();
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
    let unbound = json!({ "name": "invocation", "invocation_id": "i-1", "correlation_id": "i-1" });
    let mut bound = unbound.clone();
    bound["session_id"] = json!("s-1");
    assert_eq!(ids, [bound.clone(), bound, unbound.clone(), unbound]);
}
