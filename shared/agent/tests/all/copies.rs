//! What a step of a run allocates, by the length of its conversation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, says, tool};
use dormouse_agent::graph::graph;
use dormouse_api::RecordingStore;
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{
    DescriptorWakes, FreshTurn, GraphRegistry, Harness, HarnessConfig, Mode, Transmission, TurnOutcome,
};
use dormouse_ports::Map;
use dormouse_ports::model::{AssistantMessage, Message, ToolCall};
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use serde_json::{Value, json};

/// Messages of the conversation before the run.
const LONG: usize = 1_000;
/// Bytes of each.
const BYTES: usize = 400;
/// What a step may allocate for each message of its conversation: how often, and how many times its bytes. A copy of a message
/// of the state is six allocations, and there is none: the two commits of a step, each of an invocation and its session, share
/// what was said before. Its request is made once, and the model in memory keeps it.
const MOST_ALLOCATIONS: u64 = 8;
const MOST_BYTES: u64 = 7;
/// What it may allocate behind a short conversation.
const MOST_OF_A_SHORT_ONE: u64 = 4_500;
/// How often it may allocate more for a call that is named as others are.
const MOST_OF_A_NAME: u64 = 40;
/// Steps of the runs that are compared.
const STEPS: [usize; 2] = [4, 14];

/// A conversation of `history` messages, and what the user says now.
fn spoken(history: usize) -> Vec<Value> {
    (0..=history).map(|number| json!({ "role": "user", "content": format!("{number:0BYTES$}") })).collect()
}

/// A conversation of `history` calls with their results, each under the name that `id` gives it, and what the user says now.
fn called(history: usize, id: impl Fn(usize) -> String) -> Vec<Value> {
    let looked = |number: usize| {
        let tool_calls = vec![ToolCall::new(id(number), "look", Map::new())];
        let call = Message::Assistant(AssistantMessage { tool_calls, ..AssistantMessage::default() });
        [call, Message::tool(id(number), "It rains.")]
    };
    let messages = (0..history).flat_map(looked).chain([Message::user("And now?")]);
    messages.map(|message| serde_json::to_value(message).expect("a message")).collect()
}

/// Runs an agent that looks `steps` times, behind `conversation`.
async fn run(conversation: &[Value], steps: usize) {
    let left = AtomicUsize::new(steps);
    let model = ScriptedModel::new(move |_| {
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        Ok(match before.unwrap_or_default() {
            0 => says("done"),
            number => calls(&[(&format!("call-{number}"), "look", json!({ "to": "the weather" }))]),
        })
    });
    let tools = Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("It rains."))));
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::default());
    let ports = Ports {
        store: RecordingStore::new(store.clone(), store, clock.clone()).into(),
        clock: clock.clone(),
        ids: Arc::new(CountingIds::default()),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    };
    let graph = graph(parts("policy: {max_steps: 100}", model, tools, clock)).expect("a graph");
    let harness = Harness::new(
        Engine::new(ports),
        GraphRegistry::new([Arc::new(graph)]),
        Arc::new(MemorySubscriptions::default()),
        Arc::new(MemoryBus::default()),
        HarnessConfig::new(Mode::Sessioned),
    );
    let state = Map::from_iter([("messages".to_owned(), Value::Array(conversation.to_vec()))]);
    let turn = FreshTurn { invocation_id: Some("run".into()), ..FreshTurn::new("helper", state) };
    let outcome = harness.turn(Transmission::from(turn)).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
}

/// Allocations of a step behind `conversation`, and their bytes.
fn of_a_step(conversation: &[Value]) -> [u64; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let [few, many] = STEPS.map(|steps| allocation_counter::measure(|| runtime.block_on(run(conversation, steps))));
    let steps = (STEPS[1] - STEPS[0]) as u64;
    [(many.count_total - few.count_total) / steps, (many.bytes_total - few.bytes_total) / steps]
}

#[test]
fn a_step_copies_its_conversation_no_more_than_it_needs() {
    let [short, long] = [10, LONG].map(|history| of_a_step(&spoken(history)));
    let messages = (LONG - 10) as u64;
    let [allocations, bytes] = [0, 1].map(|at| (long[at] - short[at]) / messages);
    assert!(allocations <= MOST_ALLOCATIONS, "{allocations} for each message: {short:?}, {long:?}");
    assert!(bytes <= MOST_BYTES * BYTES as u64, "{bytes} bytes for each message: {short:?}, {long:?}");
    assert!(short[0] <= MOST_OF_A_SHORT_ONE, "{short:?}");
}

#[test]
fn a_call_that_is_named_as_others_are_costs_as_much_as_one_of_them() {
    let history = LONG / 2;
    let alike = of_a_step(&called(history, |_| "call_0".to_owned()));
    let apart = of_a_step(&called(history, |number| format!("call_{number}")));
    let more = alike[0].saturating_sub(apart[0]) / history as u64;
    assert!(more <= MOST_OF_A_NAME, "{more} for each call: {alike:?}, {apart:?}");
}
