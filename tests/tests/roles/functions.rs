//! The functions as the template describes them: its environment, its roles, the shipped graphs and two that
//! do everything that a graph can.

use std::sync::Arc;

use dormouse_api::{Bell, Chronicle, Content, StreamLimits};
use dormouse_aws::{
    AwsSubscriptions, CallbackSigner, DynamoDbStateStore, EventBridgeBus, RandomIds, RuleConfig, SchedulerConfig,
    StoreConfig, SystemClock, TokioSpawner,
};
use dormouse_engine::{
    CompiledGraph, END, Engine, Ports, Reducer, SessionPolicy, TypedGraph, Update, current, suspend,
};
use dormouse_harness::{DescriptorWakes, GraphRegistry};
use dormouse_lambda::{App, Config, HttpRequest, HttpResponse, Limits, Parts, Server, Wire};
use dormouse_ports::{Clock, Event, EventBus, Map, SignalDescriptor, SignalSubscriptions};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::cursor::Cursors;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::template::Template;

/// A function behind the gate of its role.
pub(crate) struct Function {
    pub(crate) app: App,
    pub(crate) server: Server,
    pub(crate) gate: Gate,
    pub(crate) config: Config,
    key: String,
}

impl Function {
    /// The function with the logical name `{name}Function`, with the role `{name}Role`.
    pub(crate) async fn start(template: &Template, name: &str, store: String) -> Self {
        let (gate, address) = Gate::open(&template.statements(&format!("{name}Role")), store).await;
        let environment = template.environment(&format!("{name}Function"));
        let by_lambda = json!({
            "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_ENDPOINT_URL": address, "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001", "AWS_LAMBDA_FUNCTION_NAME": name,
            "AWS_LAMBDA_FUNCTION_VERSION": "1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        });
        let config = Config::from_variables(|variable| {
            let value = environment.get(variable).or_else(|| by_lambda.get(variable))?;
            Some(value.as_str().expect("text").to_owned())
        });
        let config = config.expect("the environment of the template is complete");
        let key = environment["DORMOUSE_SIGNAL_KEY"].as_str().expect("a key").to_owned();
        let server = server(&config, name == "Stream");
        Self { app: server.app().clone(), server, gate, config, key }
    }

    /// What the protocol answers to whoever holds `key`: status and body, of a stream its first piece.
    pub(crate) async fn speak(&self, key: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("authorization", format!("Bearer {key}")),
            ("harn-agents-protocol-version", PROTOCOL_VERSION.to_owned()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
        let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.server.http(HttpRequest { method, path, query, headers, body, time_left: None }).await;
        match response.content {
            Content::Whole(bytes) => (response.status, serde_json::from_slice(&bytes).expect("JSON")),
            Content::Live(mut pieces) => {
                let first = pieces.next().await.expect("a stream says something");
                (response.status, String::from_utf8(first).expect("text").into())
            }
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let headers =
            [("content-type", "application/json".to_owned()), ("authorization", format!("Bearer {}", self.key))];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let (path, query) = (path.to_owned(), query.to_owned());
        let body = body.to_string().into_bytes();
        self.app.http(HttpRequest { method: "POST".to_owned(), path, query, headers, body, time_left: None }).await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        let (path, query) = path.split_once('?').expect("a token");
        let (path, query) = (path.to_owned(), query.to_owned());
        self.app.http(HttpRequest { method: "GET".to_owned(), path, query, ..HttpRequest::default() }).await
    }
}

/// The composition of `boot`, with two graphs more.
fn server(config: &Config, reads_only: bool) -> Server {
    let config = config.clone();
    let clients = config.access.clients();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let bus: Arc<dyn EventBus> = Arc::new(EventBridgeBus::new(clients.eventbridge.clone(), config.bus.clone()));
    let shipped = dormouse_app::registry(bus.clone(), clock.clone()).expect("graphs");
    let graphs = GraphRegistry::new(
        shipped.iter().cloned().chain([Arc::new(errand(bus.clone(), true)), Arc::new(errand(bus.clone(), false))]),
    );
    let store = Arc::new(DynamoDbStateStore::new(&clients.dynamodb, config.table, StoreConfig::default()));
    let ports = Ports {
        store: Arc::new(Chronicle::new(store.clone(), store.clone(), clock.clone())),
        clock: clock.clone(),
        ids: Arc::new(RandomIds),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    };
    let schedules = SchedulerConfig {
        group_name: config.scheduler_group,
        role_arn: config.scheduler_role_arn,
        wakeup_function_arn: config.wakeup_arn,
        dead_letter_arn: config.dead_letter_arn.clone(),
    };
    let rules = RuleConfig {
        bus_name: config.bus,
        signal_function_arn: config.signal_arn,
        dead_letter_arn: config.dead_letter_arn,
    };
    let subscriptions: Arc<dyn SignalSubscriptions> =
        Arc::new(AwsSubscriptions::new(clients.scheduler, schedules, clients.eventbridge, rules, clock));
    let wire = Wire {
        records: store,
        subscriptions: subscriptions.clone(),
        cursors: Cursors::new(config.callback_secret.as_bytes()),
        base_url: None,
        stream_url: None,
        bell: Bell::default(),
        streams: StreamLimits::default(),
        reads_only,
    };
    let app = App::new(Parts {
        engine: Engine::new(ports),
        graphs,
        subscriptions,
        bus,
        callbacks: CallbackSigner::new(config.callback_secret),
        signal_key: config.signal_key,
        base_url: None,
        limits: Limits::default(),
        telemetry: None,
    });
    Server::new(app, wire)
}

/// What the graph `errand` works on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Errand {
    /// As long as it takes to be a blob.
    note: String,
    /// How long each of its waits may take.
    within: String,
    /// Grows, so that it is kept in pieces.
    log: Vec<String>,
}

/// `ask -> announce -> wait`: waits for a signal, publishes, and waits for an event, each with a deadline. `errand` keeps
/// sessions, `lone-errand` none.
fn errand(bus: Arc<dyn EventBus>, keeps_sessions: bool) -> CompiledGraph {
    let announce = move |_| {
        let bus = bus.clone();
        async move {
            let (source, detail_type) = ("errand".to_owned(), "Asked".to_owned());
            bus.publish(Event { source, detail_type, detail: Map::new() }).await?;
            Ok(Update::none().with("log", json!(["asked ".repeat(100)])))
        }
    };
    let graph = TypedGraph::<Errand>::new(if keeps_sessions { "errand" } else { "lone-errand" });
    let graph = graph.version("1").reducer("log", Reducer::Append);
    let policy = SessionPolicy::projected(["note", "log"]);
    let graph = if keeps_sessions { graph.sessions(policy) } else { graph };
    graph
        .entry("ask")
        .node("ask", async |errand: Errand| Err(suspend(wait("ask", &errand)).await))
        .node("announce", announce)
        .node("wait", async |errand: Errand| Err(suspend(wait("parcel", &errand).with("event", parcel())).await))
        .edge("ask", "announce")
        .edge("announce", "wait")
        .edge("wait", END)
        .compile()
        .expect("a graph")
}

fn wait(what: &str, errand: &Errand) -> SignalDescriptor {
    let id = current().expect("inside of an invocation").invocation_id.clone();
    let deadline = json!({ "after": errand.within, "then": { "resume": {} } });
    SignalDescriptor::new(format!("{what}-{id}")).with("timeout", deadline)
}

fn parcel() -> Value {
    json!({ "pattern": { "source": ["post"] }, "correlation": "$.detail.parcel" })
}
