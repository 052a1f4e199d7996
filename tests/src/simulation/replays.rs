//! Exact replays of what was simulated: whatever had failed, crashed or come twice, a task ends again as it ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_api::{Actor, Api, ApiParts, Call, Outside as Ports, Receipts, RecordingStore};
use dormouse_app::{CHAT, EXPENSE_APPROVAL, PURCHASE};
use dormouse_engine::{Engine, Ports as EnginePorts};
use dormouse_harness::{DescriptorWakes, Harness, HarnessConfig, Mode};
use dormouse_ports::{Clock, Records, Spawner, StateStore};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::request::{Body, Query};
use dormouse_protocol::resource::Task;
use dormouse_protocol::{Operation, Scope};
use dormouse_receipts::projection;
use dormouse_testkit::{CountingIds, MemoryBus, MemorySubscriptions};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::outside::{Outside, at_once};
use super::process::ring;

/// The graphs whose nodes use nothing but their state. The others of the simulation fail and number by chance.
const PURE: [&str; 3] = [CHAT, EXPENSE_APPROVAL, PURCHASE];

/// Replays every task that has ended. What is written for that is written at last: nothing looks at it any more.
///
/// # Errors
/// The first task that ends differently, or of which something was not recorded.
pub(crate) fn ends_are_repeated(outside: &Outside, now: Timestamp) -> Result<usize, String> {
    if outside.database.is_some() {
        return Ok(0);
    }
    let api = api(outside, now)?;
    let tasks = outside.history.published.tasks.values().filter_map(|versions| versions.last());
    let ended: Vec<&Task> = tasks.filter(|task| task.status.is_terminal() && is_pure(task)).collect();
    for task in &ended {
        repeated(&api, task, now)?;
    }
    Ok(ended.len())
}

fn is_pure(task: &Task) -> bool {
    let persona = task.persona_id.as_ref().map_or("", |id| id.as_str());
    PURE.iter().any(|graph| persona == format!("persona_{graph}"))
}

fn repeated(api: &Api, task: &Task, now: Timestamp) -> Result<(), String> {
    let id = task.envelope.id.as_str();
    // A closed session takes nothing new.
    let replay = match ask(api, "POST", &format!("/v1/tasks/{id}/replay"), now) {
        Err(refusal) if refusal.contains("closed") => return Ok(()),
        other => other.map_err(|refusal| format!("the replay of {id} is refused: {refusal}"))?,
    };
    let status = task.status.as_str();
    if replay["status"] != status {
        return Err(format!("{id} was {status}, and its replay is {}: {}", replay["status"], replay["failure"]));
    }
    let told = |receipt: &Value| {
        let receipt = ask(api, "GET", &format!("/v1/receipts/{}", receipt.as_str().unwrap_or_default()), now)?;
        let payload: Map<String, Value> = receipt["wire"]["payload"].as_object().cloned().unwrap_or_default();
        Ok::<_, String>(projection(&payload))
    };
    let before = told(&Value::from(task.receipt_id.as_ref().map_or("", |id| id.as_str())))?;
    let after = told(&replay["receipt_id"])?;
    match before.iter().find(|(name, value)| after.get(*name) != Some(value)) {
        None if before.len() == after.len() => Ok(()),
        differs => Err(format!("the receipt of {id} has {differs:?}, and that of its replay {after:?}")),
    }
}

fn ask(api: &Api, method: &str, target: &str, now: Timestamp) -> Result<Value, String> {
    let found = Operation::find(method, target).map_err(|error| error.to_string())?;
    let call = Call {
        operation: found.operation,
        params: found.params,
        query: Query::parse("").map_err(|error| error.to_string())?,
        body: Body::read(found.operation, Some("application/json"), b"").map_err(|error| error.to_string())?,
        actor: Actor {
            name: "ada".to_owned(),
            tenant: "acme".to_owned(),
            workspaces: None,
            quota_id: None,
            proof: dormouse_api::Proof::Key,
            credential: "a key".to_owned(),
            until: None,
            scopes: Scope::ALL.iter().copied().collect(),
        },
        idempotency_key: None,
        is_placed_for_caller: false,
        target: found.target,
        now,
    };
    match at_once(api.serve(call)) {
        Ok(dormouse_api::CallAnswer::Json(_, body)) => Ok(body),
        Ok(other) => Err(format!("{other:?}")),
        Err(refusal) => Err(refusal.to_string()),
    }
}

fn api(outside: &Outside, now: Timestamp) -> Result<Api, String> {
    let truth: Arc<dyn StateStore> = outside.truth.clone();
    let records: Arc<dyn Records> = outside.truth.clone();
    let clock: Arc<dyn Clock> = Arc::new(Still(now));
    let subscriptions = Arc::new(MemorySubscriptions::default());
    let bus = Arc::new(MemoryBus::default());
    let receipts = Some(Receipts::of(&ring()));
    let recording = RecordingStore::new(truth, records.clone(), clock.clone()).with_receipts(receipts.clone());
    let engine = Engine::new(EnginePorts {
        store: recording.into(),
        clock: clock.clone(),
        ids: Arc::new(CountingIds::default()),
        spawner: Arc::new(Nobody),
        planner: Arc::new(DescriptorWakes),
    });
    let graphs = dormouse_app::agents().compile(&Ports::new(bus.clone(), clock)).map_err(|error| error.to_string())?;
    let config = HarnessConfig::new(Mode::Sessioned);
    let harness = Harness::new(engine, graphs.graphs, subscriptions, bus, config);
    Ok(Api::new(ApiParts {
        harness,
        records,
        cursors: Cursors::new(b"hush"),
        personas: graphs.personas,
        receipts,
        webhooks: None,
        secrets: BTreeMap::new(),
        templates: None,
        abilities: dormouse_api::Abilities::default(),
    }))
}

/// Time stands still.
struct Still(Timestamp);

#[async_trait]
impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {}
}

/// Nobody observes a replay.
struct Nobody;

impl Spawner for Nobody {
    fn spawn(&self, _: BoxFuture<'static, ()>) {}
}
