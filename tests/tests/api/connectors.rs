//! Webhooks of others: believed by their signature, used once, and only where their connector may.

use std::sync::Arc;

use dormouse_api::{CallAnswer, ReceivedDelivery, SignedBody, standard_signature};
use dormouse_ports::Secret;
use dormouse_protocol::ProtocolError;
use futures::FutureExt;
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::late::Meanwhile;
use crate::world::{World, actor, ada, ids, text};

pub(crate) const SECRET: &str = "It's a Secret to Everybody";

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

pub(crate) async fn deliver(
    world: &World,
    connector: &str,
    id: &str,
    secret: &str,
    body: &str,
) -> Result<Value, ProtocolError> {
    let headers = [
        ("x-hub-signature-256", signature(secret, body)),
        ("x-github-delivery", id.to_owned()),
        ("x-github-event", "issues".to_owned()),
    ];
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let sent = SignedBody { headers, body: body.as_bytes().to_vec() };
    use dormouse_ports::Clock;
    let delivery = ReceivedDelivery { connector_id: connector.into(), sent, now: world.clock.now() };
    let answer = world.api.deliver(delivery).await?;
    assert!(matches!(answer, CallAnswer::Json(200, _)), "{answer:?}");
    Ok(crate::world::body(answer))
}

pub(crate) const ISSUE: &str = r#"{"action": "opened", "issue": {"title": "It leaks", "number": 7}}"#;

#[tokio::test]
async fn a_policy_with_a_field_that_nobody_knows_is_refused() {
    let world = World::new();
    let workspace = world.workspace().await;
    let vault = json!({"workspace_id": workspace, "provider": "test", "capabilities": ["webhooks:verify"]});
    let vault = world.post("/v1/vaults", vault).await;
    let session = world.post("/v1/sessions", json!({"workspace_id": workspace})).await;
    let connector = json!({"provider": "github", "workspace_id": workspace, "mapping": {"kind": "message"},
        "target_session_id": session["id"], "dedupe_policy": {"keep_hour": 1},
        "auth": {"scheme": "github", "vault_id": vault["id"], "secrets": ["HOOK"]}});
    let refusal = world.refusal(ada(), "POST", "/v1/connectors", connector).await;
    let told = format!("{refusal:?}");
    assert!(
        refusal.status() == 400 && told.contains("dedupe_policy.keep_hour") && told.contains("`keep_hours`"),
        "{told}"
    );
}

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
async fn an_answer_that_is_delivered_twice_at_once_is_used_once_and_refused_to_nobody() {
    let store = Arc::new(Meanwhile::default());
    let world = World::on(store.store.clone(), store.clone(), None);
    let mapping = json!({"kind": "answer", "task": "/task", "fields": {"decision": "/decision"}});
    let (id, session) = connector(&world, mapping, json!({})).await;
    let expense = json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}});
    let task = world.post(&format!("{session}/tasks"), expense).await;
    world.work().await.unwrap();
    let body = json!({"task": task["id"], "decision": "approved"}).to_string();
    let (other, connector, same) = (world.clone(), id.clone(), body.clone());
    let twin = async move { deliver(&other, &connector, "d1", SECRET, &same).await.unwrap() };
    *store.happens.lock().unwrap() = Some(twin.boxed());
    let answer = deliver(&world, &id, "d1", SECRET, &body).await.unwrap();
    assert_eq!(answer["status"], "deduped", "the other one was faster: {answer}");
    world.work().await.unwrap();
    assert_eq!(world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await["status"], "COMPLETED");
    // Another delivery is told that the task has ended.
    assert_eq!(deliver(&world, &id, "d2", SECRET, &body).await.unwrap_err().status(), 400);
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
    let refusal =
        world.api.deliver(ReceivedDelivery { connector_id: id.as_str().into(), sent, now }).await.unwrap_err();
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

/// What came of `body` with `headers`, which a sender or somebody on the way made.
async fn sent(world: &World, connector: &str, headers: &[(&str, String)], body: &[u8]) -> Result<Value, ProtocolError> {
    use dormouse_ports::Clock;
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let sent = SignedBody { headers, body: body.to_vec() };
    let answer =
        world.api.deliver(ReceivedDelivery { connector_id: connector.into(), sent, now: world.clock.now() }).await?;
    Ok(crate::world::body(answer))
}

#[tokio::test]
async fn what_bears_no_signature_costs_neither_a_secret_nor_a_write() {
    let world = World::new();
    let (id, _) = connector(&world, json!({"kind": "message", "text": "/issue/title"}), json!({})).await;
    let vault = world.get(&format!("/v1/connectors/{id}")).await["auth"]["vault_id"].clone();
    for scheme in ["github", "slack", "standard_webhooks", "hmac"] {
        // The vault has no such secret: whoever needed it would be told 503.
        let auth = json!({"scheme": scheme, "vault_id": vault, "secrets": ["NONE"]});
        world.patch(&format!("/v1/connectors/{id}"), json!({"auth": auth})).await;
        let before = world.written();
        for headers in [vec![], vec![("x-hub-signature-256", "sha1=0".to_owned()), ("x-signature", "!".to_owned())]] {
            let refusal = sent(&world, &id, &headers, ISSUE.as_bytes()).await.expect_err(scheme);
            assert_eq!(refusal.status(), 401, "{scheme}: {refusal}");
        }
        assert_eq!(before, world.written(), "{scheme}");
    }
    let auth = json!({"scheme": "github", "vault_id": vault, "secrets": ["NONE"]});
    world.patch(&format!("/v1/connectors/{id}"), json!({"auth": auth})).await;
    assert_eq!(deliver(&world, &id, "d1", SECRET, ISSUE).await.expect_err("no secret").status(), 503);
    let shown = world.get(&format!("/v1/connectors/{id}")).await;
    assert_eq!(shown["webhook"]["refused_deliveries"], 0);
}

/// The headers of Standard Webhooks for `body`, signed at `seconds` of the clock of the sender.
fn standard(id: &str, seconds: i64, body: &str) -> [(&'static str, String); 3] {
    let code = standard_signature(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), id, seconds, body.as_bytes());
    [
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", code.expect("a signature")),
    ]
}

/// The texts of the messages of `session`, in their order.
async fn texts(world: &World, session: &str) -> Vec<String> {
    let messages = world.get(&format!("{session}/messages")).await;
    let messages = messages["data"].as_array().expect("a list").clone();
    messages.iter().map(|message| text(&message["parts"][0]["text"]).to_owned()).collect()
}

#[tokio::test]
async fn deliveries_count_in_the_order_in_which_they_come_and_each_once() {
    let world = World::new();
    let (id, session) = connector(&world, json!({"kind": "message", "text": "/text"}), json!({})).await;
    let body = |number: u32| json!({"text": format!("number {number}")}).to_string();
    for number in [3, 1, 2] {
        let answer = deliver(&world, &id, &format!("d{number}"), SECRET, &body(number)).await.expect("it is taken");
        assert_eq!(answer["status"], "accepted", "{number}");
    }
    let before = world.written();
    for number in [1, 3, 2, 2, 1] {
        // The sender tries again, or somebody on the way sends another body under the same id.
        for body in [body(number), body(7)] {
            let again = deliver(&world, &id, &format!("d{number}"), SECRET, &body).await.expect("it is known");
            assert_eq!(again["status"], "deduped", "{number}");
        }
    }
    assert_eq!(before, world.written(), "a repeat changes nothing");
    assert_eq!(texts(&world, &session).await, ["number 3", "number 1", "number 2"]);
}

#[tokio::test]
async fn the_clock_of_a_sender_may_be_five_minutes_off_and_no_old_delivery_counts_again() {
    use dormouse_ports::Clock;
    let world = World::new();
    let (id, session) = connector(&world, json!({"kind": "message", "text": "/text"}), json!({})).await;
    let auth = world.get(&format!("/v1/connectors/{id}")).await["auth"].clone();
    let auth = json!({"scheme": "standard_webhooks", "vault_id": auth["vault_id"], "secrets": ["STANDARD"]});
    world.patch(&format!("/v1/connectors/{id}"), json!({"auth": auth})).await;
    let body = json!({"text": "hi"}).to_string();
    let now = world.clock.now().as_second();
    let skews: [i64; 8] = [-300, -299, 0, 300, -301, 301, 86_400, -86_400];
    for (number, skew) in skews.into_iter().enumerate() {
        let headers = standard(&format!("m{number}"), now + skew, &body);
        let answer = sent(&world, &id, &headers, body.as_bytes()).await;
        match skew.abs() <= 300 {
            true => assert_eq!(answer.expect("it is believed")["status"], "accepted", "{skew}"),
            false => assert_eq!(answer.expect_err("it is too far").status(), 401, "{skew}"),
        }
    }
    // Whoever has seen one sends it again: under its own id, under another, and when its time is over.
    let seen = standard("m2", now, &body);
    assert_eq!(sent(&world, &id, &seen, body.as_bytes()).await.expect("it is known")["status"], "deduped");
    for (name, forged) in [("webhook-id", "m9".to_owned()), ("webhook-timestamp", (now + 1).to_string())] {
        let mut headers = seen.clone();
        headers.iter_mut().filter(|(known, _)| *known == name).for_each(|(_, value)| value.clone_from(&forged));
        assert_eq!(sent(&world, &id, &headers, body.as_bytes()).await.expect_err("forged").status(), 401, "{name}");
    }
    world.clock.advance(std::time::Duration::from_secs(301));
    assert_eq!(sent(&world, &id, &seen, body.as_bytes()).await.expect_err("it is old").status(), 401);
    assert_eq!(texts(&world, &session).await.len(), 4);
    let shown = world.get(&format!("/v1/connectors/{id}")).await;
    assert_eq!(shown["webhook"]["refused_deliveries"], 7);
}

#[tokio::test]
async fn a_body_that_was_written_anew_on_the_way_is_not_believed_however_alike() {
    use dormouse_ports::Clock;
    let world = World::new();
    let (id, session) = connector(&world, json!({"kind": "message", "text": "/text"}), json!({})).await;
    let vault = world.get(&format!("/v1/connectors/{id}")).await["auth"]["vault_id"].clone();
    let body = "{\"text\": \"caf\u{e9}\", \"more\": {\"a\": 1.0, \"b\": [true]}}";
    let parsed: Value = serde_json::from_str(body).expect("JSON");
    let rewritten: [Vec<u8>; 8] = [
        parsed.to_string().into_bytes(),
        format!("{parsed:#}").into_bytes(),
        body.replace('\u{e9}', "\\u00e9").into_bytes(),
        body.replace("1.0", "1").into_bytes(),
        r#"{"more": {"b": [true], "a": 1.0}, "text": "café"}"#.as_bytes().to_vec(),
        format!("{body}\n").into_bytes(),
        format!("\u{feff}{body}").into_bytes(),
        // In Latin 1.
        body.chars().map(|c| u8::try_from(u32::from(c)).expect("a letter of Latin 1")).collect(),
    ];
    let now = world.clock.now().as_second();
    let github = || vec![("x-hub-signature-256", signature(SECRET, body)), ("x-github-delivery", "d1".to_owned())];
    for (scheme, secret, headers) in [
        ("github", "HOOK", github()),
        ("hmac", "HOOK", vec![("x-signature", signature(SECRET, body))]),
        ("standard_webhooks", "STANDARD", standard("m1", now, body).to_vec()),
    ] {
        let auth = json!({"scheme": scheme, "vault_id": vault, "secrets": [secret]});
        world.patch(&format!("/v1/connectors/{id}"), json!({"auth": auth})).await;
        for other in &rewritten {
            let refusal = sent(&world, &id, &headers, other).await.expect_err(scheme);
            assert_eq!(refusal.status(), 401, "{scheme}: {}", String::from_utf8_lossy(other));
        }
        assert_eq!(sent(&world, &id, &headers, body.as_bytes()).await.expect(scheme)["status"], "accepted");
    }
    assert_eq!(texts(&world, &session).await, ["caf\u{e9}"; 3]);
    let shown = world.get(&format!("/v1/connectors/{id}")).await;
    assert_eq!(shown["webhook"]["refused_deliveries"], 24);
}

#[tokio::test]
async fn a_plain_signature_is_in_a_header_that_can_hold_one() {
    let world = World::new();
    let (id, _) = connector(&world, json!({"kind": "message", "text": "/words"}), Value::Null).await;
    let target = format!("/v1/connectors/{id}");
    let made = world.get(&target).await;
    let auth = |header: Value| {
        let mut auth = json!({"scheme": "hmac", "vault_id": made["auth"]["vault_id"], "secrets": ["HOOK"]});
        if header != Value::Null {
            auth["header"] = header;
        }
        auth
    };
    let bad = [
        json!(""),
        json!("a b"),
        json!("x:y"),
        json!("\u{e9}"),
        json!("x".repeat(65)),
        json!("Authorization"),
        json!("cookie"),
        json!("host"),
        json!("Content-Type"),
        json!(7),
    ];
    for header in bad {
        let change = json!({"auth": auth(header.clone())});
        assert_eq!(world.refusal(ada(), "PATCH", &target, change).await.status(), 400, "{header}");
        let mut again = json!({"provider": "x", "workspace_id": made["workspace_id"],
            "target_session_id": made["target_session_id"], "mapping": {"kind": "message"}});
        again["auth"] = auth(header.clone());
        assert_eq!(world.refusal(ada(), "POST", "/v1/connectors", again).await.status(), 400, "{header}");
    }
    let body = r#"{"words": "hi"}"#;
    for (header, known_as) in [(Value::Null, "x-signature"), (json!("X-Their-Signature"), "x-their-signature")] {
        let changed = world.patch(&target, json!({"auth": auth(header)})).await;
        assert_eq!(changed["auth"]["header"], known_as);
        let body = format!("{body}{}", " ".repeat(known_as.len()));
        let headers = vec![(known_as, signature(SECRET, &body))];
        assert_eq!(sent(&world, &id, &headers, body.as_bytes()).await.unwrap()["status"], "accepted");
    }
}

#[tokio::test]
async fn of_two_changes_of_secrets_at_once_one_is_made_and_the_other_is_told_what_stands() {
    let world = World::new();
    let (id, _) = connector(&world, json!({"kind": "message"}), json!({})).await;
    let target = format!("/v1/connectors/{id}");
    let before = world.get(&target).await["auth"].clone();
    let with = |secret: &str| json!({"scheme": "github", "vault_id": before["vault_id"], "secrets": ["HOOK", secret]});
    // The other one reads the connector when this one has, and writes it first.
    let (other, path, first) = (world.clone(), target.clone(), json!({"auth": with("FIRST")}));
    let mut is_first = true;
    world.gate.hold(move |_| {
        let (other, path, first) = (other.clone(), path.clone(), first.clone());
        let goes_first = std::mem::take(&mut is_first);
        Box::pin(async move {
            if goes_first {
                other.patch(&path, first).await;
            }
            Ok(())
        })
    });
    let late = world.call(ada(), "PATCH", &target, &json!({"auth": with("SECOND")}), None).await;
    let refusal = late.expect_err("the other one was faster");
    assert_eq!(refusal.status(), 409, "{refusal}");
    let told = json!(refusal.into_response("r"))["error"]["details"]["auth"].clone();
    assert_eq!(told["secrets"], json!(["HOOK", "FIRST"]), "by name, and no value: {told}");
    assert!(!told.to_string().contains(SECRET));
    assert_eq!(world.get(&target).await["auth"], told);
    world.gate.open();
    world.patch(&target, json!({"auth": with("SECOND")})).await;
    assert_eq!(world.get(&target).await["auth"]["secrets"], json!(["HOOK", "SECOND"]), "who has seen it may");
}

#[tokio::test]
async fn a_vault_has_the_secrets_of_its_own_tenant_and_of_no_other() {
    let world = World::new();
    let eve = || actor("eve", "evil", None);
    let make = async |target: &str, body: Value| {
        let answer = world.call(eve(), "POST", target, &body, None).await.expect(target);
        crate::world::body(answer)["id"].clone()
    };
    let workspace = make("/v1/workspaces", json!({"name": "w", "root": "/"})).await;
    let session = make("/v1/sessions", json!({"workspace_id": workspace})).await;
    let vault = make("/v1/vaults", json!({"provider": "test", "capabilities": ["webhooks:verify"]})).await;
    // The same name as acme's, and names that would lead there.
    let connector = |secret: &str| {
        json!({"provider": "github", "workspace_id": workspace, "target_session_id": session,
            "mapping": {"kind": "message"}, "auth": {"scheme": "github", "vault_id": vault, "secrets": [secret]}})
    };
    for secret in ["acme.HOOK", "../acme.HOOK", "acme/HOOK", "HOOK\0", ""] {
        let refusal = world.refusal(eve(), "POST", "/v1/connectors", connector(secret)).await;
        assert_eq!((refusal.status(), refusal.param()), (400, Some("auth.secrets")), "{secret}");
    }
    let hers = make("/v1/connectors", connector("HOOK")).await;
    let refusal = deliver(&world, text(&hers), "d1", SECRET, ISSUE).await.expect_err("it is a secret of acme");
    assert_eq!(refusal.status(), 503, "{refusal}");
    let messages = format!("/v1/sessions/{}/messages", text(&session));
    let messages = world.call(eve(), "GET", &messages, &Value::Null, None).await.expect("a list");
    assert_eq!(crate::world::body(messages)["data"], json!([]));
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
        ("/mapping", json!({"kind": "task", "fields": {"a": "/~2"}}), 400),
        ("/mapping", json!({"kind": "task", "text": "/a~"}), 400),
        ("/mapping", json!({"kind": "message", "text": format!("/{}", "a".repeat(512))}), 400),
        ("/provider", json!(""), 400),
        ("/provider", json!("x".repeat(129)), 400),
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
    let answer =
        world.api.deliver(ReceivedDelivery { connector_id: connector.into(), sent, now: world.clock.now() }).await?;
    Ok(crate::world::body(answer))
}
