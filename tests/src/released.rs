//! Records as a released version left them in the table: how they are made, and the graphs that go on from them.
//!
//! The graphs stand for those of somebody who upgrades: they must not change, or old records would be refused for
//! another reason than the one that is tested.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use dormouse_aws::{DynamoDbCheckpointer, DynamoDbStateStore, StoreConfig};
use dormouse_engine::{
    CompiledGraph, END, EngineError, Field, FieldType, GraphBuilder, Projection, Reducer, SessionPolicy, State,
    StateSchema, Update, suspend,
};
use dormouse_harness::{Callback, FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    CheckpointRecord, Checkpointer, Commit, Commits, GrowingLists, InvocationWrite, Journal, MaintenanceStore, Map,
    SaveSource, SignalDescriptor,
};
use jiff::Timestamp;
use serde_json::json;

use crate::{Stage, map};

/// The table that the records are in.
pub const TABLE: &str = "dormouse";
/// The state of every record of `ask` holds this text; it is long enough to lie beside its item.
const LONG_NAME: &str = "asleep-large";
const DAY: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

/// Where the records of each version are: `<version>.json`.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/records")
}

/// The version of this workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How far behind the beginning of a [`Stage`] the records were written, and every claim has run out.
pub const WRITTEN: Duration = Duration::from_secs(25 * 3600 + 60);

/// A worker that has the graphs of the records.
///
/// # Errors
/// When a graph does not compile.
pub fn worker(stage: &Stage, client: &Client, mode: Mode) -> Result<Harness, EngineError> {
    Ok(stage.harness_on(Arc::new(store(client)), mode, [Arc::new(ask()?), Arc::new(nested()?), Arc::new(poll()?)]))
}

/// The store of the records.
pub fn store(client: &Client) -> DynamoDbStateStore {
    DynamoDbStateStore::new(client, TABLE, StoreConfig::default())
}

/// What sweeps of the records go through.
pub fn maintenance(client: &Client) -> MaintenanceStore {
    Arc::new(store(client)).into()
}

/// The text in the state of the record `name`.
pub fn text(name: &str) -> String {
    let digits = if name == LONG_NAME { 400 } else { 1 };
    // Digits of a root do not compress to nothing.
    (1..=digits).map(|number| format!("{:.15}", f64::from(number).sqrt())).collect()
}

/// The checkpoint among the records.
pub fn checkpoint() -> CheckpointRecord {
    CheckpointRecord {
        invocation_id: "checkpointed".into(),
        correlation_id: "c-1".to_owned(),
        graph: "ask".to_owned(),
        state: map(json!({ "name": "checkpointed", "text": text("checkpointed"), "answer": 0, "messages": [] })),
        parent_states: Vec::new(),
        at: None,
        completed_positions: Vec::new(),
        fan_out_progress: Vec::new(),
        last_saved_at: Timestamp::constant(1_767_225_600, 0),
        schema_version: "1".to_owned(),
        session_version: None,
    }
}

/// Writes every kind of record into an empty table.
///
/// # Panics
/// When something does not become what it is to be.
pub async fn record(stage: &Stage, client: &Client) {
    let alone = worker(stage, client, Mode::Stateless).expect("graphs that compile");
    let maintenance = maintenance(client);
    let start = async |graph: &str, name: &str| sleep(&alone, FreshTurn::new(graph, given(name)), name).await;
    start("nested", "failed").await;
    stage.clock.advance(DAY);
    stage.sweep_on(&alone, &maintenance, SweepScope::Due).await.expect("a sweep");
    start("ask", "advanced").await;
    stage.clock.advance(HOUR);
    stage.sweep_on(&alone, &maintenance, SweepScope::Due).await.expect("a sweep");
    for name in ["asleep-small", LONG_NAME, "claimed", "completed", "canceled"] {
        start("ask", name).await;
    }
    start("nested", "asleep-nested").await;
    start("poll", "asleep-poll").await;
    let ada = Callback::new("asleep-poll", None, map(json!({ "vote": "yes" })));
    let heard = alone.turn(Callback { part: Some("ada".to_owned()), ..ada }).await.outcome;
    assert!(matches!(heard, TurnOutcome::Suspended(_)), "{heard:?}");
    let sessioned = worker(stage, client, Mode::Sessioned).expect("graphs that compile");
    let session = FreshTurn { session_id: Some("session".into()), ..FreshTurn::new("ask", given("asleep-session")) };
    sleep(&sessioned, session, "asleep-session").await;

    let accepted = FreshTurn { invocation_id: Some("accepted".into()), ..FreshTurn::new("ask", given("accepted")) };
    let accepted = Box::new(alone.accept(accepted).await.expect("it may begin"));
    let commit = Commit {
        id: stage.fresh_id(),
        now: accepted.suspended_at,
        session: None,
        invocation: Some(InvocationWrite::Accept { paused: accepted, again_at: None }),
        journal: Journal::default(),
        growing: GrowingLists::default(),
    };
    store(client).commit(&commit).await.expect("it is accepted");

    let payload = map(json!({ "answer": 5 }));
    stage.hold_in(&store(client), "claimed", payload, Duration::from_secs(30)).await;
    alone.turn(Transmission::signal("completed", map(json!({ "answer": 1 })))).await;
    for id in ["canceled", "forestalled"] {
        alone.cancel(&id.into(), None, Some("not needed".to_owned())).await.expect("it is canceled");
    }
    let early = alone.turn(Transmission::signal("early", map(json!({ "answer": 7 })))).await.outcome;
    assert!(matches!(early, TurnOutcome::Buffered { .. }), "{early:?}");
    let checkpointer = DynamoDbCheckpointer::new(client, TABLE, StoreConfig::default());
    checkpointer.save(&checkpoint(), SaveSource::Node).await.expect("it is saved");
}

/// What the turn called `name` is given.
pub fn given(name: &str) -> Map {
    map(json!({ "name": name, "text": text(name) }))
}

async fn sleep(worker: &Harness, start: FreshTurn, name: &str) {
    let outcome = worker.turn(FreshTurn { invocation_id: Some(name.into()), ..start }).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
}

fn schema() -> StateSchema {
    let field = |kind, default| Field::new(kind, default);
    let messages = field(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    StateSchema::new()
        .with_version("1")
        .field("name", field(FieldType::Str, json!("")))
        .field("text", field(FieldType::Str, json!("")))
        .field("answer", field(FieldType::Int, json!(0)))
        .field("messages", messages)
}

fn name_of(state: &State) -> String {
    state.get("name").and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// Long enough to be kept in a piece of its own.
fn message(number: u32) -> Update {
    let said = format!("{:.15}", f64::from(number).sqrt()).repeat(80);
    Update::none().with("messages", json!([{ "role": "assistant", "content": said }]))
}

/// Says something, waits with a ladder of deadlines, says something again.
fn ask() -> Result<CompiledGraph, EngineError> {
    let deadlines =
        json!([{ "after": "PT1H", "do": "remind" }, { "after": "PT3H", "then": { "resume": { "answer": -1 } } }]);
    GraphBuilder::new("ask", schema())
        .sessions(SessionPolicy::projected(["messages"]))
        .entry("note")
        .function("note", async |_: State| Ok(message(2)))
        .function("wait", move |state: State| {
            let wait = SignalDescriptor::new(name_of(&state)).with("deadlines", deadlines.clone());
            async move { Err(suspend(wait).await) }
        })
        .function("settle", async |_: State| Ok(message(3)))
        .edge("note", "wait")
        .edge("wait", "settle")
        .edge("settle", END)
        .compile()
}

/// Waits for two of three answers.
fn poll() -> Result<CompiledGraph, EngineError> {
    let votes = Field::new(FieldType::Mapping(Box::new(FieldType::Any)), json!({}));
    let graph = GraphBuilder::new("poll", schema().field("votes", votes)).entry("wait");
    let graph = graph.function("wait", async |state: State| {
        let parts = json!({ "ada": {}, "grace": {}, "linus": {} });
        let expects = json!({ "parts": parts, "until": { "at_least": 2 }, "into": "votes" });
        Err(suspend(SignalDescriptor::new(name_of(&state)).with("expects", expects)).await)
    });
    graph.edge("wait", END).compile()
}

/// Waits for a day inside of another graph.
fn nested() -> Result<CompiledGraph, EngineError> {
    let inner = GraphBuilder::new("inner", schema()).entry("wait").function("wait", |state: State| async move {
        let timeout = json!({ "after": "P1D", "then": "fail" });
        Err(suspend(SignalDescriptor::new(name_of(&state)).with("timeout", timeout)).await)
    });
    let inner = Arc::new(inner.edge("wait", END).compile()?);
    let all = |fields: Projection, field| fields.input(field, field).output(field, field);
    let projection = ["name", "text", "answer"].into_iter().fold(Projection::by_name(), all);
    let graph = GraphBuilder::new("nested", schema()).entry("inner");
    graph.subgraph("inner", inner, projection).edge("inner", END).compile()
}
