//! What is wrong with receipts and what cannot be replayed, told by the real binary over its command line and over REST: each
//! has one verdict or one refusal, and nothing is written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use dormouse_protocol::resource::TaskStatus;
use dormouse_receipts::{Map, PublicKey, ReceiptDraft, SigningKey, canonical, example};
use serde_json::{Value, json};

use crate::assistant::world::Wire;
use crate::process::{Dormouse, program, text};
use crate::receipts::{done, run};

/// What a file of receipts has, how it is verified, with which code the command ends, and what it finds.
type Case = (&'static str, String, Vec<String>, i32, Vec<&'static str>);

fn ours() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

/// Receipts of one session, in each of which is a number and a name outside of ASCII.
fn chain(key: &SigningKey) -> Vec<String> {
    let mut before = None;
    let sealed = (1..=3).map(|number| {
        let mut body = example(&format!("receipt_{number}"));
        body.insert("metadata".to_owned(), json!({ "name": "caf\u{e9}", "number": 1500 }));
        let sealed = ReceiptDraft::new(body).seal(before.as_deref(), key).expect("a receipt");
        before = Some(sealed.hash);
        sealed.text
    });
    sealed.collect()
}

fn edited(line: &str, edit: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(line).expect("JSON");
    edit(&mut value);
    value.to_string()
}

fn file(lines: &[&str]) -> String {
    lines.join("\n")
}

/// One for each sentence about bad input: files, and what is found.
fn cases() -> Vec<Case> {
    let chain = chain(&ours());
    let [a, b, c] = [0, 1, 2].map(|at| chain[at].as_str());
    let key = ours().public();
    let anchor = |key: &PublicKey| vec!["--anchor".to_owned(), key.text()];
    let trusted = anchor(&key);
    let with_keys = |edit: &dyn Fn(&mut PublicKey)| {
        let mut key = key.clone();
        edit(&mut key);
        format!(
            "{}\n{}",
            dormouse_receipts::Export::line_of_keys(&dormouse_receipts::Keys::from([key])),
            file(&[a, b, c])
        )
    };
    let revoked = with_keys(&|key| key.revoked_at = "2026-06-01T00:00:00Z".parse().ok());
    let at = |time: &str| vec!["--at".to_owned(), time.to_owned()];
    let reordered = edited(b, |value| {
        let fields: Map = value.as_object().expect("an object").clone().into_iter().rev().collect();
        *value = Value::Object(fields);
    });
    let zeros = format!("sha256:{}", "0".repeat(64));
    let pretty = serde_json::to_string_pretty(&serde_json::from_str::<Value>(a).expect("JSON")).expect("JSON");
    let large = edited(b, |value| value["metadata"]["name"] = "x".repeat(20 << 20).into());
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name, file: String, arguments: &[String], code, found: &[&'static str]| {
        cases.push((name, file, arguments.to_vec(), code, found.to_vec()));
    };
    add("as they are", file(&[a, b, c]), &trusted, 0, &[]);
    add(
        "one byte changed",
        file(&[a, &b.replace("SUCCEEDED", "SUCCEEDEd"), c]),
        &trusted,
        3,
        &["2 wrong_field", "3 previous_missing"],
    );
    add("another byte changed", file(&[a, &b.replace("1500", "1501"), c]), &trusted, 3, &["2 hash_mismatch"]);
    add("keys reordered", file(&[a, &reordered, c]), &trusted, 0, &[]);
    add("numbers written otherwise", file(&[a, &b.replace("1500", "1.5e3"), c]), &trusted, 0, &[]);
    add("unicode normalised", file(&[a, &b.replace('\u{e9}', "e\u{301}"), c]), &trusted, 3, &["2 hash_mismatch"]);
    add("unicode escaped", file(&[a, &b.replace('\u{e9}', "\\u00e9"), c]), &trusted, 0, &[]);
    let unknown = edited(b, |value| value["verdict"] = "good".into());
    add("an unknown field", file(&[a, &unknown, c]), &trusted, 3, &["2 unknown_field", "3 previous_missing"]);
    let wrong_previous = edited(b, |value| value["chain"]["previous_receipt_hash"] = json!(zeros));
    let found = ["2 hash_mismatch", "2 previous_missing"];
    add("a wrong previous hash", file(&[a, &wrong_previous, c]), &trusted, 3, &found);
    add("a removed middle", file(&[a, c]), &trusted, 3, &["2 previous_missing"]);
    add("a swapped pair", file(&[b, a, c]), &trusted, 3, &["1 out_of_order", "2 out_of_order", "3 out_of_order"]);
    let theirs = SigningKey::from_seed([8; 32]).public();
    let found = ["1 unknown_key", "2 unknown_key", "3 unknown_key"];
    add("a key that is not ours", file(&[a, b, c]), &anchor(&theirs), 3, &found);
    add("revoked, before", revoked.clone(), &at("2026-05-31T23:59:59Z"), 0, &[]);
    let found = ["1 key_revoked", "2 key_revoked", "3 key_revoked"];
    add("revoked, after", revoked.clone(), &at("2026-06-01T00:00:00Z"), 3, &found);
    add("20 MB", file(&[a, &large, c]), &trusted, 3, &["2 too_large", "3 previous_missing"]);
    add("20 MB alone", large, &trusted, 3, &["1 too_large"]);
    let head = |session: &str| [trusted.clone(), vec!["--head".to_owned(), format!("{session}={zeros}")]].concat();
    add("another end", file(&[a, b, c]), &head("session_1"), 3, &["1 other_head"]);
    add("a whole chain missing", file(&[a, b, c]), &head("session_2"), 3, &[]);
    add("more than a file may have", " ".repeat((64 << 20) + 1), &trusted, 1, &[]);
    add("over several lines", pretty.clone(), &trusted, 0, &[]);
    let twice = pretty.replacen("\"schema\"", "\"receipt_id\": \"x\",\n  \"schema\"", 1);
    add("over several lines, and a field twice", twice, &trusted, 3, &["1 malformed"]);
    add("cut off", file(&[a, &b[..b.len() / 2]]), &trusted, 3, &["2 malformed"]);
    add("nothing", String::new(), &trusted, 1, &[]);
    cases
}

/// All files below `folder`, and what they hold.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.map(|path| (path.display().to_string(), fs::read(&path).expect("a file"))).collect()
}

#[test]
fn each_flaw_of_a_file_is_told_by_its_name_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts.jsonl");
    for (name, lines, arguments, code, expected) in cases() {
        fs::write(&place, &lines).expect("a file");
        let before = content(folder.path());
        let mut command = program();
        command.current_dir(folder.path()).args(["receipts", "verify", "receipts.jsonl", "--json"]).args(&arguments);
        let ran = command.output().expect("it runs");
        assert_eq!(ran.status.code(), Some(code), "{name}: {ran:?}");
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let findings = found["files"][0]["findings"].as_array().cloned().unwrap_or_default();
        let told: Vec<String> =
            findings.iter().map(|one| format!("{} {}", one["receipt"], text(one, "code"))).collect();
        assert_eq!(told, expected, "{name}");
        assert!(findings.iter().all(|one| !text(one, "reason").is_empty()), "{name}: {findings:?}");
        // What is no file of receipts is an error in one sentence.
        assert_eq!(code == 1, !ran.stderr.is_empty() && ran.stdout.is_empty(), "{name}: {ran:?}");
        assert!(before == content(folder.path()), "{name}: nothing is written");
    }
}

/// Whoever forges a file chooses its ids, and what a terminal obeys must not show another verdict.
#[test]
fn a_forged_file_says_nothing_to_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("receipts.jsonl");
    let screen = "x\u{1b}[2J\u{1b}[H\rreceipts.jsonl: 1 receipts, valid\n\u{9b}8m\u{202e}";
    let forged = edited(&chain(&ours())[0], |value| {
        value["receipt_id"] = screen.into();
        value["identifiers"]["session_id"] = screen.into();
        value["signatures"][0]["key_id"] = screen.into();
    });
    fs::write(&place, forged).expect("a file");
    let is_obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    let verified = |more: &[&str]| {
        let mut command = program();
        let command = command.current_dir(folder.path()).args(["receipts", "verify", "receipts.jsonl"]).args(more);
        let ran = command.output().expect("it runs");
        assert_eq!(ran.status.code(), Some(3), "{ran:?}");
        let shown = String::from_utf8(ran.stdout).expect("text");
        assert!(!shown.contains(is_obeyed) && !shown.contains("\nreceipts.jsonl"), "{shown:?}");
        shown
    };
    let shown = verified(&[]);
    assert!(shown.starts_with("receipts.jsonl: 1 receipts, NOT VALID\n"), "{shown}");
    assert!(shown.contains(r"x\u{1b}[2J"), "{shown}");
    let told: Value = serde_json::from_str(&verified(&["--json"])).expect("JSON");
    assert_eq!(told["files"][0]["findings"][0]["receipt_id"], screen, "it means the same: {told}");
}

async fn sent(dormouse: &Dormouse, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let client = dormouse_tests::client();
    let request = match method {
        "GET" => client.get(dormouse.url(path)),
        _ => client.post(dormouse.url(path)).json(body),
    };
    let version = dormouse_protocol::request::VERSION_HEADER;
    let request = request.bearer_auth(dormouse.api_key()).header(version, dormouse_protocol::PROTOCOL_VERSION);
    let response = request.send().await.expect("an answer");
    (response.status().as_u16(), response.json().await.unwrap_or_default())
}

/// The ids of the tasks and of the events of the session.
async fn written(dormouse: &Dormouse, session: &str) -> String {
    let (_, tasks) = sent(dormouse, "GET", &format!("/v1/sessions/{session}/tasks?limit=200"), &Value::Null).await;
    let (_, events) = sent(dormouse, "GET", &format!("/v1/sessions/{session}/events?limit=200"), &Value::Null).await;
    format!("{tasks} {events}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_replayed_or_verified_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start(folder.path());
    let task = done(&dormouse, "Hello");
    let (id, session, receipt) = (text(&task, "id"), text(&task, "session_id"), text(&task, "receipt_id"));
    let input = json!({ "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" });
    let asked = json!({ "persona_id": "persona_expense-approval", "input": input });
    let (_, running) = sent(&dormouse, "POST", &format!("/v1/sessions/{session}/tasks"), &asked).await;
    let running = text(&running, "id");
    // It is asleep, so that what is written changes no more by itself.
    Wire::of(&dormouse).task(running, &[TaskStatus::AuthRequired]).await;
    let told = async |path: &str, body: Value, expected: (u16, &str, Option<&str>)| {
        let before = written(&dormouse, session).await;
        let (status, refusal) = sent(&dormouse, "POST", path, &body).await;
        let error = &refusal["error"];
        assert_eq!((status, text(error, "code"), error["param"].as_str()), expected, "{path} {body}: {refusal}");
        assert!(!text(error, "message").is_empty(), "{refusal}");
        assert_eq!(before, written(&dormouse, session).await, "{path} {body}");
    };
    let replay = format!("/v1/tasks/{id}/replay");
    let with = |key: &str, given: Value| json!({ "mode": "with_overrides", "override": { key: given } });
    told(&format!("/v1/tasks/{running}/replay"), json!({}), (400, "invalid_state_transition", None)).await;
    told("/v1/tasks/task_nobody/replay", json!({}), (404, "resource_not_found", None)).await;
    let nothing = with("llm:main:7", json!({ "kind": "llm_provider_response", "value": "x" }));
    told(&replay, nothing, (400, "invalid_request", Some("override.llm:main:7"))).await;
    let hash = canonical::sha256(b"another value");
    let wrong = with("time:started_at", json!({ "kind": "time", "value": "2026-04-25T19:16:14Z", "sha256": hash }));
    told(&replay, wrong, (400, "invalid_request", Some("override.time:started_at.sha256"))).await;
    let verify = format!("/v1/receipts/{receipt}/verify");
    told("/v1/receipts/receipt_nobody/verify", json!({}), (404, "resource_not_found", None)).await;
    told(&verify, json!({ "trust_anchor": "no key" }), (400, "invalid_request", Some("trust_anchor"))).await;

    // The command line says the same, and ends with a code of its own.
    let place = folder.path().join("given.json");
    fs::write(&place, "\"x\"").expect("a file");
    let given = format!("llm:main:7={}", place.display());
    let before = written(&dormouse, session).await;
    for (arguments, code, said) in [
        (vec!["replay", running], 1, "has not ended yet"),
        (vec!["replay", "task_nobody"], 4, "there is no such task"),
        (vec!["replay", id, "--override", given.as_str()], 1, "recorded nothing of that name"),
        (vec!["replay", id, "--override", "llm:main:1=missing.json"], 1, "missing.json"),
        (vec!["replay", id, "--override", "model:1=given.json"], 2, "a key begins with"),
        (vec!["receipts", "export", "--session", "session_nobody"], 4, "there is no such session"),
    ] {
        let ran = dormouse.command(&arguments).stderr(Stdio::piped()).output().expect("it runs");
        let words = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {words}");
        assert!(words.contains(said), "{arguments:?}: {words}");
    }
    assert_eq!(before, written(&dormouse, session).await);

    // A verdict is 200, and is told in the session.
    let foreign = SigningKey::from_seed([8; 32]).public().text();
    let (status, verdict) = sent(&dormouse, "POST", &verify, &json!({ "trust_anchor": foreign })).await;
    assert_eq!((status, &verdict["valid"], &verdict["details"]["code"]), (200, &json!(false), &json!("unknown_key")));
    let first = key_of(&dormouse).await;
    assert_eq!(run(&dormouse, &["receipts", "rotate"]).status.code(), Some(0));
    assert_eq!(run(&dormouse, &["receipts", "revoke", &first]).status.code(), Some(0));
    let dormouse = dormouse.kill_and_restart();
    let issued = text(&task, "completed_at");
    for (body, valid, code) in [
        (json!({ "at_time": issued }), true, Value::Null),
        (json!({}), false, json!("key_revoked")),
        (json!({ "at_time": "2099-01-01T00:00:00Z" }), false, json!("key_revoked")),
    ] {
        let (status, verdict) = sent(&dormouse, "POST", &verify, &body).await;
        assert_eq!((status, &verdict["valid"], &verdict["details"]["code"]), (200, &json!(valid), &code), "{body}");
    }
}

/// A closed session takes no replay, and is no reason to tell nothing of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_goes_on_behind_what_takes_no_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start(folder.path());
    let open = done(&dormouse, "Hello");
    let closed = done(&dormouse, "Hello again");
    let session = text(&closed, "session_id");
    let (status, answer) = sent(&dormouse, "POST", &format!("/v1/sessions/{session}/close"), &json!({})).await;
    assert_eq!(status, 200, "{answer}");

    let report = run(&dormouse, &["replay", "--since", "1h", "--report"]);
    let printed = String::from_utf8_lossy(&report.stdout);
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    assert!(printed.contains("1 replayed: 1 end as they did, 0 differently"), "{printed}");
    assert!(printed.contains("; 1 left out"), "{printed}");
    assert!(printed.contains(&format!("{} is left out: the session is closed", text(&closed, "id"))), "{printed}");

    let verdicts = run(&dormouse, &["replay", "--since", "1h", "--json"]).stdout;
    let verdicts = String::from_utf8(verdicts).expect("text");
    let verdicts = verdicts.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let equal: BTreeMap<String, Value> =
        verdicts.map(|one| (text(&one, "task_id").to_owned(), one["equal"].clone())).collect();
    assert_eq!(equal[text(&open, "id")], true);
    assert_eq!(equal[text(&closed, "id")], Value::Null);

    // Whoever names the session is told that it takes none.
    assert_eq!(run(&dormouse, &["replay", "--session", session]).status.code(), Some(1));
}

/// The id of the key that signs.
async fn key_of(dormouse: &Dormouse) -> String {
    let (_, keys) = sent(dormouse, "GET", "/v1/keys", &Value::Null).await;
    text(&keys["data"][0], "id").to_owned()
}
