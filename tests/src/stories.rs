//! Stories that must end the same whatever breaks on the way: what clients and triggers send, in order, and where that
//! leads. Each step is sent again until it is answered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_app::{EXPENSE_APPROVAL, EXPORT_JOB, REMINDER};
use dormouse_harness::{Bucket, FreshTurn, Harness, Mode, Transmission, TurnError, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    Category, Commit, CommitError, GrowingLists, InvocationId, InvocationWrite, Journal, MaintenanceStore, Map,
    StateStore,
};
use serde_json::{Value, json};

use crate::{Stage, map};

/// How often a step is sent at most: more often than a proxy spoils requests, of which a sweep makes many kinds.
const ATTEMPTS: usize = 30;

/// What happens to the invocation `i-1`, and how that must end.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// Its name.
    pub name: &'static str,
    /// Whether its turns belong to a session.
    pub mode: Mode,
    steps: fn() -> Vec<Step>,
    /// The field of the final state that tells how it ended; `None` where it was canceled.
    ends: Option<(&'static str, &'static str)>,
    /// The deadlines that were announced on the way, each once or more often.
    announced: &'static [&'static str],
}

/// What a client or a trigger does.
#[derive(Clone, Debug)]
enum Step {
    /// It sends this.
    Send(Box<Transmission>),
    /// It has this accepted, to be done later.
    Accept(Box<FreshTurn>),
    /// A worker was called and takes up what was accepted.
    TakeUp,
    /// It cancels the invocation.
    Cancel,
    /// So many seconds pass and the sweep comes by.
    Sweep(u64),
}

/// Every story.
pub const STORIES: [Story; 10] = [
    Story { name: "approval", mode: Mode::Stateless, steps: approval, ends: APPROVED, announced: &[] },
    Story { name: "approval in a session", mode: Mode::Sessioned, steps: in_session, ends: APPROVED, announced: &[] },
    Story { name: "approval too late", mode: Mode::Stateless, steps: too_late, ends: TIMED_OUT, announced: DEADLINES },
    Story {
        name: "approval deadline by deadline",
        mode: Mode::Stateless,
        steps: deadline_by_deadline,
        ends: TIMED_OUT,
        announced: DEADLINES,
    },
    Story {
        name: "early signal",
        mode: Mode::Stateless,
        steps: early_signal,
        ends: Some(("result", "orders is exported: s3://b/k")),
        announced: &[],
    },
    Story { name: "reminder", mode: Mode::Stateless, steps: reminder, ends: Some(("text", "wake up")), announced: &[] },
    Story { name: "cancellation", mode: Mode::Stateless, steps: cancellation, ends: None, announced: &[] },
    Story { name: "task", mode: Mode::Stateless, steps: task, ends: APPROVED, announced: &[] },
    Story { name: "task in a session", mode: Mode::Sessioned, steps: task_in_session, ends: APPROVED, announced: &[] },
    Story {
        name: "task whose call is lost",
        mode: Mode::Stateless,
        steps: task_whose_call_is_lost,
        ends: APPROVED,
        announced: &[],
    },
];

const APPROVED: Option<(&str, &str)> = Some(("result", "EUR 1200.00 paid to Ada, approved by Grace"));
const TIMED_OUT: Option<(&str, &str)> = Some(("decision", "timed_out"));
const DEADLINES: &[&str] = &["i-1/1/0", "i-1/1/1"];

fn id() -> InvocationId {
    "i-1".into()
}

fn begin(graph: &str, state: Value) -> FreshTurn {
    FreshTurn { invocation_id: Some(id()), ..FreshTurn::new(graph, map(state)) }
}

fn send(transmission: impl Into<Transmission>) -> Step {
    Step::Send(Box::new(transmission.into()))
}

fn expense() -> FreshTurn {
    begin(EXPENSE_APPROVAL, json!({ "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe" }))
}

fn sessioned(transmission: FreshTurn) -> FreshTurn {
    FreshTurn { session_id: Some("session-1".into()), ..transmission }
}

fn decision() -> Step {
    send(Transmission::callback(id(), Some(1), map(json!({ "decision": "approved", "decided_by": "Grace" }))))
}

fn approval() -> Vec<Step> {
    vec![send(expense()), decision()]
}

fn in_session() -> Vec<Step> {
    vec![send(sessioned(expense())), decision()]
}

fn too_late() -> Vec<Step> {
    vec![send(expense()), Step::Sweep(4 * 24 * 3600)]
}

fn deadline_by_deadline() -> Vec<Step> {
    let day = || Step::Sweep(24 * 3600 + 60);
    vec![send(expense()), day(), day(), day()]
}

fn early_signal() -> Vec<Step> {
    let done = map(json!({ "status": "succeeded", "url": "s3://b/k" }));
    vec![
        send(Transmission::signal("export-i-1", done)),
        send(begin(EXPORT_JOB, json!({ "dataset": "orders" }))),
        Step::Sweep(120),
    ]
}

fn reminder() -> Vec<Step> {
    vec![send(begin(REMINDER, json!({ "text": "wake up", "after": "PT10M" }))), Step::Sweep(601)]
}

fn cancellation() -> Vec<Step> {
    vec![send(expense()), Step::Cancel]
}

fn task() -> Vec<Step> {
    vec![Step::Accept(Box::new(expense())), Step::TakeUp, decision()]
}

fn task_in_session() -> Vec<Step> {
    vec![Step::Accept(Box::new(sessioned(expense()))), Step::TakeUp, decision()]
}

fn task_whose_call_is_lost() -> Vec<Step> {
    vec![Step::Accept(Box::new(expense())), Step::Sweep(60), decision()]
}

/// Polls one attempt at a step to its end; `None` when its process is dead.
pub trait Attempt {
    /// Whether the step was answered.
    fn run(&self, step: impl Future<Output = bool>) -> impl Future<Output = Option<bool>>;
}

impl Story {
    /// Tells it on `store`, each step again until it is answered; whoever is left without an answer is replaced, later,
    /// by another worker.
    ///
    /// # Panics
    /// When a step is never answered, or is refused for good.
    pub async fn tell(&self, stage: &Stage, store: &Arc<dyn StateStore>, attempt: &impl Attempt) {
        let mut worker = self.worker(stage, store.clone());
        for step in (self.steps)().into_iter().chain([Step::Sweep(60)]) {
            if let Step::Sweep(after) = step {
                stage.clock.advance(Duration::from_secs(after));
            }
            for number in 0.. {
                assert!(number < ATTEMPTS, "{}: the step is never answered: {step:?}", self.name);
                if attempt.run(step.perform(stage, &worker, &store.clone().into())).await == Some(true) {
                    break;
                }
                stage.outlive_leases();
                worker = self.worker(stage, store.clone());
            }
        }
    }

    /// Lets a sound sweep come by, later.
    ///
    /// # Panics
    /// When it fails.
    pub async fn rest(&self, stage: &Stage, store: &Arc<dyn StateStore>) {
        stage.outlive_leases();
        let answered = Step::Sweep(0).perform(stage, &self.worker(stage, store.clone()), &store.clone().into()).await;
        assert!(answered, "{}: a sound sweep fails", self.name);
    }

    /// Checks that it ended as it must, that a late repetition changes nothing, and that nothing is left behind.
    ///
    /// # Panics
    /// When that is not so.
    pub async fn check(&self, stage: &Stage, store: &Arc<dyn StateStore>) {
        let name = self.name;
        let worker = self.worker(stage, store.clone());
        let first = self.ending(&worker.look_up(&id()).await.expect("the invocation is known"));
        let events = stage.bus.events();
        let told = events.iter().filter_map(|event| event.detail.get("id")?.as_str().map(str::to_owned));
        let announced: BTreeSet<_> = self.announced.iter().map(ToString::to_string).collect();
        assert_eq!(told.collect::<BTreeSet<_>>(), announced, "{name}");
        let again = worker.turn(Transmission::callback(id(), None, Map::new())).await.outcome;
        assert_eq!(self.ending(&again), first, "{name}");
        let summary = dormouse_maintenance::sweep(&worker, &store.clone().into(), SweepScope::Everything)
            .await
            .expect("it sweeps");
        let left =
            (summary.examined, summary.failed, summary.expired_claims + summary.not_begun, summary.unclaimed_signals);
        assert_eq!(left, (0, 0, 0, 0), "{name}: nothing is left behind");
    }

    /// The final state.
    fn ending(&self, outcome: &TurnOutcome) -> Map {
        match (outcome, self.ends) {
            (TurnOutcome::Completed(turn), Some((field, value))) if turn.repeated => {
                assert_eq!(turn.state.get(field), Some(&json!(value)), "{}", self.name);
                turn.state.clone()
            }
            (TurnOutcome::Errored(error), None) if error.category == Category::InvocationCanceled => Map::new(),
            (outcome, _) => panic!("{}: the story did not end: {outcome:?}", self.name),
        }
    }

    fn worker(&self, stage: &Stage, store: Arc<dyn StateStore>) -> Harness {
        stage.shipped_on(store, self.mode).expect("the graphs that ship compile")
    }
}

impl Step {
    /// Whether it was answered.
    async fn perform(&self, stage: &Stage, worker: &Harness, store: &MaintenanceStore) -> bool {
        match self {
            Self::Sweep(_) => match stage.sweep_on(worker, store, SweepScope::Everything).await {
                Ok((summary, turns)) => summary.failed == 0 && !turns.iter().any(may_pass),
                Err(_) => false,
            },
            Self::Send(transmission) => is_answered(worker.turn((**transmission).clone()).await.outcome),
            Self::TakeUp => is_answered(worker.take_up(&id(), None).await.outcome),
            Self::Cancel => worker.cancel(&id(), None, None).await.map_err(passing).is_ok(),
            Self::Accept(transmission) => match worker.accept((**transmission).clone()).await {
                Err(error) => {
                    passing(error);
                    false
                }
                Ok(paused) => {
                    let commit = Commit {
                        id: stage.fresh_id(),
                        now: paused.suspended_at,
                        session: None,
                        invocation: Some(InvocationWrite::Accept { paused: Box::new(paused), again_at: None }),
                        journal: Journal::default(),
                        growing: GrowingLists::default(),
                    };
                    match worker.engine().ports().store.commits.commit(&commit).await {
                        // Whoever asks again finds that it was accepted.
                        Ok(()) | Err(CommitError::InvocationConflict) => true,
                        Err(CommitError::Store(_) | CommitError::Unknown(_)) => false,
                        Err(refused) => panic!("{refused:?}"),
                    }
                }
            },
        }
    }
}

fn is_answered(outcome: TurnOutcome) -> bool {
    match outcome {
        TurnOutcome::Errored(error) => {
            passing(*error);
            false
        }
        TurnOutcome::Completed(_)
        | TurnOutcome::Suspended(_)
        | TurnOutcome::Buffered { .. }
        | TurnOutcome::Stale { .. } => true,
    }
}

/// Whether a later attempt may come further.
fn may_pass(outcome: &TurnOutcome) -> bool {
    matches!(outcome, TurnOutcome::Errored(error) if error.bucket == Bucket::RetryableTransient)
}

/// Only what passes may go wrong.
fn passing(error: TurnError) {
    assert!(error.bucket == Bucket::RetryableTransient, "{error:?}");
}
