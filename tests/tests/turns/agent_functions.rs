//! An agent on the functions: several processes over one store, each with a short time. A tool that answers later reports at
//! the function for signals, and a run that is longer than a function goes on in the next.

#[path = "../../../shared/agent/tests/all/cast/mod.rs"]
mod cast;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use dormouse_agent::graph::{AgentParts, HookPart, graph};
use dormouse_agent::workspace::{HookDefinition, HookEvent, OnHookError};
use dormouse_api::{Agents, Keys, Outside, RecordingEngine, RecordingStore};
use dormouse_harness::DescriptorWakes;
use dormouse_http::{
    App, Authorization, BearerKey, CallbackSecret, CallbackSigner, Limits, Parts, ProtocolConfig, Request, Server,
    SignalAddresses, percent,
};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler, HookHandlerDefinition};
use dormouse_ports::tool::{Effect, Pending, ToolOutput, ToolReply};
use dormouse_ports::{InvocationStatus, Invocations};
use dormouse_protocol::cursor::Cursors;
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use dormouse_tests::HttpAnswer;
use serde_json::{Value, json};

/// Everything outside of the functions.
struct World {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    subscriptions: Arc<MemorySubscriptions>,
    bus: Arc<MemoryBus>,
    /// Names of what happens once, in whichever process.
    ids: Arc<CountingIds>,
    model: Arc<ScriptedModel>,
    tools: Arc<Toolbox>,
    /// What the agent is, as the front matter of its file.
    matter: &'static str,
    /// The time of a turn for which no request waits.
    turn: Duration,
    hooks: Vec<HookPart>,
}

impl World {
    fn new(model: Arc<ScriptedModel>, tools: Arc<Toolbox>, clock: Arc<ManualClock>) -> Self {
        let store = Arc::new(MemoryStore::default());
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let (bus, ids) = Default::default();
        let (matter, turn) = ("description: helps", Duration::from_secs(25));
        Self { store, clock, subscriptions, bus, ids, model, tools, matter, turn, hooks: Vec::new() }
    }

    /// A process that has just started: it knows nothing but what is stored.
    fn function(&self) -> (App, Server) {
        let signer = CallbackSigner::new(CallbackSecret::new("hush-hush-hush-hush-hush-hush-hush-hush"));
        let valid = Limits::default().address;
        let addresses = SignalAddresses::new("https://agents.example.com", signer.clone(), self.clock.clone(), valid);
        let outside = Outside::new(self.bus.clone(), self.clock.clone()).with_callbacks(Arc::new(addresses));
        let model = self.model.clone();
        let tools = self.tools.clone();
        let ids = self.ids.clone();
        let matter = self.matter;
        let hooks = self.hooks.clone();
        let agents = Agents::new().graph(move |outside| {
            let parts = parts(matter, model.clone(), tools.clone(), outside.clock.clone());
            let (callbacks, ids, hooks) = (outside.callbacks.clone(), ids.clone(), hooks.clone());
            graph(AgentParts { callbacks, ids, hooks, ..parts })
        });
        let recording = RecordingStore::new(self.store.clone(), self.store.clone(), self.clock.clone());
        let engine =
            RecordingEngine::new(recording, self.ids.clone(), Arc::new(TokioSpawner), Arc::new(DescriptorWakes));
        let app = App::new(Parts {
            engine,
            agents: agents.compile(&outside).expect("graphs"),
            maintenance: self.store.clone().into(),
            subscriptions: self.subscriptions.clone(),
            bus: self.bus.clone(),
            callbacks: signer,
            signal_key: BearerKey::new("open-sesame-open-sesame"),
            authorization: Authorization::None,
            keys: Keys::new(self.store.clone()),
            base_url: Some("https://agents.example.com/".to_owned()),
            limits: Limits { turn: self.turn, ..Limits::default() },
            telemetry: None,
        });
        let wire = ProtocolConfig::new(self.store.clone(), Cursors::new(b"secret"));
        (app.clone(), Server::new(app, wire))
    }

    async fn post(&self, target: &str, body: &Value) -> HttpAnswer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Request {
            method: "POST".to_owned(),
            path: percent::decode(path),
            query: query.to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into_bytes(),
            time_left: Some(Duration::from_secs(25)),
            ..Request::default()
        };
        HttpAnswer::of(self.function().1.http(request).await).await
    }

    async fn get(&self, target: &str) -> HttpAnswer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (method, path, query) = ("GET".to_owned(), percent::decode(path), query.to_owned());
        let request = Request { method, path, query, ..Request::default() };
        HttpAnswer::of(self.function().1.http(request).await).await
    }

    async fn start(&self) -> HttpAnswer {
        self.post("/graphs/helper/turns", &json!({ "state": message("write"), "invocation_id": "run-1" })).await
    }

    /// Has functions do what the bus calls for, behind the first `delivered` events, until the run has ended or nothing calls
    /// any more; the number of events that are delivered then.
    async fn work_off(&self, mut delivered: usize) -> usize {
        while self.ended().await.is_none() {
            let events = self.bus.events();
            let Some(event) = events.get(delivered) else { break };
            let as_delivered = json!({ "id": format!("e{delivered}"), "source": event.source,
                "detail-type": event.detail_type, "detail": event.detail });
            delivered += 1;
            self.function().0.wakeup(as_delivered, None).await.expect("it is acknowledged");
        }
        delivered
    }

    /// The final state, if the run has ended.
    async fn ended(&self) -> Option<dormouse_ports::Map> {
        let record = self.store.load_invocation(&"run-1".into()).await.expect("the store answers")?;
        match record.status {
            InvocationStatus::Completed { state } => Some(state),
            InvocationStatus::Errored(failure) => panic!("it failed: {failure:?}"),
            InvocationStatus::Suspended
            | InvocationStatus::Accepted { .. }
            | InvocationStatus::Resuming(_)
            | InvocationStatus::Canceled(_) => None,
        }
    }
}

#[tokio::test]
async fn a_tool_that_answers_later_reports_at_the_function_for_signals() {
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let given = addresses.clone();
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], move |call| {
        let callback = call.callback.clone().expect("an address");
        given.lock().expect("a lock").push(callback.url);
        Ok(ToolReply::Pending(Pending::default()))
    });
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).first() {
            None => calls(&[("a", "send", json!({ "to": "ada" }))]),
            Some(result) => says(&format!("done: {result}")),
        })
    });
    let world = World::new(model, tools, Arc::new(ManualClock::default()));
    let begun = world.start().await;
    assert_eq!(begun.status, 202, "{}", begun.body);
    let address = addresses.lock().expect("a lock").first().cloned().expect("an address");
    let path = address.strip_prefix("https://agents.example.com").expect("below the address of the deployment");
    let outcome = json!({ "delivered": true });
    let (genuine, token) = path.split_once("?token=").expect("a token");
    assert_eq!(world.post(&format!("{genuine}-2?token={token}"), &outcome).await.status, 404, "another call");
    assert_eq!(world.post(genuine, &outcome).await.status, 401, "no token");
    assert!(world.ended().await.is_none());

    let told = world.post(path, &outcome).await;
    assert_eq!(told.status, 200, "{}", told.body);
    assert_eq!(told.body.get("state"), None, "whoever reports is told nothing of the run: {}", told.body);
    let state = world.ended().await.expect("it has ended");
    assert_eq!(contents(&state, "tool"), ["{\"delivered\":true}"]);
    let again = world.post(path, &outcome).await;
    assert!(matches!(again.status, 200 | 202 | 410), "{}", again.body);
    assert_eq!((world.model.calls(), world.tools.made().len()), (2, 1), "it is heard once");
}

/// Each model call takes 14 of the 25 seconds of a function: after one step the rest is handed to the next function.
#[tokio::test]
async fn a_run_of_more_steps_than_one_function_has_time_for_repeats_none() {
    const STEPS: usize = 12;
    let clock = Arc::new(ManualClock::default());
    let time = clock.clone();
    let model = ScriptedModel::new(move |request| {
        time.advance(Duration::from_secs(14));
        let step = results(request).len();
        Ok(match step < STEPS - 1 {
            true => calls(&[(&format!("c{step}"), "send", json!({ "to": format!("person {step}") }))]),
            false => says("done"),
        })
    });
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Ok(ToolReply::Done(ToolOutput::text("sent"))));
    let world = World::new(model, tools, clock);
    let begun = world.start().await;
    assert!(matches!(begun.status, 200 | 202 | 503), "{}: {}", begun.status, begun.body);
    let delivered = world.work_off(0).await;
    let state = world.ended().await.expect("each function calls for the next");
    assert_eq!((state["reason"].clone(), state["steps"].clone()), (json!("completed"), json!(STEPS)));
    assert_eq!(world.model.calls(), STEPS, "no model call is repeated");
    let mut sent = world.tools.made();
    assert_eq!(sent.len(), STEPS - 1);
    sent.dedup();
    assert_eq!(sent.len(), STEPS - 1, "no mail is sent twice");
    assert!(delivered >= STEPS / 2, "several functions took part: {delivered}");
}

/// API Gateway waits for 25 seconds, and a worker has 150: what is approved over HTTP goes on where its tool and its model have
/// the time that they need.
#[tokio::test]
async fn what_is_answered_over_http_goes_on_in_a_worker_that_has_more_time() {
    let clock = Arc::new(ManualClock::default());
    let (slow_model, slow_tool) = (clock.clone(), clock.clone());
    let model = ScriptedModel::new(move |request| {
        Ok(match results(request).first() {
            None => calls(&[("a", "send", json!({ "to": "ada" }))]),
            Some(_) => {
                slow_model.advance(Duration::from_secs(40));
                says("done")
            }
        })
    });
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], move |_| {
        slow_tool.advance(Duration::from_secs(40));
        Ok(ToolReply::Done(ToolOutput::text("sent")))
    });
    let matter = "description: helps\npolicy: {tool_timeout_seconds: 60, approval: {external: [send]}}";
    let turn = Duration::from_secs(150);
    let world = World { matter, turn, ..World::new(model, tools, clock.clone()) };
    let begun = world.start().await;
    assert_eq!((begun.status, &begun.body["repeated"]), (202, &json!(false)), "{}", begun.body);
    let begun = world.start().await;
    assert_eq!((begun.status, &begun.body["repeated"]), (202, &json!(true)), "a client that lost it: {}", begun.body);
    let asked = world.work_off(0).await;
    let shown = begun.body["status_url"].as_str().expect("an address").to_owned();
    let pause = world.get(shown.strip_prefix("https://agents.example.com").expect("ours")).await;
    let address = pause.body["callback_urls"].as_object().and_then(|parts| parts.values().next()).cloned();
    let address = address.or_else(|| pause.body.get("callback_url").cloned()).expect("somebody is asked");
    let path = address.as_str().and_then(|url| url.strip_prefix("https://agents.example.com")).expect("ours");
    let before = dormouse_ports::Clock::now(&*clock);
    let told = world.post(path, &json!({ "decision": "approve" })).await;
    assert_eq!((told.status, &told.body["repeated"]), (202, &json!(false)), "{}", told.body);
    // The same answer once more, before a worker has come: it takes nothing over for which its request has no time.
    let again = world.post(path, &json!({ "decision": "approve" })).await;
    assert_eq!((again.status, &again.body["repeated"]), (202, &json!(true)), "{}", again.body);
    assert_eq!(before, dormouse_ports::Clock::now(&*clock), "who answers does not wait for tools and models");
    assert!(world.tools.made().is_empty(), "the call is left to the worker");
    world.work_off(asked).await;
    let state = world.ended().await.expect("it has ended");
    assert_eq!(state["reason"], "completed");
    assert_eq!((world.model.calls(), world.tools.made().len()), (2, 1), "nothing is paid or done twice");
}

/// The first answer of a model may take longer than a request is waited for, too.
#[tokio::test]
async fn a_model_for_which_a_request_has_no_time_is_asked_once_more_by_a_worker() {
    let clock = Arc::new(ManualClock::default());
    let slow = clock.clone();
    let model = ScriptedModel::new(move |_| {
        slow.advance(Duration::from_secs(40));
        Ok(says("done"))
    });
    let tools = Toolbox::new(Vec::new(), |_| Ok(ToolReply::Done(ToolOutput::text("none"))));
    let world = World { turn: Duration::from_secs(150), ..World::new(model, tools, clock.clone()) };
    let begun = world.start().await;
    assert_eq!(begun.status, 202, "{}", begun.body);
    world.work_off(0).await;
    clock.advance(Duration::from_secs(1));
    let due = json!({ "dormouse_wakeup": { "invocation_id": "run-1", "generation": 1 } });
    world.function().0.wakeup(due, None).await.expect("it is acknowledged");
    let state = world.ended().await.expect("it has ended");
    assert_eq!((state["reason"].clone(), world.model.calls()), (json!("completed"), 2));
}

/// A hook that takes eight seconds.
#[derive(Debug)]
struct Slow(Arc<ManualClock>);

#[async_trait]
impl HookHandler for Slow {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        self.0.advance(Duration::from_secs(8));
        Ok(HookAnswer::default())
    }
}

/// Hooks that may need more than a request is waited for have failed there, and what they guard would have passed.
#[tokio::test]
async fn a_step_whose_hooks_may_need_more_time_than_a_request_has_is_left_to_a_worker_with_them() {
    let clock = Arc::new(ManualClock::default());
    let slow = clock.clone();
    let model = ScriptedModel::new(move |_| {
        slow.advance(Duration::from_secs(12));
        Ok(says("done"))
    });
    let tools = Toolbox::new(Vec::new(), |_| Ok(ToolReply::Done(ToolOutput::text("none"))));
    let definition = HookDefinition {
        name: "slow".to_owned(),
        file: "slow.yaml".to_owned(),
        events: vec![HookEvent::BeforeModelCall, HookEvent::AfterModelCall],
        matcher: None,
        handler: HookHandlerDefinition::Command { command: "guard".to_owned(), environment: Vec::new() },
        capabilities: Default::default(),
        on_error: OnHookError::Closed,
        timeout_seconds: 10,
    };
    let hooks = vec![HookPart::new(definition, Some(Arc::new(Slow(clock.clone()))))];
    let world = World { turn: Duration::from_secs(150), hooks, ..World::new(model, tools, clock) };
    let begun = world.start().await;
    assert_eq!((begun.status, world.model.calls()), (202, 0), "{}", begun.body);
    world.work_off(0).await;
    let state = world.ended().await.expect("it has ended");
    assert_eq!((state["reason"].clone(), world.model.calls()), (json!("completed"), 1), "no hook has failed");
}
