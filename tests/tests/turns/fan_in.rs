//! One pause for several signals: who decides, what the others are told, and what happens when they come early, late,
//! twice or at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;
use std::time::Duration;

use dormouse_app::{Ballot, Vote};
use dormouse_engine::{
    Answer, CompiledGraph, END, Field, FieldType, Graph, GraphBuilder, State, StateSchema, Update, Voters, Votes, Wait,
    state, suspend,
};
use dormouse_harness::{Bucket, Callback, FreshTurn, Harness, Mode, Tally, Transmission, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    Category, Commit, Commits, GrowingLists, InvocationStatus, InvocationWrite, Invocations, Journal, Map, PartAnswer,
    Resolution, SignalDescriptor, SignalState, Signals,
};
use dormouse_tests::{Stage, diagnose, map};
use futures::future::join_all;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

/// Asks `a`, `b` and `c` with what else the descriptor says, and counts how often it went on.
fn asking(expects: &Value, with: Option<(&'static str, Value)>) -> Arc<CompiledGraph> {
    let schema = StateSchema::new()
        .field("votes", Field::new(FieldType::Mapping(Box::new(FieldType::Any)), json!({})))
        .field("default", Field::new(FieldType::Str, ""))
        .field("dormouse_resolution", Field::new(FieldType::Str, ""))
        .field("times", Field::new(FieldType::Int, 0));
    let expects = expects.clone();
    let graph = GraphBuilder::new("asking", schema)
        .entry("ask")
        .function("ask", move |_: State| {
            let mut wait = SignalDescriptor::new("s").with("expects", expects.clone());
            if let Some((key, value)) = with.clone() {
                wait = wait.with(key, value);
            }
            async move { Err(suspend(wait).await) }
        })
        .function("settle", async |state: State| {
            let times = state.get("times").and_then(Value::as_u64).unwrap();
            Ok(Update::none().with("times", times + 1))
        })
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

fn three(until: Value) -> Value {
    json!({ "parts": { "a": {}, "b": {}, "c": {} }, "until": until, "into": "votes",
        "veto": { "field": "vote", "is": "no" } })
}

struct Scene {
    stage: Stage,
    worker: Harness,
}

impl Scene {
    fn of(graph: Arc<CompiledGraph>) -> Self {
        let stage = Stage::default();
        let worker = stage.harness_on(stage.store.clone(), Mode::Stateless, [graph]);
        Self { stage, worker }
    }

    /// Invocation `i` sleeps until two of three have answered, or one has said no.
    async fn asleep() -> Self {
        let scene = Self::of(asking(&three(json!({ "at_least": 2 })), None));
        assert!(matches!(scene.begin().await, TurnOutcome::Suspended(_)));
        scene
    }

    async fn begin(&self) -> TurnOutcome {
        let start = FreshTurn { invocation_id: Some("i".into()), ..FreshTurn::new("asking", Map::new()) };
        self.worker.turn(start).await.outcome
    }

    async fn answer(&self, part: &str, vote: &str) -> TurnOutcome {
        self.send(part, json!({ "vote": vote })).await
    }

    async fn send(&self, part: &str, payload: Value) -> TurnOutcome {
        self.worker.turn(Transmission::signal(format!("s/{part}"), map(payload))).await.outcome
    }

    async fn signal(&self, part: &str) -> Option<SignalState> {
        let known = self.stage.store.load_signal(&format!("s/{part}").into(), self.worker_now()).await.unwrap();
        known.map(|record| record.state)
    }

    fn worker_now(&self) -> jiff::Timestamp {
        dormouse_ports::Clock::now(&*self.stage.clock)
    }
}

/// The tally of an answer that was accepted and does not decide.
fn tally(outcome: TurnOutcome) -> (Tally, bool) {
    let TurnOutcome::Suspended(turn) = outcome else { panic!("{outcome:?}") };
    (turn.tally.unwrap(), turn.repeated)
}

fn names(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// The votes with which it completed, and whether the sender was the one who ended it.
fn completed(outcome: TurnOutcome) -> (Value, bool) {
    let TurnOutcome::Completed(done) = outcome else { panic!("{outcome:?}") };
    assert_eq!(done.state["times"], 1, "it went on once");
    (done.state["votes"].clone(), !done.repeated)
}

#[tokio::test]
async fn answers_that_are_left_to_other_workers_count_and_the_one_that_decides_is_gone_on_with_there() {
    let scene = Scene::asleep().await;
    let leave = async |part: &str| {
        let payload = map(json!({ "vote": "yes" }));
        scene.worker.leave_signal(&format!("s/{part}").into(), payload, None).await.unwrap();
        scene.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap()
    };
    for _again in 0..2 {
        let record = leave("b").await;
        assert_eq!(record.status, InvocationStatus::Suspended);
        assert_eq!(record.paused.fan_in.map(|fan_in| fan_in.answers.len()), Some(1));
    }
    let record = leave("c").await;
    assert!(matches!(record.status, InvocationStatus::Accepted { .. }), "no turn ran: {:?}", record.status);
    let (votes, _) = completed(scene.worker.take_up(&"i".into(), None).await.outcome);
    assert_eq!((&votes["decided_by"], &votes["missing"]), (&json!("c"), &json!(["a"])));
}

#[tokio::test]
async fn the_second_of_three_decides_and_the_third_is_told_so() {
    let scene = Scene::asleep().await;
    let (told, repeated) = tally(scene.answer("b", "yes").await);
    let expected = Tally { answered: names(&["b"]), missing: names(&["a", "c"]), accepted: Some("b".to_owned()) };
    assert_eq!((told, repeated), (expected, false));
    let (votes, decided) = completed(scene.answer("c", "yes").await);
    let expected = json!({ "answers": { "b": { "vote": "yes" }, "c": { "vote": "yes" } }, "missing": ["a"],
        "decided_by": "c", "outcome": "enough" });
    assert_eq!((&votes, decided), (&expected, true));
    for late in [scene.answer("a", "no").await, scene.answer("b", "yes").await, scene.answer("c", "no").await] {
        assert_eq!(completed(late), (expected.clone(), false), "the same answer");
    }
    for part in ["a", "b", "c"] {
        assert!(matches!(scene.signal(part).await, Some(SignalState::Delivered { .. })), "{part} is free");
    }
}

#[tokio::test]
async fn the_first_answer_of_a_part_stands() {
    let scene = Scene::asleep().await;
    tally(scene.answer("a", "yes").await);
    let (told, repeated) = tally(scene.answer("a", "yes").await);
    assert_eq!((told.answered, told.accepted, repeated), (names(&["a"]), Some("a".to_owned()), true));
    let TurnOutcome::Errored(other) = scene.answer("a", "no").await else { panic!("it is not what was said before") };
    assert_eq!(other.category, Category::SuspensionRecordInvalid);
    let (votes, _) = completed(scene.answer("b", "yes").await);
    assert_eq!(votes["answers"]["a"]["vote"], "yes");
}

#[tokio::test]
async fn a_veto_ends_it_at_once() {
    let scene = Scene::asleep().await;
    let (votes, decided) = completed(scene.answer("c", "no").await);
    assert_eq!((&votes["outcome"], &votes["decided_by"], decided), (&json!("veto"), &json!("c"), true));
    assert_eq!(votes["missing"], json!(["a", "b"]));
}

#[tokio::test]
async fn any_and_all_mean_what_they_say() {
    for (until, needed) in [("any", 1), ("all", 3)] {
        let scene = Scene::of(asking(&three(json!(until)), None));
        scene.begin().await;
        for (count, part) in (1..).zip(["c", "a", "b"]).take(needed) {
            let outcome = scene.answer(part, "yes").await;
            assert_eq!(matches!(outcome, TurnOutcome::Completed(_)), count == needed, "{until}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn of_answers_at_once_exactly_one_decides() {
    let scene = Scene::asleep().await;
    let parts = ["a", "b", "c", "a", "b", "c"];
    let outcomes = join_all(parts.map(|part| scene.answer(part, "yes"))).await;
    let deciding = outcomes.iter().filter(|outcome| matches!(outcome, TurnOutcome::Completed(done) if !done.repeated));
    assert_eq!(deciding.count(), 1, "{outcomes:?}");
    let TurnOutcome::Completed(done) = scene.worker.look_up(&"i".into()).await.unwrap() else { panic!("it sleeps on") };
    assert_eq!((&done.state["times"], done.state["votes"]["missing"].as_array().unwrap().len()), (&json!(1), 1));
}

#[tokio::test]
async fn answers_that_were_given_back_are_taken_up_by_a_duplicate() {
    let scene = Scene::asleep().await;
    tally(scene.answer("a", "yes").await);
    let paused = scene.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap().paused;
    // As after an early answer that decided, and a worker that could not take the pause up.
    let answer = PartAnswer { part: "b".to_owned(), payload: map(json!({ "vote": "yes" })), at: scene.worker_now() };
    let write = InvocationWrite::Answer { paused: Box::new(paused), answer };
    let id = "given-back".to_owned();
    let now = scene.worker_now();
    let growing = GrowingLists::default();
    scene
        .stage
        .store
        .commit(&Commit { id, now, session: None, invocation: Some(write), journal: Journal::default(), growing })
        .await
        .unwrap();
    let (votes, decided) = completed(scene.answer("a", "yes").await);
    assert_eq!((&votes["decided_by"], &votes["missing"], decided), (&json!("b"), &json!(["c"]), true));
}

#[tokio::test]
async fn what_came_early_counts_and_may_decide_at_once() {
    let scene = Scene::of(asking(&three(json!({ "at_least": 2 })), None));
    assert!(matches!(scene.answer("c", "yes").await, TurnOutcome::Buffered { .. }));
    let TurnOutcome::Suspended(turn) = scene.begin().await else { panic!("one is not enough") };
    assert_eq!(turn.tally.map(|tally| tally.answered), Some(names(&["c"])));
    assert_eq!(completed(scene.answer("a", "yes").await).0["missing"], json!(["b"]));

    let scene = Scene::of(asking(&three(json!({ "at_least": 2 })), None));
    for part in ["b", "a", "c"] {
        assert!(matches!(scene.answer(part, "yes").await, TurnOutcome::Buffered { .. }));
        scene.stage.clock.advance(Duration::from_secs(1));
    }
    let (votes, _) = completed(scene.begin().await);
    assert_eq!((&votes["decided_by"], &votes["missing"]), (&json!("a"), &json!([])), "in the order of their coming");
    assert!(matches!(scene.signal("c").await, Some(SignalState::Delivered { .. })), "nothing stays parked");
}

#[tokio::test]
async fn time_ends_it_with_what_had_come() {
    let then = json!({ "after": "PT1H", "then": { "resume": { "default": "denied" } } });
    let scene = Scene::of(asking(&three(json!("all")), Some(("timeout", then))));
    scene.begin().await;
    tally(scene.answer("b", "yes").await);
    scene.stage.clock.advance(HOUR);
    scene.stage.sweep(&scene.worker, SweepScope::Due).await.unwrap();
    let TurnOutcome::Completed(done) = scene.worker.look_up(&"i".into()).await.unwrap() else { panic!("it sleeps on") };
    assert_eq!(done.resolution, Some(Resolution::TimedOut));
    assert_eq!((&done.state["default"], &done.state["dormouse_resolution"]), (&json!("denied"), &json!("timed_out")));
    let expected = json!({ "answers": { "b": { "vote": "yes" } }, "missing": ["a", "c"], "decided_by": null,
        "outcome": "time" });
    assert_eq!(done.state["votes"], expected);
}

#[tokio::test]
async fn a_ladder_tells_who_is_missing_and_may_end_it() {
    let ladder = json!([{ "after": "PT1H", "do": "remind" }, { "after": "PT2H", "then": "fail" }]);
    let scene = Scene::of(asking(&three(json!("all")), Some(("deadlines", ladder))));
    scene.begin().await;
    tally(scene.answer("b", "yes").await);
    scene.stage.clock.advance(HOUR);
    scene.stage.sweep(&scene.worker, SweepScope::Due).await.unwrap();
    let event = scene.stage.bus.events().pop().unwrap();
    assert_eq!((&event.detail["do"], &event.detail["missing"]), (&json!("remind"), &json!(["a", "c"])));
    tally(scene.answer("a", "yes").await);
    scene.stage.clock.advance(HOUR);
    scene.stage.sweep(&scene.worker, SweepScope::Due).await.unwrap();
    let TurnOutcome::Errored(error) = scene.answer("c", "yes").await else { panic!("it is over") };
    assert_eq!(error.category, Category::SuspensionTimedOut);
    assert!(error.message.ends_with("no answer came for c"), "{}", error.message);
}

#[tokio::test]
async fn a_cancellation_frees_every_part() {
    let scene = Scene::asleep().await;
    tally(scene.answer("b", "yes").await);
    scene.worker.cancel(&"i".into(), None, None).await.unwrap();
    for part in ["a", "b", "c"] {
        assert!(matches!(scene.signal(part).await, Some(SignalState::Delivered { .. })), "{part} is free");
        let TurnOutcome::Errored(error) = scene.answer(part, "yes").await else { panic!("it is over") };
        assert_eq!(error.category, Category::InvocationCanceled);
    }
}

#[tokio::test]
async fn who_names_no_part_is_told_which_there_are() {
    let scene = Scene::asleep().await;
    let wrong = Callback { part: Some("d".to_owned()), ..Callback::new("i", None, Map::new()) };
    for transmission in [Callback::new("i", None, Map::new()), wrong] {
        let TurnOutcome::Errored(error) = scene.worker.turn(transmission).await.outcome else { panic!("accepted") };
        assert_eq!((error.category, error.bucket), (Category::RequestInvalid, Bucket::UserCorrectable));
        assert!(error.message.contains("a, b, c"), "{}", error.message);
    }
    let part = Callback { part: Some("a".to_owned()), ..Callback::new("i", Some(1), Map::new()) };
    assert_eq!(tally(scene.worker.turn(part).await.outcome).0.answered, names(&["a"]));
}

state! {
    /// What the strict graph works on: votes are yes or no.
    #[derive(Clone, Debug, Default)]
    struct Strict {
        votes: Votes<Ballot>,
        times: u64,
    }
}

fn strict() -> Arc<CompiledGraph> {
    let graph = Graph::<Strict>::new("asking")
        .entry("ask")
        .wait("ask", |_| {
            let voters = Voters::of(["a", "b", "c"]).at_least(2).veto(Ballot::vote, Vote::No);
            Ok(Wait::votes("s", Strict::votes, Answer::anything(), voters))
        })
        .node("settle", async |()| Ok(Strict::times.set(1)))
        .edge("ask", "settle")
        .edge("settle", END);
    Arc::new(graph.compile().unwrap())
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_and_spoils_nothing() {
    let scene = Scene::of(strict());
    assert!(matches!(scene.send("a", json!({ "vote": 1 })).await, TurnOutcome::Buffered { .. }));
    let TurnOutcome::Suspended(turn) = scene.begin().await else { panic!("it does not sleep") };
    assert_eq!(turn.tally.map(|tally| tally.answered), Some(Vec::new()), "what came early and does not fit is dropped");
    for deciding in [false, true] {
        let TurnOutcome::Errored(error) = scene.send("b", json!({ "vote": 2 })).await else { panic!("accepted") };
        assert_eq!(error.category, Category::SuspensionResumePayloadInvalid);
        let record = scene.stage.store.load_invocation(&"i".into()).await.unwrap().unwrap();
        assert_eq!(record.status, InvocationStatus::Suspended);
        assert_eq!(record.paused.fan_in.unwrap().answers.len(), usize::from(deciding));
        if !deciding {
            tally(scene.send("a", json!({ "vote": "yes" })).await);
        }
    }
    assert_eq!(completed(scene.send("b", json!({ "vote": "yes" })).await).0["missing"], json!(["c"]));
}

#[tokio::test]
async fn a_wait_that_cannot_be_arranged_is_refused_before_anything_is_written() {
    let many: Map = (0..26).map(|part| (format!("p{part}"), json!({}))).collect();
    for (expects, reason) in [
        (json!({ "parts": many, "into": "votes" }), "names 26 signals, and must name 1 to 25"),
        (json!({ "parts": { "a": {} } }), "the state has no field `fan_in` to receive the answer"),
    ] {
        let scene = Scene::of(asking(&expects, None));
        let TurnOutcome::Errored(error) = scene.begin().await else { panic!("it sleeps") };
        assert_eq!(
            (&error.category, error.bucket),
            (&Category::HarnessSignalSubscriptionFailed, Bucket::UserCorrectable)
        );
        assert!(error.message.contains(reason), "{}", error.message);
        assert_eq!(scene.stage.store.load_invocation(&"i".into()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn the_doctor_says_who_has_answered() {
    let scene = Scene::asleep().await;
    tally(scene.answer("b", "yes").await);
    let diagnosis = diagnose(&scene.worker, &scene.stage.maintenance(), "i").await.unwrap();
    assert!(!diagnosis.is_trouble(), "{diagnosis:?}");
    let sentence = &diagnosis.remarks[0].sentence;
    assert!(sentence.contains("waits for 2 of 3 answers: b answered, a, c did not"), "{sentence}");
    scene.stage.store.plant_signal(&"s/c".into(), None);
    let diagnosis = diagnose(&scene.worker, &scene.stage.maintenance(), "i").await.unwrap();
    let [found] = &diagnosis.remarks[..] else { panic!("{diagnosis:?}") };
    assert!(found.sentence.contains("signal `s/c`"), "{}", found.sentence);
    dormouse_maintenance::doctor::repair(&scene.worker, &scene.stage.maintenance(), &diagnosis.record, found.finding)
        .await
        .unwrap();
    assert!(!diagnose(&scene.worker, &scene.stage.maintenance(), "i").await.unwrap().is_trouble());
}
