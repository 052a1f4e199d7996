//! Every await on the store is a place where the process may die, fail before or after the effect: each is tried.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_app::{EXPENSE_APPROVAL, EXPORT_JOB, REMINDER};
use dormouse_harness::{Bucket, Harness, Mode, SweepScope, Transmission, TurnOutcome};
use dormouse_ports::Map;
use dormouse_testkit::{Fault, FaultyStore};
use dormouse_tests::{Stage, map};
use futures::FutureExt;
use serde_json::{Value, json};

/// A story: what clients and triggers send, in order; each is sent again until it is answered.
type Story = fn() -> Vec<Step>;

#[derive(Clone, Debug)]
enum Step {
    Send(Box<Transmission>),
    /// Time passes and the sweep comes by.
    Sweep(u64),
}

fn send(transmission: Transmission) -> Step {
    Step::Send(Box::new(transmission))
}

fn approval() -> Vec<Step> {
    let expense = map(json!({ "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe" }));
    vec![
        send(Transmission { invocation_id: Some("i-1".into()), ..Transmission::start(EXPENSE_APPROVAL, expense) }),
        send(Transmission::callback("i-1", Some(1), map(json!({ "decision": "approved", "decided_by": "Grace" })))),
    ]
}

fn approval_too_late() -> Vec<Step> {
    vec![approval().swap_remove(0), Step::Sweep(4 * 24 * 3600)]
}

fn approval_deadline_by_deadline() -> Vec<Step> {
    let day = || Step::Sweep(24 * 3600 + 60);
    vec![approval().swap_remove(0), day(), day(), day()]
}

fn early_signal() -> Vec<Step> {
    let export = map(json!({ "dataset": "orders" }));
    let done = map(json!({ "status": "succeeded", "url": "s3://b/k" }));
    vec![
        send(Transmission::signal("export-i-1", done)),
        send(Transmission { invocation_id: Some("i-1".into()), ..Transmission::start(EXPORT_JOB, export) }),
        Step::Sweep(120),
    ]
}

fn reminder() -> Vec<Step> {
    let state = map(json!({ "text": "wake up", "after": "PT10M" }));
    vec![
        send(Transmission { invocation_id: Some("i-1".into()), ..Transmission::start(REMINDER, state) }),
        Step::Sweep(601),
    ]
}

/// Where the story must end: the field `name` holds `value`.
struct Ending {
    story: Story,
    field: &'static str,
    value: Value,
    /// The deadlines that were announced on the way, each once or more often.
    announced: &'static [&'static str],
}

fn endings() -> [Ending; 5] {
    let deadlines = &["i-1/1/0", "i-1/1/1"];
    [
        Ending {
            story: approval,
            field: "result",
            value: json!("EUR 1200.00 paid to Ada, approved by Grace"),
            announced: &[],
        },
        Ending { story: approval_too_late, field: "decision", value: json!("timed_out"), announced: deadlines },
        Ending {
            story: approval_deadline_by_deadline,
            field: "decision",
            value: json!("timed_out"),
            announced: deadlines,
        },
        Ending { story: early_signal, field: "result", value: json!("orders is exported: s3://b/k"), announced: &[] },
        Ending { story: reminder, field: "text", value: json!("wake up"), announced: &[] },
    ]
}

#[tokio::test]
async fn every_story_ends_well_without_faults() {
    for ending in endings() {
        let stage = Stage::default();
        let store = Arc::new(FaultyStore::sound(stage.store.clone()));
        tell(&stage, &store, (ending.story)()).await;
        check(&stage, &ending).await;
    }
}

#[tokio::test]
async fn every_story_ends_well_whichever_call_breaks_in_whichever_way() {
    for ending in endings() {
        for fault in Fault::ALL {
            let mut call = 0;
            loop {
                let stage = Stage::default();
                let store = Arc::new(FaultyStore::broken_at(stage.store.clone(), call, fault));
                tell(&stage, &store, (ending.story)()).await;
                if !store.has_struck() {
                    break;
                }
                check(&stage, &ending).await;
                call += 1;
            }
            assert!(call >= 3, "a story has at least three calls, not {call}");
        }
    }
}

async fn tell(stage: &Stage, store: &Arc<FaultyStore>, story: Vec<Step>) {
    let mut worker = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
    for step in story.into_iter().chain([Step::Sweep(60)]) {
        if let Step::Sweep(after) = step {
            stage.clock.advance(std::time::Duration::from_secs(after));
        }
        for attempt in 0.. {
            assert!(attempt < 10, "the step is never answered: {step:?}");
            if perform(&worker, &step).await {
                break;
            }
            // The worker is gone or answered that it should be tried again: another one takes over, later.
            stage.outlive_leases();
            worker = stage.shipped_on(store.clone(), Mode::Stateless).unwrap();
        }
    }
}

/// Whether the step was answered. A future that is pending, with time standing still, belongs to a dead process.
async fn perform(worker: &Harness, step: &Step) -> bool {
    match step {
        Step::Sweep(_) => {
            worker.sweep(SweepScope::Everything).now_or_never().is_some_and(|s| s.is_ok_and(|s| s.failed == 0))
        }
        Step::Send(transmission) => match worker.turn((**transmission).clone()).now_or_never().map(|t| t.outcome) {
            None => false,
            Some(TurnOutcome::Errored(error)) if error.bucket == Bucket::RetryableTransient => false,
            Some(TurnOutcome::Errored(error)) => panic!("{error:?}"),
            Some(_) => true,
        },
    }
}

async fn check(stage: &Stage, ending: &Ending) {
    let worker = stage.shipped_on(stage.store.clone(), Mode::Stateless).unwrap();
    let TurnOutcome::Completed(turn) = worker.look_up(&"i-1".into()).await.unwrap() else {
        panic!("the story did not end: {:?}", worker.look_up(&"i-1".into()).await);
    };
    assert_eq!(turn.state.get(ending.field), Some(&ending.value));
    let events = stage.bus.events();
    let told = events.iter().filter_map(|event| event.detail.get("id")?.as_str().map(str::to_owned));
    assert_eq!(told.collect::<BTreeSet<_>>(), ending.announced.iter().map(ToString::to_string).collect());
    let again = worker.turn(Transmission::callback("i-1", None, Map::new())).await.outcome;
    assert!(matches!(again, TurnOutcome::Completed(again) if again.repeated && again.state == turn.state));
    let summary = worker.sweep(SweepScope::Everything).await.unwrap();
    assert_eq!((summary.examined, summary.failed), (0, 0), "nothing is left behind");
}
