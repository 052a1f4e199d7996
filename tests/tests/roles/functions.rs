//! The functions as the template describes them: its environment, its roles, the shipped graphs and two that
//! do everything that a graph can.

use std::sync::Arc;

use dormouse_api::Agents;
use dormouse_engine::{
    Answer, CompiledGraph, Deadline, Delay, END, Graph, Reducer, SessionPolicy, Update, Wait, current, record,
    save_session, state,
};
use dormouse_harness::HarnessChildren;
use dormouse_http::{App, Content, HeldSockets, Request, Response, Server, StreamServer};
use dormouse_lambda::{Config, Function as Trigger, StreamConfig, compose, compose_sockets, compose_streams};
use dormouse_ports::{
    ArtifactPlace, ChildRuns, ChildStart, EntryKind, Event, EventBus, EventWait, Image, ImageOwner, Images,
    JournalEntry, Map, ParentLink, StateArtifact, WORKSPACE,
};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_tests::HttpAnswer;
use dormouse_tests::lambda::SIGNAL_KEY;
use dormouse_tests::map;
use futures::StreamExt;
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::gate::{Behind, Gate, HOOK};
use crate::template::{STACK, Template};

/// The variables of a function as the template, whoever deploys it, and Lambda set them.
struct Deployed {
    environment: Map,
    by_lambda: Value,
    /// What a deployment may ask for beyond what it does by itself.
    chosen: Value,
    /// Where connections are; the gate stands for them too.
    stage: String,
}

impl Deployed {
    /// Those of the function `{name}Function`, and the gate of its role.
    async fn start(template: &Template, name: &str, behind: Behind) -> (Gate, Self) {
        let (gate, address) = Gate::open(&template.statements(&format!("{name}Role")), behind).await;
        let environment = template.environment(&format!("{name}Function"));
        let named = format!("{STACK}-{}", name.to_lowercase());
        let by_lambda = json!({
            "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_ENDPOINT_URL": address, "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9001", "AWS_LAMBDA_FUNCTION_NAME": named,
            "AWS_LAMBDA_FUNCTION_VERSION": "1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        });
        let chosen = json!({ "DORMOUSE_KEY_RATE": "100000", "DORMOUSE_TENANT_RATE": "100000", "DORMOUSE_AUDIT_DAYS": "30",
                "DORMOUSE_STREAMS_OF_TENANT": "50", "DORMOUSE_SIGNALS_OF_TENANTS": "enabled" });
        let stage = format!("{}/live", address.replacen("http", "ws", 1));
        (gate, Self { environment, by_lambda, chosen, stage })
    }

    fn value(&self, variable: &str) -> Option<String> {
        if variable == "DORMOUSE_SOCKET_URL" && self.environment.contains_key(variable) {
            return Some(self.stage.clone());
        }
        let told = self.environment.get(variable).map(|value| self.chosen.get(variable).unwrap_or(value));
        let value = told.or_else(|| self.by_lambda.get(variable))?;
        Some(value.as_str().expect("text").to_owned())
    }
}

/// The function that streams, behind the gate of its role.
pub(crate) struct StreamFunction {
    server: StreamServer,
    pub(crate) gate: Gate,
}

impl StreamFunction {
    pub(crate) async fn start(template: &Template, behind: Behind) -> Self {
        let (gate, deployed) = Deployed::start(template, "Stream", behind).await;
        let config = StreamConfig::from_variables(|variable| deployed.value(variable));
        let config = config.expect("the environment of the template is complete");
        Self { server: compose_streams(config), gate }
    }

    /// What is answered to whoever holds `key`: status and body, of a stream its first piece.
    pub(crate) async fn speak(&self, key: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        heard(self.server.http(spoken(key, method, target, body)).await).await
    }
}

/// A function behind the gate of its role.
pub(crate) struct Function {
    pub(crate) app: App,
    pub(crate) server: Server,
    pub(crate) gate: Gate,
    pub(crate) config: Config,
    /// What the function for sockets holds.
    pub(crate) sockets: Option<HeldSockets>,
}

impl Function {
    /// The function with the logical name `{name}Function`, with the role `{name}Role`.
    pub(crate) async fn start(template: &Template, name: &str, behind: Behind) -> Self {
        let (gate, deployed) = Deployed::start(template, name, behind).await;
        let function = match name {
            "Inbound" => Trigger::Inbound,
            "Signal" => Trigger::Signal,
            // The same program.
            "Wakeup" | "Sweep" => Trigger::Wakeup,
            "Socket" => Trigger::Socket,
            other => panic!("there is no function {other}"),
        };
        let config = Config::from_variables(function, |variable| deployed.value(variable));
        let config = config.expect("the environment of the template is complete");
        let (config, agents) = served(config);
        if function == Trigger::Socket {
            let sockets = compose_sockets(config.clone(), None, &agents).await.expect("secrets and graphs");
            let server = sockets.server().clone();
            return Self { app: server.app().clone(), server, gate, config, sockets: Some(sockets) };
        }
        let server = compose(function, config.clone(), None, &agents).await.expect("secrets and graphs");
        Self { app: server.app().clone(), server, gate, config, sockets: None }
    }

    /// The request of whoever holds `key` for the stream at `target`.
    pub(crate) fn asked(key: &str, target: &str) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers =
            [("authorization", format!("Bearer {key}")), ("harn-agents-protocol-version", PROTOCOL_VERSION.to_owned())];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            ..Request::default()
        }
    }

    /// What the protocol answers to whoever holds `key`: status and body, of a stream its first piece.
    pub(crate) async fn speak(&self, key: &str, method: &str, target: &str, body: &Value) -> (u16, Value) {
        heard(self.server.http(spoken(key, method, target, body)).await).await
    }

    /// What is answered to whoever holds the signal key, or the token in the path.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        self.post_as(SIGNAL_KEY, path, body).await
    }

    /// What is answered to whoever holds `key`.
    pub(crate) async fn post_as(&self, key: &str, path: &str, body: &Value) -> HttpAnswer {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let headers = [("content-type", "application/json".to_owned()), ("authorization", format!("Bearer {key}"))];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let path = path.to_owned();
        let query = query.to_owned();
        let method = "POST".to_owned();
        let body = body.to_string().into_bytes();
        let request = Request { method, path, query, headers, body, ..Request::default() };
        HttpAnswer::of(self.server.http(request).await).await
    }

    /// What is answered to a delivery of GitHub's, signed with [`HOOK`].
    pub(crate) async fn deliver(&self, path: &str, body: &Value) -> HttpAnswer {
        let body = body.to_string().into_bytes();
        let mut mac = Hmac::<Sha256>::new_from_slice(HOOK.as_bytes()).expect("a key");
        mac.update(&body);
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        let headers = [
            ("content-type", "application/json"),
            ("x-github-event", "push"),
            ("x-github-delivery", "d1"),
            ("x-hub-signature-256", &signature),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let request = Request { method: "POST".to_owned(), path: path.to_owned(), headers, body, ..Request::default() };
        HttpAnswer::of(self.server.http(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> HttpAnswer {
        let (path, query) = path.split_once('?').expect("a token");
        let path = path.to_owned();
        let query = query.to_owned();
        let request = Request { method: "GET".to_owned(), path, query, ..Request::default() };
        HttpAnswer::of(self.server.http(request).await).await
    }
}

/// The request of the protocol that whoever holds `key` sends.
fn spoken(key: &str, method: &str, target: &str, body: &Value) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("authorization", format!("Bearer {key}")),
        ("harn-agents-protocol-version", PROTOCOL_VERSION.to_owned()),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let method = method.to_owned();
    let path = path.to_owned();
    let query = query.to_owned();
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request { method, path, query, headers, body, ..Request::default() }
}

/// Status and body of `response`, of a stream its first piece.
async fn heard(response: Response) -> (u16, Value) {
    match response.content {
        Content::Whole(bytes) => {
            let text = || String::from_utf8_lossy(&bytes).into();
            (response.status, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
        }
        Content::Live(mut pieces) => {
            let first = pieces.next().await.expect("a stream says something");
            (response.status, String::from_utf8(first).expect("text").into())
        }
    }
}

/// How a function with `config` serves, and what: with five graphs more. Addresses begin with `/`.
fn served(config: Config) -> (Config, Agents) {
    let agents = dormouse_app::agents()
        .graph(|outside| Ok(errand(outside.bus.clone(), true)))
        .graph(|outside| Ok(errand(outside.bus.clone(), false)))
        .graph(|outside| Ok(delegation(outside.children.clone())))
        .graph(|outside| Ok(late_delegation(outside.children.clone(), outside.images.clone())))
        .graph(|_| Ok(saving()));
    (Config { base_url: None, stream_url: None, ..config }, agents)
}

state! {
    /// What the graph `errand` works on.
    #[derive(Clone, Debug, Default)]
    struct Errand {
        /// As long as it takes to be a blob.
        note: String,
        /// How long each of its waits may take.
        within: String,
        /// Grows, so that it is kept in pieces.
        log: Vec<String>,
    }
}

/// `ask -> announce -> wait`: waits for a signal, publishes, leaves its note as an artifact, and waits for an event, each
/// wait with a deadline; the second one keeps the signal of the first. `errand` keeps
/// sessions, `lone-errand` none.
fn errand(bus: Arc<dyn EventBus>, keeps_sessions: bool) -> CompiledGraph {
    let announce = move |()| {
        let bus = bus.clone();
        async move {
            let source = "errand".to_owned();
            let detail_type = "Asked".to_owned();
            bus.publish(Event { source, detail_type, detail: Map::new() }).await?;
            let place = ArtifactPlace::State("/note".to_owned());
            let note = StateArtifact { place, mime_type: "text/plain".to_owned(), metadata: Map::new() };
            record(JournalEntry::new(EntryKind::SpanCompleted).with("name", "asked").leaving(Some(note)))?;
            Ok(Errand::log.append(["asked ".repeat(100)]))
        }
    };
    let graph = Graph::<Errand>::new(if keeps_sessions { "errand" } else { "lone-errand" });
    let graph = graph.version("1").reducer(Errand::log, Reducer::Append);
    let policy = SessionPolicy::keeping((Errand::note, Errand::log));
    let graph = if keeps_sessions { graph.sessions(policy) } else { graph };
    graph
        .entry("ask")
        .wait(
            "ask",
            |errand| Ok(Wait::signal(id("ask"), Answer::anything()).or_default(within(errand), Update::none())),
        )
        .node("announce", announce)
        .wait("wait", |errand| {
            let wait = Wait::event(id("parcel"), parcel(), Answer::anything());
            // An agent does so whose tool asks something while others work elsewhere: whoever goes on frees the signal.
            let wait = wait.keeping([id("ask").into()]);
            Ok(wait.or_default(within(errand), Update::none()))
        })
        .edge("ask", "announce")
        .edge("announce", "wait")
        .edge("wait", END)
        .compile()
        .expect("a graph")
}

state! {
    /// What the graphs `delegation` and `late-delegation` work on.
    #[derive(Clone, Debug, Default)]
    struct Delegation {}
}

/// `delegate`: begins an errand in another session, as an agent does that asks another one.
fn delegation(children: HarnessChildren) -> CompiledGraph {
    let delegate = move |()| {
        let children = children.clone();
        async move {
            children.begin(errand_of_current()).await?;
            Ok(Update::<Delegation>::none())
        }
    };
    let graph = Graph::<Delegation>::new("delegation").version("1");
    graph.entry("delegate").node("delegate", delegate).edge("delegate", END).compile().expect("a graph")
}

/// `ask -> go-on`: waits for a signal, and then asks another agent and keeps an image, as an agent does whose call of a tool
/// a person has approved.
fn late_delegation(children: HarnessChildren, images: Option<Arc<dyn Images>>) -> CompiledGraph {
    let images = images.expect("functions keep images");
    let go_on = move |()| {
        let (children, images) = (children.clone(), images.clone());
        async move {
            children.begin(errand_of_current()).await?;
            let run = current().expect("inside of an invocation");
            let owner = ImageOwner {
                tenant: run.begun_for.clone(),
                workspace: run.metadata.get(WORKSPACE).and_then(Value::as_str).map(str::to_owned),
                session: run.session_id.clone(),
                invocation: run.invocation_id.clone(),
            };
            let image = Image { media_type: "image/png".to_owned(), bytes: b"\x89PNG\r\n\x1a\n".to_vec() };
            images.keep(&owner, &image).await?;
            Ok(Update::<Delegation>::none())
        }
    };
    let graph = Graph::<Delegation>::new("late-delegation").version("1");
    graph
        .entry("ask")
        .wait("ask", |_| Ok(Wait::signal(id("ask"), Answer::anything())))
        .node("go-on", go_on)
        .edge("ask", "go-on")
        .edge("go-on", END)
        .compile()
        .expect("a graph")
}

state! {
    /// What the graph `saving` works on.
    #[derive(Clone, Debug, Default)]
    struct Saving {
        /// What it saves.
        note: String,
    }
}

/// `step -> save`: records something and saves its session in the midst of a node, behind a durable step.
fn saving() -> CompiledGraph {
    let save = |()| async {
        // What is recorded is written with the session, and only while the run is claimed.
        record(JournalEntry::new(EntryKind::SpanCompleted).with("name", "saved"))?;
        save_session(&Update::none()).await?;
        Ok(Update::<Saving>::none())
    };
    let graph = Graph::<Saving>::new("saving").version("1").sessions(SessionPolicy::keeping(Saving::note));
    graph
        .entry("step")
        .node("step", |()| async { Ok(Saving::note.set("noted".to_owned())) })
        .durable("step")
        .node("save", save)
        .edge("step", "save")
        .edge("save", END)
        .compile()
        .expect("a graph")
}

/// The errand that the run around this place asks for.
fn errand_of_current() -> ChildStart {
    let asker = current().expect("inside of an invocation");
    let parent = ParentLink {
        invocation_id: asker.invocation_id.clone(),
        signal_id: format!("ended-{}", asker.invocation_id).into(),
        depth: 1,
    };
    ChildStart {
        invocation_id: delegated(asker.invocation_id.as_str()).into(),
        session_id: format!("session_of_{}", asker.invocation_id).into(),
        graph: "errand".to_owned(),
        state: map(json!({ "within": "PT1H" })),
        parent,
        metadata: asker.metadata.clone(),
        begun_for: asker.begun_for.clone(),
    }
}

/// The id of the delivery of the event `event` to the webhook `webhook`.
pub(crate) fn delivery(webhook: &str, event: &str) -> String {
    let digest = Sha256::new().chain_update(webhook).chain_update([0]).chain_update(event).finalize();
    format!("delivery_{}", hex::encode(&digest[..16]))
}

/// Id of the task that the task `asker` begins.
pub(crate) fn delegated(asker: &str) -> String {
    format!("{asker}-errand")
}

fn id(what: &str) -> String {
    format!("{what}-{}", current().expect("inside of an invocation").invocation_id)
}

/// When a wait of `errand` ends: a delay of nothing is over already.
fn within(errand: &Errand) -> Deadline {
    let delay: Delay = errand.within.parse().expect("a duration");
    if delay == Delay::seconds(0) { Timestamp::UNIX_EPOCH.into() } else { delay.into() }
}

fn parcel() -> EventWait {
    EventWait { pattern: map(json!({ "source": ["post"] })), correlation: "$.detail.parcel".to_owned() }
}
