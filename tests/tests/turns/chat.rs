//! Chat over workers that share nothing but the store (harness-chat).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_engine::{
    CompiledGraph, END, Field, FieldType, GraphBuilder, NodeError, Reducer, SessionConcurrency, SessionPolicy, State,
    StateSchema, Update, suspend,
};
use dormouse_harness::chat::{ChatHarness, ChatMessage, ChatTurnOutcome, SendOptions};
use dormouse_harness::{Bucket, DispatchPath, Mode, Transmission, TurnOutcome};
use dormouse_ports::{Category, Map, SignalDescriptor};
use dormouse_tests::Stage;
use futures::FutureExt;
use serde_json::{Value, json};

fn draft() -> GraphBuilder {
    named("chat")
}

fn named(name: &str) -> GraphBuilder {
    let messages = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    let policy = SessionPolicy::projected(["messages"]).concurrency(SessionConcurrency::Rebase);
    GraphBuilder::new(name, StateSchema::new().field("messages", messages)).sessions(policy)
}

fn says(text: &str) -> Update {
    Update::none().with("messages", json!([{ "role": "assistant", "content": text }]))
}

/// Answers with how many messages it sees.
fn counting(name: &str) -> Arc<CompiledGraph> {
    let graph = named(name).entry("answer").function("answer", |state: State| async move {
        let seen = state.get("messages").and_then(Value::as_array).map_or(0, Vec::len);
        tokio::task::yield_now().await;
        Ok(says(&format!("I see {seen}")))
    });
    Arc::new(graph.edge("answer", END).compile().unwrap())
}

/// Announces, waits for signal `s`, and answers.
fn asking() -> Arc<CompiledGraph> {
    let graph = draft()
        .entry("announce")
        .function("announce", |_| async { Ok(says("Wait.")) })
        .function("wait", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .function("answer", |_| async { Ok(says("Done.")) })
        .edge("announce", "wait")
        .edge("wait", "answer")
        .edge("answer", END);
    Arc::new(graph.compile().unwrap())
}

fn chat(stage: &Stage, graph: &Arc<CompiledGraph>) -> ChatHarness {
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [graph.clone()]);
    ChatHarness::new(harness, graph.name()).unwrap()
}

fn hello() -> ChatMessage {
    ChatMessage::text("user", "Hello")
}

fn replies(outcome: &ChatTurnOutcome) -> Vec<&str> {
    let messages = match outcome {
        ChatTurnOutcome::Completed { replies, .. } => replies,
        ChatTurnOutcome::Suspended { pending_messages, .. } => pending_messages,
        ChatTurnOutcome::Errored { error_category, .. } => panic!("{error_category}"),
    };
    messages.iter().filter_map(|message| message.as_map()["content"].as_str()).collect()
}

#[tokio::test]
async fn only_new_messages_are_replies_even_when_they_repeat_old_ones() {
    let stage = Stage::default();
    let same = draft().entry("a").function("a", |_| async { Ok(says("Same.")) }).edge("a", END);
    let chat = chat(&stage, &Arc::new(same.compile().unwrap()));
    for path in [DispatchPath::NewSession, DispatchPath::ExistingSession] {
        let (taken, outcome) = chat.send_as(&"c".into(), hello(), SendOptions::default()).await;
        assert_eq!((taken, replies(&outcome)), (Some(path), vec!["Same."]));
    }
}

#[tokio::test]
async fn a_turn_without_messages_is_completed_and_empty() {
    let stage = Stage::default();
    let quiet = draft().entry("a").function("a", |_| async { Ok(Update::none()) }).edge("a", END);
    let chat = chat(&stage, &Arc::new(quiet.compile().unwrap()));
    assert_eq!(replies(&chat.send(&"c".into(), hello()).await), Vec::<&str>::new());
}

#[tokio::test]
async fn sends_to_one_session_run_one_after_the_other_on_all_machines_together() {
    let stage = Arc::new(Stage::default());
    let graph = counting("chat");
    let sends = (0..10).map(|_| {
        let machine = chat(&stage, &graph);
        tokio::spawn(async move { machine.send(&"c".into(), hello()).await })
    });
    let ticking = {
        let stage = stage.clone();
        tokio::spawn(async move {
            loop {
                stage.clock.advance(Duration::from_millis(50));
                tokio::task::yield_now().await;
            }
        })
    };
    let mut seen = Vec::new();
    for outcome in futures::future::join_all(sends).await {
        seen.extend(replies(&outcome.unwrap()).into_iter().map(str::to_owned));
    }
    ticking.abort();
    // Who waits for whom on another machine is a matter of chance.
    seen.sort_by_key(|seen| seen.trim_start_matches("I see ").parse::<usize>().unwrap());
    let expected: Vec<_> = (0..10).map(|turn| format!("I see {}", 2 * turn + 1)).collect();
    assert_eq!(seen, expected, "every turn saw all turns before it");
}

#[tokio::test]
async fn a_listener_hears_each_resumed_turn_once() {
    let stage = Stage::default();
    let graph = asking();
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [graph.clone()]);
    let chat = ChatHarness::new(harness.clone(), "chat").unwrap();
    let heard: Arc<Mutex<Vec<ChatTurnOutcome>>> = Arc::default();
    let ear = heard.clone();
    let listener = move |outcome| {
        ear.lock().unwrap().push(outcome);
        futures::future::ready(()).boxed()
    };
    let _handle = chat.subscribe(&"c".into(), Arc::new(listener));
    assert_eq!(replies(&chat.send(&"c".into(), hello()).await), ["Wait."]);
    for _ in 0..3 {
        harness.turn(Transmission::signal("s", Map::new())).await;
    }
    let heard = heard.lock().unwrap();
    assert_eq!(heard.iter().map(replies).collect::<Vec<_>>(), [["Done."]]);
}

/// A listener that is wrong.
fn panics(_: ChatTurnOutcome) -> futures::future::BoxFuture<'static, ()> {
    panic!("a listener that is wrong")
}

#[tokio::test]
async fn a_listener_that_panics_takes_nothing_from_others_and_from_the_turn() {
    let stage = Stage::default();
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [asking()]);
    let chat = ChatHarness::new(harness.clone(), "chat").unwrap();
    let heard: Arc<Mutex<usize>> = Arc::default();
    let ear = heard.clone();
    let listener = move |_: ChatTurnOutcome| {
        *ear.lock().unwrap() += 1;
        futures::future::ready(()).boxed()
    };
    let _wrong = chat.subscribe(&"c".into(), Arc::new(panics));
    let _right = chat.subscribe(&"c".into(), Arc::new(listener));
    assert_eq!(replies(&chat.send(&"c".into(), hello()).await), ["Wait."]);
    let turn = harness.turn(Transmission::signal("s", Map::new())).await;
    assert!(matches!(turn.outcome, TurnOutcome::Completed(_)), "{:?}", turn.outcome);
    assert_eq!(*heard.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_message_sent_while_a_turn_is_paused_is_not_lost_when_that_one_goes_on() {
    let stage = Stage::default();
    let graph = asking();
    let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [graph, counting("counting")]);
    let asking = ChatHarness::new(harness.clone(), "chat").unwrap();
    let counting = ChatHarness::new(harness.clone(), "counting").unwrap();
    asking.send(&"c".into(), hello()).await;
    assert_eq!(replies(&counting.send(&"c".into(), hello()).await), ["I see 3"]);
    harness.turn(Transmission::signal("s", Map::new())).await;
    assert_eq!(replies(&counting.send(&"c".into(), hello()).await), ["I see 6"]);
}

#[tokio::test]
async fn errors_become_messages_that_can_be_shown() {
    let failing = |category: Category| {
        let node = move |_| {
            let category = category.clone();
            async move { Err(NodeError::new("the model said no").with_category(category)) }
        };
        Arc::new(draft().entry("a").function("a", node).edge("a", END).compile().unwrap())
    };
    for (category, bucket, part) in [
        (Category::ProviderUnavailable, Bucket::RetryableTransient, "Try again"),
        (Category::ProviderInvalidRequest, Bucket::UserCorrectable, "the model said no"),
        (Category::RoutingError, Bucket::SessionTerminating, "start a new one"),
    ] {
        let stage = Stage::default();
        let ChatTurnOutcome::Errored { error_bucket, error_category, reply, invocation_id, correlation_id, .. } =
            chat(&stage, &failing(category.clone())).send(&"c".into(), hello()).await
        else {
            panic!("it did not fail");
        };
        assert!(invocation_id.is_some() && correlation_id.is_some(), "the log names what failed");
        assert_eq!((error_bucket, error_category), (bucket, category));
        let text = reply.as_map()["content"].as_str().unwrap();
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_loaded() {
    let stage = Stage::default();
    let graph = counting("chat");
    let chat = chat(&stage, &graph);
    for (session, message, expected) in [
        ("c", ChatMessage::unchecked(json!({ "role": "tool", "content": "x" })), Category::ChatMessageShapeInvalid),
        ("", hello(), Category::HarnessSessionIdUnresolved),
    ] {
        let ChatTurnOutcome::Errored { error_category, .. } = chat.send(&session.into(), message).await else {
            panic!("it was accepted");
        };
        assert_eq!(error_category, expected);
    }
}

#[tokio::test]
async fn a_graph_whose_messages_are_not_appended_or_not_kept_is_no_chat() {
    let list = || Field::new(FieldType::List(Box::new(FieldType::Any)), json!([]));
    let talk = |messages: Field, kept: &'static str| {
        let schema = StateSchema::new().field("messages", messages).field("memory", list());
        let graph = GraphBuilder::new("talk", schema).sessions(SessionPolicy::projected([kept]));
        let graph = graph.entry("answer").function("answer", |_| async { Ok(says("Yes.")) });
        Arc::new(graph.edge("answer", END).compile().unwrap())
    };
    let stage = Stage::default();
    for (graph, said) in [
        (talk(list().reduced_by(Reducer::BoundedAppend { max_len: 20 }), "messages"), "the reducer bounded_append"),
        (talk(list(), "messages"), "the reducer last_write_wins"),
        (talk(list().reduced_by(Reducer::Append), "memory"), "its sessions do not keep it"),
    ] {
        let harness = stage.harness_on(stage.store.clone(), Mode::Sessioned, [graph]);
        let refused = ChatHarness::new(harness, "talk").unwrap_err();
        assert_eq!(refused.category(), &Category::StateValidationError);
        assert!(refused.message().contains(said), "{refused}");
    }
}
