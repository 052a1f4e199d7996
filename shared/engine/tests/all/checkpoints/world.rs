//! Graphs that say what ran, on a stage with a checkpointer.

use std::sync::{Arc, Mutex};

use crate::stage::Stage;
use dormouse_engine::{
    CompiledGraph, EngineError, Field, FieldType, GraphBuilder, Invocation, NodeError, Outcome, Reducer, State,
    StateSchema, Update,
};
use dormouse_ports::{CheckpointRecord, InvocationId, NodePosition};
use dormouse_testkit::MemoryCheckpointer;
use dormouse_testkit::map;
use serde_json::{Value, json};

/// What ran, in order, across all runs.
pub(crate) type Ran = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
pub(crate) struct World {
    pub(crate) stage: Stage,
    pub(crate) memory: Arc<MemoryCheckpointer>,
    pub(crate) ran: Ran,
}

impl World {
    /// A graph that saves.
    pub(crate) fn graph(&self, graph: GraphBuilder) -> Arc<CompiledGraph> {
        compiled(graph.checkpointer(self.memory.clone()))
    }

    /// Runs `graph` as invocation `first`.
    pub(crate) async fn run(&self, graph: &Arc<CompiledGraph>, state: Value) -> Result<Value, EngineError> {
        self.stage.engine().invoke(graph, first(state)).await.map(end)
    }

    /// Goes on from the checkpoint of invocation `first`, on another machine.
    pub(crate) async fn resume(&self, graph: &Arc<CompiledGraph>) -> Result<Value, EngineError> {
        let resumed = self.stage.engine().resume_checkpoint(graph, &"first".into(), Invocation::default()).await;
        resumed.map(end)
    }

    /// The record of invocation `first`.
    pub(crate) fn record(&self) -> CheckpointRecord {
        self.memory.record(&"first".into()).expect("there is a checkpoint")
    }

    /// What ran since it was last asked.
    pub(crate) fn ran(&self) -> Vec<String> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }

    /// A node that notes its run and appends its name to the log.
    pub(crate) fn says(&self, word: &'static str) -> impl Fn(State) -> Ready + use<> {
        let ran = self.ran.clone();
        move |_| {
            ran.lock().unwrap().push(word.to_owned());
            std::future::ready(Ok(Update::none().with("log", json!([word]))))
        }
    }

    /// The same, but the first run fails.
    pub(crate) fn fails_once(&self, word: &'static str) -> impl Fn(State) -> Ready + use<> {
        let ran = self.ran.clone();
        let failed = Mutex::new(false);
        move |_| {
            ran.lock().unwrap().push(word.to_owned());
            let first = !std::mem::replace(&mut *failed.lock().unwrap(), true);
            std::future::ready(if first {
                Err(NodeError::new("not yet"))
            } else {
                Ok(Update::none().with("log", json!([word])))
            })
        }
    }
}

pub(crate) type Ready = std::future::Ready<Result<Update, NodeError>>;

pub(crate) fn compiled(graph: GraphBuilder) -> Arc<CompiledGraph> {
    Arc::new(graph.compile().unwrap())
}

pub(crate) fn first(state: Value) -> Invocation {
    Invocation {
        state: map(state),
        invocation_id: Some(InvocationId::from("first")),
        correlation_id: Some("the same work".to_owned()),
        ..Invocation::default()
    }
}

pub(crate) fn end(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Completed(done) => Value::Object(done.state.to_map()),
        Outcome::Suspended(pause) => panic!("it did not complete: {pause:?}"),
    }
}

pub(crate) fn list(default: Value) -> Field {
    Field::new(FieldType::List(Box::new(FieldType::Any)), default).reduced_by(Reducer::Append)
}

pub(crate) fn int(default: i64) -> Field {
    Field::new(FieldType::Int, default)
}

/// A log, version 7.
pub(crate) fn schema() -> StateSchema {
    StateSchema::new().field("log", list(json!([]))).with_version("7")
}

/// Positions as `containing/node`.
pub(crate) fn names(positions: &[NodePosition]) -> Vec<String> {
    let name = |position: &NodePosition| {
        position.namespace.iter().chain([&position.node_name]).map(AsRef::as_ref).collect::<Vec<&str>>().join("/")
    };
    positions.iter().map(name).collect()
}
