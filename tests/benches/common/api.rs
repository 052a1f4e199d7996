//! The operations of `/v1` and a worker on a store that counts what is spent.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use dormouse_api::{Actor, Api, ApiParts, AppendNotifier, Call, CallAnswer, Outside, PersonaSpec, RecordingStore};
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, GraphRegistry, Harness, HarnessConfig, Mode};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Clock, IdSource};
use dormouse_protocol::Operation;
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::request::{Body, IdempotencyKey, Query};
use dormouse_protocol::resource::AutonomyTier;
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use dormouse_testkit::{MemoryBus, MemorySubscriptions};
use serde_json::Value;

#[allow(dead_code, reason = "not every benchmark looks at all of it")]
/// The actor `ada` of the tenant `acme` and one worker, on a store of their own.
pub(crate) struct Deployment {
    _embedded: EmbeddedDynamoDb,
    pub(crate) api: Api,
    pub(crate) harness: Harness,
    pub(crate) store: Arc<DynamoDbStateStore>,
    pub(crate) notifier: AppendNotifier,
    pub(crate) meter: Meter,
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Units {
    pub(crate) requests: u64,
    pub(crate) writes: f64,
    pub(crate) reads: f64,
}

impl std::ops::Add for Units {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            writes: self.writes + other.writes,
            reads: self.reads + other.reads,
        }
    }
}

impl Units {
    /// What `meter` has counted since it was reset.
    pub(crate) fn of(meter: &Meter) -> Self {
        let mut units = Self::default();
        for (operation, usage) in meter.snapshot() {
            units.requests += usage.requests;
            let reads = ["GetItem", "BatchGetItem", "Query", "Scan"].contains(&operation.as_str());
            *(if reads { &mut units.reads } else { &mut units.writes }) += usage.units;
        }
        units
    }
}

#[allow(dead_code, reason = "not every benchmark does all of it")]
impl Deployment {
    pub(crate) async fn new() -> Self {
        Self::watched_by(None::<Meter>).await
    }

    /// The same, whose requests `watcher` sees.
    pub(crate) async fn watched_by(watcher: Option<impl Intercept + 'static>) -> Self {
        let clock = Arc::new(SystemClock::default());
        let outside = Outside::new(Arc::new(MemoryBus::default()), clock);
        let graphs = dormouse_app::agents().compile(&outside).expect("graphs that compile").graphs;
        Self::made_of(graphs, &["chat", "expense-approval"], watcher).await
    }

    /// The same with other graphs, of which clients may ask for these.
    pub(crate) async fn running(graphs: GraphRegistry, offered: &[&str]) -> Self {
        Self::made_of(graphs, offered, None::<Meter>).await
    }

    async fn made_of(graphs: GraphRegistry, offered: &[&str], watcher: Option<impl Intercept + 'static>) -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        ensure_table(&embedded.client(), "dormouse").await.expect("the table is made");
        let meter = Meter::with_units();
        let config = embedded.config().interceptor(meter.clone());
        let config = watcher.into_iter().fold(config, aws_sdk_dynamodb::config::Builder::interceptor);
        let client = Client::from_conf(config.build());
        let store = Arc::new(DynamoDbStateStore::new(&client, "dormouse", StoreConfig::default()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let notifier = AppendNotifier::default();
        let bus = Arc::new(MemoryBus::default());
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let ports = Ports {
            store: RecordingStore::new(store.clone(), store.clone(), clock.clone())
                .with_notifier(notifier.clone())
                .into(),
            clock: clock.clone(),
            ids: Arc::new(RandomIds),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        };
        let config = HarnessConfig::new(Mode::Sessioned);
        let harness = Harness::new(Engine::new(ports), graphs, subscriptions, bus, config);
        let spec = |graph: &str| PersonaSpec::new(graph, format!("Runs {graph}."), AutonomyTier::ActWithApproval);
        let api = Api::new(ApiParts {
            harness: harness.clone(),
            records: store.clone(),
            cursors: Cursors::new(b"secret"),
            secrets: Default::default(),
            templates: None,
            abilities: dormouse_api::Abilities::default(),
            webhooks: None,
            personas: offered.iter().map(|graph| spec(graph)).collect::<Vec<_>>().into(),
            receipts: None,
        });
        Self { _embedded: embedded, api, harness, store, notifier, meter }
    }

    /// What the operation at `path` answers, which is asked with a key of its own for repetitions.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        self.ask(path, body, Some(RandomIds.fresh())).await
    }

    /// The same, with `key` for repetitions.
    pub(crate) async fn ask(&self, path: &str, body: &Value, key: Option<String>) -> Value {
        let call = self.call(("POST", path), "", body, key);
        match self.api.serve(call).await {
            Ok(CallAnswer::Json(_, value)) => value,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// The call of the operation at `path`.
    pub(crate) fn call(&self, (method, path): (&str, &str), query: &str, body: &Value, key: Option<String>) -> Call {
        let found = Operation::find(method, path).expect("an operation");
        let read = |body: &Value| Body::read(found.operation, Some("application/json"), body.to_string().as_bytes());
        let body = if body.is_null() { Ok(Body::default()) } else { read(body) };
        Call {
            operation: found.operation,
            params: found.params,
            query: Query::parse(query).expect("a query"),
            body: body.expect("a body"),
            actor: Actor {
                name: "ada".to_owned(),
                tenant: "acme".to_owned(),
                workspaces: None,
                scopes: BTreeSet::new(),
                quota_id: None,
                proof: dormouse_api::Proof::Key,
                credential: "a key".to_owned(),
                until: None,
            },
            idempotency_key: IdempotencyKey::read(key.as_deref()).expect("a key"),
            is_placed_for_caller: false,
            target: found.target,
            now: SystemClock::default().now(),
        }
    }

    /// A new session in a workspace of its own.
    pub(crate) async fn new_session(&self) -> String {
        let workspace = self.post("/v1/workspaces", &serde_json::json!({ "name": "desk", "root": "/" })).await;
        let session = self.post("/v1/sessions", &serde_json::json!({ "workspace_id": workspace["id"] })).await;
        session["id"].as_str().expect("an id").to_owned()
    }
}
