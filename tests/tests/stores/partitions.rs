//! No partition takes more than its share: what one tenant writes is spread, so that a table whose partitions take 1,000
//! write units a second takes thousands of tasks of that tenant. Units are counted, time is not measured.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "../../benches/common/api.rs"]
mod api;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::operation::{
    delete_item::DeleteItemInput, put_item::PutItemInput, transact_write_items::TransactWriteItemsInput,
    update_item::UpdateItemInput,
};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeSerializationInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use dormouse_harness::TurnOutcome;
use dormouse_ports::IdSource;
use dormouse_system::RandomIds;
use serde_json::json;

use api::Deployment;

type Attributes = HashMap<String, AttributeValue>;

/// Tasks that are run, each in a session of its own: what tasks of one session share is never shared by many.
const TASKS: usize = 400;
/// Write units that a partition takes in a second.
const UNITS_A_SECOND: f64 = 1000.0;
/// Slept tasks that one tenant has to get done in a second.
const TASKS_A_SECOND: f64 = 2000.0;

/// Write units by partition key.
#[derive(Clone, Debug, Default)]
struct Partitions(Arc<Mutex<Ledger>>);

#[derive(Debug, Default)]
struct Ledger {
    units: BTreeMap<String, f64>,
    /// Lane of the index of claims in which each item is.
    lanes: BTreeMap<String, String>,
}

impl Ledger {
    /// Counts a write of an item of at most a kilobyte: twice in a transaction. `lane` is where it stands in the index
    /// from now on.
    fn count(&mut self, key: &Attributes, lane: Option<&Attributes>, units: f64) {
        let pk = text(key, "pk").unwrap();
        *self.units.entry(pk.to_owned()).or_default() += units;
        let lane = lane.and_then(|values| {
            values.values().find_map(|value| value.as_s().ok().filter(|text| text.starts_with("CLAIMS#")).cloned())
        });
        if !pk.starts_with("INVOCATION#") {
            return;
        }
        let before = match lane.clone() {
            Some(lane) => self.lanes.insert(pk.to_owned(), lane),
            None => self.lanes.remove(pk),
        };
        if before != lane {
            for lane in before.into_iter().chain(lane) {
                *self.units.entry(format!("index {lane}")).or_default() += 1.0;
            }
        }
    }
}

fn text<'a>(item: &'a Attributes, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

impl Intercept for Partitions {
    fn name(&self) -> &'static str {
        "Partitions"
    }

    fn read_before_serialization(
        &self,
        context: &BeforeSerializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut ledger = self.0.lock().unwrap();
        let input = context.input();
        if let Some(put) = input.downcast_ref::<PutItemInput>() {
            ledger.count(put.item().unwrap(), put.item(), 1.0);
        } else if let Some(update) = input.downcast_ref::<UpdateItemInput>() {
            ledger.count(update.key().unwrap(), update.expression_attribute_values(), 1.0);
        } else if let Some(delete) = input.downcast_ref::<DeleteItemInput>() {
            ledger.count(delete.key().unwrap(), None, 1.0);
        } else if let Some(transaction) = input.downcast_ref::<TransactWriteItemsInput>() {
            for part in transaction.transact_items() {
                if let Some(put) = part.put() {
                    ledger.count(put.item(), Some(put.item()), 2.0);
                } else if let Some(update) = part.update() {
                    ledger.count(update.key(), update.expression_attribute_values(), 2.0);
                } else if let Some(delete) = part.delete() {
                    ledger.count(delete.key(), None, 2.0);
                } else if let Some(check) = part.condition_check() {
                    *ledger.units.entry(text(check.key(), "pk").unwrap().to_owned()).or_default() += 2.0;
                }
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn one_tenant_gets_thousands_of_tasks_done_in_a_second() {
    let partitions = Partitions::default();
    let deployment = Deployment::watched_by(Some(partitions.clone())).await;
    let workspace = deployment.post("/v1/workspaces", &json!({ "name": "desk", "root": "/" })).await;
    let mut sessions = Vec::new();
    for _ in 0..TASKS {
        let session = deployment.post("/v1/sessions", &json!({ "workspace_id": workspace["id"] })).await;
        sessions.push(session["id"].as_str().unwrap().to_owned());
    }
    *partitions.0.lock().unwrap() = Ledger::default();
    deployment.meter.reset();
    let mut own = BTreeSet::new();
    for session in &sessions {
        let input = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
        let body = json!({ "input": input, "persona_id": "persona_expense-approval" });
        let task = deployment.ask(&format!("/v1/sessions/{session}/tasks"), &body, None).await;
        let id = task["id"].as_str().unwrap().to_owned();
        let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
        let verdict = json!({ "role": "user", "parts": [{ "type": "json", "value": { "approved": true } }] });
        let answer = json!({ "kind": "input", "message": verdict });
        deployment.ask(&format!("/v1/tasks/{id}/messages"), &answer, None).await;
        let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
        own.extend([session.clone(), id]);
    }
    let units = partitions.0.lock().unwrap().units.clone();
    let counted: f64 = units.values().sum();
    let metered = api::Units::of(&deployment.meter).writes;
    assert!((counted - metered).abs() < 0.01 * metered, "{counted} units were counted, and {metered} charged");
    let is_own = |key: &str| own.iter().any(|id| key.ends_with(id.as_str()));
    let shared: Vec<_> = units.iter().filter(|(key, _)| !is_own(key)).collect();
    let (hottest, most) = shared.iter().copied().max_by(|one, other| one.1.total_cmp(other.1)).unwrap();
    let tasks_a_second = UNITS_A_SECOND * TASKS as f64 / most;
    assert!(
        tasks_a_second >= TASKS_A_SECOND,
        "{hottest} takes {most} units, enough for {tasks_a_second} tasks a second"
    );
    for kind in ["FEED#acme/event#", "LIST#acme/task#", "PENDING#", "index CLAIMS#"] {
        let shards = shared.iter().filter(|(key, _)| key.starts_with(kind)).count();
        assert!(shards == 16, "{kind} is spread over {shards} partitions");
    }
}

/// Submits a task and approves it, and works on both; what the two requests took.
async fn requests_of(deployment: &Deployment, session: &str, keyed: bool) -> [api::Units; 2] {
    let key = || keyed.then(|| RandomIds.fresh());
    let input = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
    let body = json!({ "input": input, "persona_id": "persona_expense-approval" });
    deployment.meter.reset();
    let task = deployment.ask(&format!("/v1/sessions/{session}/tasks"), &body, key()).await;
    let submit = api::Units::of(&deployment.meter);
    let id = task["id"].as_str().unwrap().to_owned();
    let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    let verdict = json!({ "role": "user", "parts": [{ "type": "json", "value": { "approved": true } }] });
    let answer = json!({ "kind": "input", "message": verdict });
    deployment.meter.reset();
    deployment.ask(&format!("/v1/tasks/{id}/messages"), &answer, key()).await;
    let approve = api::Units::of(&deployment.meter);
    let outcome = deployment.harness.take_up(&id.as_str().into(), None).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    [submit, approve]
}

/// A key is noted in items that are written anyway, and stays within what these cost: as many as a session notes.
#[tokio::test]
async fn keys_for_repetitions_take_no_write_unit_of_a_submit_and_an_approval() {
    let deployment = Deployment::new().await;
    let plain = requests_of(&deployment, &deployment.new_session().await, false).await;
    let session = deployment.new_session().await;
    for number in 0..24 {
        let keyed = requests_of(&deployment, &session, true).await;
        for (step, (with, without)) in ["submit", "approve"].into_iter().zip(keyed.into_iter().zip(plain)) {
            let costs = format!("{step} {number} takes {with:?}, and {without:?} without a key");
            assert!((with.writes - without.writes).abs() < 0.01, "{costs}");
            assert!(with.requests <= without.requests + 1, "{costs}");
            assert!(with.reads <= without.reads + 1.0, "{costs}");
        }
    }
}
