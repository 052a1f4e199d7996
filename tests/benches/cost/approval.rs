//! What a task of `/v1` costs that sleeps until a person approves it, and what a step of its agent costs.

use dormouse_harness::TurnOutcome;
use dormouse_ports::{
    Claim, ClaimOutcome, ClaimRequest, Clock, Commit, EntryKind, IdSource, InvocationId, InvocationStatus,
    InvocationWrite, Journal, JournalEntry, RecordedEntries,
};
use dormouse_system::{RandomIds, SystemClock};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::api::{Deployment, Units};
use crate::talk;

/// How many tasks, or steps, the mean is taken of.
const TASKS: u32 = 20;

/// What is sent beside the body of an answer, in bytes.
const HEADERS: usize = 300;

/// What a task costs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    /// The steps of the task, each with the mean of its costs.
    pub(crate) steps: Vec<(&'static str, Units)>,
    /// The mean of the bytes that its client is sent.
    pub(crate) egress: f64,
}

impl Costs {
    /// All steps together.
    pub(crate) fn together(&self) -> Units {
        self.steps.iter().fold(Units::default(), |sum, (_, units)| sum + *units)
    }
}

/// Whether its client sends keys for repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Careless,
    Careful,
}

impl Caller {
    fn key(self) -> Option<String> {
        (self == Self::Careful).then(|| RandomIds.fresh())
    }
}

/// The task of everyday: its input has little to it.
pub(crate) async fn plain(client: Caller) -> Costs {
    costs(client, |_| json!("a keyboard")).await
}

/// The same with about four kilobytes of input that hardly compress.
pub(crate) async fn incompressible() -> Costs {
    costs(Caller::Careless, |number| json!(talk::noise(number, 4096))).await
}

async fn costs(client: Caller, purpose: impl Fn(u64) -> Value) -> Costs {
    let deployment = Deployment::new().await;
    let session = deployment.new_session().await;
    let mut sums = [Units::default(); 4];
    let mut sent = 0;
    for number in 0..TASKS {
        let (costs, bytes) = task(&deployment, client, &session, purpose(number.into())).await;
        for (sum, cost) in sums.iter_mut().zip(costs) {
            *sum = *sum + cost;
        }
        sent += bytes;
    }
    let names = ["submit", "take up, sleep", "approve", "take up, complete"];
    let steps = names.into_iter().zip(sums.map(mean)).collect();
    Costs { steps, egress: sent as f64 / f64::from(TASKS) }
}

fn mean(sum: Units) -> Units {
    Units {
        requests: sum.requests / u64::from(TASKS),
        writes: sum.writes / f64::from(TASKS),
        reads: sum.reads / f64::from(TASKS),
    }
}

/// The costs of the steps of one task, and the bytes that its client is sent.
async fn task(deployment: &Deployment, client: Caller, session: &str, purpose: Value) -> ([Units; 4], usize) {
    let task = submit(deployment, client, session, purpose).await;
    let submit = Units::of(&deployment.meter);
    let id = task["id"].as_str().expect("an id").to_owned();
    deployment.meter.reset();
    let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    let sleep = Units::of(&deployment.meter);
    deployment.meter.reset();
    let verdict = json!({ "role": "user", "parts": [{ "type": "json", "value": { "approved": true } }] });
    let answer = json!({ "kind": "input", "message": verdict });
    let message = deployment.ask(&format!("/v1/tasks/{id}/messages"), &answer, client.key()).await;
    let approve = Units::of(&deployment.meter);
    deployment.meter.reset();
    let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    let bytes = [task, message].map(|answer| answer.to_string().len() + HEADERS).iter().sum();
    ([submit, sleep, approve, Units::of(&deployment.meter)], bytes)
}

async fn submit(deployment: &Deployment, client: Caller, session: &str, purpose: Value) -> Value {
    let input = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": purpose });
    let body = json!({ "input": input, "persona_id": "persona_expense-approval" });
    deployment.meter.reset();
    deployment.ask(&format!("/v1/sessions/{session}/tasks"), &body, client.key()).await
}

/// What it costs to publish a call of a tool and its result while a turn runs, and nothing else. A step of an agent keeps its
/// own record besides: `make bench-agent` counts all of it.
pub(crate) async fn published_call() -> Units {
    let deployment = Deployment::new().await;
    let session = deployment.new_session().await;
    let task = submit(&deployment, Caller::Careless, &session, json!("a keyboard")).await;
    let id = InvocationId::from(task["id"].as_str().expect("an id"));
    let commits = deployment.harness.engine().ports().store.commits.clone();
    let clock = SystemClock::default();
    let now = clock.now();
    let request = ClaimRequest {
        invocation_id: id.clone(),
        generation: None,
        owner: "worker".into(),
        now,
        until: now + SignedDuration::from_secs(60),
        past: None,
        payload: None,
        answered: None,
    };
    let ClaimOutcome::Granted(record) = commits.claim(&request).await.expect("an answer") else {
        panic!("the task is claimed by another worker")
    };
    let InvocationStatus::Resuming(Claim { owner, .. }) = record.status else { panic!("{:?}", record.status) };
    let mut sum = Units::default();
    for number in 0..TASKS {
        let invocation_id = id.clone();
        let generation = record.paused.generation;
        let owner = owner.clone();
        let call = format!("call-{number}");
        let asked = JournalEntry::new(EntryKind::ToolRequested).with("tool", "search").with("call_id", call.clone());
        let told = JournalEntry::new(EntryKind::ToolCompleted).with("tool", "search").with("call_id", call);
        let entries = vec![
            asked.with("arguments", json!({ "query": talk::text(number.into(), 100) })),
            told.with("result", talk::text(u64::from(number) + 1_000, 300)),
        ];
        let recorded = Some(RecordedEntries { invocation_id: id.clone(), entries });
        let commit = Commit {
            invocation: Some(InvocationWrite::AssertClaimed { invocation_id, generation, owner }),
            journal: Journal { recorded, ..Journal::default() },
            ..Commit::new(RandomIds.fresh(), clock.now())
        };
        deployment.meter.reset();
        commits.commit(&commit).await.expect("it is written");
        sum = sum + Units::of(&deployment.meter);
    }
    mean(sum)
}
