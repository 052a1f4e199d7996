//! The metrics of the template are counted from the log: the patterns against lines that the functions wrote.

use std::fs::File;
use std::process::Child;
use std::time::Duration;

use dormouse_aws::ensure_table;
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_tests::lambda::{self, RuntimeApi, http_event};
use dormouse_tests::open_door;
use serde_json::{Value, json};

use crate::template::Template;

/// The events that are delivered here: turns, one of them refused, a message, sweeps, and a callback with its repetition.
const EVENTS: usize = 7;
/// The most bytes that a function logs for an event, on average: the guide of costs counts 700, and numbers have more
/// digits on a slow machine. Lambda adds three lines of its own.
const MOST_LOG: usize = 800;

/// A function that writes its log into a file.
struct Logging {
    api: RuntimeApi,
    process: Child,
}

impl Logging {
    async fn start(name: &str, store: &str, log: &File) -> Self {
        Self::with(name, store, log, &[]).await
    }

    /// The same with these variables beside the others.
    async fn with(name: &str, store: &str, log: &File, variables: &[(&str, &str)]) -> Self {
        let api = RuntimeApi::start(Duration::from_secs(30)).await;
        let mut command = api.function(&lambda::function_binary(name), store);
        command.envs(variables.iter().copied());
        let process = command.env("DORMOUSE_LOG", "info").stdout(log.try_clone().unwrap()).spawn().unwrap();
        Self { api, process }
    }

    async fn post(&self, address: &str, body: &Value) -> Value {
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        let answer = self.api.deliver(http_event("POST", path, query, body)).await.unwrap();
        serde_json::from_str(answer["body"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_count_the_lines_that_the_functions_write() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    ensure_table(&store.client(), "dormouse").await.unwrap();
    let endpoint = open_door(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = File::options().create(true).append(true).open(&path).unwrap();

    let inbound = Logging::start("dormouse-inbound", &endpoint, &log).await;
    let petty = json!({ "state": { "employee": "Ada", "amount_cents": 100 } });
    assert_eq!(inbound.post("/graphs/expense-approval/turns", &petty).await["status"], "completed");
    let nothing = json!({ "state": { "employee": "Ada" } });
    let refused = inbound.post("/graphs/expense-approval/turns", &nothing).await;
    assert_eq!(refused["error"]["category"], "request_invalid", "{refused}");
    let asks = json!({ "role": "user", "content": "please get an approval" });
    let asleep = inbound.post("/chat/chat/sessions/s1/messages", &asks).await;
    assert_eq!(asleep["status"], "suspended");
    let wakeup = Logging::start("dormouse-wakeup", &endpoint, &log).await;
    for scope in ["due", "everything"] {
        wakeup.api.deliver(json!({ "dormouse_sweep": scope })).await.unwrap();
    }
    let signal = Logging::start("dormouse-signal", &endpoint, &log).await;
    for _ in 0..2 {
        let address = asleep["callback_url"].as_str().unwrap();
        assert_eq!(signal.post(address, &json!({ "allowed": true })).await["status"], "completed");
    }
    drop((inbound, wakeup, signal));

    let text = std::fs::read_to_string(&path).unwrap();
    let each = text.len() / EVENTS;
    println!("{each} bytes of log for each of {EVENTS} events");
    assert!(each < MOST_LOG, "{each} bytes of log for each event, and {MOST_LOG} are the most\n{text}");
    counts_as(
        &text,
        &[
            ("TurnsMetric", 5),
            ("SuspendsMetric", 1),
            ("ResumesMetric", 1),
            ("ErrorsMetric", 1),
            ("TerminatedMetric", 0),
            ("SweepsMetric", 1),
            ("LatestWakeupMetric", 2),
            ("OldestPauseMetric", 1),
            ("ExpiredClaimsMetric", 1),
            ("NotBegunMetric", 1),
            ("OrphanTimersMetric", 1),
            ("SweepFailuresMetric", 1),
            ("UnclaimedSignalsMetric", 1),
        ],
    );
}

/// An alarm rings for what only a person can repair: here a graph that runs further than the deployment lets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_only_a_person_can_repair_is_counted_as_one() {
    lambda::build_functions().await;
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    ensure_table(&store.client(), "dormouse").await.unwrap();
    let endpoint = open_door(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = File::options().create(true).append(true).open(&path).unwrap();
    let inbound = Logging::with("dormouse-inbound", &endpoint, &log, &[("DORMOUSE_LIMIT_NODES", "1")]).await;
    // The first node sees that it is much, and the next one would ask.
    let large = json!({ "state": { "employee": "Ada", "amount_cents": 120_000, "purpose": "a lathe" } });
    let ended = inbound.post("/graphs/expense-approval/turns", &large).await;
    assert_eq!(ended["error"]["category"], "limit_exceeded", "{ended}");
    drop(inbound);
    let text = std::fs::read_to_string(&path).unwrap();
    counts_as(&text, &[("TurnsMetric", 1), ("ErrorsMetric", 1), ("TerminatedMetric", 1), ("SuspendsMetric", 0)]);
}

/// Checks how many lines of `log` each of these metrics counts, and that they have what it wants of them.
fn counts_as(log: &str, expected: &[(&str, usize)]) {
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let template = Template::read();
    for (name, count) in expected {
        let properties = &template.resource(name)["Properties"];
        let pattern = properties["FilterPattern"].as_str().unwrap();
        let found: Vec<&Value> = lines.iter().filter(|line| matches(pattern, line)).collect();
        let transformation = &properties["MetricTransformations"][0];
        for line in &found {
            // A value or dimension that the line does not have would count nothing.
            let dimensions = transformation["Dimensions"].as_array().into_iter().flatten();
            for wanted in dimensions.map(|one| &one["Value"]).chain([&transformation["MetricValue"]]) {
                let wanted = wanted.as_str().unwrap();
                assert!(wanted == "1" || !field(line, wanted).is_null(), "{name} wants {wanted} of {line}");
            }
        }
        assert_eq!(found.len(), *count, "{name} of:\n{log}");
    }
}

/// Who is on call is woken by what only a person can repair, and not by a deadline that was to end its pause.
#[test]
fn what_only_a_person_can_repair_is_counted_and_what_was_ordered_is_not() {
    let template = Template::read();
    let pattern = template.resource("TerminatedMetric")["Properties"]["FilterPattern"].as_str().unwrap();
    let turn = |category: &str, bucket: &str| json!({ "outcome": "errored", "category": category, "bucket": bucket });
    let message = json!({ "message": "the message failed", "outcome": "errored", "category": "session_load_failed",
        "bucket": "session_terminating" });
    let aside = "put aside: 8 workers in a row died of it or never came to an end";
    for (line, is_counted) in [
        (turn("limit_exceeded", "session_terminating"), true),
        (turn("suspension_timed_out", "session_terminating"), false),
        (turn("provider_unavailable", "retryable_transient"), false),
        (message, true),
        (json!({ "message": aside, "level": "ERROR", "invocation_id": "i", "graph": "g", "attempts": 8 }), true),
        (json!({ "message": "the turn found its pause over", "outcome": "stale", "invocation_id": "i" }), false),
    ] {
        assert_eq!(matches(pattern, &line), is_counted, "{line}");
    }
}

fn field<'a>(line: &'a Value, path: &str) -> &'a Value {
    &line[path.strip_prefix("$.").expect("a path")]
}

/// Whether `line` matches `{ pattern }`, of the patterns that the template uses.
fn matches(pattern: &str, line: &Value) -> bool {
    let inner = pattern.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("braces");
    holds(inner.trim(), line)
}

fn holds(text: &str, line: &Value) -> bool {
    if let Some((left, right)) = split(text, "||") {
        return holds(left, line) || holds(right, line);
    }
    if let Some((left, right)) = split(text, "&&") {
        return holds(left, line) && holds(right, line);
    }
    if let Some(inner) = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return holds(inner.trim(), line);
    }
    if let Some(path) = text.strip_suffix(" NOT EXISTS") {
        return field(line, path).is_null();
    }
    if let Some(path) = text.strip_suffix(" IS FALSE") {
        return *field(line, path) == false;
    }
    if let Some((path, unwanted)) = text.split_once(" != ") {
        return field(line, path).as_str().is_some_and(|found| found != unwanted.trim_matches('"'));
    }
    let (path, wanted) = text.split_once(" = ").unwrap_or_else(|| panic!("{text} is not understood"));
    let wanted = wanted.trim_matches('"');
    match wanted.strip_suffix('*') {
        Some(beginning) => field(line, path).as_str().is_some_and(|found| found.starts_with(beginning)),
        None => field(line, path) == wanted,
    }
}

/// `text` around the first `operator` outside of parentheses.
fn split<'a>(text: &'a str, operator: &str) -> Option<(&'a str, &'a str)> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && text[at..].starts_with(operator) => {
                return Some((text[..at].trim(), text[at + operator.len()..].trim()));
            }
            _ => {}
        }
    }
    None
}
