//! Webhooks of others: believed by their signature, used once, and only where their connector may.

use dormouse_api::{CallAnswer, Delivery, SignedBody};
use dormouse_protocol::ProtocolError;
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::world::{World, actor, ada, ids, text};

const SECRET: &str = "It's a Secret to Everybody";

fn signature(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// A connector of GitHub to a new session: its id and the session's path.
async fn connector(world: &World, mapping: Value, more: Value) -> (String, String) {
    let workspace = world.workspace().await;
    let vault = json!({"workspace_id": workspace, "provider": "test", "capabilities": ["webhooks:verify"]});
    let vault = world.post("/v1/vaults", vault).await;
    let session = world.post("/v1/sessions", json!({"workspace_id": workspace})).await;
    let mut connector = json!({"provider": "github", "workspace_id": workspace, "target_session_id": session["id"],
        "mapping": mapping, "auth": {"scheme": "github", "vault_id": vault["id"], "secrets": ["NONE", "HOOK"]}});
    for (name, value) in more.as_object().into_iter().flatten() {
        connector[name] = value.clone();
    }
    let connector = world.post("/v1/connectors", connector).await;
    (text(&connector["id"]).to_owned(), format!("/v1/sessions/{}", text(&session["id"])))
}

async fn deliver(world: &World, connector: &str, id: &str, secret: &str, body: &str) -> Result<Value, ProtocolError> {
    let headers = [
        ("x-hub-signature-256", signature(secret, body)),
        ("x-github-delivery", id.to_owned()),
        ("x-github-event", "issues".to_owned()),
    ];
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let sent = SignedBody { headers, body: body.as_bytes().to_vec() };
    use dormouse_ports::Clock;
    let delivery = Delivery { connector_id: connector.into(), sent, now: world.clock.now() };
    let answer = world.api.deliver(delivery).await?;
    assert!(matches!(answer, CallAnswer::Json(200, _)), "{answer:?}");
    Ok(crate::world::body(answer))
}

const ISSUE: &str = r#"{"action": "opened", "issue": {"title": "It leaks", "number": 7}}"#;

#[tokio::test]
async fn a_delivery_becomes_a_task_once() {
    let world = World::new();
    let fields = json!({"employee": "/issue/title", "amount_cents": "/issue/number"});
    let persona = json!({"target_persona_id": "persona_expense-approval"});
    let (id, session) = connector(&world, json!({"kind": "task", "fields": fields}), persona).await;
    let accepted = deliver(&world, &id, "d1", SECRET, ISSUE).await.unwrap();
    assert_eq!((&accepted["status"], &accepted["made"]["object"]), (&json!("accepted"), &json!("task")));
    let before = world.written();
    for _ in 0..3 {
        assert_eq!(deliver(&world, &id, "d1", SECRET, ISSUE).await.unwrap()["status"], "deduped");
    }
    assert_eq!(before, world.written(), "a repeat changes nothing");
    let tasks = world.get(&format!("{session}/tasks")).await;
    assert_eq!(ids(&tasks), [text(&accepted["made"]["id"])]);
    let task = &tasks["data"][0];
    assert_eq!((&task["input"]["employee"], &task["created_by"]), (&json!("It leaks"), &json!(id)));
    world.clock.advance(std::time::Duration::from_secs(8 * 24 * 3600));
    assert_eq!(
        deliver(&world, &id, "d1", SECRET, ISSUE).await.unwrap()["status"],
        "accepted",
        "nobody repeats so late"
    );
}

#[tokio::test]
async fn a_delivery_becomes_a_message_or_an_answer() {
    let world = World::new();
    let (id, session) = connector(&world, json!({"kind": "message", "text": "/issue/title"}), json!({})).await;
    deliver(&world, &id, "d1", SECRET, ISSUE).await.unwrap();
    let messages = world.get(&format!("{session}/messages")).await;
    assert_eq!(messages["data"][0]["parts"][0]["text"], "It leaks");

    let fields = json!({"decision": "/decision"});
    let (id, session) =
        connector(&world, json!({"kind": "answer", "task": "/task", "fields": fields}), json!({})).await;
    let expense = json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}});
    let task = world.post(&format!("{session}/tasks"), expense.clone()).await;
    world.work().await.unwrap();
    let task = text(&task["id"]).to_owned();
    let answer = |task: &str| json!({"task": task, "decision": "approved"}).to_string();
    let elsewhere = world.session().await;
    let other = world.post(&format!("{elsewhere}/tasks"), expense).await;
    world.work().await.unwrap();
    for stolen in [text(&other["id"]), "task_none", "../x"] {
        let refusal = deliver(&world, &id, "d2", SECRET, &answer(stolen)).await.unwrap_err();
        assert_eq!(refusal.status(), 404, "{stolen}");
    }
    assert_eq!(deliver(&world, &id, "d2", SECRET, &answer(&task)).await.unwrap()["status"], "accepted");
    world.work().await.unwrap();
    let done = world.get(&format!("/v1/tasks/{task}")).await;
    assert_eq!(done["status"], "COMPLETED");
}

#[tokio::test]
async fn what_is_not_believed_is_counted_and_leaves_nothing_else() {
    let world = World::new();
    let (id, session) = connector(&world, json!({"kind": "task"}), json!({})).await;
    for (secret, body) in [("wrong", ISSUE), ("", ISSUE)] {
        assert_eq!(deliver(&world, &id, "d1", secret, body).await.unwrap_err().status(), 401);
    }
    // A proxy that wrote the body anew, however alike.
    let headers = vec![
        ("x-hub-signature-256".to_owned(), signature(SECRET, ISSUE)),
        ("x-github-delivery".to_owned(), "d1".to_owned()),
    ];
    use dormouse_ports::Clock;
    let sent = SignedBody { headers, body: ISSUE.replace(": ", ":").into_bytes() };
    let now = world.clock.now();
    let refusal = world.api.deliver(Delivery { connector_id: id.as_str().into(), sent, now }).await.unwrap_err();
    assert_eq!(refusal.status(), 401);
    let shown = world.get(&format!("/v1/connectors/{id}")).await;
    assert_eq!(shown["webhook"]["refused_deliveries"], 3);
    assert!(!shown.to_string().contains(SECRET));
    assert_eq!(ids(&world.get(&format!("{session}/tasks")).await), Vec::<String>::new());
    assert_eq!(deliver(&world, "connector_none", "d1", SECRET, ISSUE).await.unwrap_err().status(), 404);
    assert_eq!(deliver(&world, &id, "d1", SECRET, "no JSON").await.unwrap_err().status(), 400);
    let huge = " ".repeat(300 * 1024);
    assert_eq!(deliver(&world, &id, "d1", SECRET, &huge).await.unwrap_err().status(), 413);
    world.patch(&format!("/v1/connectors/{id}"), json!({"status": "PAUSED"})).await;
    assert_eq!(deliver(&world, &id, "d1", SECRET, ISSUE).await.unwrap_err().status(), 409);
}

#[tokio::test]
async fn a_connector_reaches_no_further_than_who_makes_it() {
    let world = World::new();
    let (id, _) = connector(&world, json!({"kind": "task"}), json!({"event_kinds": ["push"]})).await;
    assert_eq!(deliver(&world, &id, "d1", SECRET, ISSUE).await.unwrap()["status"], "ignored");
    let (one, two) = (world.workspace().await, world.workspace().await);
    let of = |workspace: &str, capabilities: Value| json!({"workspace_id": workspace, "provider": "test", "capabilities": capabilities});
    let mine = world.post("/v1/vaults", of(&one, json!(["webhooks:verify"]))).await;
    let silent = world.post("/v1/vaults", of(&one, json!(["webhooks:sign"]))).await;
    let elsewhere = world.post("/v1/vaults", of(&two, json!(["webhooks:verify"]))).await;
    let session = world.post("/v1/sessions", json!({"workspace_id": one})).await;
    let other = world.post("/v1/sessions", json!({"workspace_id": two})).await;
    let good = json!({"provider": "x", "workspace_id": one, "target_session_id": session["id"], "mapping": {"kind": "task"},
        "auth": {"scheme": "github", "vault_id": mine["id"], "secrets": ["HOOK"]}});
    for (place, bad, status) in [
        ("/auth/vault_id", elsewhere["id"].clone(), 404),
        ("/auth/vault_id", json!("vault_none"), 404),
        ("/auth/vault_id", silent["id"].clone(), 422),
        ("/auth/secrets", json!([]), 400),
        ("/auth/secrets", json!(["../HOOK"]), 400),
        ("/auth/secrets", json!(["a.b"]), 400),
        ("/auth/scheme", json!("trust"), 400),
        ("/mapping", json!({"kind": "signal"}), 400),
        ("/mapping", json!({"kind": "task", "fields": {"a": "issue"}}), 400),
        ("/target_session_id", other["id"].clone(), 400),
        ("/target_session_id", json!("session_none"), 404),
        ("/workspace_id", json!("workspace_none"), 404),
    ] {
        let mut wrong = good.clone();
        *wrong.pointer_mut(place).unwrap() = bad.clone();
        let refusal = world.refusal(ada(), "POST", "/v1/connectors", wrong).await;
        assert_eq!(refusal.status(), status, "{place} {bad}: {refusal}");
    }
    let eve = || actor("eve", "other", None);
    assert_eq!(world.refusal(eve(), "POST", "/v1/connectors", good).await.status(), 404);
    for (method, body) in [("GET", Value::Null), ("PATCH", json!({"status": "PAUSED"}))] {
        assert_eq!(world.refusal(eve(), method, &format!("/v1/connectors/{id}"), body).await.status(), 404);
    }
}

/// A provider tells that a model call in the background has ended: whoever waits is woken, and nothing else is believed.
#[tokio::test]
async fn a_delivery_tells_that_a_model_call_has_ended() {
    let world = World::new();
    let (id, session) = connector(&world, json!({"kind": "model"}), json!({"event_kinds": []})).await;
    let told = |kind: &str, job: Value| json!({"type": kind, "data": {"id": job}, "output": "forged"}).to_string();
    let as_openai = |id: &str, body: &str| (id.to_owned(), body.to_owned());
    let accepted = completed(&world, &id, as_openai("d1", &told("response.completed", json!("resp_7")))).await.unwrap();
    assert_eq!(accepted["made"], json!({"object": "signal", "id": "model-job/resp_7"}));
    let again = completed(&world, &id, as_openai("d1", &told("response.completed", json!("resp_7")))).await.unwrap();
    assert_eq!(again["status"], "deduped");
    let other = completed(&world, &id, as_openai("d2", &told("batch.completed", json!("batch_7")))).await.unwrap();
    assert_eq!(other["status"], "ignored");
    for odd in [json!(null), json!(""), json!("x".repeat(300)), json!("a\nb")] {
        let refusal = completed(&world, &id, as_openai("d3", &told("response.failed", odd.clone()))).await.unwrap_err();
        assert_eq!(refusal.status(), 400, "{odd}");
    }
    let signals: Vec<_> =
        world.bus.events().into_iter().filter(|event| event.detail_type == "Dormouse Signal").collect();
    assert_eq!(signals.len(), 1);
    assert_eq!(Value::Object(signals[0].detail.clone()), json!({"signal_id": "model-job/resp_7", "payload": {}}));
    assert_eq!(ids(&world.get(&format!("{session}/tasks")).await), Vec::<String>::new());
}

/// A delivery whose kind is in its body alone.
async fn completed(world: &World, connector: &str, (id, body): (String, String)) -> Result<Value, ProtocolError> {
    let headers = [("x-hub-signature-256", signature(SECRET, &body)), ("x-github-delivery", id)];
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    use dormouse_ports::Clock;
    let sent = SignedBody { headers, body: body.into_bytes() };
    let answer = world.api.deliver(Delivery { connector_id: connector.into(), sent, now: world.clock.now() }).await?;
    Ok(crate::world::body(answer))
}
