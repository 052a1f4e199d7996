use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use dormouse_api::{
    Actor, Agent, AgentSource, Api, ApiParts, AppendNotifier, Call, CallAnswer, Outside, PersonaSpec, Personas,
    Receipts, RecordingStore, StoredImages, WebhookKeys, WebhookParts, webhook_graph,
};
use dormouse_declared::ServedTemplates;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, Harness, HarnessConfig, Mode, Transmission, Turn, TurnOutcome};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, MaintenanceStore, Records, Secret, SecretError,
    Secrets, StateStore, StoreError, TurnStore,
};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::openapi::{DocumentInfo, document};
use dormouse_protocol::operation::Output;
use dormouse_protocol::request::{Body, IdempotencyKey, Query};
use dormouse_protocol::resource::{AutonomyTier, ReceiptPolicy};
use dormouse_protocol::{Operation, ProtocolError, Scope};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use dormouse_tests::any_of;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::webhooks::Posts;

/// The name of an agent, and what makes its graph.
pub(crate) type MakesAgent = (&'static str, Agent);

/// A store, what reads its journals, and the same store where it is in memory.
pub(crate) type Stores = (Arc<dyn StateStore>, Arc<dyn Records>, Option<Arc<MemoryStore>>);

/// What is done before a commit, which may be refused instead.
type Before = Box<dyn FnMut(Commit) -> BoxFuture<'static, Result<(), CommitError>> + Send>;

/// Stands before the commits of a world. A commit that is made meanwhile passes.
pub(crate) struct Gate {
    commits: Arc<dyn StateStore>,
    hold: Mutex<Option<Before>>,
}

impl Gate {
    /// Does `before` ahead of each commit from now on.
    pub(crate) fn hold(
        &self,
        before: impl FnMut(Commit) -> BoxFuture<'static, Result<(), CommitError>> + Send + 'static,
    ) {
        *self.hold.lock().unwrap() = Some(Box::new(before));
    }

    /// Lets everything pass from now on.
    pub(crate) fn open(&self) {
        *self.hold.lock().unwrap() = None;
    }
}

#[async_trait::async_trait]
impl Commits for Gate {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.commits.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let held = self.hold.lock().unwrap().take();
        if let Some(mut before) = held {
            let passes = before(commit.clone()).await;
            self.hold.lock().unwrap().get_or_insert(before);
            passes?;
        }
        self.commits.commit(commit).await
    }
}

/// Everything behind HTTP.
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) harness: Harness,
    pub(crate) maintenance: MaintenanceStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) bus: Arc<MemoryBus>,
    pub(crate) subscriptions: Arc<MemorySubscriptions>,
    records: Arc<dyn Records>,
    /// The store, where it is in memory.
    pub(crate) memory: Option<Arc<MemoryStore>>,
    /// What webhooks were sent.
    pub(crate) posts: Arc<Posts>,
    /// What happens before a commit.
    pub(crate) gate: Arc<Gate>,
    /// Rung by its commits.
    pub(crate) notifier: AppendNotifier,
    /// How many calls for work were taken.
    taken: Mutex<usize>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        let store = Arc::new(MemoryStore::default());
        Self::on(store.clone(), store.clone(), Some(store))
    }

    /// A world on `store`, whose journals `records` reads.
    pub(crate) fn on(
        store: Arc<dyn StateStore>,
        records: Arc<dyn Records>,
        memory: Option<Arc<MemoryStore>>,
    ) -> Arc<Self> {
        Self::with_receipts(store, records, memory, None)
    }

    /// A world in memory that issues receipts.
    pub(crate) fn issuing(receipts: Receipts) -> Arc<Self> {
        let store = Arc::new(MemoryStore::default());
        Self::with_receipts(store.clone(), store.clone(), Some(store), Some(receipts))
    }

    /// A world in which `receipts` are issued.
    pub(crate) fn with_receipts(
        store: Arc<dyn StateStore>,
        records: Arc<dyn Records>,
        memory: Option<Arc<MemoryStore>>,
        receipts: Option<Receipts>,
    ) -> Arc<Self> {
        Self::serving((store, records, memory), receipts, &[])
    }

    /// A world that also serves the agents that `more` makes.
    pub(crate) fn serving(
        (store, records, memory): Stores,
        receipts: Option<Receipts>,
        more: &[MakesAgent],
    ) -> Arc<Self> {
        let clock = Arc::new(ManualClock::default());
        let bus = Arc::new(MemoryBus::default());
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let gate = Arc::new(Gate { commits: store.clone(), hold: Mutex::default() });
        let turns = TurnStore { commits: gate.clone(), ..store.clone().into() };
        let notifier = AppendNotifier::default();
        let recording = RecordingStore::new(turns, records.clone(), clock.clone())
            .with_receipts(receipts.clone())
            .with_notifier(notifier.clone())
            .calling(bus.clone());
        let posts = Arc::new(Posts::default());
        let webhooks = WebhookKeys::new(vec![Secret::new("secret"), Secret::new("the one before")], true);
        let delivery = WebhookParts {
            records: records.clone(),
            fetch: posts.clone(),
            clock: clock.clone(),
            keys: webhooks.clone(),
        };
        let ids = Arc::new(CountingIds::default());
        let images = StoredImages::new(records.clone(), gate.clone(), ids.clone(), clock.clone());
        let ports = Ports {
            store: recording.into(),
            clock: clock.clone(),
            ids,
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        };
        let agents = dormouse_app::agents()
            .graph(|_| Ok(crate::recorded::searching()))
            .graph(|_| crate::quotas::stepping())
            .graph(|_| crate::receipts::working("work"))
            .graph(|_| crate::receipts::working("silent"))
            .graph(|_| crate::receipts::working("strict"));
        let agents = more.iter().fold(agents, |agents, (_, agent)| agents.agent(agent.clone()));
        let outside = Outside::new(bus.clone(), clock.clone()).with_images(Arc::new(images));
        let compiled = agents.compile(&outside).unwrap();
        let graphs = compiled.with_inner(webhook_graph(delivery).unwrap()).graphs;
        let spec = |graph: &str| PersonaSpec::new(graph, format!("Runs {graph}."), AutonomyTier::ActWithApproval);
        let mut personas =
            ["chat", "expense-approval", "export-job", "reminder", "purchase", "search", "steps"].map(spec).to_vec();
        personas.push(spec("work"));
        personas.extend(more.iter().map(|(name, _)| spec(name)));
        personas.push(
            PersonaSpec::new("silent", "Leaves no receipts.", AutonomyTier::ActAuto)
                .with_receipts(ReceiptPolicy::Disabled),
        );
        personas.push(
            PersonaSpec::new("strict", "Demands receipts.", AutonomyTier::Suggest)
                .with_receipts(ReceiptPolicy::Required),
        );
        let config = HarnessConfig::new(Mode::Sessioned);
        let harness = Harness::new(Engine::new(ports), graphs, subscriptions.clone(), bus.clone(), config);
        let api = Api::new(ApiParts {
            secrets: secrets(),
            templates: Some(Arc::new(ServedTemplates::shipped())),
            abilities: dormouse_api::Abilities::default(),
            webhooks: Some(webhooks),
            harness: harness.clone(),
            records: records.clone(),
            cursors: Cursors::new(b"secret"),
            personas: personas.into(),
            receipts,
        });
        let maintenance = store.into();
        Arc::new(Self {
            api,
            harness,
            maintenance,
            clock,
            bus,
            subscriptions,
            records,
            memory,
            notifier,
            taken: Mutex::default(),
            posts,
            gate,
        })
    }

    /// A server of what is stored in the world, with the agents of `source` alone.
    pub(crate) fn served_by(&self, source: Arc<dyn AgentSource>) -> Api {
        Api::new(ApiParts {
            secrets: secrets(),
            templates: None,
            abilities: dormouse_api::Abilities::default(),
            webhooks: None,
            harness: self.harness.clone(),
            records: self.records.clone(),
            cursors: Cursors::new(b"secret"),
            personas: Personas::default().with_source(source),
            receipts: None,
        })
    }

    /// A world with a workspace and a session in it; the path of the session.
    pub(crate) async fn with_session() -> (Arc<Self>, String) {
        let world = Self::new();
        let path = world.session().await;
        (world, path)
    }

    /// A new session in a new workspace: its path.
    pub(crate) async fn session(&self) -> String {
        let workspace = self.workspace().await;
        let session = self.post("/v1/sessions", json!({"workspace_id": workspace})).await;
        format!("/v1/sessions/{}", text(&session["id"]))
    }

    pub(crate) async fn workspace(&self) -> String {
        let workspace = self.post("/v1/workspaces", json!({"name": "desk", "root": "/"})).await;
        text(&workspace["id"]).to_owned()
    }

    pub(crate) async fn get(&self, target: &str) -> Value {
        body(self.call(ada(), "GET", target, &Value::Null, None).await.unwrap())
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> Value {
        self::body(self.call(ada(), "POST", target, &body, None).await.unwrap())
    }

    pub(crate) async fn patch(&self, target: &str, body: Value) -> Value {
        self::body(self.call(ada(), "PATCH", target, &body, None).await.unwrap())
    }

    pub(crate) async fn delete(&self, target: &str) -> Value {
        body(self.call(ada(), "DELETE", target, &Value::Null, None).await.unwrap())
    }

    pub(crate) async fn keyed(&self, target: &str, body: &Value, key: &str) -> Result<CallAnswer, ProtocolError> {
        self.call(ada(), "POST", target, body, Some(key)).await
    }

    /// Asks for what is refused, as `actor`; nothing must have been written.
    pub(crate) async fn refusal(&self, actor: Actor, method: &str, target: &str, body: Value) -> ProtocolError {
        let before = self.written();
        let refusal = self.call(actor, method, target, &body, None).await;
        assert_eq!(before, self.written(), "{method} {target}: a refusal writes nothing");
        refusal.map(|answer| panic!("{method} {target}: {answer:?}")).unwrap_err()
    }

    /// Serves a call as HTTP would make it.
    pub(crate) async fn call(
        &self,
        actor: Actor,
        method: &str,
        target: &str,
        body: &Value,
        key: Option<&str>,
    ) -> Result<CallAnswer, ProtocolError> {
        self.serve(self.asked(actor, method, target, body, key)?).await
    }

    /// Makes a session as for a caller that names no workspace, for whom the one in `body` was chosen.
    pub(crate) async fn placed(&self, body: &Value, key: &str) -> Result<CallAnswer, ProtocolError> {
        let call = self.asked(ada(), "POST", "/v1/sessions", body, Some(key))?;
        self.serve(Call { is_placed_for_caller: true, ..call }).await
    }

    /// The call that HTTP would make.
    pub(crate) fn asked(
        &self,
        actor: Actor,
        method: &str,
        target: &str,
        body: &Value,
        key: Option<&str>,
    ) -> Result<Call, ProtocolError> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let found = Operation::find(method, path)?;
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Ok(Call {
            operation: found.operation,
            params: found.params,
            query: Query::parse(query)?,
            body: Body::read(found.operation, Some("application/json"), &bytes)?,
            actor,
            idempotency_key: IdempotencyKey::read(key)?,
            is_placed_for_caller: false,
            target: found.target,
            now: self.clock.now(),
        })
    }

    async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError> {
        let operation = call.operation;
        let answer = self.api.serve(call).await?;
        validate(operation, &answer);
        Ok(answer)
    }

    /// Everything that is stored, to compare.
    pub(crate) fn written(&self) -> String {
        format!("{:?}", self.memory.as_ref().unwrap())
    }

    /// Does `work` while time passes, so that whoever waits a moment goes on.
    pub(crate) async fn while_time_passes<T>(&self, work: impl Future<Output = T>) -> T {
        let ticking = async {
            loop {
                // As fast as on the wall, and no faster: turns that wait for a real store have a budget.
                let moment = Duration::from_millis(1);
                tokio::time::sleep(moment).await;
                self.clock.advance(moment);
            }
        };
        tokio::select! { done = work => done, () = ticking => unreachable!("time never ends") }
    }

    /// Does all work that was called for, and returns what came of the last.
    pub(crate) async fn work(&self) -> Option<TurnOutcome> {
        self.work_within(None).await
    }

    /// The same, by workers that have `time_left`.
    pub(crate) async fn work_within(&self, time_left: Option<Duration>) -> Option<TurnOutcome> {
        let mut last = None;
        loop {
            let event = {
                let events = self.bus.events();
                let mut taken = self.taken.lock().unwrap();
                let Some(event) = events.get(*taken).cloned() else { return last };
                *taken += 1;
                event
            };
            if let Some(call) = dormouse_tests::called_for(event) {
                last = Some(self.harness.answer_call(&call, time_left).await.outcome);
            }
        }
    }

    /// Delivers a signal as the callback address does.
    pub(crate) async fn callback(&self, task: &str, payload: Value) -> Turn {
        let payload = payload.as_object().unwrap().clone();
        self.harness.turn(Transmission::callback(task, None, payload)).await
    }

    /// The events of `stream`, by what they are called.
    pub(crate) async fn told(&self, target: &str) -> Vec<String> {
        let list = self.get(target).await;
        list["data"].as_array().unwrap().iter().map(|event| text(&event["event"]).to_owned()).collect()
    }

    /// The stored entries of a stream, past every filter.
    pub(crate) async fn entries(&self, stream: &str) -> Vec<Value> {
        let entries = self.records.entries(stream, 0, usize::MAX).await.unwrap();
        entries.into_iter().map(|entry| Value::Object(entry.entry)).collect()
    }
}

/// The secrets of the tenant `acme`, as the provider `test` gives them.
fn secrets() -> BTreeMap<String, Arc<dyn Secrets>> {
    let provider: Arc<dyn Secrets> = Arc::new(TestSecrets);
    BTreeMap::from([("test".to_owned(), provider)])
}

struct TestSecrets;

#[async_trait::async_trait]
impl Secrets for TestSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        match name {
            "acme.HOOK" => Ok(Secret::new("It's a Secret to Everybody")),
            "acme.STANDARD" => Ok(Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")),
            other => Err(SecretError::Missing(other.to_owned())),
        }
    }
}

/// Who may do everything in all workspaces of a tenant.
pub(crate) fn ada() -> Actor {
    actor("ada", "acme", None)
}

pub(crate) fn actor(name: &str, tenant: &str, workspaces: Option<&[&str]>) -> Actor {
    let workspaces = workspaces.map(|ids| ids.iter().map(|id| WorkspaceId::from(*id)).collect::<BTreeSet<_>>());
    let scopes = Scope::ALL.iter().copied().collect();
    Actor {
        name: name.to_owned(),
        tenant: tenant.to_owned(),
        workspaces,
        scopes,
        quota_id: None,
        proof: dormouse_api::Proof::Key,
        credential: name.to_owned(),
        until: None,
    }
}

/// What was answered.
pub(crate) fn body(answer: CallAnswer) -> Value {
    match answer {
        CallAnswer::Json(_, body) | CallAnswer::Repeated(_, body) => body,
        CallAnswer::Bytes { .. } | CallAnswer::Empty => panic!("{answer:?} is no JSON"),
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// The ids of a list.
pub(crate) fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(|one| text(&one["id"]).to_owned()).collect()
}

/// A message of the user, as the body of a submit.
pub(crate) fn says(words: &str) -> Value {
    json!({"input": {"role": "user", "parts": [{"type": "text", "text": words, "visibility": "public"}]}})
}

static SCHEMAS: LazyLock<BTreeMap<&'static str, jsonschema::Validator>> = LazyLock::new(|| {
    let document = any_of(document(DocumentInfo { title: "Dormouse", description: "" }));
    let schemas = Operation::ALL.iter().filter_map(|operation| {
        let spec = operation.spec();
        let Output::Json(status) = spec.output else { return None };
        let method = spec.method.as_str().to_ascii_lowercase();
        let response = &document["paths"][spec.path][method]["responses"][status.to_string()];
        let schema = &response["content"]["application/json"]["schema"];
        let root = json!({"allOf": [schema], "components": document["components"]});
        Some((spec.id, jsonschema::options().should_validate_formats(true).build(&root).unwrap()))
    });
    schemas.collect()
});

fn validate(operation: Operation, answer: &CallAnswer) {
    let spec = operation.spec();
    let (CallAnswer::Json(status, body) | CallAnswer::Repeated(status, body)) = answer else { return };
    assert_eq!(*status, spec.output.status(), "{}", spec.id);
    // The look of a stream.
    let Some(schema) = SCHEMAS.get(spec.id) else { return };
    let errors = schema.iter_errors(body).map(|error| error.to_string()).collect::<Vec<_>>();
    assert!(errors.is_empty(), "{}: {errors:?}\n{body:#}", spec.id);
}
