//! A process with telemetry in memory, and graphs for it.

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{
    AfterError, CompiledGraph, END, Field, FieldType, GraphBuilder, Invocation, LeaseTerms, NodeError, Outcome, Phases,
    Projection, Reducer, Resume, State, StateSchema, Update, suspend,
};
use dormouse_otel::{Detached, Telemetry};
use dormouse_ports::SignalDescriptor;
use dormouse_tests::{Stage, map};
use opentelemetry::Value as Attribute;
use opentelemetry::trace::{SpanId, Status};
use opentelemetry_sdk::trace::SpanData;
use serde_json::{Value, json};
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;

/// A process with telemetry in memory.
pub(crate) struct Traced {
    pub(crate) stage: Stage,
    pub(crate) telemetry: Telemetry,
}

impl Traced {
    pub(crate) fn new() -> Self {
        Self::on(Telemetry::in_memory())
    }

    pub(crate) fn on(telemetry: Telemetry) -> Self {
        Self { stage: Stage::default(), telemetry }
    }

    pub(crate) fn detaching(detached: Detached) -> Self {
        Self::on(Telemetry::in_memory().detaching(detached))
    }

    pub(crate) fn observers(&self) -> Vec<(Arc<dyn dormouse_engine::Observer>, Phases)> {
        vec![(Arc::new(self.telemetry.observer()), Phases::default())]
    }

    pub(crate) async fn run(
        &self,
        graph: &Arc<CompiledGraph>,
        call: Invocation,
    ) -> Result<Outcome, dormouse_engine::EngineError> {
        let call = Invocation { observers: self.observers(), ..call };
        let subscriber = tracing_subscriber::registry().with(self.telemetry.log_bridge());
        let outcome = self.stage.engine().invoke(graph, call).with_subscriber(subscriber).await;
        graph.drain(&*self.stage.clock, None).await;
        outcome
    }

    pub(crate) async fn resume(&self, graph: &Arc<CompiledGraph>, outcome: Outcome, payload: Value) -> Outcome {
        let Outcome::Suspended(paused) = outcome else { panic!("it did not suspend: {outcome:?}") };
        let call = Resume {
            payload: map(payload),
            generation: None,
            claim: LeaseTerms { owner: "resumer".into(), duration: Duration::from_secs(5), yield_after: None },
            observers: self.observers(),
            after_error: |_| AfterError::End,
        };
        let outcome = self.stage.engine().resume(graph, &paused.invocation_id, call).await.unwrap();
        graph.drain(&*self.stage.clock, None).await;
        outcome
    }

    /// Each trace on a line of its own: names, with what is inside in brackets.
    pub(crate) fn trees(&self) -> Vec<String> {
        let spans = self.telemetry.spans();
        let known = |id: SpanId| spans.iter().any(|span| span.span_context.span_id() == id);
        let roots = spans.iter().filter(|span| !known(span.parent_span_id));
        roots.map(|root| shape(&spans, root)).collect()
    }

    pub(crate) fn span(&self, name: &str) -> SpanData {
        let found = self.telemetry.spans().into_iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no span `{name}` in {:?}", self.trees()))
    }
}

pub(crate) fn shape(spans: &[SpanData], span: &SpanData) -> String {
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

pub(crate) fn attribute(span: &SpanData, key: &str) -> Option<Attribute> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| attribute.value.clone())
}

pub(crate) fn text(span: &SpanData, key: &str) -> String {
    attribute(span, key).map(|value| value.to_string()).unwrap_or_default()
}

pub(crate) fn schema() -> StateSchema {
    let list = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    StateSchema::new()
        .field("log", list)
        .field("items", Field::new(FieldType::List(Box::new(FieldType::Int)), json!([1, 2])))
        .field("item", Field::new(FieldType::Int, 0))
        .field("answer", Field::new(FieldType::Optional(Box::new(FieldType::Int)), Value::Null))
}

/// A node that logs its name and writes it into the state.
pub(crate) fn says(
    word: &'static str,
) -> impl Fn(State) -> futures::future::BoxFuture<'static, Result<Update, NodeError>> {
    move |_| {
        Box::pin(async move {
            tokio::task::yield_now().await;
            tracing::info!("node {word}");
            Ok(Update::none().with("log", json!([word])))
        })
    }
}

pub(crate) async fn asks(_: State) -> Result<Update, NodeError> {
    let wait = SignalDescriptor::new("sig-7").with("kind", "approval").with("amount", 12).with("deep", json!({"a": 1}));
    let wait = wait.with("description", "May it be sent to Ada?").with("reason", "Ada wrote that it is late");
    Err(suspend(wait).await)
}

pub(crate) async fn fails(_: State) -> Result<Update, NodeError> {
    Err(NodeError::new("boom"))
}

pub(crate) async fn quotes(_: State) -> Result<Update, NodeError> {
    Err(NodeError::new("he wrote: hush").observed_as("what was written does not fit"))
}

pub(crate) fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

pub(crate) fn line(name: &str) -> GraphBuilder {
    let graph = GraphBuilder::new(name, schema()).entry("a").function("a", says("a")).function("b", says("b"));
    graph.edge("a", "b").edge("b", END)
}

pub(crate) fn with_inner(inner: Arc<CompiledGraph>) -> Arc<CompiledGraph> {
    let graph = GraphBuilder::new("outer", schema()).entry("before").function("before", says("before"));
    let graph = graph.subgraph("sub", inner, Projection::by_name()).function("after", says("after"));
    compiled(graph.edge("before", "sub").edge("sub", "after").edge("after", END))
}
