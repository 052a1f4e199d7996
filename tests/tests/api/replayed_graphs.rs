//! Replays of graphs that are no agents.

use std::sync::Arc;
use std::time::Duration;

use dormouse_api::{Agent, Outside, Receipts};
use dormouse_engine::{END, Graph, NodeError, Reducer, SessionPolicy, state, suspend};
use dormouse_ports::{Event, SignalDescriptor};
use dormouse_receipts::KeyRing;
use dormouse_testkit::MemoryStore;
use serde_json::{Value, json};

use crate::replays::{SECRET, chain_is_sound, events, path_of, projected, replayed, summary, wake, world};
use crate::world::{MakesAgent, World, says, text};

#[tokio::test]
async fn graphs_that_use_bus_and_clock_are_replayed_on_what_they_were_given() {
    let (world, session) = world(&[]).await;
    let input = json!({"persona_id": "persona_reminder", "input": {"text": SECRET, "after": "PT20S"}});
    let reminder = world.post(&format!("{session}/tasks"), input).await;
    world.work().await;
    wake(&world, &reminder).await;
    let input = json!({"persona_id": "persona_export-job", "input": {"dataset": "orders"}});
    let export = world.post(&format!("{session}/tasks"), input).await;
    world.work().await;
    world.callback(text(&export["id"]), json!({"status": "succeeded", "url": "s3://exports/1"})).await;
    for task in [reminder, export] {
        let path = path_of(&task);
        let original = world.get(&path).await;
        assert_eq!(original["status"], "COMPLETED", "{original:#}");
        let told = events(&world, &path).await;
        assert!(told.iter().any(|event| event["event"] == "vendor.dormouse.event_published"), "{told:#?}");
        assert!(!json!(told).to_string().contains("planted"), "what was published is told by its digest");
        world.clock.advance(Duration::from_secs(3600));
        let published = world.bus.events().len();
        let replay = replayed(&world, &path, json!({})).await;
        assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
        assert_eq!(projected(&world, &replay).await, projected(&world, &original).await);
        let again = replayed(&world, &path_of(&replay), json!({})).await;
        assert_eq!(again["status"], "COMPLETED", "{again:#}");
        let sent = &world.bus.events()[published..];
        assert!(sent.iter().all(|event| event.source != "dormouse.reminder" && event.source != "dormouse.export"));
    }
    let told = world.told(&format!("{session}/events?limit=200")).await;
    assert_eq!(told.iter().filter(|kind| *kind == "vendor.dormouse.time_read").count(), 3, "once, and twice replayed");
    chain_is_sound(&world, &session).await;
}

#[tokio::test]
async fn a_graph_that_publishes_something_else_now_is_told() {
    // The first build publishes what it was given, the second one something else.
    let publishing = |words: &'static str| {
        let make = move |outside: &Outside| {
            let bus = outside.bus.clone();
            let clock = outside.clock.clone();
            Graph::<Told>::new("teller")
                .entry("tell")
                .node("tell", move |told: Told| {
                    let bus = bus.clone();
                    let clock = clock.clone();
                    async move {
                        let detail = json!({"words": words, "given": told.words});
                        let Value::Object(detail) = detail else { unreachable!("an object") };
                        let event = Event { source: "test".into(), detail_type: "Told".into(), detail };
                        bus.publish(event).await.map_err(|error| NodeError::new(error.to_string()))?;
                        Ok(Told::at.set(clock.now().to_string()))
                    }
                })
                .edge("tell", END)
                .compile()
        };
        [("teller", Agent::recorded(make))]
    };
    let store = Arc::new(MemoryStore::default());
    let receipts = || Some(Receipts::of(&KeyRing::new([7; 32], None)));
    let kept = || (store.clone() as Arc<_>, store.clone() as Arc<_>, Some(store.clone()));
    let first = World::serving(kept(), receipts(), &publishing("one"));
    let session = first.session().await;
    let input = json!({"persona_id": "persona_teller", "input": {"words": "hello"}});
    let task = first.post(&format!("{session}/tasks"), input).await;
    first.work().await;
    let path = path_of(&task);
    assert_eq!(replayed(&first, &path, json!({})).await["status"], "COMPLETED");

    let second = World::serving(kept(), receipts(), &publishing("another"));
    second.clock.advance(Duration::from_secs(3600));
    let replay = replayed(&second, &path, json!({})).await;
    assert_eq!(replay["failure"]["code"], "replay_diverged", "{replay:#}");
    let differs = &replay["failure"]["details"]["first_difference"];
    assert!(differs.to_string().contains("vendor.dormouse.event_published has another content"), "{differs}");
    chain_is_sound(&second, &session).await;
}

state! {
    #[derive(Clone, Debug, Default)]
    struct Told {
        words: String,
        at: String,
    }
}

state! {
    #[derive(Clone, Debug, Default)]
    struct Talk {
        messages: Vec<Value>,
        go: bool,
    }
}

/// A conversation that asks a person without words of its own, and in which a tool speaks as well.
fn quiet() -> MakesAgent {
    let make = |_: &Outside| {
        let said = [
            json!({"role": "tool", "tool_call_id": "one", "content": "found"}),
            json!({"role": "assistant", "content": "done"}),
        ];
        Graph::<Talk>::new("quiet")
            .version("1")
            .inputs(Talk::messages)
            .reducer(Talk::messages, Reducer::Append)
            .sessions(SessionPolicy::keeping(Talk::messages))
            .entry("ask")
            .node("ask", async |()| {
                let id = dormouse_engine::current().map(|identity| identity.invocation_id.to_string());
                let mut descriptor = SignalDescriptor::new(id.unwrap_or_default());
                descriptor.metadata = json!({"kind": "approval", "description": "May I?"}).as_object().cloned();
                Err(suspend(descriptor).await)
            })
            .node("answer", move |()| {
                let said = said.clone();
                async move { Ok(Talk::messages.append(said)) }
            })
            .edge("ask", "answer")
            .edge("answer", END)
            .pure()
            .compile()
    };
    ("quiet", Agent::new(make))
}

#[tokio::test]
async fn a_question_to_a_person_is_no_part_of_the_conversation_that_is_replayed() {
    let (world, session) = world(&[quiet()]).await;
    let mut body = says("Go on");
    body["persona_id"] = json!("persona_quiet");
    for _ in 0..2 {
        let task = world.post(&format!("{session}/tasks"), body.clone()).await;
        world.work().await;
        world.callback(text(&task["id"]), json!({"go": true})).await;
        let path = path_of(&task);
        let original = world.get(&path).await;
        assert_eq!(original["status"], "COMPLETED", "{original:#}");
        let asked = events(&world, &path).await;
        assert!(asked.iter().any(|event| event["payload"]["role"] == "agent"), "{asked:#?}");
        let replay = replayed(&world, &path, json!({})).await;
        assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
        assert_eq!(projected(&world, &replay).await, projected(&world, &original).await);
    }
}

#[tokio::test]
async fn graphs_that_use_nothing_but_their_state_are_replayed_and_others_name_what_is_missing() {
    let (world, session) = world(&[]).await;
    let input = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let expense = json!({"persona_id": "persona_expense-approval", "input": input});
    let task = world.post(&format!("{session}/tasks"), expense).await;
    let path = path_of(&task);
    world.work().await;
    world.callback(text(&task["id"]), json!({"decision": "approved"})).await;
    let original = world.get(&path).await;
    assert_eq!(original["status"], "COMPLETED");
    let replay = replayed(&world, &path, json!({})).await;
    assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
    assert_eq!(projected(&world, &replay).await, projected(&world, &original).await);
    let told = events(&world, &path).await;
    let woken = told.iter().rfind(|event| event["payload"]["previous_status"] == "AUTH_REQUIRED").unwrap();
    let key = format!("event:{}", text(&woken["id"]));
    let given = json!({"kind": "event_payload", "value": {"decision": "rejected"}});
    let request = json!({"mode": "with_overrides", "override": {key: given}});
    let other = replayed(&world, &path, request).await;
    assert_ne!(summary(&world, &other).await, summary(&world, &original).await);

    for words in ["Hello", "And again"] {
        let chat = world.post(&format!("{session}/tasks"), says(words)).await;
        world.work().await;
        let replay = replayed(&world, &path_of(&chat), json!({})).await;
        assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
    }

    let work = json!({"persona_id": "persona_work", "input": {"fails": ""}});
    let work = world.post(&format!("{session}/tasks"), work).await;
    world.work().await;
    let replay = replayed(&world, &path_of(&work), json!({})).await;
    assert_eq!(replay["status"], "FAILED");
    assert_eq!(replay["failure"]["code"], "replay_material_unavailable");
    let first = json!({"kind": "host_fact", "id": "host:node:work"});
    assert_eq!(replay["failure"]["details"]["first_unavailable"], first);
    let told = events(&world, &path_of(&replay)).await;
    let failed = told.iter().find(|event| event["event"] == "replay.failed").unwrap();
    assert_eq!(failed["payload"]["first_unavailable"], first);
    chain_is_sound(&world, &session).await;
}
