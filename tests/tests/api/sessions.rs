//! Sessions and their transcripts.

use std::sync::Arc;

use dormouse_api::Actor;
use dormouse_protocol::Scope;
use dormouse_testkit::MemoryStore;
use serde_json::{Value, json};

use crate::shared_streams::Counting;
use crate::world::{World, actor, ada, body, ids, says, text};

fn message(words: &str) -> Value {
    json!({"message": {"role": "user", "parts": [{"type": "text", "text": words}], "metadata": {"n": 1}}})
}

/// What the messages of a list say.
fn words(list: &Value) -> Vec<String> {
    let messages = list["data"].as_array().unwrap().iter();
    messages.map(|message| text(&message["parts"][0]["text"]).to_owned()).collect()
}

#[tokio::test]
async fn a_session_is_made_read_changed_and_closed() {
    let world = World::new();
    let workspace = world.workspace().await;
    let given = json!({"workspace_id": workspace, "persona_id": "persona_chat", "metadata": {"k": "v"},
        "initial_messages": [{"role": "system", "parts": [{"type": "text", "text": "Be brief."}]}]});
    let made = world.post("/v1/sessions", given).await;
    let path = format!("/v1/sessions/{}", text(&made["id"]));
    assert_eq!((&made["state"], &made["metadata"]), (&json!("IDLE"), &json!({"k": "v"})));
    assert_eq!(world.get(&path).await, made);
    assert_eq!(words(&world.get(&format!("{path}/messages")).await), ["Be brief."]);
    let changed = world.patch(&path, json!({"summary": "small talk"})).await;
    assert_eq!((&changed["summary"], &changed["metadata"]), (&json!("small talk"), &json!({"k": "v"})));
    assert_eq!(ids(&world.get(&format!("/v1/sessions?workspace_id={workspace}")).await), [text(&made["id"])]);
    let closed = world.post(&format!("{path}/close"), Value::Null).await;
    assert_eq!(closed["state"], "CLOSED");
    assert_eq!(world.post(&format!("{path}/close"), Value::Null).await, closed, "closing again changes nothing");
    for (target, body) in [("messages", message("x")), ("tasks", says("x")), ("truncate", json!({"keep_first": 0}))] {
        let refusal = world.refusal(ada(), "POST", &format!("{path}/{target}"), body).await;
        assert_eq!((refusal.status(), refusal.code().as_str()), (409, "conflict"), "{target}");
    }
    let told = world.told(&format!("{path}/events")).await;
    let expected = ["session.created", "session.message_appended", "vendor.dormouse.session_updated", "session.closed"];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_message_can_be_read_alone_and_is_listed_in_order() {
    let (world, session) = World::with_session().await;
    let path = format!("{session}/messages");
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(world.post(&path, message(&format!("{n}"))).await);
    }
    for one in &made {
        assert_eq!(world.get(&format!("/v1/messages/{}", text(&one["id"]))).await, *one);
        assert_eq!(one["metadata"], json!({"n": 1}));
    }
    let first = world.get(&format!("{path}?limit=2")).await;
    world.post(&path, message("5")).await;
    let cursor = text(&first["page"]["next_cursor"]);
    let rest = world.get(&format!("{path}?cursor={cursor}")).await;
    assert_eq!(
        (words(&first), words(&rest)),
        (vec!["0".into(), "1".into()], ["2", "3", "4", "5"].map(str::to_owned).to_vec())
    );
    assert_eq!(rest["page"]["has_more"], false);
}

#[tokio::test]
async fn a_message_answers_a_task_only_where_its_sender_may_answer_tasks() {
    let (world, session) = World::with_session().await;
    let input = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let expense = json!({"persona_id": "persona_expense-approval", "input": input});
    let task = world.post(&format!("{session}/tasks"), expense).await["id"].clone();
    world.work().await.unwrap();
    let target = format!("/v1/tasks/{}", text(&task));
    assert_eq!(world.get(&target).await["status"], "AUTH_REQUIRED");
    let path = format!("{session}/messages");
    let yes = json!({"message": {"role": "user", "parts": [{"type": "json", "value": {"approved": true}}]}});
    let talker = Actor { scopes: [Scope::SessionsRead, Scope::SessionsWrite].into(), ..actor("eve", "acme", None) };
    let said = body(world.call(talker, "POST", &path, &yes, None).await.unwrap());
    assert!(said["task_id"].is_null(), "it joins the transcript: {said}");
    assert_eq!(world.get(&target).await["status"], "AUTH_REQUIRED");
    let said = world.post(&path, yes).await;
    assert_eq!(said["task_id"], task);
    assert_eq!(world.get(&target).await["status"], "WORKING");
}

/// More messages than are read of a stream at once.
#[tokio::test]
async fn a_long_transcript_is_told_to_its_end() {
    let (world, session) = World::with_session().await;
    let path = format!("{session}/messages");
    for n in 0..230 {
        world.post(&path, message(&format!("{n}"))).await;
    }
    let mut told = Vec::new();
    let mut target = format!("{path}?limit=200");
    loop {
        let page = world.get(&target).await;
        told.extend(words(&page));
        let Some(cursor) = page["page"]["next_cursor"].as_str() else { break };
        target = format!("{path}?limit=200&cursor={cursor}");
    }
    assert_eq!(told, (0..230).map(|n| n.to_string()).collect::<Vec<_>>());
    let fork = world.post(&format!("{session}/fork"), Value::Null).await;
    let whole = world.post(&format!("/v1/sessions/{}/truncate", text(&fork["id"])), json!({"keep_first": 230})).await;
    let last = world.get(&format!("/v1/messages/{}", text(&whole["new_tip_turn_id"]))).await;
    assert_eq!(last["parts"][0]["text"], "229", "also of a fork that said nothing");
    let behind = world.post(&format!("/v1/sessions/{}/truncate", text(&fork["id"])), json!({"keep_first": 225})).await;
    assert_eq!((&behind["kept_turn_count"], &behind["removed_turn_count"]), (&json!(225), &json!(5)));
}

#[tokio::test]
async fn what_is_not_public_or_secret_is_never_shown() {
    let (world, session) = World::with_session().await;
    let parts = json!([
        {"type": "text", "text": "hello", "visibility": "public"},
        {"type": "text", "text": "do not tell", "visibility": "internal"},
        {"type": "json", "value": {"password": "hunter2", "name": "ada"}, "visibility": "public"},
    ]);
    let made = world.post(&format!("{session}/messages"), json!({"message": {"role": "user", "parts": parts}})).await;
    let shown = world.get(&format!("/v1/messages/{}", text(&made["id"]))).await;
    assert_eq!(shown["parts"].as_array().unwrap().len(), 2);
    let stored = json!(world.entries(session.rsplit('/').next().unwrap()).await).to_string();
    for secret in ["do not tell", "hunter2"] {
        assert!(!stored.contains(secret) && !shown.to_string().contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_fork_shares_the_past_and_goes_its_own_way() {
    let (world, session) = World::with_session().await;
    for word in ["one", "two", "three"] {
        world.post(&format!("{session}/messages"), message(word)).await;
    }
    let events = world.get(&format!("{session}/events")).await;
    let at = json!({"at_event_id": events["data"][2]["id"], "metadata": {"why": "try"}});
    let fork = world.post(&format!("{session}/fork"), at).await;
    let parent = text(&events["data"][0]["session_id"]);
    assert_eq!((text(&fork["parent_session_id"]), text(&fork["root_session_id"])), (parent, parent));
    let path = format!("/v1/sessions/{}", text(&fork["id"]));
    world.post(&format!("{path}/messages"), message("other")).await;
    world.post(&format!("{session}/messages"), message("four")).await;
    assert_eq!(words(&world.get(&format!("{path}/messages")).await), ["one", "two", "other"]);
    assert_eq!(words(&world.get(&format!("{session}/messages")).await), ["one", "two", "three", "four"]);
    let again = world.post(&format!("{path}/fork"), Value::Null).await;
    let grandchild = format!("/v1/sessions/{}", text(&again["id"]));
    assert_eq!(text(&again["root_session_id"]), parent);
    assert_eq!(words(&world.get(&format!("{grandchild}/messages")).await), ["one", "two", "other"]);
    assert_eq!(world.told(&format!("{session}/events")).await[4], "session.thread_forked");
    let foreign = json!({"at_event_id": "event_session_x_0000000000000001"});
    let refusal = world.refusal(ada(), "POST", &format!("{session}/fork"), foreign).await;
    assert_eq!((refusal.status(), refusal.param()), (400, Some("at_event_id")));
}

#[tokio::test]
async fn of_a_past_no_event_is_read_that_came_behind_its_end() {
    let store = Arc::new(MemoryStore::default());
    let counting = Arc::new(Counting::of(store.clone()));
    let world = World::on(store.clone(), counting.clone(), Some(store));
    let session = world.session().await;
    for number in 0..50 {
        world.post(&format!("{session}/messages"), message(&number.to_string())).await;
    }
    let events = world.get(&format!("{session}/events")).await;
    let at = json!({"at_event_id": events["data"][1]["id"]});
    let fork = world.post(&format!("{session}/fork"), at).await;
    counting.entries_taken();
    let messages = world.get(&format!("/v1/sessions/{}/messages", text(&fork["id"]))).await;
    assert_eq!(words(&messages), ["0"]);
    assert_eq!(counting.entries_taken(), 3, "that message, and the beginnings of both sessions");
}

#[tokio::test]
async fn a_truncation_hides_what_came_later() {
    let (world, session) = World::with_session().await;
    let mut made = Vec::new();
    for word in ["one", "two", "three"] {
        made.push(world.post(&format!("{session}/messages"), message(word)).await);
    }
    let path = format!("{session}/truncate");
    let all = world.post(&path, json!({"keep_first": 7})).await;
    assert_eq!((&all["kept_turn_count"], &all["removed_turn_count"]), (&json!(3), &json!(0)));
    assert_eq!(all["new_tip_turn_id"], made[2]["id"], "where nothing is cut");
    let cut = world.post(&path, json!({"keep_first": 2, "reason": "wrong way"})).await;
    assert_eq!((&cut["kept_turn_count"], &cut["removed_turn_count"]), (&json!(2), &json!(1)));
    assert_eq!(cut["new_tip_turn_id"], made[1]["id"]);
    let again = world.post(&path, json!({"keep_first": 2})).await;
    assert_eq!((&again["removed_turn_count"], &again["new_tip_turn_id"]), (&json!(0), &made[1]["id"]));
    world.post(&format!("{session}/messages"), message("four")).await;
    assert_eq!(words(&world.get(&format!("{session}/messages")).await), ["one", "two", "four"]);
    let none = world.post(&path, json!({"keep_first": 0})).await;
    assert_eq!((&none["removed_turn_count"], &none["new_tip_turn_id"]), (&json!(3), &Value::Null));
    assert_eq!(words(&world.get(&format!("{session}/messages")).await), Vec::<String>::new());
    assert_eq!(world.told(&format!("{session}/events")).await.iter().filter(|e| *e == "session.truncated").count(), 2);
}

#[tokio::test]
async fn an_agent_hears_what_was_said_before_it_came_and_forgets_what_was_cut() {
    let (world, session) = World::with_session().await;
    world.post(&format!("{session}/messages"), message("before")).await;
    world.post(&format!("{session}/tasks"), says("Hello")).await;
    world.work().await.unwrap();
    let heard = || async {
        let list = world.get(&format!("{session}/messages")).await;
        words(&list).last().unwrap().clone()
    };
    let reply = heard().await;
    assert!(reply.contains("\"Hello\" as message 2"), "{reply}");
    world.post(&format!("{session}/tasks"), says("Again")).await;
    world.work().await.unwrap();
    let reply = heard().await;
    assert!(reply.contains("\"Again\" as message 4"), "{reply}");
    world.post(&format!("{session}/truncate"), json!({"keep_first": 2})).await;
    world.post(&format!("{session}/tasks"), says("Anew")).await;
    world.work().await.unwrap();
    let reply = heard().await;
    assert!(reply.contains("\"Anew\" as message 3"), "{reply}");
    let fork = world.post(&format!("{session}/fork"), Value::Null).await;
    world.post(&format!("/v1/sessions/{}/tasks", text(&fork["id"])), says("There")).await;
    world.work().await.unwrap();
    let list = world.get(&format!("/v1/sessions/{}/messages", text(&fork["id"]))).await;
    let reply = words(&list).last().unwrap().clone();
    assert!(reply.contains("\"There\" as message 5"), "{reply}");
}

#[tokio::test]
async fn what_is_said_while_a_task_runs_goes_to_the_next_one_alone() {
    let (world, session) = World::with_session().await;
    let task = world.post(&format!("{session}/tasks"), says("Hello")).await;
    world.post(&format!("{session}/messages"), message("by the way")).await;
    let mut interrupt = message("stop");
    interrupt["kind"] = "interrupt".into();
    world.post(&format!("/v1/tasks/{}/messages", text(&task["id"])), interrupt).await;
    world.work().await.unwrap();
    for (said, number) in [("Again", 5), ("Once more", 7)] {
        world.post(&format!("{session}/tasks"), says(said)).await;
        world.work().await.unwrap();
        let list = world.get(&format!("{session}/messages")).await;
        let reply = words(&list).last().unwrap().clone();
        // `Hello` and its answer are in the agent's own conversation already.
        assert!(reply.contains(&format!("\"{said}\" as message {number}")), "{reply}");
    }
}

#[tokio::test]
async fn a_session_with_an_open_task_is_locked_against_truncation() {
    let (world, session) = World::with_session().await;
    world.post(&format!("{session}/tasks"), says("Hello")).await;
    assert_eq!(world.get(&session).await["state"], "ACTIVE");
    let refusal = world.refusal(ada(), "POST", &format!("{session}/truncate"), json!({"keep_first": 0})).await;
    assert_eq!((refusal.status(), refusal.code().as_str()), (423, "resource_locked"));
}
