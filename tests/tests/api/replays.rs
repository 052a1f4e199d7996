//! Replays: what a task recorded is enough, what was not recorded is named, and nothing outside is reached.

use std::sync::Arc;
use std::time::Duration;

use dormouse_agent::graph::graph;
use dormouse_api::{Agent, Outside, Receipts};
use dormouse_harness::Transmission;
use dormouse_ports::model::CompletionRequest;
use dormouse_ports::tool::{Effect, FileOperation, ToolError, ToolOutput, ToolReply, WrittenFile};
use dormouse_ports::{Clock, InvocationId, Invocations};
use dormouse_receipts::{Export, KeyRing, canonical, projection_hash};
use dormouse_testkit::MemoryStore;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, results, says as answers, tool};
use crate::world::{MakesAgent, World, actor, ada, says, text};

/// Nobody but model, tool and client knows it.
pub(crate) const SECRET: &str = "sk-planted0123456789abcdefghij";

const ASKS: &str = "policy: {approval: {external: [send]}}";

/// An agent that looks something up, wants to send it, which a person has to approve, and says what came of it.
struct Clerk {
    model: Arc<ScriptedModel>,
    tools: Arc<Toolbox>,
}

impl Clerk {
    fn new() -> Self {
        let model = ScriptedModel::new(|request: &CompletionRequest| {
            let seen = results(request).len();
            Ok(match seen % 3 {
                0 if ends_with_a_question(request) => {
                    calls(&[("look", "find", json!({ "to": "a" })), ("again", "find", json!({ "to": SECRET }))])
                }
                2 => calls(&[("send", "send", json!({ "to": "bob" }))]),
                _ => answers(&format!("done after {seen} results")),
            })
        });
        let tools = vec![tool("find", Effect::Safe), tool("send", Effect::Manual)];
        let tools = Toolbox::new(tools, |call| match call.arguments["to"].as_str() {
            Some("a") => Ok(ToolReply::Done(ToolOutput::text("found a"))),
            Some("bob") => {
                call.effects.asked(&format!("https://ada:{SECRET}@mail.example/send?key={SECRET}"));
                let path = format!("sent/{}", call.id);
                let after_sha256 = canonical::sha256(b"sent");
                let operation = FileOperation::Create;
                call.effects.wrote(WrittenFile { path, operation, before_sha256: None, after_sha256 });
                Ok(ToolReply::Done(ToolOutput::text("sent")))
            }
            _ => Err(ToolError::permanent(format!("{SECRET} is not here"))),
        });
        Self { model, tools }
    }

    fn agent(&self) -> MakesAgent {
        let (model, tools) = (self.model.clone(), self.tools.clone());
        let make = move |outside: &Outside| graph(parts(ASKS, model.clone(), tools.clone(), outside.clock.clone()));
        ("helper", Agent::new(make))
    }

    /// How often anything outside was reached.
    fn outside(&self) -> (usize, usize) {
        (self.model.calls(), self.tools.made().len())
    }
}

fn ends_with_a_question(request: &CompletionRequest) -> bool {
    request.messages.last().is_some_and(|message| message.role() == "user")
}

pub(crate) async fn world(more: &[MakesAgent]) -> (Arc<World>, String) {
    let store = Arc::new(MemoryStore::default());
    let receipts = Receipts::of(&KeyRing::new([7; 32], None));
    let world = World::serving((store.clone(), store.clone(), Some(store)), Some(receipts), more);
    let session = world.session().await;
    (world, session)
}

fn ask(words: &str) -> Value {
    let mut body = says(words);
    body["persona_id"] = json!("persona_helper");
    body
}

pub(crate) fn path_of(task: &Value) -> String {
    format!("/v1/tasks/{}", text(&task["id"]))
}

/// A run of the clerk up to its end: its path.
async fn run(world: &World, session: &str, words: &str) -> String {
    let path = path_of(&world.post(&format!("{session}/tasks"), ask(words)).await);
    world.work().await;
    let parts = json!([{"type": "json", "value": {"approved": true, "reason": "go on"}, "visibility": "public"}]);
    let message = json!({"kind": "tool_confirmation", "message": {"role": "user", "parts": parts}});
    world.post(&format!("{path}/messages"), message).await;
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "COMPLETED", "{path}");
    path
}

pub(crate) async fn replayed(world: &World, path: &str, body: Value) -> Value {
    world.post(&format!("{path}/replay"), body).await
}

pub(crate) async fn events(world: &World, path: &str) -> Vec<Value> {
    world.get(&format!("{path}/events?limit=200")).await["data"].as_array().unwrap().clone()
}

/// The receipt of the end of `task`.
pub(crate) async fn receipt(world: &World, task: &Value) -> Map<String, Value> {
    let receipt = world.get(&format!("/v1/receipts/{}", text(&task["receipt_id"]))).await;
    receipt["wire"]["payload"].as_object().unwrap().clone()
}

pub(crate) async fn projected(world: &World, task: &Value) -> String {
    projection_hash(&receipt(world, task).await).unwrap()
}

pub(crate) async fn summary(world: &World, task: &Value) -> String {
    let outcome = world.get(&format!("/v1/outcomes/{}", text(&task["outcome_id"]))).await;
    text(&outcome["summary"]).to_owned()
}

pub(crate) async fn chain_is_sound(world: &World, session: &str) {
    let entries = world.entries(session.rsplit('/').next().unwrap()).await;
    let issued = entries.iter().filter(|event| event["event"] == "receipt.issued");
    let lines: Vec<String> = issued.map(|event| event["payload"]["receipt"].to_string()).collect();
    let keys = KeyRing::new([7; 32], None).keys();
    let report = Export::parse(lines.join("\n").as_bytes()).unwrap().verify(&keys, Timestamp::MAX);
    assert!(report.is_sound(), "{report:?}");
}

/// What nodes recorded, without how long it took.
fn recorded(events: &[Value]) -> Vec<(String, Value)> {
    let of_nodes = events
        .iter()
        .filter(|event| ["span.", "tool.", "vendor."].iter().any(|word| text(&event["event"]).starts_with(word)));
    let lasting = of_nodes.map(|event| {
        let mut payload = event["payload"].clone();
        payload.as_object_mut().unwrap().shift_remove("duration_ms");
        if let Some(Value::Object(usage)) = payload.get_mut("usage") {
            usage.shift_remove("active_ms");
        }
        (text(&event["event"]).to_owned(), payload)
    });
    lasting.collect()
}

#[tokio::test]
async fn an_exact_replay_is_the_run_again_and_reaches_nothing() {
    let clerk = Clerk::new();
    let (world, session) = world(&[clerk.agent()]).await;
    let first = run(&world, &session, &format!("Hello, my key is {SECRET}")).await;
    let second = run(&world, &session, "And again").await;
    let outside = clerk.outside();
    let said = world.get(&format!("{session}/messages?limit=200")).await;
    for path in [&first, &second] {
        world.clock.advance(Duration::from_secs(60));
        let original = world.get(path).await;
        let replay = replayed(&world, path, json!({})).await;
        assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
        assert_eq!(replay["parent_task_id"], original["id"]);
        assert_eq!(replay["session_id"], original["session_id"]);
        let told = events(&world, &path_of(&replay)).await;
        assert_eq!(recorded(&told), recorded(&events(&world, path).await));
        for event in told.iter().filter(|event| text(&event["event"]).starts_with("tool.")) {
            assert_eq!(event["replayed"], true);
            assert_eq!(event["replay"]["source_task_id"], original["id"]);
            assert_eq!(event["replay"]["replay_task_id"], replay["id"]);
            let past = text(&event["replay"]["original_event_id"]);
            assert_eq!(world.get(&format!("/v1/events/{past}")).await["event"], event["event"]);
        }
        assert!(told.iter().any(|event| event["event"] == "replay.started"));
        assert!(told.iter().any(|event| event["event"] == "replay.completed"));
        let ours = receipt(&world, &replay).await;
        let theirs = receipt(&world, &original).await;
        assert_eq!(dormouse_receipts::projection(&ours), dormouse_receipts::projection(&theirs));
        assert_eq!(ours["replay_input"]["determinism"], "byte_deterministic");
        let written = json!([{"path": "sent/send", "operation": "create", "after_sha256": canonical::sha256(b"sent")}]);
        let asked = json!([
            {"destination": "nowhere", "purpose": "model", "metadata": {"calls": 3}},
            {"destination": "mail.example", "purpose": "tool send", "metadata": {"calls": 1}},
        ]);
        let effects = &theirs["side_effects"];
        assert_eq!((&effects["fs_writes"], &effects["network_egress"]), (&written, &asked));
        assert_eq!(ours["metadata"]["replay"]["source_receipt_id"], original["receipt_id"]);
        let verified = world.post(&format!("/v1/receipts/{}/verify", text(&replay["receipt_id"])), json!({})).await;
        assert_eq!(verified["valid"], true);

        let again = replayed(&world, &path_of(&replay), json!({"mode": "exact"})).await;
        assert_eq!((&again["status"], &again["parent_task_id"]), (&json!("COMPLETED"), &replay["id"]));
        assert_eq!(projected(&world, &again).await, projection_hash(&theirs).unwrap());
    }
    assert_eq!(clerk.outside(), outside, "neither the model nor a tool was asked again");
    assert_eq!(said, world.get(&format!("{session}/messages?limit=200")).await, "a replay says nothing to anybody");
    chain_is_sound(&world, &session).await;
    let all = world.get(&format!("{session}/events?limit=200")).await.to_string();
    assert!(!all.contains("planted"), "no event tells a secret");
    assert!(!all.contains("\"material\""), "what is kept for replays is no client's");
    run(&world, &session, "The session goes on as if there had been no replay.").await;
}

/// The receipts of a run in which the sending was answered with `answer`: of the answer, and of the end.
async fn answered(clerk: &Clerk, answer: Value) -> [Map<String, Value>; 2] {
    let (world, session) = world(&[clerk.agent()]).await;
    let path = path_of(&world.post(&format!("{session}/tasks"), ask("Hello")).await);
    world.work().await;
    let parts = json!([{"type": "json", "value": answer, "visibility": "public"}]);
    let message = json!({"kind": "tool_confirmation", "message": {"role": "user", "parts": parts}});
    world.post(&format!("{path}/messages"), message).await;
    world.work().await;
    chain_is_sound(&world, &session).await;
    let list = world.get(&format!("{path}/receipts")).await;
    let [end, answer] = &list["data"].as_array().unwrap()[..] else { panic!("{list:#}") };
    [answer, end].map(|one| one["wire"]["payload"].as_object().unwrap().clone())
}

#[tokio::test]
async fn what_a_person_allowed_is_in_the_receipt_and_nothing_else_runs() {
    let sent = |clerk: &Clerk| clerk.tools.made().into_iter().filter(|(name, _)| name == "send").collect::<Vec<_>>();
    let call = |end: &Map<String, Value>| end["side_effects"]["tool_calls"][2].clone();
    let hash = |arguments: Value| canonical::sha256(arguments.to_string().as_bytes());
    let shown = hash(json!({"to": "bob"}));

    let clerk = Clerk::new();
    let [approval, end] = answered(&clerk, json!({"approved": true})).await;
    assert_eq!(approval["approvals"][0]["evidence_hash"], shown);
    assert_eq!((&call(&end)["call_id"], &call(&end)["input_hash"]), (&json!("send"), &json!(shown)));
    assert_eq!(end["approvals"], approval["approvals"]);

    let clerk = Clerk::new();
    let [approval, end] = answered(&clerk, json!({"approved": true, "arguments": {"to": "a"}})).await;
    let edited = hash(json!({"to": "a"}));
    assert_eq!(
        (&approval["approvals"][0]["evidence_hash"], &call(&end)["input_hash"]),
        (&json!(edited), &json!(edited))
    );
    assert_eq!(sent(&clerk), [("send".to_owned(), json!({"to": "a"}))]);

    let clerk = Clerk::new();
    let [approval, end] = answered(&clerk, json!({"approved": false})).await;
    let told = &approval["approvals"][0];
    assert_eq!((&told["decision"], &told["evidence_hash"]), (&json!("denied"), &json!(shown)), "what was not allowed");
    assert_eq!(sent(&clerk), []);
    let effects = &end["side_effects"];
    let listed = ["tool_calls", "fs_writes", "network_egress"].map(|kind| effects[kind].as_array().unwrap().len());
    assert_eq!(listed, [2, 0, 1], "what was found, and the host of the model");
}

#[tokio::test]
async fn an_answer_about_another_call_than_was_shown_changes_nothing() {
    let clerk = Clerk::new();
    let (world, session) = world(&[clerk.agent()]).await;
    let path = path_of(&world.post(&format!("{session}/tasks"), ask("Hello")).await);
    world.work().await;
    let list = world.get(&format!("{path}/permission-requests")).await;
    let request = &list["data"][0];
    let respond = format!("/v1/permission-requests/{}/respond", text(&request["id"]));
    let other = "0".repeat(64);
    for decision in ["approve", "deny"] {
        let answer = json!({"decision": decision, "digest": other});
        let refusal = world.refusal(ada(), "POST", &respond, json!({"answer": answer})).await;
        assert_eq!(refusal.status(), 400, "{decision}");
        let parts = json!([{"type": "json", "value": answer, "visibility": "public"}]);
        let message = json!({"kind": "input", "message": {"role": "user", "parts": parts}});
        assert_eq!(world.refusal(ada(), "POST", &format!("{path}/messages"), message).await.status(), 400);
    }
    let [shown] = request["request"]["calls"].as_object().unwrap().values().collect::<Vec<_>>()[..] else {
        panic!("{request}")
    };
    let yes = json!({"answer": {"decision": "approve", "digest": shown["digest"]}});
    assert_eq!(world.post(&respond, yes).await["status"], "approved");
    world.work().await;
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
}

#[tokio::test]
async fn many_runs_are_replayed_with_the_provider_gone() {
    let count = std::env::var("DORMOUSE_TEST_REPLAYS").ok().and_then(|count| count.parse().ok()).unwrap_or(25);
    let clerk = Clerk::new();
    let (world, _) = world(&[clerk.agent()]).await;
    let mut runs = Vec::new();
    for number in 0..count {
        let session = world.session().await;
        runs.push((run(&world, &session, &format!("number {number}")).await, session));
    }
    let outside = clerk.outside();
    for (path, session) in &runs {
        let original = world.get(path).await;
        let replay = replayed(&world, path, Value::Null).await;
        assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
        assert_eq!(projected(&world, &replay).await, projected(&world, &original).await);
        chain_is_sound(&world, session).await;
    }
    assert_eq!(clerk.outside(), outside);
}

/// `DORMOUSE_TEST_REPLAYS=1000` and `--nocapture` tell what replays cost on this machine (`make bench-replay`).
#[tokio::test]
async fn runs_of_ten_steps_are_replayed_by_the_hundred() {
    let count = std::env::var("DORMOUSE_TEST_REPLAYS").ok().and_then(|count| count.parse().ok()).unwrap_or(5);
    let model = ScriptedModel::new(|request: &CompletionRequest| {
        let seen = results(request).len();
        let next = format!("call-{seen}");
        Ok(if seen < 9 { calls(&[(&next, "find", json!({ "to": "a" }))]) } else { answers("done") })
    });
    let clerk = Clerk { model, ..Clerk::new() };
    let (world, _) = world(&[clerk.agent()]).await;
    let mut runs = Vec::new();
    for _ in 0..count {
        let session = world.session().await;
        runs.push(path_of(&world.post(&format!("{session}/tasks"), ask("Go on")).await));
        world.work().await;
    }
    let outside = clerk.outside();
    assert_eq!(outside, (10 * count, 9 * count));
    let began = std::time::Instant::now();
    for path in &runs {
        assert_eq!(replayed(&world, path, Value::Null).await["status"], "COMPLETED");
    }
    println!("{count} recorded runs of 10 steps were replayed in {:?}", began.elapsed());
    assert_eq!(clerk.outside(), outside);
}

#[tokio::test]
async fn what_is_replaced_leads_elsewhere_and_is_in_the_receipt() {
    let clerk = Clerk::new();
    let (world, session) = world(&[clerk.agent()]).await;
    let path = run(&world, &session, "Hello").await;
    let outside = clerk.outside();
    let with = |key: &str, given: Value| json!({"mode": "with_overrides", "override": {key: given}});
    let value = json!("Something else.");
    let hash = canonical::digest(&value).unwrap();
    let given = json!({"kind": "llm_provider_response", "value": value, "reason": "what if", "sha256": hash});
    let replay = replayed(&world, &path, with("llm:main:3", given)).await;
    assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
    assert_eq!(summary(&world, &replay).await, "Something else.");
    let delta = receipt(&world, &replay).await["deltas"][0].clone();
    assert_eq!((&delta["override_key"], &delta["operation"]), (&json!("llm:main:3"), &json!("replace")));
    assert_eq!(delta["after_sha256"], hash);
    let told = events(&world, &path_of(&replay)).await;
    let marked = told.iter().find(|event| event["replay"]["override_key"] == "llm:main:3").unwrap();
    assert_eq!(marked["replay"]["receipt_delta_id"], delta["delta_id"]);

    let openai = json!({"choices": [{"message": {"role": "assistant", "content": "In their form."}}]});
    let given = json!({"kind": "llm_provider_response", "value": openai});
    let replay = replayed(&world, &path, with("llm:main:1", given)).await;
    assert_eq!(summary(&world, &replay).await, "In their form.");
    let again = replayed(&world, &path_of(&replay), json!({})).await;
    assert_eq!(summary(&world, &again).await, "In their form.", "a replay of a replay uses what that one used");
    let given = json!({"kind": "llm_provider_response", "value": "Instead of that."});
    let instead = replayed(&world, &path_of(&replay), with("llm:main:1", given)).await;
    assert_eq!(summary(&world, &instead).await, "Instead of that.");
    let deltas = receipt(&world, &instead).await["deltas"].clone();
    assert_eq!(deltas.as_array().map(Vec::len), Some(1), "what was not used is in no receipt: {deltas:#}");
    assert_eq!(deltas[0]["after_sha256"], canonical::digest(&json!("Instead of that.")).unwrap());

    let given = json!({"kind": "tool_result", "value": "found b"});
    let replay = replayed(&world, &path, with("tool:look", given)).await;
    assert_eq!(replay["status"], "COMPLETED", "{replay:#}");

    let before = events(&world, &path).await;
    let approved = before.iter().find(|event| event["event"] == "tool.approved").unwrap();
    let request = json!({"mode": "from_checkpoint", "checkpoint_event_id": approved["id"]});
    let replay = replayed(&world, &path, request).await;
    assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
    let told = events(&world, &path_of(&replay)).await;
    let repeated = recorded(&told);
    let said = |events: &[Value]| {
        let is_said = |event: &&Value| ["agent.message", "session.message_appended"].contains(&text(&event["event"]));
        events.iter().filter(is_said).map(|event| event["payload"]["parts"].clone()).collect::<Vec<_>>()
    };
    let behind = before.iter().skip_while(|event| event["id"] != approved["id"]).cloned().collect::<Vec<_>>();
    assert_eq!(said(&told), said(&behind), "what was said behind it is said again, and nothing else");
    assert!(!repeated.iter().any(|(event, _)| event == "tool.approved"), "it lies before the checkpoint");
    assert!(repeated.iter().any(|(event, _)| event == "tool.completed"));
    let mut early = with("llm:main:1", json!({"kind": "llm_provider_response", "value": "x"}));
    early["mode"] = json!("from_checkpoint");
    early["checkpoint_id"] = approved["id"].clone();
    let refusal = world.refusal(ada(), "POST", &format!("{path}/replay"), early).await;
    assert_eq!(refusal.param(), Some("override.llm:main:1"));
    assert_eq!(clerk.outside(), outside);
    chain_is_sound(&world, &session).await;
}

#[tokio::test]
async fn what_cannot_be_replayed_is_refused_and_nothing_is_written() {
    let clerk = Clerk::new();
    let (world, session) = world(&[clerk.agent()]).await;
    let path = run(&world, &session, "Hello").await;
    let replay = format!("{path}/replay");
    let with = |key: &str, given: Value| json!({"mode": "with_overrides", "override": {key: given}});
    let model = |more: Value| {
        let mut given = json!({"kind": "llm_provider_response", "value": "x"});
        given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        given
    };
    let wrong_hash = format!("sha256:{}", "a".repeat(64));
    for (body, param) in [
        (with("llm:main:9", model(json!({}))), "override.llm:main:9"),
        (with("secret:x", json!({"kind": "secret_value", "value": "x"})), "override.secret:x"),
        (with("llm:main:1", model(json!({"kind": "time"}))), "override.llm:main:1.kind"),
        (with("llm:main:1", model(json!({"value": 7}))), "override.llm:main:1.value"),
        (with("llm:main:1", model(json!({"event_id": "event_nobody"}))), "override.llm:main:1.event_id"),
        (with("llm:main:1", model(json!({"sha256": wrong_hash}))), "override.llm:main:1.sha256"),
        (with("time:started_at", json!({"kind": "time", "value": "yesterday"})), "override.time:started_at.value"),
        (
            with("time:started_at", json!({"kind": "time", "value": "9999-12-30T21:55:00Z"})),
            "override.time:started_at.value",
        ),
        (json!({"mode": "from_checkpoint", "checkpoint_event_id": "event_nobody"}), "checkpoint_event_id"),
        (json!({"mode": "from_checkpoint"}), "checkpoint_id"),
        (json!({"mode": "exact", "override": {"llm:main:1": model(json!({}))}}), "override"),
    ] {
        let refusal = world.refusal(ada(), "POST", &replay, body).await;
        assert_eq!((refusal.code().status(), refusal.param()), (400, Some(param)), "{refusal:?}");
    }
    let foreign = world.refusal(actor("eve", "evil", None), "POST", &replay, json!({})).await;
    assert_eq!(foreign.code().status(), 404);
    let running = path_of(&world.post(&format!("{session}/tasks"), ask("Wait")).await);
    for _ in 0..2 {
        let refusal = world.refusal(ada(), "POST", &format!("{running}/replay"), json!({})).await;
        assert_eq!(refusal.code().as_str(), "invalid_state_transition");
        world.work().await;
    }
}

#[tokio::test]
async fn runs_that_ended_badly_are_replayed_up_to_there() {
    let clerk = Clerk::new();
    let failing = ScriptedModel::new(|request| {
        use dormouse_ports::model::{ModelError, ModelErrorCategory};
        match results(request).len() {
            0 => Ok(calls(&[("look", "find", json!({ "to": "a" }))])),
            _ => Err(ModelError::new(ModelErrorCategory::InvalidRequest, "the model does not take this")),
        }
    });
    let failing = Clerk { model: failing, tools: clerk.tools.clone() };
    for clerk in [failing, Clerk::new()] {
        let (world, session) = world(&[clerk.agent()]).await;
        let path = path_of(&world.post(&format!("{session}/tasks"), ask("Hello")).await);
        world.work().await;
        if world.get(&path).await["status"] == "AUTH_REQUIRED" {
            world.post(&format!("{path}/cancel"), json!({"reason": "enough"})).await;
        }
        let outside = clerk.outside();
        let original = world.get(&path).await;
        let replay = replayed(&world, &path, json!({})).await;
        assert_eq!(replay["status"], original["status"], "{replay:#}");
        assert_eq!(replay["failure"], original["failure"]);
        assert_eq!(projected(&world, &replay).await, projected(&world, &original).await);
        assert_eq!(clerk.outside(), outside);
        chain_is_sound(&world, &session).await;
    }
}

/// Has the pause of `task` woken when it falls due.
pub(crate) async fn wake(world: &World, task: &Value) {
    let id = InvocationId::from(text(&task["id"]));
    let store = world.memory.clone().unwrap();
    let record = store.load_invocation(&id).await.unwrap().unwrap();
    let due = record.paused.wake.due.clone().unwrap();
    world.clock.advance(due.at.duration_since(world.clock.now()).unsigned_abs());
    world.harness.turn(Transmission::due(id, record.paused.generation, Some(due.at))).await;
}
