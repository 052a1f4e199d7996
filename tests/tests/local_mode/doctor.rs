//! Why it does not wake, told by the command line alone: one disaster after the other in a store that the real binary
//! then looks into.

use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use dormouse_api::WEBHOOK_GRAPH;
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_engine::{CompiledGraph, END, GraphBuilder, NodeError, State, StateSchema, Update, suspend};
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_maintenance::SweepScope;
use dormouse_ports::{Clock, IndexRepair, Invocations, PendingRow, SignalDescriptor, Sleepers};
use dormouse_tests::{STORE_SECRET, Stage, map, open_door};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::process::program;

const TABLE: &str = "dormouse";
const HOUR: Duration = Duration::from_secs(3600);

/// A store, and a worker three hours ago who left something in it.
struct Ward {
    embedded: EmbeddedDynamoDb,
    client: Client,
    store: Arc<DynamoDbStateStore>,
    stage: Stage,
    harness: Harness,
    doctor: Doctor,
}

impl Ward {
    async fn open() -> Self {
        Self::open_in(&StoreLocation::Memory).await
    }

    async fn open_in(place: &StoreLocation) -> Self {
        let embedded = EmbeddedDynamoDb::start(place).await.expect("a store");
        let target = ["--table", TABLE, "--endpoint-url", &open_door(&embedded).await].map(str::to_owned).to_vec();
        let client = embedded.client();
        ensure_table(&client, TABLE).await.expect("a table");
        let store = Arc::new(DynamoDbStateStore::new(&client, TABLE, StoreConfig::default()));
        let stage = Stage::default();
        let ago = Timestamp::now() - 3 * HOUR;
        stage.clock.advance(Duration::try_from(ago.duration_since(stage.clock.now())).expect("it lies ahead"));
        let harness = stage.shipped_on(store.clone(), Mode::Stateless).expect("graphs");
        Self { embedded, client, store, stage, harness, doctor: Doctor { target } }
    }

    /// An invocation of `graph` that `harness` puts to sleep.
    async fn asleep_with(&self, harness: &Harness, id: &str, graph: &str, state: Value) {
        let start = FreshTurn { invocation_id: Some(id.into()), ..FreshTurn::new(graph, map(state)) };
        let outcome = harness.turn(start).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    }

    /// An expense that somebody has to approve within three days, and whose wake-up a sweep has seen to.
    async fn asleep(&self, id: &str) {
        self.asleep_with(&self.harness, id, "expense-approval", expense("P3D")).await;
        dormouse_maintenance::sweep(&self.harness, &self.store.clone().into(), SweepScope::Everything)
            .await
            .expect("a sweep");
    }

    /// An invocation of another shape of `graph` than the one that ships.
    async fn asleep_in(&self, id: &str, graph: GraphBuilder) {
        let graph: Arc<CompiledGraph> = Arc::new(graph.compile().expect("a graph"));
        let name = graph.name().to_owned();
        let harness = self.stage.harness_on(self.store.clone(), Mode::Stateless, [graph]);
        self.asleep_with(&harness, id, &name, json!({})).await;
        dormouse_maintenance::sweep(&harness, &self.store.clone().into(), SweepScope::Everything)
            .await
            .expect("a sweep");
    }

    async fn lose_signal(&self, id: &str) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let deletion = self.client.delete_item().table_name(TABLE).return_values(ReturnValue::AllOld);
        let deletion = deletion.key("pk", text(&format!("SIGNAL#expense-{id}"))).key("sk", text("SIGNAL"));
        let deleted = deletion.send().await;
        assert!(deleted.expect("an answer").attributes.is_some(), "there was no signal item");
    }

    /// Stops the store, and leaves its folder to the program.
    async fn leave(self, folder: &Path) -> Doctor {
        self.embedded.stop().await.expect("it stops");
        Doctor { target: vec!["--data".to_owned(), folder.display().to_string()] }
    }
}

/// The command line tool, and what it is told to look into.
struct Doctor {
    target: Vec<String>,
}

impl Doctor {
    fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = program();
        command.args(arguments).args(&self.target);
        command.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local").env("AWS_REGION", "us-east-1");
        command.env("AWS_SESSION_TOKEN", STORE_SECRET);
        command.output().expect("it runs")
    }

    /// What the doctor says about `id`: its findings, and the exit code.
    fn findings(&self, arguments: &[&str]) -> (Vec<(String, String)>, Option<i32>) {
        let said = self.ask(&[&["doctor", "--json"], arguments].concat());
        let report: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let remarks = report["remarks"].as_array().unwrap_or_else(|| panic!("no remarks: {report}"));
        let text = |remark: &Value, key: &str| remark[key].as_str().unwrap_or_default().to_owned();
        let findings = remarks.iter().map(|remark| (text(remark, "finding"), text(remark, "sentence"))).collect();
        (findings, said.status.code())
    }

    /// The first thing that the doctor says about `id` must be `finding`, in a sentence with `words`.
    fn told(&self, id: &str, finding: &str, words: &str) {
        let (findings, code) = self.findings(&[id]);
        let (first, sentence) = &findings[0];
        assert!(first == finding && sentence.contains(words), "{id}: {findings:?}");
        let trouble = !matches!(finding, "waiting" | "claim_held" | "completed");
        assert_eq!(code, Some(if trouble { 3 } else { 0 }), "{id}: {findings:?}");
        let said = self.ask(&["doctor", id]);
        let said = String::from_utf8(said.stdout).expect("text");
        assert!(said.contains(sentence.as_str()), "people are told the same: {said}");
    }

    /// After a repair the first thing that the doctor says about `id` is `finding`.
    fn repaired(&self, id: &str, finding: &str) {
        let said = self.ask(&["doctor", "--repair", id]);
        let (findings, _) = self.findings(&[id]);
        assert_eq!(findings[0].0, finding, "{id}: {findings:?} after {said:?}");
    }
}

fn expense(decide_within: &str) -> Value {
    json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard", "decide_within": decide_within})
}

/// A graph called `name` that waits for `signal` in `node`.
fn waiting(name: &str, version: &str, node: &str, signal: &'static str) -> GraphBuilder {
    GraphBuilder::new(name, StateSchema::new().with_version(version))
        .entry(node)
        .function(node, move |_: State| async move { Err(suspend(SignalDescriptor::new(signal)).await) })
        .function("more", |_: State| async { Ok::<_, NodeError>(Update::none()) })
        .edge(node, "more")
        .edge("more", END)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_is_told_by_the_command_line_alone() {
    let ward = Ward::open().await;

    ward.asleep("healthy").await;
    ward.doctor.told("healthy", "waiting", "waits for signal `expense-healthy`");

    ward.asleep_with(&ward.harness, "overdue", "expense-approval", expense("PT1H")).await;
    ward.doctor.told("overdue", "overdue", "its timer was lost and no sweep has come");
    ward.doctor.repaired("overdue", "completed");

    ward.asleep_with(&ward.harness, "unseen", "expense-approval", expense("P3D")).await;
    ward.doctor.told("unseen", "unregistered", "no sweep has seen to it");

    ward.asleep("dead").await;
    let payload = map(json!({"decision": "approved", "decided_by": "Grace"}));
    ward.stage.hold_in(&*ward.store, "dead", payload, Duration::from_secs(30)).await;
    ward.doctor.told("dead", "claim_expired", "the worker that continued it died");
    ward.doctor.repaired("dead", "completed");

    ward.asleep("lost-row").await;
    let record = ward.store.load_invocation(&"lost-row".into()).await.expect("an answer").expect("a record");
    ward.store.repair(&IndexRepair::Ended(PendingRow::of(&record.paused))).await.expect("an answer");
    ward.doctor.told("lost-row", "row_missing", "no sweep would find it");
    // What was written anew has been seen by no sweep yet.
    ward.doctor.repaired("lost-row", "unregistered");

    ward.asleep("lost-signal").await;
    ward.lose_signal("lost-signal").await;
    ward.doctor.told("lost-signal", "signal_missing", "its signal item is missing");
    ward.doctor.repaired("lost-signal", "waiting");

    ward.asleep("parked").await;
    ward.lose_signal("parked").await;
    let answer = map(json!({"decision": "approved", "decided_by": "Grace"}));
    ward.harness.turn(Transmission::signal("expense-parked", answer)).await;
    ward.doctor.told("parked", "signal_parked", "and was not handed over");
    ward.doctor.repaired("parked", "completed");

    ward.asleep("robbed").await;
    ward.lose_signal("robbed").await;
    ward.asleep_in("gone", waiting("of-yesterday", "1", "sleep", "expense-robbed")).await;
    ward.doctor.told("robbed", "signal_taken", "leads to another invocation, gone");
    ward.doctor.told("gone", "graph_unknown", "no graph `of-yesterday` is registered here");

    ward.asleep_in("elsewhere", waiting("reminder", "1", "nap", "nap")).await;
    ward.doctor.told("elsewhere", "graph_refuses", "or cancel it");

    ward.asleep_in("older", waiting("reminder", "0", "sleep", "sleep")).await;
    ward.doctor.told("older", "no_migration", "cannot be brought to the present schema");

    // The server has this graph, and the program that looks has it not.
    ward.asleep_in("sent", waiting(WEBHOOK_GRAPH, "1", "rest", "sent-1")).await;
    ward.doctor.told("sent", "waiting", "waits for signal `sent-1`");
    let migration = ward.doctor.ask(&["migrate", "--dry-run", "--json"]);
    let migration = String::from_utf8(migration.stdout).expect("text");
    assert!(migration.contains("of-yesterday") && !migration.contains(WEBHOOK_GRAPH), "{migration}");

    let everything = ward.doctor.ask(&["doctor", "--json"]);
    let everything: Value = serde_json::from_slice(&everything.stdout).expect("JSON");
    assert_eq!((&everything["examined"], &everything["in_trouble"]), (&json!(9), &json!(4)), "{everything}");
    assert_eq!(everything["parked_signals"], json!([]), "{everything}");
    let nobody = ward.doctor.ask(&["doctor", "nobody"]);
    assert_eq!(nobody.status.code(), Some(4), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_can_be_shortened_and_are_never_guessed() {
    let ward = Ward::open().await;
    for id in ["order-4711", "order-4712", "order-47", "trip-1"] {
        ward.asleep(id).await;
    }
    let shown = |id: &str| {
        let said = ward.doctor.ask(&["show", "--json", id]);
        let shown = serde_json::from_slice::<Value>(&said.stdout).map(|shown| shown["invocation_id"].clone());
        (said.status.code(), shown.unwrap_or_default())
    };
    assert_eq!(shown("trip"), (Some(0), json!("trip-1")));
    assert_eq!(shown("order-47"), (Some(0), json!("order-47")), "a whole id is nobody's beginning");
    for none in ["tri", "trip-2", "trip-11"] {
        assert_eq!(shown(none), (Some(4), Value::Null), "{none}");
    }
    let short = String::from_utf8_lossy(&ward.doctor.ask(&["show", "tri"]).stderr).into_owned();
    assert!(short.contains("four characters"), "{short}");
    for command in ["show", "cancel", "doctor", "retry"] {
        let said = ward.doctor.ask(&[command, "order-471"]);
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(2), "{command}: {told}");
        assert!(told.contains("order-4711, order-4712"), "{command}: {told}");
    }
    let canceled = ward.doctor.ask(&["cancel", "order-4711"]);
    assert_eq!(canceled.status.code(), Some(0), "{canceled:?}");
    assert_eq!(shown("order-471"), (Some(0), json!("order-4712")), "the only one that sleeps");
    let answer = r#"{"decision": "approved", "decided_by": "Grace"}"#;
    let answered = ward.doctor.ask(&["signal", "--json", "--invocation", "trip", answer]);
    let answered: Value = serde_json::from_slice(&answered.stdout).expect("JSON");
    assert_eq!((&answered["status"], &answered["invocation_id"]), (&json!("completed"), &json!("trip-1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_went_astray_is_named() {
    let ward = Ward::open().await;
    ward.harness.turn(Transmission::signal("expense-before", map(json!({})))).await;
    ward.stage.clock.advance(HOUR);
    ward.asleep("i").await;
    ward.doctor.told("i", "waiting", "waits for signal `expense-i`");
    ward.harness.turn(Transmission::signal("expense-l", map(json!({"decision": "approved"})))).await;
    let (findings, code) = ward.doctor.findings(&["i"]);
    assert_eq!(findings.iter().map(|(finding, _)| finding.as_str()).collect::<Vec<_>>(), ["waiting", "signals_astray"]);
    let sentence = &findings[1].1;
    assert!(
        sentence.contains("`expense-l`; was one") && !sentence.contains("before") && code == Some(0),
        "{findings:?}"
    );
    let everything = ward.doctor.ask(&["doctor", "--json"]);
    let everything: Value = serde_json::from_slice(&everything.stdout).expect("JSON");
    let named: Vec<_> = everything["parked_signals"].as_array().expect("a list").iter().collect();
    assert_eq!(named.iter().map(|signal| &signal["signal_id"]).collect::<Vec<_>>(), ["expense-before", "expense-l"]);
    let said = ward.doctor.ask(&["doctor"]);
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("signal `expense-l` came 2 h "), "{text}");
    assert!(text.contains("min ago and nobody waits for it"), "{text}");
    ward.harness.turn(Transmission::callback("i", None, map(json!({"decision": "approved"})))).await;
    ward.doctor.told("i", "completed", "it completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_gone_is_told_by_the_command_line_and_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let ward = Ward::open_in(&StoreLocation::Folder(folder.path().to_owned())).await;
    // An export is given up after an hour.
    ward.stage.clock.advance(HOUR * 5 / 2);
    ward.asleep_with(&ward.harness, "export", "export-job", json!({"dataset": "orders"})).await;
    dormouse_maintenance::sweep(&ward.harness, &ward.store.clone().into(), SweepScope::Everything)
        .await
        .expect("a sweep");
    let (findings, code) = ward.doctor.findings(&["export"]);
    assert_eq!(findings.iter().map(|(finding, _)| finding.as_str()).collect::<Vec<_>>(), ["waiting", "rule_unseen"]);
    assert!(findings[1].1.contains("DORMOUSE_BUS") && code == Some(0), "{findings:?}");
    // The rule was on the bus of the worker that is gone, and is not in the folder.
    let doctor = ward.leave(folder.path()).await;
    doctor.told("export", "rule_missing", "no enabled rule that would carry the event");
    doctor.repaired("export", "waiting");
}
