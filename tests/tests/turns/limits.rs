//! What is beyond a limit is refused with its category and a sentence that says what to do, and nothing is written. The
//! table is in `dormouse_ports::limits`; parts and steps of ladders are tested where they are read, state and payload
//! sizes of the table in `store_faults`, bodies and ids of requests in `handlers`, parked signals in the contract.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, SessionPolicy, State, StateSchema, Update, augment_metadata,
    suspend,
};
use dormouse_harness::{Bucket, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{Category, InvocationLimits, Invocations, Map, Sessions, SignalDescriptor, limits};
use dormouse_tests::{Stage, map};
use serde_json::json;

/// Waits for `wait` again and again, and never ends.
fn restless(wait: SignalDescriptor) -> Arc<CompiledGraph> {
    let schema = StateSchema::new().field("note", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new("restless", schema)
        .entry("ask")
        .function("ask", move |_: State| {
            let wait = wait.clone();
            async move { Err(suspend(wait).await) }
        })
        .function("rest", async |_: State| Ok(Update::none()))
        .edge("ask", "rest")
        .route("rest", |state| Ok(if state.get("note") == Some(&json!("enough")) { END } else { "ask".into() }));
    Arc::new(graph.compile().unwrap())
}

struct Scene {
    stage: Stage,
    worker: Harness,
}

impl Scene {
    fn of(wait: SignalDescriptor, most: InvocationLimits, config: HarnessConfig) -> Self {
        let stage = Stage::default();
        let engine = stage.engine().limited(most);
        let graphs = GraphRegistry::new([restless(wait)]);
        let worker = Harness::new(engine, graphs, stage.subscriptions.clone(), stage.bus.clone(), config);
        Self { stage, worker }
    }

    fn plain(wait: SignalDescriptor) -> Self {
        Self::of(wait, InvocationLimits::default(), HarnessConfig::new(Mode::Stateless))
    }

    async fn begin(&self, metadata: Map) -> TurnOutcome {
        let start = FreshTurn::new("restless", Map::new());
        self.worker.turn(FreshTurn { invocation_id: Some("i".into()), metadata, ..start }).await.outcome
    }

    async fn send(&self, payload: serde_json::Value) -> TurnOutcome {
        self.worker.turn(Transmission::signal("s", map(payload))).await.outcome
    }

    fn written(&self) -> String {
        format!("{:?}", self.stage.store)
    }

    async fn pauses(&self) -> u64 {
        self.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap().paused.generation
    }
}

/// Checks that `outcome` is an error of `category` that says `sentence`.
fn refused(outcome: TurnOutcome, category: &Category, bucket: Bucket, sentence: &str) {
    let TurnOutcome::Errored(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!((&error.category, error.bucket), (category, bucket), "{}", error.message);
    assert!(error.message.contains(sentence), "{}", error.message);
}

#[tokio::test]
async fn a_payload_that_is_too_large_is_refused_however_it_comes() {
    let config = HarnessConfig { signal_payload: 40, ..HarnessConfig::new(Mode::Stateless) };
    let scene = Scene::of(SignalDescriptor::new("s"), InvocationLimits::default(), config);
    scene.begin(Map::new()).await;
    let before = scene.written();
    let large = json!({ "note": "x".repeat(40) });
    let callback = scene.worker.turn(Transmission::callback("i", None, map(large.clone()))).await.outcome;
    let early = scene.worker.turn(Transmission::signal("nobody's", map(large.clone()))).await.outcome;
    for outcome in [scene.send(large).await, callback, early] {
        let sentence = "the payload has 51 bytes; the limit is 40 bytes: keep the data elsewhere";
        refused(outcome, &Category::RequestTooLarge, Bucket::UserCorrectable, sentence);
    }
    assert_eq!(scene.written(), before);
    assert!(matches!(scene.send(json!({ "note": "enough" })).await, TurnOutcome::Completed(_)));
}

#[tokio::test]
async fn metadata_of_an_invocation_is_bounded() {
    let scene = Scene::plain(SignalDescriptor::new("s"));
    let before = scene.written();
    let large = map(json!({ "note": "x".repeat(limits::METADATA) }));
    let sentence = "the metadata has 65547 bytes of JSON; the limit is 65536 bytes";
    refused(scene.begin(large).await, &Category::RequestTooLarge, Bucket::UserCorrectable, sentence);
    assert_eq!(scene.written(), before);
}

#[tokio::test]
async fn what_a_node_adds_to_the_metadata_is_bounded_with_the_rest() {
    let graph = GraphBuilder::new("adds", StateSchema::new().field("note", Field::new(FieldType::Str, "")))
        .entry("add")
        .function("add", async |_: State| {
            let add = |name: &str, size| augment_metadata(map(json!({ name: "x".repeat(size) })));
            let half = limits::METADATA / 2;
            assert_eq!(add("first", half), Ok(()));
            let refused = add("second", half).expect_err("both are too many");
            assert_eq!(add("first", half + 1), Ok(()), "what is replaced does not count");
            Ok(Update::none().with("note", refused.to_string()))
        })
        .edge("add", END);
    let stage = Stage::default();
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [Arc::new(graph.compile().unwrap())]);
    let outcome = worker.turn(Transmission::start("adds", Map::new())).await.outcome;
    let TurnOutcome::Completed(turn) = outcome else { panic!("{outcome:?}") };
    assert_eq!(turn.state["note"], "the metadata has 65560 bytes of JSON; the limit is 65536 bytes");
}

/// Of a pause, of a session and of an end; on any store.
#[tokio::test]
async fn a_state_is_bounded_whatever_the_store_would_take() {
    let most = InvocationLimits { state: 100, ..InvocationLimits::default() };
    let scene = Scene::of(SignalDescriptor::new("s"), most, HarnessConfig::new(Mode::Stateless));
    let before = scene.written();
    let large = map(json!({ "note": "x".repeat(100) }));
    let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("restless", large) };
    let outcome = scene.worker.turn(start.clone()).await.outcome;
    let sentence = "the paused state has 111 bytes; the limit is 100";
    refused(outcome, &Category::RequestTooLarge, Bucket::UserCorrectable, sentence);
    assert_eq!(scene.written(), before);

    let graph = GraphBuilder::new("notes", StateSchema::new().field("note", Field::new(FieldType::Str, "")))
        .sessions(SessionPolicy::projected(["note"]))
        .entry("note")
        .function("note", async |_: State| Ok(Update::none().with("note", "x".repeat(100))))
        .edge("note", END);
    let engine = scene.stage.engine().limited(most);
    let registry = GraphRegistry::new([Arc::new(graph.compile().unwrap())]);
    let subscriptions = scene.stage.subscriptions.clone();
    let bus = scene.stage.bus.clone();
    let worker = Harness::new(engine, registry, subscriptions, bus, HarnessConfig::new(Mode::Sessioned));
    let start = FreshTurn { session_id: Some("session".into()), ..FreshTurn::new("notes", Map::new()) };
    let outcome = worker.turn(start).await.outcome;
    let sentence = "the session state has 111 bytes; the limit is 100";
    refused(outcome, &Category::RequestTooLarge, Bucket::UserCorrectable, sentence);
    let session = scene.stage.store.load_session(&"session".into(), None).await.unwrap();
    assert!(
        session.record.is_none() && session.leased_until.is_none(),
        "nothing is saved, and the lease is given back"
    );
}

/// What nodes make of what they were given is looked at before it is written: what cannot be read again is not.
#[tokio::test]
async fn a_state_that_could_not_be_read_again_is_not_written() {
    let wraps = GraphBuilder::new("wraps", StateSchema::new().field("note", Field::new(FieldType::Any, json!(null))))
        .entry("wrap")
        .function("wrap", async |state: State| {
            let levels = state.get("note").and_then(serde_json::Value::as_u64).unwrap_or_default();
            Ok(Update::none().with("note", (0..levels).fold(json!(0), |inner, _| json!([inner]))))
        })
        .function("ask", async |_: State| Err(suspend(SignalDescriptor::new("s")).await))
        .edge("wrap", "ask")
        .edge("ask", END);
    let stage = Stage::default();
    let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [Arc::new(wraps.compile().unwrap())]);
    let begin = |id: &str, levels: u64| {
        let start = FreshTurn::new("wraps", map(json!({ "note": levels })));
        worker.turn(FreshTurn { invocation_id: Some(id.into()), ..start })
    };
    let before = format!("{:?}", stage.store);
    let outcome = begin("deep", 80).await.outcome;
    let sentence = "the paused state: the JSON is nested deeper than 80 levels";
    refused(outcome, &Category::RequestTooLarge, Bucket::UserCorrectable, sentence);
    assert_eq!(format!("{:?}", stage.store), before);
    assert!(matches!(begin("flat", 79).await.outcome, TurnOutcome::Suspended(_)));
    let deep = (0..64).fold(json!(0), |inner, _| json!([inner]));
    let sent = worker.turn(Transmission::signal("s", map(json!({ "note": deep })))).await.outcome;
    let sentence = "the payload: the JSON is nested deeper than 64 levels";
    refused(sent, &Category::RequestTooLarge, Bucket::UserCorrectable, sentence);
}

#[tokio::test]
async fn metadata_and_id_of_a_signal_are_bounded() {
    let large = SignalDescriptor::new("s").with("note", "x".repeat(limits::METADATA));
    let long = SignalDescriptor::new("s".repeat(limits::ID + 1));
    for (wait, sentence) in [
        (large, "the metadata has 65547 bytes of JSON; the limit is 65536 bytes: keep the data in the state"),
        (long, "the signal id has 257 bytes, and must have 1 to 256"),
        (SignalDescriptor::new(""), "the signal id has 0 bytes, and must have 1 to 256"),
    ] {
        let scene = Scene::plain(wait);
        let before = scene.written();
        let category = Category::HarnessSignalSubscriptionFailed;
        refused(scene.begin(Map::new()).await, &category, Bucket::UserCorrectable, sentence);
        assert_eq!(scene.written(), before);
    }
}

#[tokio::test]
async fn an_invocation_sleeps_only_so_often() {
    let most = InvocationLimits { pauses: 3, ..InvocationLimits::default() };
    let scene = Scene::of(SignalDescriptor::new("s"), most, HarnessConfig::new(Mode::Stateless));
    scene.begin(Map::new()).await;
    for _ in 0..2 {
        assert!(matches!(scene.send(json!({})).await, TurnOutcome::Suspended(_)));
    }
    let sentence = "the invocation has slept 3 times, which is the limit; begin another one instead";
    for outcome in [scene.send(json!({})).await, scene.send(json!({})).await] {
        refused(outcome, &Category::LimitExceeded, Bucket::SessionTerminating, sentence);
    }
    assert_eq!(scene.pauses().await, 3);
}

#[tokio::test]
async fn an_invocation_that_wakes_itself_at_once_again_and_again_is_stopped() {
    let most = InvocationLimits { self_wakes: 5, ..InvocationLimits::default() };
    let config = HarnessConfig::new(Mode::Stateless);
    let scene = Scene::of(SignalDescriptor::new("s").with("wake_after", "PT1S"), most, config);
    scene.begin(Map::new()).await;
    for _ in 0..10 {
        scene.stage.clock.advance(Duration::from_secs(1));
        scene.stage.sweep(&scene.worker, SweepScope::Due).await.unwrap();
    }
    assert_eq!(scene.pauses().await, 5);
    let sentence = "woke itself at once 5 times in a row, which is the limit; sleep longer";
    let ended = scene.worker.look_up(&"i".into()).await.unwrap();
    refused(ended, &Category::LimitExceeded, Bucket::SessionTerminating, sentence);
}

#[tokio::test]
async fn who_sleeps_a_while_may_wake_itself_for_ever() {
    let most = InvocationLimits { self_wakes: 2, ..InvocationLimits::default() };
    let config = HarnessConfig::new(Mode::Stateless);
    let scene = Scene::of(SignalDescriptor::new("s").with("wake_after", "PT30S"), most, config);
    scene.begin(Map::new()).await;
    for _ in 0..10 {
        scene.stage.clock.advance(Duration::from_secs(30));
        scene.stage.sweep(&scene.worker, SweepScope::Due).await.unwrap();
    }
    assert_eq!(scene.pauses().await, 11);
}
