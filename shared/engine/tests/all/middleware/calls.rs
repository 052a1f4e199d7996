//! Typed events of calls (graph-engine §6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::{
    END, FrameworkEvent, GraphBuilder, Invocation, NodeError, NodeEvent, ObservedCall, Observer, Phases, ToolCallEvent,
    ToolCallRecord,
};
use dormouse_ports::Map;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cast::{compiled, says, schema};

/// Keeps the calls of tools that it is told of, if it reads them.
struct Reader {
    reads: bool,
    calls: Mutex<Vec<ToolCallEvent>>,
}

impl Reader {
    fn new(reads: bool) -> Arc<Self> {
        Arc::new(Self { reads, calls: Mutex::default() })
    }

    fn calls(&self) -> Vec<ToolCallEvent> {
        self.calls.lock().expect("no test panicked").clone()
    }
}

#[async_trait]
impl Observer for Reader {
    async fn observe(&self, _: &NodeEvent) -> Result<(), NodeError> {
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        if let FrameworkEvent::ToolCall(event) = event {
            self.calls.lock().expect("no test panicked").push(ToolCallEvent::clone(event));
        }
        Ok(())
    }

    fn reads_calls(&self) -> bool {
        self.reads
    }
}

/// Runs a node that makes two calls, the second one for a node before it, and says whether anybody reads of them.
async fn run(observers: &[Arc<Reader>]) -> bool {
    let stage = Stage::default();
    let begun = Arc::new(AtomicBool::new(false));
    let told = begun.clone();
    let graph = GraphBuilder::new("g", schema())
        .entry("work")
        .function("work", move |_| {
            let told = told.clone();
            async move {
                let arguments = Map::from_iter([("city".to_owned(), "Paris".into())]);
                let result = json!({ "celsius": 20 });
                let record = ToolCallRecord {
                    tool: "weather",
                    id: None,
                    arguments: &arguments,
                    result: Ok(&result),
                    started: Timestamp::UNIX_EPOCH,
                    ended: Timestamp::UNIX_EPOCH + Duration::from_millis(1500),
                };
                let here = ObservedCall::known_as(|identity| format!("{}/1", identity.invocation_id));
                let earlier = ObservedCall::known_as(|_| "2".to_owned()).map(|call| call.begun_in("ask"));
                told.store(here.is_some(), Ordering::Relaxed);
                here.iter().chain(&earlier).for_each(|call| record.tell(call));
                Ok(says("done"))
            }
        })
        .edge("work", END);
    let graph = compiled(graph);
    for observer in observers {
        graph.attach_observer(observer.clone(), Phases::default());
    }
    stage.engine().invoke(&graph, Invocation::default()).await.expect("it runs");
    graph.drain(&*stage.clock, None).await;
    begun.load(Ordering::Relaxed)
}

#[tokio::test]
async fn calls_are_told_to_those_who_read_them_as_of_where_they_began() {
    let reader = Reader::new(true);
    let other = Reader::new(false);
    assert!(run(&[other.clone(), reader.clone()]).await);
    assert!(other.calls().is_empty(), "it does not read calls");
    let calls = reader.calls();
    let [here, earlier] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((here.call.node_name(), earlier.call.node_name()), ("work", "ask"));
    assert_eq!(*here.call.call_id, format!("{}/1", here.call.invocation_id));
    assert_eq!(here.request.arguments["city"], "Paris");
    assert_eq!((&here.result, here.latency_ms), (&json!({ "celsius": 20 }), Some(1500.0)));
    assert_eq!(earlier.request.tool_call_id, None);
}

#[tokio::test]
async fn calls_of_which_nobody_reads_are_not_told() {
    assert!(!run(&[]).await);
    assert!(!run(&[Reader::new(false)]).await);
    assert!(ObservedCall::known_as(|_| Value::Null.to_string()).is_none(), "outside of an invocation");
}
