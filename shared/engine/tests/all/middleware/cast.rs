//! The nodes, middleware and observers of these tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::middleware::Retry;
use dormouse_engine::{
    CompiledGraph, END, EngineError, Field, FieldType, FrameworkEvent, GraphBuilder, Invocation, Middleware, Next,
    Node, NodeError, NodeEvent, Observer, Outcome, Phase, Phases, Reducer, State, StateSchema, Update,
};
use dormouse_ports::Category;
use serde_json::{Value, json};

pub(crate) fn schema() -> StateSchema {
    StateSchema::new()
        .field("log", Field::new(FieldType::List(Box::new(FieldType::Str)), json!([])).reduced_by(Reducer::Append))
        .field("answer", Field::new(FieldType::Optional(Box::new(FieldType::Int)), Value::Null))
}

pub(crate) fn says(word: &str) -> Update {
    Update::none().with("log", json!([word]))
}

pub(crate) fn down(message: &str) -> NodeError {
    NodeError::new(message).with_category(Category::ProviderUnavailable)
}

/// Raises what is queued, one error per run; then says "done".
#[derive(Clone, Default)]
pub(crate) struct Flaky(Arc<Mutex<VecDeque<NodeError>>>);

impl Flaky {
    pub(crate) fn raising(errors: impl IntoIterator<Item = NodeError>) -> Self {
        Self(Arc::new(Mutex::new(errors.into_iter().collect())))
    }

    pub(crate) fn left(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[async_trait]
impl Node for Flaky {
    async fn run(&self, _: State) -> Result<Update, NodeError> {
        let next = self.0.lock().unwrap().pop_front();
        next.map_or_else(|| Ok(says("done")), Err)
    }
}

/// A graph of one node called `work`.
pub(crate) fn single(node: impl Node + 'static) -> GraphBuilder {
    GraphBuilder::new("g", schema()).entry("work").node("work", node).edge("work", END)
}

pub(crate) fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

/// A retry that does not wait.
pub(crate) fn retry(stage: &Stage, attempts: u32) -> Retry {
    Retry::new(stage.clock.clone(), Arc::new(|| 0.5)).max_attempts(attempts).backoff(|_| Duration::ZERO)
}

pub(crate) struct Swallows;

#[async_trait]
impl Middleware for Swallows {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        Ok(next.run(state).await.unwrap_or_else(|_| says("recovered")))
    }
}

/// Writes down what it is told, in order.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) lines: Mutex<Vec<String>>,
    pub(crate) events: Mutex<Vec<NodeEvent>>,
    pub(crate) framework: Mutex<Vec<FrameworkEvent>>,
}

impl Recorder {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }
}

#[async_trait]
impl Observer for Recorder {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        let ended = match (&event.error, &event.post_state) {
            (Some(error), None) => format!(" {}", error.derived_category),
            (None, Some(_)) => " ok".to_owned(),
            (None, None) => String::new(),
            (Some(_), Some(_)) => panic!("both an error and a state: {event:?}"),
        };
        assert_eq!(event.phase == Phase::Completed, !ended.is_empty());
        self.note(format!("{} {} {}{ended}", event.phase.as_str(), event.namespace.join("/"), event.attempt_index));
        self.events.lock().unwrap().push(event.clone());
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        self.note(match event {
            FrameworkEvent::FailureIsolated(event) => {
                format!("isolated {} {}", event.event_name, event.origin.attempt_index)
            }
            FrameworkEvent::MetadataAugmented(event) => format!("augmented {}", Value::from(event.entries.clone())),
            FrameworkEvent::CheckpointSaved(event) => format!("saved at {}", event.at.path.join("/")),
            FrameworkEvent::OperationEnded(event) => format!("ended {}", event.operation.name),
            FrameworkEvent::LlmCompletion(event) => format!("answered by {}", event.request.model),
            FrameworkEvent::LlmFailed(event) => format!("failed by {}", event.request.model),
            FrameworkEvent::LlmToken(event) => format!("piece {}", event.chunk_index),
            FrameworkEvent::ToolCall(event) => format!("called {}", event.request.tool_name),
            FrameworkEvent::ToolCallFailed(event) => format!("failed at {}", event.request.tool_name),
        });
        self.framework.lock().unwrap().push(event.clone());
        Ok(())
    }
}

/// Runs `graph` with an observer and waits until that was told everything.
pub(crate) async fn observed(
    stage: &Stage,
    graph: &Arc<CompiledGraph>,
    phases: Phases,
) -> (Result<Outcome, EngineError>, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let call = Invocation { observers: vec![(recorder.clone(), phases)], ..Invocation::default() };
    let ended = stage.engine().invoke(graph, call).await;
    graph.drain(&*stage.clock, None).await;
    (ended, recorder)
}

pub(crate) async fn watched(
    stage: &Stage,
    graph: &Arc<CompiledGraph>,
) -> (Result<Outcome, EngineError>, Arc<Recorder>) {
    observed(stage, graph, Phases::default()).await
}

pub(crate) fn log(ended: Result<Outcome, EngineError>) -> Value {
    match ended.unwrap() {
        Outcome::Completed(done) => done.state.get("log").unwrap().clone(),
        Outcome::Suspended(pause) => panic!("it did not complete: {pause:?}"),
    }
}
