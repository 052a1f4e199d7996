//! Receipts: one for each end and each answer to a question for a permission, chained, provable, and without secrets.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use dormouse_api::Receipts;
use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_engine::{CompiledGraph, END, EngineError, Graph, NodeError, record, state};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Category, ClaimOutcome, ClaimRequest, Clock, Commits, EntryKind, JournalEntry};
use dormouse_receipts::{Export, KeyRing, Keys, PublicKey, Receipt};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::world::{World, actor, ada, ids, says, text};

const CLAIM: Duration = Duration::from_secs(30);
/// What a model, a tool and a client might let slip.
const SECRET: &str = "sk-planted0123456789abcdefghij";

state! {
    #[derive(Clone, Debug, Default)]
    struct Work {
        fails: String,
        result: String,
    }
}

/// Calls a model and a tool, and fails if it shall.
pub(crate) fn working(name: &str) -> Result<CompiledGraph, EngineError> {
    let graph = Graph::<Work>::new(name).inputs((Work::fails,)).entry("work").node("work", async |work: Work| {
        let hash = "0123456789abcdef".repeat(4);
        record(
            JournalEntry::new(EntryKind::SpanCompleted)
                .with("gen_ai.operation.name", "chat")
                .with("gen_ai.provider.name", "openai")
                .with("gen_ai.request.model", "gpt")
                .with("step", 1)
                .with("request_digest", hash.as_str())
                .with("response_digest", hash.as_str())
                .with("usage", json!({"prompt_tokens": 100, "completion_tokens": 20}))
                .with("cost", 0.25),
        )?;
        let tool = format!("find {SECRET}");
        record(
            JournalEntry::new(EntryKind::ToolCompleted)
                .with("tool", tool)
                .with("tool_call_id", "call-1")
                .with("input_digest", hash.as_str())
                .with("output_digest", hash.as_str())
                .with("side_effects", side_effects()),
        )?;
        match work.fails.is_empty() {
            true => Ok(Work::result.set("done")),
            false => Err(NodeError::new(format!("no way: Bearer {SECRET}")).with_category(Category::NodeException)),
        }
    });
    graph.edge("work", END).compile()
}

/// What an author's node may claim to have done: no receipt can hold all of it as it is.
fn side_effects() -> Value {
    let file =
        |path: &str| json!({"path": path, "operation": "modify", "before_sha256": "no hash", "after_sha256": ""});
    json!({"hosts": ["", "x".repeat(400), SECRET], "files": [file(""), file(&format!("of {SECRET}"))]})
}

fn ring() -> KeyRing {
    KeyRing::new([7; 32], None)
}

fn keys() -> Keys {
    ring().keys()
}

async fn issuing() -> (Arc<World>, String) {
    let world = World::issuing(Receipts::of(&ring()));
    let session = world.session().await;
    (world, session)
}

/// A task that has gone as far as it goes: its path.
pub(crate) async fn done(world: &World, session: &str, body: Value) -> String {
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await;
    format!("/v1/tasks/{}", text(&task["id"]))
}

pub(crate) fn work(persona: &str, fails: &str) -> Value {
    json!({"persona_id": format!("persona_{persona}"), "input": {"fails": fails}})
}

pub(crate) fn expense() -> Value {
    json!({"persona_id": "persona_expense-approval", "input": {"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"}})
}

pub(crate) fn approves() -> Value {
    let parts = json!([{"type": "json", "value": {"approved": true}}]);
    json!({"kind": "tool_confirmation", "message": {"role": "user", "parts": parts}})
}

/// The receipts that the events of a session issue, in order, as an export has them.
pub(crate) async fn exported(world: &World, session: &str) -> Vec<Value> {
    let events = world.get(&format!("{session}/events?limit=200")).await;
    let events = events["data"].as_array().unwrap().iter();
    events.filter(|event| event["event"] == "receipt.issued").map(|event| event["payload"]["receipt"].clone()).collect()
}

/// Verifies the whole chain of a session, and gives it.
async fn chain(world: &World, session: &str) -> Vec<Value> {
    let receipts = exported(world, session).await;
    let lines: Vec<String> = receipts.iter().map(Value::to_string).collect();
    let report = Export::parse(lines.join("\n").as_bytes()).unwrap().verify(&keys(), Timestamp::MAX);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.chains.len(), 1);
    receipts
}

#[tokio::test]
async fn every_end_has_a_receipt_and_they_are_a_chain() {
    let (world, session) = issuing().await;
    let completed = done(&world, &session, work("work", "")).await;
    let failed = done(&world, &session, work("work", "yes")).await;
    let talked = done(&world, &session, says("Hello")).await;
    let sleeping = done(&world, &session, expense()).await;
    world.post(&format!("{sleeping}/cancel"), json!({"reason": format!("password: {SECRET}")})).await;
    let receipts = chain(&world, &session).await;
    let states = receipts.iter().map(|receipt| text(&receipt["lifecycle"]["final_state"]));
    assert_eq!(states.collect::<Vec<_>>(), ["SUCCEEDED", "FAILED", "SUCCEEDED", "CANCELED"]);
    for (path, receipt) in [completed, failed, talked, sleeping].iter().zip(&receipts) {
        let task = world.get(path).await;
        assert_eq!(receipt["subject"], json!({"object": "task", "id": task["id"]}));
        assert_eq!(task["receipt_id"], receipt["receipt_id"]);
        let outcome = world.get(&format!("/v1/outcomes/{}", text(&task["outcome_id"]))).await;
        assert_eq!(outcome["receipt_id"], receipt["receipt_id"]);
        let read = world.get(&format!("/v1/receipts/{}", text(&task["receipt_id"]))).await;
        assert_eq!(read["wire"]["payload"], *receipt);
        assert_eq!((&read["format"], &read["issuer"]), (&json!("receipt-2026-04-25"), &json!("dormouse")));
        let list = world.get(&format!("{path}/receipts")).await;
        assert_eq!(list["data"], json!([read]));
        let told = world.told(&format!("{path}/events")).await;
        assert_eq!(told[told.len() - 2], "receipt.issued", "the end of a task is its last event");
    }
}

#[tokio::test]
async fn a_receipt_tells_what_was_recorded_and_nothing_that_looks_like_a_secret() {
    let (world, session) = issuing().await;
    let path = done(&world, &session, work("work", "")).await;
    done(&world, &session, work("work", "yes")).await;
    let receipts = chain(&world, &session).await;
    let [first, second] = &receipts[..] else { panic!("{receipts:?}") };
    let hash = format!("sha256:{}", "0123456789abcdef".repeat(4));
    assert_eq!(first["model_route"]["chosen_model"], json!({"provider": "openai", "model": "gpt"}));
    assert_eq!((&first["cost"]["total"], &first["cost"]["currency"]), (&json!(0.25), &json!("USD")));
    let used = &first["autonomy_budget"]["consumed"];
    assert_eq!(
        (&used["input_tokens"], &used["output_tokens"], &used["tool_calls"]),
        (&json!(100), &json!(20), &json!(1))
    );
    assert_eq!(first["replay_input"]["materials"][0]["sha256"], hash);
    let call = &first["side_effects"]["tool_calls"][0];
    assert_eq!(
        (&call["call_id"], &call["input_hash"], &call["output_hash"]),
        (&json!("call-1"), &json!(hash), &json!(hash))
    );
    assert_eq!(call["tool"], "find [redacted]", "nothing but the secret is taken out");
    let redacted: Vec<&str> = first["redactions"].as_array().unwrap().iter().map(|one| text(&one["field"])).collect();
    let places = [
        "/fs_writes/1/path",
        "/network_egress/0/purpose",
        "/network_egress/1/destination",
        "/network_egress/1/purpose",
        "/tool_calls/0/tool",
    ];
    assert_eq!(redacted, places.map(|place| format!("/side_effects{place}")), "a purpose has the name of its tool");
    let unknown = json!({"path": "unknown", "operation": "modify"});
    assert_eq!(first["side_effects"]["fs_writes"][0], unknown, "what is no hash is left out");
    assert_eq!(text(&first["side_effects"]["network_egress"][0]["destination"]).len(), 300);
    assert_eq!(first["trust"]["start_tier"], "act_with_approval");
    assert_eq!(second["lifecycle"]["failure"], json!({"code": "node_exception"}), "no words of anybody");
    let content = world
        .call(
            ada(),
            "GET",
            &format!("/v1/artifacts/{}/content", text(&first["final_artifacts"][0]["artifact_id"])),
            &Value::Null,
            None,
        )
        .await
        .unwrap();
    let dormouse_api::CallAnswer::Bytes { bytes, .. } = content else { panic!("bytes") };
    assert_eq!(first["final_artifacts"][0]["sha256"], dormouse_receipts::canonical::sha256(&bytes));
    let artifact = world.get(&format!("/v1/artifacts/{}", text(&first["final_artifacts"][0]["artifact_id"]))).await;
    assert_eq!(first["final_artifacts"][0]["sha256"], format!("sha256:{}", text(&artifact["sha256"])));
    assert_eq!(artifact["receipt_id"], first["receipt_id"]);
    let all = format!("{:?}{:?}", world.entries(session.rsplit('/').next().unwrap()).await, world.get(&path).await);
    assert!(!all.contains("planted"), "{all}");
}

#[tokio::test]
async fn who_approved_what_is_proved_when_it_is_answered() {
    let (world, session) = issuing().await;
    let path = done(&world, &session, expense()).await;
    world.post(&format!("{path}/messages"), approves()).await;
    let asked = chain(&world, &session).await;
    assert_eq!((asked.len(), text(&asked[0]["subject"]["object"])), (1, "approval"), "before anybody works on it");
    assert_eq!(ids(&world.get(&format!("{path}/receipts")).await), [text(&asked[0]["receipt_id"])]);
    world.work().await;
    let receipts = chain(&world, &session).await;
    let approval = &receipts[1]["approvals"][0];
    assert_eq!(*approval, receipts[0]["approvals"][0]);
    assert_eq!(approval["approval_id"], receipts[0]["subject"]["id"]);
    assert_eq!(
        (&approval["actor"], &approval["decision"], &approval["action"]),
        (&json!("ada"), &json!("approved"), &json!("approval"))
    );
    let listed = ids(&world.get(&format!("{path}/receipts")).await);
    assert_eq!(listed, [text(&receipts[1]["receipt_id"]), text(&receipts[0]["receipt_id"])]);
    let page = world.get(&format!("{path}/receipts?limit=1")).await;
    let rest = world.get(&format!("{path}/receipts?limit=1&cursor={}", text(&page["page"]["next_cursor"]))).await;
    assert_eq!((ids(&rest), &rest["page"]["has_more"]), (vec![listed[1].clone()], &json!(false)));
}

#[tokio::test]
async fn an_answer_to_an_address_and_silence_are_proved_too() {
    let (world, session) = issuing().await;
    let path = done(&world, &session, expense()).await;
    let id = path.rsplit('/').next().unwrap();
    world.callback(id, json!({"approved": false, "decided_by": "linus"})).await;
    assert!(exported(&world, &session).await.is_empty(), "it is no answer to that: it waits on");
    assert_eq!(world.get(&path).await["status"], "AUTH_REQUIRED");
    world.callback(id, json!({"decision": "rejected", "decided_by": "linus"})).await;
    let receipts = chain(&world, &session).await;
    let approval = &receipts.last().unwrap()["approvals"][0];
    assert_eq!(
        (&approval["decision"], &approval["actor"]),
        (&json!("denied"), &json!("holder of the callback address or of a key for signals"))
    );
}

/// The worker of the first one dies before it has told of it.
#[tokio::test]
async fn of_two_answers_the_one_that_counts_is_proved() {
    let (world, session) = issuing().await;
    let path = done(&world, &session, expense()).await;
    let id = path.rsplit('/').next().unwrap();
    let now = world.clock.now();
    let claim = ClaimRequest {
        invocation_id: id.into(),
        generation: None,
        owner: "dead".into(),
        now,
        until: now + CLAIM,
        past: None,
        payload: json!({"decision": "rejected"}).as_object().cloned(),
        answered: None,
    };
    let claimed = world.memory.clone().unwrap().claim(&claim).await.unwrap();
    assert!(matches!(claimed, ClaimOutcome::Granted(_)), "{claimed:?}");
    world.clock.advance(CLAIM);
    world.callback(id, json!({"decision": "approved", "decided_by": "linus"})).await;
    assert_eq!(world.get(&path).await["status"], "COMPLETED");
    let receipts = chain(&world, &session).await;
    let decided = receipts.iter().map(|receipt| text(&receipt["approvals"][0]["decision"])).collect::<Vec<_>>();
    assert_eq!(decided, ["denied", "denied"], "{receipts:#?}");
}

#[tokio::test]
async fn a_receipt_is_verified_by_the_keys_and_at_the_time_of_the_caller() {
    let (world, session) = issuing().await;
    let path = done(&world, &session, work("work", "")).await;
    done(&world, &session, work("work", "")).await;
    let id = text(&world.get(&path).await["receipt_id"]).to_owned();
    let verify = |body: Value| {
        let (world, target) = (&world, format!("/v1/receipts/{id}/verify"));
        async move { world.post(&target, body).await }
    };
    let valid = verify(json!({})).await;
    assert_eq!((&valid["valid"], valid.get("reason")), (&json!(true), Some(&Value::Null)));
    let ours = keys().iter().next().cloned().unwrap();
    assert_eq!(verify(json!({"trust_anchor": ours.id})).await["valid"], true);
    assert_eq!(verify(json!({"trust_anchor": ours.text()})).await["valid"], true);
    let theirs: PublicKey = KeyRing::new([8; 32], None).active().public();
    let foreign = verify(json!({"trust_anchor": theirs.text()})).await;
    assert_eq!((&foreign["valid"], &foreign["details"]["code"]), (&json!(false), &json!("unknown_key")));
    let early = verify(json!({"at_time": "1970-01-01T00:00:00Z"})).await;
    assert_eq!(early["details"]["code"], "not_yet_issued");
    let told = world.told(&format!("{session}/events")).await;
    let of = |word: &str| told.iter().filter(|event| *event == word).count();
    assert_eq!((of("receipt.verified"), of("receipt.verification_failed")), (3, 2));
    chain(&world, &session).await;
    let wrong = world.refusal(ada(), "POST", &format!("/v1/receipts/{id}/verify"), json!({"trust_anchor": "me"})).await;
    assert_eq!(wrong.status(), 400);
    assert!(wrong.to_string().contains("public key"), "{wrong}");
}

#[tokio::test]
async fn receipts_of_others_and_ids_of_nothing_are_not_there() {
    let (world, session) = issuing().await;
    let path = done(&world, &session, work("work", "")).await;
    let id = text(&world.get(&path).await["receipt_id"]).to_owned();
    let of_event = id.replace("receipt_", "event_");
    let first = format!("receipt_{}_{:016x}", session.rsplit('/').next().unwrap(), 1);
    for (who, id) in [
        (actor("eve", "evil", None), id.as_str()),
        (actor("eve", "acme", Some(&["workspace_other"])), &id),
        (ada(), "receipt_unknown"),
        (ada(), &of_event),
        (ada(), &first),
        (ada(), &id.to_uppercase()),
    ] {
        for (method, target) in [("GET", format!("/v1/receipts/{id}")), ("POST", format!("/v1/receipts/{id}/verify"))] {
            let body = if method == "GET" { Value::Null } else { json!({}) };
            assert_eq!(world.refusal(who.clone(), method, &target, body).await.status(), 404, "{target}");
        }
    }
    let list = world.refusal(actor("eve", "evil", None), "GET", &format!("{path}/receipts"), Value::Null).await;
    assert_eq!(list.status(), 404);
}

#[tokio::test]
async fn the_policy_of_a_persona_is_kept() {
    let (world, session) = issuing().await;
    let silent = done(&world, &session, work("silent", "")).await;
    assert_eq!((&world.get(&silent).await["status"], exported(&world, &session).await.len()), (&json!("COMPLETED"), 0));
    let strict = done(&world, &session, work("strict", "")).await;
    assert_eq!(world.get(&strict).await["status"], "COMPLETED");
    assert_eq!(chain(&world, &session).await[0]["trust"]["end_tier"], "suggest");
    let policy = |of: &str| {
        let (world, target) = (&world, format!("/v1/personas/persona_{of}"));
        async move { world.get(&target).await["receipt_policy"].clone() }
    };
    assert_eq!(
        [policy("silent").await, policy("work").await, policy("strict").await],
        ["disabled", "optional", "required"]
    );

    let (without, session) = World::with_session().await;
    let refused = without.refusal(ada(), "POST", &format!("{session}/tasks"), work("strict", "")).await;
    assert_eq!(refused.status(), 422);
    let task = done(&without, &session, work("work", "")).await;
    assert_eq!(without.get(&task).await["receipt_id"], Value::Null);
    let list = without.refusal(ada(), "GET", &format!("{task}/receipts"), Value::Null).await;
    assert_eq!(list.status(), 501);
}

#[tokio::test]
async fn a_receipt_is_small() {
    let (world, session) = issuing().await;
    done(&world, &session, expense()).await;
    done(&world, &session, says("Hello")).await;
    let receipts = chain(&world, &session).await;
    let size = receipts[0].to_string().len();
    assert!(size < 2_600, "{size}");
    assert!(Receipt::parse(receipts[0].to_string().as_bytes()).is_ok());
}

/// Requests, and units written, of what happens to a task.
#[derive(Debug)]
pub(crate) struct Costs {
    pub(crate) requests: u64,
    pub(crate) writes: f64,
}

impl Costs {
    /// What `meter` has counted since it was asked last.
    pub(crate) fn of(meter: &Meter) -> Self {
        let costs = meter.snapshot();
        meter.reset();
        let is_write = |name: &str| !["GetItem", "Query", "BatchGetItem"].contains(&name);
        let writes = costs.iter().filter(|(name, _)| is_write(name)).map(|(_, usage)| usage.units).sum();
        Self { requests: costs.values().map(|usage| usage.requests).sum(), writes }
    }
}

/// A store on a database of its own, which counts what is spent.
pub(crate) async fn metered() -> (EmbeddedDynamoDb, Arc<DynamoDbStateStore>, Meter) {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    ensure_table(&embedded.client(), "dormouse").await.unwrap();
    let meter = Meter::with_units();
    let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
    let store = Arc::new(DynamoDbStateStore::new(&client, "dormouse", StoreConfig::default()));
    (embedded, store, meter)
}

/// The costs of the completion of a task, and of an approval and the completion behind it.
async fn costs(receipts: Option<Receipts>) -> [Costs; 3] {
    let (embedded, store, meter) = metered().await;
    let world = World::with_receipts(store.clone(), store, None, receipts);
    let costs = world.while_time_passes(async {
        let session = world.session().await;
        world.post(&format!("{session}/tasks"), work("work", "")).await;
        meter.reset();
        world.work().await;
        let completion = Costs::of(&meter);
        let path = done(&world, &session, expense()).await;
        meter.reset();
        world.post(&format!("{path}/messages"), approves()).await;
        let approval = Costs::of(&meter);
        world.work().await;
        let end = Costs::of(&meter);
        assert_eq!(world.get(&path).await["status"], "COMPLETED");
        [completion, approval, end]
    });
    let costs = costs.await;
    embedded.stop().await.unwrap();
    costs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_takes_no_request_and_at_most_four_write_units() {
    let without = costs(None).await;
    let with = costs(Some(Receipts::of(&ring()))).await;
    let names = ["completion", "approval", "end behind it"];
    for ((with, without), name) in with.iter().zip(&without).zip(names) {
        eprintln!(
            "{name:<14} requests {} and {} without receipts, write units {} and {}",
            with.requests, without.requests, with.writes, without.writes
        );
        let more = with.writes - without.writes;
        assert!(with.requests == without.requests && (0.0..=4.0).contains(&more), "{with:?}, and without {without:?}");
    }
}
