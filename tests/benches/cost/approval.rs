//! What a task of `/v1` costs that sleeps until a person approves it.

use dormouse_harness::TurnOutcome;
use serde_json::json;

use crate::api::{Deployment, Units};

/// How many tasks the mean is taken of.
const TASKS: u32 = 20;

/// The steps of the task, each with the mean of its costs.
pub(crate) async fn steps() -> [(&'static str, Units); 4] {
    let deployment = Deployment::new().await;
    let session = deployment.new_session().await;
    let mut sums = [Units::default(); 4];
    for _ in 0..TASKS {
        let costs = task(&deployment, &session).await;
        for (sum, cost) in sums.iter_mut().zip(costs) {
            *sum = *sum + cost;
        }
    }
    let names = ["submit", "take up, sleep", "approve", "take up, complete"];
    let mean = |sum: Units| Units {
        requests: sum.requests / u64::from(TASKS),
        writes: sum.writes / f64::from(TASKS),
        reads: sum.reads / f64::from(TASKS),
    };
    std::array::from_fn(|step| (names[step], mean(sums[step])))
}

async fn task(deployment: &Deployment, session: &str) -> [Units; 4] {
    let input = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
    let body = json!({ "input": input, "persona_id": "persona_expense-approval" });
    deployment.meter.reset();
    let task = deployment.ask(&format!("/v1/sessions/{session}/tasks"), &body, None).await;
    let submit = Units::of(&deployment.meter);
    let id = task["id"].as_str().expect("an id").to_owned();
    deployment.meter.reset();
    let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    let sleep = Units::of(&deployment.meter);
    deployment.meter.reset();
    let verdict = json!({ "role": "user", "parts": [{ "type": "json", "value": { "approved": true } }] });
    deployment.ask(&format!("/v1/tasks/{id}/messages"), &json!({ "kind": "input", "message": verdict }), None).await;
    let approve = Units::of(&deployment.meter);
    deployment.meter.reset();
    let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    [submit, sleep, approve, Units::of(&deployment.meter)]
}
