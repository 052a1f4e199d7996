//! The commands that look at what sleeps, through the real binary on a real data folder.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(clippy::disallowed_types, reason = "the agents are pure, the command is not")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dormouse::Outside;
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, FreshTurn, Harness, HarnessConfig, Mode, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{
    Commit, Commits, Due, DueAction, GrowingLists, IndexRepair, InvocationWrite, Invocations, Journal,
    PausedInvocation, PendingRow, SignalDescriptor, Sleepers, SuspendFrom, WakePlan,
};
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use dormouse_testkit::{MemoryBus, MemorySubscriptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A data folder in which the expense `ada` sleeps; with `lost` the index does not know it.
async fn folder(lost: bool) -> (tempfile::TempDir, PathBuf) {
    folder_with(async |store| {
        if lost {
            let paused = store.load_invocation(&"ada".into()).await.unwrap().unwrap().paused;
            store.repair(&IndexRepair::Ended(PendingRow::of(&paused))).await.unwrap();
        }
    })
    .await
}

/// A data folder in which the expense `ada` sleeps, after `change`.
async fn folder_with(change: impl AsyncFnOnce(&DynamoDbStateStore)) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Folder(data.clone())).await.unwrap();
    ensure_table(&embedded.client(), "dormouse").await.unwrap();
    let store = Arc::new(DynamoDbStateStore::new(&embedded.client(), "dormouse", StoreConfig::default()));
    let clock = Arc::new(SystemClock::default());
    let ids = Arc::new(RandomIds);
    let spawner = Arc::new(TokioSpawner);
    let planner = Arc::new(DescriptorWakes);
    let bus = Arc::new(MemoryBus::default());
    let graphs = dormouse_app::agents().compile(&Outside::new(bus.clone(), clock.clone())).unwrap().graphs;
    let engine = Engine::new(Ports { store: store.clone().into(), clock, ids, spawner, planner });
    let config = HarnessConfig::new(Mode::Sessioned);
    let harness = Harness::new(engine, graphs, Arc::new(MemorySubscriptions::default()), bus, config);
    let state = json!({ "employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard" });
    let start = FreshTurn::new("expense-approval", state.as_object().unwrap().clone());
    let start = FreshTurn { invocation_id: Some("ada".into()), session_id: Some("s".into()), ..start };
    let outcome = harness.turn(start).await.outcome;
    assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    change(&store).await;
    drop((harness, store));
    embedded.stop().await.unwrap();
    (place, data)
}

/// Lets `id` sleep in `graph` since yesterday, until a time that is far away.
async fn sleep_in(store: &DynamoDbStateStore, graph: &str, id: &str) {
    let ada = store.load_invocation(&"ada".into()).await.unwrap().unwrap().paused;
    let suspended_at = ada.suspended_at - Duration::from_secs(24 * 60 * 60);
    let due = Due::first(ada.suspended_at + Duration::from_secs(24 * 60 * 60), DueAction::Fail);
    let paused = PausedInvocation {
        invocation_id: id.into(),
        session_id: None,
        graph: graph.to_owned(),
        descriptor: SignalDescriptor::new(id),
        wake: WakePlan { due: Some(due), ..WakePlan::default() },
        suspended_at,
        ..ada
    };
    let write =
        InvocationWrite::Suspend { paused: Box::new(paused), from: SuspendFrom::Fresh, claim: None, early: Vec::new() };
    let growing = GrowingLists::default();
    let invocation = Some(write);
    let journal = Journal::default();
    let commit = Commit { id: id.to_owned(), now: suspended_at, session: None, invocation, journal, growing };
    store.commit(&commit).await.unwrap();
}

fn dormouse(data: &Path, arguments: &[&str]) -> (i32, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_dormouse")).args(arguments).arg("--data").arg(data).output();
    let Output { status, stdout, stderr } = ran.unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn json_of(data: &Path, arguments: &[&str]) -> (i32, Value) {
    let (code, out, err) = dormouse(data, arguments);
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("no JSON: {out}{err}")))
}

#[tokio::test]
async fn what_sleeps_is_listed_for_people_and_for_scripts() {
    let (_place, data) = folder(false).await;
    let (code, out, err) = dormouse(&data, &["pending"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("INVOCATION  GRAPH") && out.contains("ada         expense-approval"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours where there is no terminal");
    let (code, listed) = json_of(&data, &["pending", "--json"]);
    let command = listed["pending"][0]["answer_with"].as_str().expect("a command");
    assert!(command.starts_with("dormouse approve ada --data ") && command.ends_with(" --pause 1"), "{command}");
    let other = listed["pending"][0]["or_with"][0].as_str().expect("another command");
    assert!(other.starts_with("dormouse deny ada --data ") && out.contains(other), "{other}");
    assert!(out.contains(command) && dormouse(&data, &["show", "ada"]).1.contains(command), "{out}");
    assert!(out.ends_with("\nwho denies may say why: --reason 'not this month'\n"), "{out}");
    assert_eq!((code, &listed["next"]), (0, &Value::Null));
    assert_eq!(
        (&listed["pending"][0]["invocation_id"], &listed["pending"][0]["status"]),
        (&json!("ada"), &json!("asleep"))
    );
    assert_eq!(json_of(&data, &["pending", "--json", "--graph", "reminder"]).1["pending"], json!([]));
    assert_eq!(json_of(&data, &["pending", "--json", "--signal", "nothing"]).1["pending"], json!([]));
    assert_eq!(dormouse(&data, &["pending", "--graph", "reminder"]).1, "nothing sleeps here\n");
    let (code, out, _) = dormouse(&data, &["pending", "--graph", "remainder"]);
    assert!(code == 0 && out.contains("has no graph `remainder`") && out.contains("reminder"), "{out}");
    let (code, _, err) = dormouse(&data, &["pending", "--due-by", "tomorrow"]);
    assert!(code == 2 && err.contains("an instant is written as"), "{err}");
    let (code, _, err) = dormouse(&data, &["retry", "ada"]);
    assert!(code == 1 && err.contains("is not put aside") && !err.contains("suspension_record_invalid"), "{err}");
}

/// Before and behind a restored table the two documents are compared.
#[tokio::test]
async fn all_that_sleeps_can_be_had_in_one_document() {
    let (_place, data) = folder_with(async |store| {
        for id in ["bob", "eve"] {
            sleep_in(store, "expense-approval", id).await;
        }
    })
    .await;
    let count = |listed: &Value| listed["pending"].as_array().map(Vec::len);
    let (_, first) = json_of(&data, &["pending", "--json", "--limit", "1"]);
    assert!(count(&first) == Some(1) && first["next"].is_string(), "{first}");
    let (code, all) = json_of(&data, &["pending", "--json", "--limit", "1000000"]);
    assert_eq!((code, count(&all), &all["next"]), (0, Some(3), &Value::Null), "{all}");
}

#[tokio::test]
async fn help_shows_the_fields_of_what_is_printed_as_json() {
    let (_place, data) = folder(false).await;
    for arguments in [&["pending"][..], &["show", "ada"], &["doctor", "ada"], &["doctor"]] {
        let (code, printed) = json_of(&data, &[arguments, &["--json"]].concat());
        assert_eq!(code, 0, "{printed}");
        let (_, help, _) = dormouse(&data, &[arguments[0], "--help"]);
        let row = &printed["pending"][0];
        let fields = [&printed, row].into_iter().filter_map(Value::as_object).flat_map(|fields| fields.keys());
        for field in fields {
            assert!(help.contains(&format!("\"{field}\"")), "{arguments:?}: {field}: {help}");
        }
    }
}

#[tokio::test]
async fn one_invocation_is_shown_and_then_signalled() {
    let (_place, data) = folder(false).await;
    let (code, shown) = json_of(&data, &["show", "ada", "--json"]);
    assert_eq!((code, &shown["status"], &shown["state"]["employee"]), (0, &json!("asleep"), &json!("Ada")));
    assert_eq!(dormouse(&data, &["show", "nobody"]).0, 4);
    assert_eq!(dormouse(&data, &["signal", "--invocation", "nobody", "{}"]).0, 4);
    let (code, _, err) = dormouse(&data, &["signal", "--invocation", "ada", "[]"]);
    assert!(code == 1 && err.contains("the payload must be a JSON object"), "{err}");
    let answer = r#"{"decision":"approved","decided_by":"Grace"}"#;
    let (code, told) = json_of(&data, &["signal", "--invocation", "ada", answer, "--json"]);
    assert_eq!((code, &told["status"], &told["repeated"]), (0, &json!("completed"), &json!(false)));
    let (_, told) = json_of(&data, &["signal", "--invocation", "ada", answer, "--json"]);
    assert_eq!(told["repeated"], true);
    let (code, told) = json_of(&data, &["signal", "early", "{}", "--json"]);
    assert_eq!((code, &told["status"]), (0, &json!("parked")));
}

#[tokio::test]
async fn the_doctor_explains_repairs_and_tells_scripts() {
    let (_place, data) = folder(false).await;
    let (code, out, _) = dormouse(&data, &["doctor", "ada"]);
    assert!(code == 0 && out.contains("and waits for signal"), "{out}");
    assert_eq!(dormouse(&data, &["doctor", "nobody"]).0, 4);
    let (code, all) = json_of(&data, &["doctor", "--json"]);
    assert_eq!((code, &all["examined"], &all["in_trouble"]), (0, &json!(1), &json!(0)));

    let (_place, lost) = folder(true).await;
    let (code, report) = json_of(&lost, &["doctor", "ada", "--json"]);
    assert_eq!((code, &report["remarks"][0]["finding"]), (3, &json!("row_missing")));
    assert!(report["remarks"][0]["remedy"].is_string());
    let (code, out, _) = dormouse(&lost, &["doctor", "ada", "--repair"]);
    assert!(code == 0 && out.contains("done: the row was written again"), "{out}");
    assert_eq!(dormouse(&lost, &["doctor", "ada"]).0, 0);
}

#[tokio::test]
async fn an_invocation_is_canceled_once_and_for_good() {
    let (_place, data) = folder(false).await;
    assert_eq!(dormouse(&data, &["cancel", "nobody"]).0, 4);
    let (code, told) = json_of(&data, &["cancel", "ada", "--reason", "ordered twice", "--json"]);
    assert_eq!((code, &told["status"], &told["repeated"]), (0, &json!("canceled"), &json!(false)));
    let (code, again) = json_of(&data, &["cancel", "ada", "--reason", "another", "--json"]);
    assert_eq!((code, &again["reason"], &again["repeated"]), (0, &json!("ordered twice"), &json!(true)));
    assert_eq!(json_of(&data, &["show", "ada", "--json"]).1["status"], "canceled");
    assert_eq!(dormouse(&data, &["pending"]).1, "nothing sleeps here\n");
    let (code, told) = json_of(&data, &["cancel", "nobody", "--ahead", "--json"]);
    assert_eq!((code, &told["reason"]), (0, &Value::Null));
    let (code, out, _) = dormouse(&data, &["doctor", "nobody"]);
    assert!(code == 0 && out.contains("canceled"), "{out}");
}

#[tokio::test]
async fn a_finished_invocation_cannot_be_canceled() {
    let (_place, data) = folder(false).await;
    let answer = r#"{"decision":"approved","decided_by":"Grace"}"#;
    assert_eq!(dormouse(&data, &["signal", "--invocation", "ada", answer]).0, 0);
    let (code, _, err) = dormouse(&data, &["cancel", "ada"]);
    assert!(code == 1 && err.contains("has completed"), "{err}");
}

#[tokio::test]
async fn the_report_of_migrations_counts_by_graph_and_outcome() {
    let (_place, data) = folder(false).await;
    let (code, report) = json_of(&data, &["migrate", "--dry-run", "--json"]);
    let group =
        json!({ "graph": "expense-approval", "fate": "same", "reason": "", "count": 1, "invocations": ["ada"] });
    assert_eq!((code, report), (0, json!({ "examined": 1, "stay": 0, "groups": [group], "next": null })));
    let (code, out, _) = dormouse(&data, &["migrate", "--dry-run"]);
    assert_eq!((code, out.lines().last()), (0, Some("1 examined, 0 would stay asleep")));
    let (code, _, err) = dormouse(&data, &["migrate"]);
    assert!(code == 2 && err.contains("each pause is migrated when it is resumed"), "{err}");

    let (_place, strange) = folder_with(async |store| sleep_in(store, "gone", "hermit").await).await;
    let (code, report) = json_of(&strange, &["migrate", "--dry-run", "--json"]);
    assert_eq!((code, &report["examined"], &report["stay"]), (3, &json!(2), &json!(1)));
    let fates: Vec<_> = report["groups"].as_array().unwrap().iter().map(|group| &group["fate"]).collect();
    assert_eq!(fates, ["same", "graph_unknown"]);
    let (code, out, _) = dormouse(&strange, &["migrate", "--dry-run"]);
    assert!(code == 3 && out.contains("! gone: 1 sleep on until a worker has the graph"), "{out}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (code, _, err) = dormouse(&place.path().join("missing"), &["pending"]);
    assert!(code == 1 && err.contains("there is no data folder") && err.contains("`dormouse dev` makes"), "{err}");
    for arguments in [&["pending", "--limit", "0"][..], &["signal"], &["show"], &["pending", "--endpoint-url", "x"]] {
        assert_eq!(dormouse(place.path(), arguments).0, 2, "{arguments:?}");
    }
}

/// A running `dormouse dev`, killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_commands_work_beside_a_running_process() {
    let (_place, data) = folder(false).await;
    let mut dev = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    dev.args(["dev", "--no-tour", "--port", "0", "--data"]).arg(&data).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Running(dev.spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("console: http://127.0.0.1:"));
    assert!(lines.next().unwrap().unwrap().starts_with("dormouse is ready"));
    let (code, listed) = json_of(&data, &["pending", "--json"]);
    assert_eq!((code, &listed["pending"][0]["invocation_id"]), (0, &json!("ada")));
    let answer = r#"{"decision":"approved","decided_by":"Grace"}"#;
    assert_eq!(json_of(&data, &["signal", "--invocation", "ada", answer, "--json"]).1["status"], "completed");
    let (code, report) = json_of(&data, &["doctor", "ada", "--json"]);
    assert_eq!((code, &report["remarks"][0]["finding"]), (0, &json!("completed")));
}

#[tokio::test]
async fn a_wake_up_counts_as_registered_only_where_it_was() {
    let (_place, data) = folder_with(async |store| sleep_in(store, "expense-approval", "late").await).await;
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Folder(data.clone())).await.unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let routes = embedded.door("knock-knock").at("/");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    for _ in 0..2 {
        // A table is served by others: nothing can be registered from here, and nothing is noted as registered.
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        doctor.args(["doctor", "late", "--repair", "--json", "--table", "dormouse"]);
        doctor.args(["--endpoint-url", &endpoint]).env("AWS_REGION", "local");
        doctor.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
        doctor.env("AWS_SESSION_TOKEN", "knock-knock");
        let ran = tokio::task::spawn_blocking(move || doctor.output()).await.unwrap().unwrap();
        let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let remark = &report["remarks"][0];
        assert_eq!((ran.status.code(), &remark["finding"]), (Some(3), &json!("unregistered")), "{report}");
        assert!(remark["not_repaired"].as_str().unwrap().contains("the next sweep"), "{remark}");
    }
    embedded.stop().await.unwrap();
    assert_eq!(dormouse(&data, &["doctor", "late", "--repair"]).0, 0);
    assert_eq!(json_of(&data, &["doctor", "late", "--json"]).0, 0);
}
