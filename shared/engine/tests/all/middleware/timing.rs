#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::Stage;
use async_trait::async_trait;
use dormouse_engine::middleware::{Timing, TimingRecord, Told};
use dormouse_engine::{END, GraphBuilder, Node, NodeError, State, Update};
use dormouse_ports::Category;
use dormouse_testkit::ManualClock;
use futures::FutureExt;
use serde_json::json;

use super::cast::{Flaky, compiled, down, log, retry, says, schema, single, watched};

type Records = Arc<Mutex<Vec<TimingRecord>>>;

fn into(records: &Records) -> impl Fn(TimingRecord) -> Told<'static> + use<> {
    let records = records.clone();
    move |record| {
        records.lock().unwrap().push(record);
        async { Ok(()) }.boxed()
    }
}

fn lines(records: &Records) -> Vec<String> {
    let line = |record: &TimingRecord| {
        let category = record.exception_category.as_ref().map_or("-", Category::as_str);
        format!("{} {} {} {category}", record.node_name, record.duration_ms, record.outcome.as_str())
    };
    records.lock().unwrap().iter().map(line).collect()
}

/// Takes five milliseconds, then does what the other does.
struct Slow(Flaky, Arc<ManualClock>);

#[async_trait]
impl Node for Slow {
    async fn run(&self, state: State) -> Result<Update, NodeError> {
        self.1.advance(Duration::from_millis(5));
        self.0.run(state).await
    }
}

#[tokio::test]
async fn around_a_retry_it_times_all_attempts_and_inside_each() {
    let stage = Stage::default();
    let outer = Records::default();
    let inner = Records::default();
    let graph = single(Slow(Flaky::raising([down("1"), down("2")]), stage.clock.clone()))
        .wrap("work", Arc::new(Timing::new("outer", stage.clock.clone(), into(&outer))))
        .wrap("work", Arc::new(retry(&stage, 3)))
        .wrap("work", Arc::new(Timing::new("inner", stage.clock.clone(), into(&inner))));
    let (ended, _) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["done"]));
    assert_eq!(lines(&outer), ["outer 15 success -"]);
    let failed = "inner 5 exception provider_unavailable";
    assert_eq!(lines(&inner), [failed, failed, "inner 5 success -"]);
}

#[tokio::test]
async fn for_a_graph_it_knows_every_node_by_name() {
    let stage = Stage::default();
    let records = Records::default();
    let graph = GraphBuilder::new("g", schema())
        .entry("more")
        .function("more", |_| async { Ok(says("more")) })
        .node("work", Flaky::default())
        .wrap_all(Arc::new(Timing::for_graph(stage.clock.clone(), into(&records))))
        .edge("more", "work")
        .edge("work", END);
    let (ended, _) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["more", "done"]));
    assert_eq!(lines(&records), ["more 0 success -", "work 0 success -"]);
}

#[tokio::test]
async fn what_its_callback_raises_counts_as_raised_by_the_node() {
    let stage = Stage::default();
    let raises = |_| async { Err(NodeError::new("the callback failed")) }.boxed();
    let graph = single(Flaky::default()).wrap("work", Arc::new(Timing::new("work", stage.clock.clone(), raises)));
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    let error = ended.unwrap_err();
    assert_eq!((error.category(), error.message()), (&Category::NodeException, "the callback failed"));
    assert_eq!(told.lines(), ["started work 0", "completed work 0 node_exception"]);
}
