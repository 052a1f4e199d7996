//! Tasks of the protocol, whose store tells of them.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_api::{Actor, Api, ApiParts, Call, CallAnswer, PersonaSpec, RecordingEngine, RecordingStore};
use dormouse_engine::{END, Graph, Update, state, suspend};
use dormouse_harness::{DescriptorWakes, GraphRegistry, Harness, HarnessConfig, Mode};
use dormouse_ports::{Clock, Commits, InvocationId, PausedInvocation, Records, SignalDescriptor, StateStore};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::request::{Body, IdempotencyKey, Query};
use dormouse_protocol::resource::AutonomyTier;
use dormouse_protocol::{Operation, Scope};
use dormouse_testkit::contract::{TellsOfTasks, ToldOfTask};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemorySubscriptions, TokioSpawner};
use serde_json::{Value, json};

/// The protocol over a store.
pub(crate) struct Tasks {
    api: Api,
    harness: Harness,
    records: Arc<dyn Records>,
    clock: Arc<ManualClock>,
    bus: Arc<MemoryBus>,
}

state! {
    #[derive(Clone, Debug, Default)]
    struct Ask {
        answer: String,
    }
}

impl Tasks {
    pub(crate) fn on<S: StateStore + Records + 'static>(store: Arc<S>) -> Arc<Self> {
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let recording = RecordingStore::new(store.clone(), store.clone(), clock.clone());
        let ids = Arc::new(CountingIds::default());
        let spawner = Arc::new(TokioSpawner);
        let planner = Arc::new(DescriptorWakes);
        let engine = RecordingEngine::new(recording, ids, spawner, planner);
        let name = || dormouse_engine::current().map(|identity| identity.invocation_id.to_string()).unwrap_or_default();
        let graph = Graph::<Ask>::new("sleeps")
            .entry("ask")
            .node("ask", move |()| async move { Err(suspend(SignalDescriptor::new(name())).await) })
            .node("end", async |()| Ok(Update::none()))
            .edge("ask", "end")
            .edge("end", END)
            .compile()
            .expect("a graph");
        let graphs = GraphRegistry::new([Arc::new(graph)]);
        let config = HarnessConfig::new(Mode::Sessioned);
        let harness = Harness::new(engine.engine().clone(), graphs, subscriptions, bus.clone(), config);
        let api = Api::new(ApiParts {
            secrets: Default::default(),
            templates: None,
            abilities: dormouse_api::Abilities::default(),
            webhooks: None,
            harness: harness.clone(),
            records: store.clone(),
            cursors: Cursors::new(b"secret"),
            personas: vec![PersonaSpec::new("sleeps", "Sleeps.", AutonomyTier::ActWithApproval)].into(),
            receipts: None,
        });
        Arc::new(Self { api, harness, records: store, clock, bus })
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let found = Operation::find(method, path).expect("an operation");
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let scopes = Scope::ALL.iter().copied().collect();
        let call = Call {
            operation: found.operation,
            params: found.params,
            query: Query::parse("").expect("no query"),
            body: Body::read(found.operation, Some("application/json"), &bytes).expect("a body"),
            actor: Actor {
                name: "ada".to_owned(),
                tenant: "acme".to_owned(),
                workspaces: None,
                scopes,
                quota_id: None,
                proof: dormouse_api::Proof::Key,
                credential: "a key".to_owned(),
                until: None,
            },
            idempotency_key: IdempotencyKey::read(None).expect("no key"),
            is_placed_for_caller: false,
            target: found.target,
            now: self.clock.now(),
        };
        match self.api.serve(call).await.expect("an answer") {
            CallAnswer::Json(_, body) | CallAnswer::Repeated(_, body) => body,
            other @ (CallAnswer::Bytes { .. } | CallAnswer::Empty) => panic!("{other:?} is no JSON"),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[async_trait]
impl TellsOfTasks for Tasks {
    fn commits(&self) -> &dyn Commits {
        &*self.harness.engine().ports().store.commits
    }

    fn records(&self) -> &dyn Records {
        &*self.records
    }

    async fn sleeping_task(&self) -> PausedInvocation {
        let workspace = self.call("POST", "/v1/workspaces", &json!({"name": "desk", "root": "/"})).await;
        let session = self.call("POST", "/v1/sessions", &json!({"workspace_id": workspace["id"]})).await;
        let tasks = format!("/v1/sessions/{}/tasks", text(&session["id"]));
        let task = self.call("POST", &tasks, &json!({"persona_id": "persona_sleeps", "input": {}})).await;
        let call = self.bus.events().pop().and_then(dormouse_tests::called_for).expect("a call for work");
        self.harness.answer_call(&call, None).await;
        let id = InvocationId::from(text(&task["id"]));
        let record = self
            .harness
            .engine()
            .ports()
            .store
            .invocations
            .load_invocation(&id)
            .await
            .expect("an answer")
            .expect("it is there");
        assert_eq!(record.paused.generation, 1, "it sleeps");
        record.paused
    }

    async fn told(&self, task: &InvocationId) -> Vec<ToldOfTask> {
        let events = self.call("GET", &format!("/v1/tasks/{task}/events"), &Value::Null).await;
        let told = events["data"].as_array().expect("a list").iter().map(|event| ToldOfTask {
            kind: text(&event["event"]).to_owned(),
            resource: text(&event["resource"]["id"]).to_owned(),
            sequence: event["sequence"].as_u64().expect("a number"),
        });
        told.collect()
    }
}
