//! Durable steps on DynamoDB: what each costs, however long the history is, and that a step which is lost is made again.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::Client;
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_engine::{END, Engine, Graph, Invocation, Outcome, Ports, Reducer, SessionPolicy, Target};
use dormouse_harness::DescriptorWakes;
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::Map;
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use serde_json::{Value, json};

const TABLE: &str = "dormouse";
const STEPS: u64 = 20;

dormouse_engine::state! {
    #[derive(Clone, Debug, Default)]
    struct Talk {
        messages: Vec<Value>,
        steps: u64,
    }
}

/// About 400 bytes, a third of which no compression makes smaller than half.
fn message(n: u64) -> Value {
    let noise = (0..8).map(|k| format!("{:016x}", (8 * n + k).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    json!({ "role": "user", "content": format!("{} {}", noise.collect::<String>(), "of many words ".repeat(16)) })
}

/// Requests and write units of a step, on average, of a talk that began with `count` messages.
async fn cost_of_a_step(count: u64, session: bool) -> (f64, f64) {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
    let meter = Meter::with_units();
    let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
    let store = Arc::new(DynamoDbStateStore::new(&client, TABLE, StoreConfig::default()));
    let ports = Ports {
        store: store.into(),
        clock: Arc::new(SystemClock::default()),
        ids: Arc::new(RandomIds),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    };
    let marks: Arc<Mutex<Vec<(f64, f64)>>> = Arc::default();
    let seen = marks.clone();
    let counts = meter.clone();
    let graph = Graph::<Talk>::new("talk")
        .reducer(Talk::messages, Reducer::Append)
        .sessions(SessionPolicy::keeping(Talk::messages))
        .entry("step")
        .node("step", move |talk: Arc<Talk>| {
            let usage = counts.snapshot();
            let requests: u64 = usage.values().map(|usage| usage.requests).sum();
            let units: f64 = usage.values().map(|usage| usage.units).sum();
            seen.lock().expect("not poisoned").push((requests as f64, units));
            async move { Ok(Talk::messages.append([message(10_000 + talk.steps)]).set(Talk::steps, talk.steps + 1)) }
        })
        .durable("step")
        .route("step", ["step"], |talk| if talk.steps < STEPS { Target::from("step") } else { END })
        .compile()
        .expect("a graph");
    let messages: Vec<Value> = (0..count).map(message).collect();
    let state = Map::from_iter([("messages".to_owned(), Value::Array(messages))]);
    let session_id = session.then(|| "session-1".into());
    let call = Invocation { state, session_id, ..Invocation::default() };
    let ended = Engine::new(ports).invoke(&Arc::new(graph), call).await;
    assert!(matches!(ended, Ok(Outcome::Completed(_))), "{ended:?}");
    let marks = marks.lock().expect("not poisoned");
    let first = marks[3];
    let last = marks[marks.len() - 1];
    let steps = (marks.len() - 4) as f64;
    ((last.0 - first.0) / steps, (last.1 - first.1) / steps)
}

#[tokio::test]
async fn a_step_costs_the_same_however_long_the_history_is() {
    for session in [false, true] {
        let (requests, units) = cost_of_a_step(10, session).await;
        let (later_requests, later_units) = cost_of_a_step(1000, session).await;
        println!(
            "session {session}: {requests} requests, {units} units; at 1,000 messages {later_requests}, {later_units}"
        );
        assert!(requests <= 2.0 && later_requests <= 2.0, "{requests} and {later_requests} requests");
        assert!(later_units <= units * 1.3, "{units} units at 10 messages, {later_units} at 1,000");
    }
}

/// A worker that dies in the middle of a step is followed by one that makes this step again, and no other.
#[tokio::test]
async fn only_the_step_that_was_lost_is_made_again() {
    use dormouse_engine::{AfterError, LeaseTerms, Resume};
    use dormouse_ports::{ClaimOutcome, ClaimRequest, Clock, Commits};
    use dormouse_testkit::{CountingIds, ManualClock, MemoryStore};
    use futures::FutureExt;
    use std::time::Duration;

    let store = Arc::new(MemoryStore::default());
    let clock = Arc::new(ManualClock::default());
    let ports = Ports {
        store: store.clone().into(),
        clock: clock.clone(),
        ids: Arc::new(CountingIds::default()),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    };
    let made = Arc::new(AtomicU64::new(0));
    let count = made.clone();
    let graph = Graph::<Talk>::new("talk")
        .reducer(Talk::messages, Reducer::Append)
        .entry("step")
        .node("step", move |talk: Arc<Talk>| {
            let attempt = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if attempt == 3 {
                    futures::future::pending::<()>().await;
                }
                Ok(Talk::steps.set(talk.steps + 1).append(Talk::messages, [json!(talk.steps)]))
            }
        })
        .durable("step")
        .route("step", ["step"], |talk| if talk.steps < 6 { Target::from("step") } else { END })
        .compile()
        .expect("a graph");
    let engine = Engine::new(ports);
    let graph = Arc::new(graph);
    let call = Invocation { invocation_id: Some("i1".into()), ..Invocation::default() };
    assert!(engine.invoke(&graph, call).now_or_never().is_none(), "the worker hangs at its fourth step, and is gone");
    clock.advance(Duration::from_secs(60));
    let now = clock.now();
    let request = ClaimRequest {
        invocation_id: "i1".into(),
        generation: None,
        owner: "second".into(),
        now,
        until: now + Duration::from_secs(60),
        past: None,
        payload: None,
        answered: None,
    };
    let ClaimOutcome::Granted(record) = store.claim(&request).await.expect("an answer") else { panic!("it is free") };
    assert!(record.paused.under_way && record.paused.completed_positions.len() == 1, "{record:?}");
    let resume = Resume {
        payload: Map::new(),
        generation: None,
        claim: LeaseTerms { owner: "second".into(), duration: Duration::from_secs(60), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::KeepClaim,
    };
    let Ok(Outcome::Completed(done)) = engine.resume_claimed(&graph, record, resume).await else { panic!("it ends") };
    assert_eq!(done.state.to_map()["messages"], json!([0, 1, 2, 3, 4, 5]));
    assert_eq!(made.load(Ordering::Relaxed), 7, "six steps, one of them twice");
}
