use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_engine::{
    AfterError, END, EngineError, Field, FieldType, GraphBuilder, Invocation, LeaseTerms, Migrate, Migrations, Outcome,
    Projection, Resume, State, StateSchema, Update, Upgrade, suspend,
};
use dormouse_ports::{
    Category, CheckpointRecord, Clock, InvocationStatus, Invocations, Map, NodePosition, SavePoint, SignalDescriptor,
};
use dormouse_testkit::map;
use serde_json::{Value, json};

use super::world::{World, compiled, end, first, int};

type Applied = Arc<Mutex<Vec<String>>>;

/// A migration that adds field `name` and notes that it was asked.
fn adds(applied: &Applied, name: &'static str) -> Migrate {
    let applied = applied.clone();
    Arc::new(move |mut state: Map| {
        applied.lock().unwrap().push(name.to_owned());
        state.insert(name.to_owned(), name.into());
        Ok(state)
    })
}

fn raises() -> Migrate {
    Arc::new(|_| Err("KeyError: x".to_owned()))
}

fn schema(version: &str, fields: &[&str]) -> StateSchema {
    let schema = StateSchema::new().field("x", int(0)).with_version(version);
    // Null is no string: the field must be there.
    fields.iter().fold(schema, |schema, field| schema.field(*field, Field::new(FieldType::Str, Value::Null)))
}

fn graph(version: &str, fields: &[&str]) -> GraphBuilder {
    GraphBuilder::new("g", schema(version, fields))
        .entry("a")
        .function("a", |state: State| {
            let x = state.get("x").and_then(Value::as_i64).unwrap_or_default();
            std::future::ready(Ok(Update::none().with("x", x + 1)))
        })
        .edge("a", END)
}

fn record(world: &World, version: &str, state: Value) -> CheckpointRecord {
    CheckpointRecord {
        invocation_id: "first".into(),
        correlation_id: "c".to_owned(),
        graph: "g".to_owned(),
        state: map(state),
        parent_states: Vec::new(),
        at: None,
        completed_positions: Vec::new(),
        fan_out_progress: Vec::new(),
        last_saved_at: world.stage.clock.now(),
        schema_version: version.to_owned(),
        session_version: None,
    }
}

async fn resumed(graph: GraphBuilder, version: &str, state: Value) -> Result<Value, EngineError> {
    let world = World::default();
    world.memory.seed(record(&world, version, state));
    world.resume(&world.graph(graph)).await
}

fn versions(error: &EngineError) -> (&str, &str) {
    let detail = |name: &str| error.details()[name].as_str().unwrap();
    (detail("from_version"), detail("to_version"))
}

#[tokio::test]
async fn the_shortest_chain_is_applied_in_order() {
    let applied = Applied::default();
    let graph = graph("3", &["two", "three"])
        .migration("2", "3", adds(&applied, "three"))
        .migration("1", "2", adds(&applied, "two"))
        .migration("3", "1", raises());
    let state = resumed(graph, "1", json!({ "x": 5 })).await.unwrap();
    assert_eq!(state, json!({ "x": 6, "two": "two", "three": "three" }));
    assert_eq!(*applied.lock().unwrap(), ["two", "three"]);
}

#[tokio::test]
async fn equal_versions_consult_nothing() {
    let state = resumed(graph("2", &[]).migration("2", "3", raises()), "2", json!({ "x": 5 })).await.unwrap();
    assert_eq!(state["x"], 6);
}

#[test]
fn ambiguity_is_a_compile_error() {
    let twice = graph("2", &[]).migration("1", "2", raises()).migration("1", "2", raises());
    let error = twice.compile().unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointStateMigrationChainAmbiguous);
    assert_eq!(versions(&error), ("1", "2"));
    let diamond = Migrations::new().with("1", "2", raises()).with("1", "3", raises());
    let diamond = diamond.with("2", "4", raises()).with("3", "4", raises());
    let error = graph("4", &[]).migrations(diamond.clone()).compile().unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointStateMigrationChainAmbiguous);
    assert_eq!(versions(&error), ("1", "4"));
    let direct = graph("4", &[]).migrations(diamond.with("1", "4", raises())).compile();
    assert!(direct.is_ok(), "a shorter chain leaves no choice");
}

#[tokio::test]
async fn a_missing_chain_says_what_there_is() {
    let error = resumed(graph("2", &[]).migration("3", "4", raises()), "1", json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointStateMigrationMissing);
    assert_eq!(versions(&error), ("1", "2"));
    assert_eq!(error.details()["registered_migrations_count"], 1);
    assert_eq!(error.details()["registry_description"], "3 -> 4");
    let none = resumed(graph("2", &[]), "1", json!({ "x": "no number" })).await.unwrap_err();
    assert_eq!(none.category(), &Category::CheckpointStateMigrationMissing, "before anybody looks at the state");
    for (version, category) in
        [("1", Category::CheckpointStateMigrationMissing), ("2", Category::CheckpointRecordInvalid)]
    {
        let world = World::default();
        let at = Some(SavePoint { path: vec!["gone".into(), "a".into()], merged: false });
        world.memory.seed(CheckpointRecord { at, ..record(&world, version, json!({})) });
        let error = world.resume(&world.graph(graph("2", &[]))).await.unwrap_err();
        assert_eq!(error.category(), &category, "{version}");
    }
}

#[tokio::test]
async fn a_migration_that_raises_ends_the_chain() {
    let applied = Applied::default();
    let graph = graph("3", &[]).migration("1", "2", raises()).migration("2", "3", adds(&applied, "three"));
    let error = resumed(graph, "1", json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointStateMigrationFailed);
    assert_eq!((versions(&error), error.cause().unwrap().message()), (("1", "2"), "KeyError: x"));
    assert!(applied.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_migration_that_panics_has_failed() {
    let panics: Migrate = Arc::new(|_| -> Result<Map, String> { panic!("a bug") });
    let error = resumed(graph("2", &[]).migration("1", "2", panics), "1", json!({})).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointStateMigrationFailed);
}

#[tokio::test]
async fn what_does_not_fit_after_the_chain_is_an_invalid_record() {
    let applied = Applied::default();
    let graph = graph("2", &["required"]).migration("1", "2", adds(&applied, "another"));
    let error = resumed(graph, "1", json!({ "x": 5 })).await.unwrap_err();
    assert_eq!(error.category(), &Category::CheckpointRecordInvalid);
    assert!(error.message().contains("`required`"), "{error}");
}

#[tokio::test]
async fn states_of_containing_graphs_take_the_same_chain() {
    let world = World::default();
    let applied = Applied::default();
    let inner = compiled(graph("ignored", &["two"]));
    let outer = GraphBuilder::new("outer", schema("2", &["two"]))
        .entry("sub")
        .subgraph("sub", inner, Projection { outputs: Some(Vec::new()), ..Projection::default() })
        .edge("sub", END)
        .migration("1", "2", adds(&applied, "two"));
    let position = NodePosition {
        namespace: vec!["sub".into()],
        node_name: "a".into(),
        step: 1,
        attempt_index: 0,
        fan_out_index: None,
    };
    let mut saved = record(&world, "1", json!({ "x": 3 }));
    (saved.graph, saved.parent_states, saved.completed_positions) =
        ("outer".to_owned(), vec![map(json!({ "x": 5 }))], vec![position]);
    world.memory.seed(saved);
    let state = world.resume(&world.graph(outer)).await.unwrap();
    assert_eq!(state, json!({ "x": 5, "two": "two" }));
    assert_eq!(applied.lock().unwrap().len(), 2);
}

fn asking(version: &str, fields: &[&str]) -> GraphBuilder {
    asking_in(schema(version, fields))
}

fn asking_in(schema: StateSchema) -> GraphBuilder {
    GraphBuilder::new("g", schema)
        .entry("ask")
        .function("ask", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .edge("ask", END)
}

fn signal() -> Resume {
    Resume {
        payload: map(json!({ "x": 9 })),
        generation: None,
        claim: LeaseTerms { owner: "w".into(), duration: Duration::from_secs(5), yield_after: None },
        observers: Vec::new(),
        after_error: |_| AfterError::End,
    }
}

#[tokio::test]
async fn a_pause_of_an_older_version_is_migrated_when_its_signal_comes() {
    let world = World::default();
    let applied = Applied::default();
    let engine = world.stage.engine();
    engine.invoke(&compiled(asking("1", &[])), first(json!({ "x": 5 }))).await.unwrap();
    let unfit = [asking("2", &["two"]), asking("2", &["two"]).migration("1", "2", raises()), {
        asking("2", &["two", "three"]).migration("1", "2", adds(&applied, "two"))
    }];
    for graph in unfit {
        let error = engine.resume(&compiled(graph), &"first".into(), signal()).await.unwrap_err();
        assert_eq!(error.category(), &Category::SuspensionRecordInvalid, "{error}");
        let stored = world.stage.store.load_invocation(&"first".into()).await.unwrap().unwrap();
        assert_eq!(stored.status, InvocationStatus::Suspended, "it sleeps on");
    }
    let graph = compiled(asking("2", &["two"]).migration("1", "2", adds(&applied, "two")));
    let done: Outcome = engine.resume(&graph, &"first".into(), signal()).await.unwrap();
    assert_eq!(end(done), json!({ "x": 9, "two": "two" }));
}

/// `approved` of version 1 is `decision` in version 2.
fn decided(mut state: Map) -> Result<Map, String> {
    let approved = state.shift_remove("approved").ok_or("there is no `approved`")?;
    let decision = if approved == true { "yes" } else { "no" };
    state.insert("decision".to_owned(), decision.into());
    Ok(state)
}

#[tokio::test]
async fn an_answer_to_a_pause_of_an_older_version_is_migrated_with_its_state() {
    let older = || schema("1", &[]).field("approved", Field::new(FieldType::Bool, false));
    let newer = || schema("2", &[]).field("decision", Field::new(FieldType::Str, "none"));
    let says = |approved: bool| Resume { payload: map(json!({ "approved": approved, "x": 9 })), ..signal() };
    for (approved, decision) in [(true, "yes"), (false, "no")] {
        let world = World::default();
        let engine = world.stage.engine();
        engine.invoke(&compiled(asking_in(older())), first(json!({ "x": 5 }))).await.unwrap();
        let refuses: Migrate = Arc::new(|state: Map| -> Result<Map, String> {
            if state["x"] == 9 { Err("no 9".to_owned()) } else { decided(state) }
        });
        let unfit = compiled(asking_in(newer()).migration("1", "2", refuses));
        let error = engine.resume(&unfit, &"first".into(), says(approved)).await.unwrap_err();
        assert_eq!(error.category(), &Category::SuspensionResumePayloadInvalid, "{error}");
        let stored = world.stage.store.load_invocation(&"first".into()).await.unwrap().unwrap();
        assert_eq!(stored.status, InvocationStatus::Suspended, "it sleeps on");
        let graph = compiled(asking_in(newer()).migration("1", "2", Arc::new(decided)));
        let done = engine.resume(&graph, &"first".into(), says(approved)).await.unwrap();
        assert_eq!(end(done), json!({ "x": 9, "decision": decision }));
    }
}

#[tokio::test]
async fn a_field_that_a_pause_does_not_have_yet_has_its_default_in_the_same_version_too() {
    let world = World::default();
    let engine = world.stage.engine();
    let nested = |outer: StateSchema, inner: StateSchema| {
        let projection = Projection::by_name().output("x", "x");
        let inner = compiled(asking_in(inner));
        compiled(GraphBuilder::new("outer", outer).entry("in").subgraph("in", inner, projection).edge("in", END))
    };
    let plain = || schema("1", &[]);
    let grown = || plain().field("note", Field::new(FieldType::Str, "none"));
    engine.invoke(&nested(plain(), plain()), first(json!({ "x": 5 }))).await.unwrap();
    let paused = world.stage.store.load_invocation(&"first".into()).await.unwrap().unwrap().paused;
    let refused = nested(schema("1", &["required"]), plain()).upgrade(&paused).unwrap_err();
    assert_eq!(refused.category(), &Category::SuspensionRecordInvalid, "{refused}");
    let graph = nested(grown(), grown());
    assert_eq!(graph.upgrade(&paused).unwrap(), Upgrade::Reshaped);
    let done = engine.resume(&graph, &"first".into(), signal()).await.unwrap();
    assert_eq!(end(done), json!({ "x": 9, "note": "none" }));
}

#[tokio::test]
async fn a_resumed_invocation_saves_in_the_present_version() {
    let world = World::default();
    let applied = Applied::default();
    world.memory.seed(record(&world, "1", json!({ "x": 5 })));
    let graph = world.graph(graph("2", &["two"]).migration("1", "2", adds(&applied, "two")));
    world.stage.engine().resume_checkpoint(&graph, &"first".into(), Invocation::default()).await.unwrap();
    let (saved, _) = world.memory.saves().pop().unwrap();
    assert_eq!((&*saved.schema_version, &saved.state["two"]), ("2", &json!("two")));
}
