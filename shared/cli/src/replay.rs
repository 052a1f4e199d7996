//! Replays of tasks: one, with or without replacements, or many, with a report.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dormouse_api::PASSING_FIELDS;
use dormouse_http::percent::encode;
use dormouse_protocol::EventKind;
use dormouse_receipts::canonical;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde_json::{Map, Value, json};

use crate::talk::{Client, ServerArgs, TalkError};
use crate::terminal::{self, plain};

/// Differences that are shown.
const MOST_SHOWN: usize = 20;
/// The metadata of a task that is a replay.
const REPLAY: &str = "dormouse.replay";

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The task.
    #[arg(value_name = "TASK_ID", required_unless_present_any = ["since", "session"])]
    task: Option<String>,
    /// Uses the content of FILE, JSON or text, in the place of what was recorded under KEY: `llm:main:2`, `tool:CALL_ID`,
    /// `event:EVENT_ID`, `time:started_at`.
    #[arg(long = "override", value_name = "KEY=FILE", value_parser = replacement, requires = "task")]
    replace: Vec<(String, PathBuf)>,
    /// Begins behind this event of the task: what lies before it is taken as it was, and not repeated.
    #[arg(long, value_name = "EVENT_ID", requires = "task")]
    from: Option<String>,
    /// Shows where the two runs part.
    #[arg(long, requires = "task")]
    diff: bool,
    /// Replays all tasks of the session, in order. The protocol has no such operation: it is one replay after the other.
    #[arg(long, value_name = "SESSION_ID", conflicts_with_all = ["task", "since"])]
    session: Option<String>,
    /// Replays all tasks that were begun since then, the newest first: an instant, or how long ago (`24h`, `7d`).
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with = "task")]
    since: Option<Timestamp>,
    /// Names only those that do not end as they did, and says how many there are.
    #[arg(long, conflicts_with = "task")]
    report: bool,
    /// Print one JSON object in each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

fn replacement(text: &str) -> Result<(String, PathBuf), String> {
    let (key, file) = text.split_once('=').ok_or("write it as KEY=FILE")?;
    kind_of(key)
        .map(|_| (key.to_owned(), file.into()))
        .ok_or_else(|| "a key begins with `llm:`, `tool:`, `mcp:`, `event:`, `time:`, `secret:` or `host:`".to_owned())
}

fn instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let span: Span = text.parse().map_err(|_| "give an instant, or how long ago: `24h`, `7d`".to_owned())?;
    let ago = Timestamp::now().to_zoned(TimeZone::UTC).checked_sub(span);
    ago.map(|at| at.timestamp()).map_err(|error| error.to_string())
}

/// Kind of thing that the key names.
fn kind_of(key: &str) -> Option<&'static str> {
    let (word, _) = key.split_once(':')?;
    match word {
        "llm" => Some("llm_provider_response"),
        "tool" => Some("tool_result"),
        "mcp" => Some("mcp_tool_return"),
        "event" => Some("event_payload"),
        "time" => Some("time"),
        "secret" => Some("secret_value"),
        "host" => Some("host_fact"),
        _ => None,
    }
}

/// Reason for which a command failed. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error("{}: {error}", .place.display())]
    File { place: PathBuf, error: io::Error },
    #[error("{}: the value has no canonical form: {reason}", .place.display())]
    Value { place: PathBuf, reason: String },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ReplayError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Talk(error) => error.exit_code(),
            Self::File { .. } | Self::Value { .. } | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Replays; false where a run ended differently, or could not be replayed.
pub(crate) async fn replay(asked: ReplayArgs) -> Result<bool, ReplayError> {
    let client = Client::open(&asked.server)?;
    match &asked.task {
        Some(task) => one(&client, task, &asked).await,
        None => many(&client, &asked).await,
    }
}

async fn one(client: &Client, task: &str, asked: &ReplayArgs) -> Result<bool, ReplayError> {
    let mut replaced = Map::new();
    for (key, place) in &asked.replace {
        replaced.insert(key.clone(), given(key, place)?);
    }
    let mut request = json!({ "mode": if replaced.is_empty() { "exact" } else { "with_overrides" } });
    if let Some(from) = &asked.from {
        request["mode"] = "from_checkpoint".into();
        request["checkpoint_event_id"] = from.as_str().into();
    }
    if !replaced.is_empty() {
        request["override"] = Value::Object(replaced);
    }
    let original: Value = client.read(&format!("/v1/tasks/{}", encode(task))).await?;
    let replay: Value = client.write(&format!("/v1/tasks/{}/replay", encode(task)), &request).await?;
    let mut verdict = ReplayVerdict::of(&original, &replay);
    // On what was recorded alone the server finds every difference. What was replaced may lead to the same status only.
    if !asked.replace.is_empty() && verdict.is_equal() {
        verdict.compare(&came_to(client, &original).await?, &came_to(client, &replay).await?);
    }
    let mut out = io::stdout().lock();
    if asked.json {
        writeln!(out, "{}", terminal::json(&replay, false))?;
    } else {
        verdict.print(&mut out)?;
    }
    if asked.diff {
        let events = [&original, &replay].map(|task| task["id"].as_str().unwrap_or_default().to_owned());
        let [before, now] = events;
        let (before, now) = (recorded(client, &before).await?, recorded(client, &now).await?);
        diff(&mut out, &before, &now, asked.json)?;
    }
    Ok(verdict.is_equal())
}

/// The replacement in the file `place`.
fn given(key: &str, place: &PathBuf) -> Result<Value, ReplayError> {
    let text = fs::read_to_string(place).map_err(|error| ReplayError::File { place: place.clone(), error })?;
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| text.trim_end().into());
    let hash = canonical::digest(&value)
        .map_err(|flaw| ReplayError::Value { place: place.clone(), reason: flaw.to_string() })?;
    Ok(json!({ "kind": kind_of(key), "value": value, "sha256": hash }))
}

async fn many(client: &Client, asked: &ReplayArgs) -> Result<bool, ReplayError> {
    let path = match &asked.session {
        Some(session) => format!("/v1/sessions/{}/tasks", encode(session)),
        None => "/v1/tasks".to_owned(),
    };
    let mut tasks = tasks_since(client, &path, asked.since).await?;
    if asked.session.is_some() {
        tasks.reverse();
    }
    let mut counts = Counts::default();
    let mut out = io::stdout().lock();
    for task in &tasks {
        let path = format!("/v1/tasks/{}/replay", task["id"].as_str().unwrap_or_default());
        let replay: Value = match client.write(&path, &json!({ "mode": "exact" })).await {
            Ok(replay) => replay,
            // Its session is closed, for example: that is no reason to tell nothing of the others.
            Err(TalkError::Refused { status: 404 | 409 | 422, message, .. }) if asked.session.is_none() => {
                counts.left_out += 1;
                left_out(&mut out, task, &message, asked.json)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let verdict = ReplayVerdict::of(task, &replay);
        counts.add(&verdict);
        match (asked.json, asked.report && verdict.is_equal()) {
            (true, _) => writeln!(out, "{}", terminal::json(&verdict.json(), false))?,
            (false, true) => {}
            (false, false) => verdict.print(&mut out)?,
        }
    }
    if !asked.json {
        let Counts { equal, differ, lack, left_out } = counts;
        let replayed = equal + differ + lack;
        write!(out, "{replayed} replayed: {equal} end as they did, {differ} differently, {lack} are not recorded")?;
        let more = if left_out == 0 { String::new() } else { format!("; {left_out} left out") };
        writeln!(out, "{more}")?;
    }
    Ok(counts.differ + counts.lack == 0)
}

/// Tells of `task` that it was not replayed.
fn left_out(out: &mut impl Write, task: &Value, message: &str, json: bool) -> io::Result<()> {
    let id = task["id"].as_str().unwrap_or_default();
    if json {
        let told = json!({
            "task_id": id, "replay_task_id": null, "status": null, "equal": null, "recorded": null, "message": message
        });
        return writeln!(out, "{}", terminal::json(&told, false));
    }
    writeln!(out, "{}", plain(&format!("{id} is left out: {message}")))
}

/// The tasks that have ended and are no replays, the newest first.
async fn tasks_since(client: &Client, path: &str, since: Option<Timestamp>) -> Result<Vec<Value>, ReplayError> {
    let mut found = Vec::new();
    let mut pages = client.pages(path, "cursor");
    while let Some(page) = pages.next().await? {
        for task in page {
            let created = task["created_at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
            if since.is_some_and(|since| created.is_some_and(|created| created < since)) {
                return Ok(found);
            }
            let has_ended = matches!(task["status"].as_str(), Some("COMPLETED" | "FAILED" | "CANCELED"));
            if has_ended && task["metadata"].get(REPLAY).is_none() {
                found.push(task);
            }
        }
    }
    Ok(found)
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    equal: usize,
    differ: usize,
    lack: usize,
    left_out: usize,
}

impl Counts {
    fn add(&mut self, verdict: &ReplayVerdict) {
        match verdict.what {
            What::Equal => self.equal += 1,
            What::Differs => self.differ += 1,
            What::Lacks => self.lack += 1,
        }
    }
}

/// Result of a replay beside its original.
#[derive(Debug)]
struct ReplayVerdict {
    task: String,
    replay: String,
    ended: String,
    what: What,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Equal,
    Differs,
    Lacks,
}

impl ReplayVerdict {
    fn of(original: &Value, replay: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let what = match replay["failure"]["code"].as_str() {
            Some("replay_material_unavailable") => What::Lacks,
            Some("replay_diverged") => What::Differs,
            Some(_) | None if replay["status"] != original["status"] => What::Differs,
            Some(_) | None => What::Equal,
        };
        Self {
            task: text(&original["id"]),
            replay: text(&replay["id"]),
            ended: text(&replay["status"]),
            what,
            message: text(&replay["failure"]["message"]),
        }
    }

    /// Notes what the two runs came to.
    fn compare(&mut self, before: &Value, now: &Value) {
        if before != now {
            self.what = What::Differs;
            self.message = "its outcome is another".to_owned();
        }
    }

    fn is_equal(&self) -> bool {
        self.what == What::Equal
    }

    fn words(&self) -> &'static str {
        match self.what {
            What::Equal => "ends as it did",
            What::Differs => "ends DIFFERENTLY",
            What::Lacks => "is NOT RECORDED",
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let reason = if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
        let told = format!("{} {} ({}) as {}{reason}", self.task, self.words(), self.ended, self.replay);
        writeln!(out, "{}", plain(&told))
    }

    fn json(&self) -> Value {
        json!({
            "task_id": self.task,
            "replay_task_id": self.replay,
            "status": self.ended,
            "equal": self.is_equal(),
            "recorded": self.what != What::Lacks,
            "message": self.message,
        })
    }
}

/// What `task` came to.
async fn came_to(client: &Client, task: &Value) -> Result<Value, ReplayError> {
    let Some(id) = task["outcome_id"].as_str() else { return Ok(Value::Null) };
    let outcome: Value = client.read(&format!("/v1/outcomes/{}", encode(id))).await?;
    Ok(end_in(&outcome))
}

/// What stands in `outcome` that another run on the same material would come to as well. The words of a failure may tell more than
/// that: its code counts.
fn end_in(outcome: &Value) -> Value {
    let all = |name: &str| outcome[name].as_array().cloned().unwrap_or_default();
    let said: Vec<Value> = all("messages").iter().map(|one| json!([one["role"], one["parts"]])).collect();
    let made: Vec<Value> = all("artifacts").iter().map(|one| one["sha256"].clone()).collect();
    let failure = &outcome["failure"]["code"];
    let summary = if failure.is_null() { &outcome["summary"] } else { &Value::Null };
    json!({ "failure": failure, "summary": summary, "said": said, "made": made })
}

/// What the nodes of a task recorded, without what passes.
async fn recorded(client: &Client, task: &str) -> Result<Vec<(String, Value)>, ReplayError> {
    let mut found = Vec::new();
    let mut pages = client.pages(&format!("/v1/tasks/{task}/events"), "after_event_id");
    while let Some(page) = pages.next().await? {
        page.iter().for_each(|event| note(&mut found, event));
    }
    Ok(found)
}

/// Adds what `event` tells of a run. A question to a person is taken out again: a replay asks nobody.
fn note(found: &mut Vec<(String, Value)>, event: &Value) {
    let name = event["event"].as_str().unwrap_or_default();
    let kind = EventKind::from(name);
    let is_said = matches!(kind, EventKind::AgentMessage | EventKind::SessionMessageAppended);
    let is_recorded = ["span.", "tool.", "vendor."].iter().any(|word| name.starts_with(word));
    if is_said || is_recorded {
        found.push((name.to_owned(), lasting(event["payload"].clone())));
    }
    if matches!(kind, EventKind::TaskAuthRequired | EventKind::TaskInputRequired) {
        let is_question = |said: &str| EventKind::from(said) == EventKind::AgentMessage;
        found.pop_if(|(said, payload)| is_question(said) && payload["role"] == "agent");
    }
}

fn lasting(mut payload: Value) -> Value {
    if let Value::Object(fields) = &mut payload {
        fields.retain(|name, _| name != "message_id" && !PASSING_FIELDS.contains(&name.as_str()));
    }
    if let Some(Value::Object(usage)) = payload.get_mut("usage") {
        usage.shift_remove("active_ms");
    }
    payload
}

fn diff(out: &mut impl Write, before: &[(String, Value)], now: &[(String, Value)], json: bool) -> io::Result<()> {
    let longest = before.len().max(now.len());
    let parts = (0..longest).map(|at| (at, before.get(at), now.get(at))).filter(|(_, before, now)| before != now);
    let parts: Vec<_> = parts.take(MOST_SHOWN).collect();
    if json {
        let side =
            |one: Option<&(String, Value)>| one.map(|(kind, payload)| json!({ "event": kind, "payload": payload }));
        for (at, before, now) in parts {
            let step = json!({ "step": at + 1, "recorded": side(before), "replayed": side(now) });
            writeln!(out, "{}", terminal::json(&step, false))?;
        }
        return Ok(());
    }
    if parts.is_empty() {
        return writeln!(out, "the two runs do not part: {longest} steps are the same");
    }
    for (at, before, now) in parts {
        let side = |one: Option<&(String, Value)>| {
            one.map_or_else(
                || "(nothing)".to_owned(),
                |(kind, payload)| format!("{} {}", plain(kind), terminal::json(payload, false)),
            )
        };
        writeln!(out, "step {}\n- {}\n+ {}", at + 1, side(before), side(now))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_an_instant_or_how_long_ago() {
        assert_eq!(instant("2026-04-25T19:16:14Z"), Ok("2026-04-25T19:16:14Z".parse().expect("an instant")));
        for ago in ["24h", "7d", "P7D", "90m"] {
            assert!(instant(ago).expect("an instant") < Timestamp::now(), "{ago}");
        }
        assert!(instant("yesterday").is_err());
    }

    /// A failure may say what a tool or a model said.
    #[test]
    fn what_a_run_said_moves_no_cursor() {
        let screen = "x\u{1b}[2J\u{9b}1m\r\ny";
        let replay = json!({ "id": "task_2", "status": "FAILED", "failure": { "code": "x", "message": screen } });
        let mut out = Vec::new();
        ReplayVerdict::of(&json!({ "id": "task_1", "status": "COMPLETED" }), &replay).print(&mut out).expect("printed");
        let steps = [("tool.completed".to_owned(), json!({ "output": screen }))];
        diff(&mut out, &steps, &[], false).expect("printed");
        let shown = String::from_utf8(out).expect("text");
        assert!(!shown.contains(|c: char| c != '\n' && c.is_control()), "{shown:?}");
        assert_eq!(shown.lines().count(), 4, "{shown}");
    }

    #[test]
    fn a_run_that_is_told_something_else_ends_differently_where_its_outcome_is_another() {
        let done = |id: &str, text: &str| {
            let message = json!({ "id": id, "role": "assistant", "parts": [{ "type": "text", "text": text }] });
            json!({ "id": id, "summary": text, "messages": [message], "artifacts": [], "failure": null })
        };
        let made = |id: &str, hash: &str| json!({ "summary": "done", "artifacts": [{ "id": id, "sha256": hash }] });
        let failed = |code: &str, words: &str| json!({ "summary": words, "failure": { "code": code } });
        let is_equal = |before: &Value, now: &Value| {
            let task = json!({ "id": "task_1", "status": "COMPLETED" });
            let mut verdict = ReplayVerdict::of(&task, &task);
            verdict.compare(&end_in(before), &end_in(now));
            verdict.is_equal()
        };
        assert!(is_equal(&done("1", "yes"), &done("2", "yes")), "ids are others each time");
        assert!(!is_equal(&done("1", "yes"), &done("2", "no")));
        assert!(is_equal(&made("1", "ab"), &made("2", "ab")) && !is_equal(&made("1", "ab"), &made("2", "cd")));
        assert!(is_equal(&failed("x", "at 1"), &failed("x", "at 2")));
        assert!(!is_equal(&failed("x", "at 1"), &failed("y", "at 1")));
    }

    #[test]
    fn what_a_run_asked_a_person_is_no_difference_and_what_it_said_and_heard_is() {
        let event = |kind: &str, payload: Value| json!({ "event": kind, "payload": payload });
        let said = |kind: &str, role: &str, id: &str| event(kind, json!({ "message_id": id, "role": role }));
        let steps = |events: &[Value]| {
            let mut found = Vec::new();
            events.iter().for_each(|event| note(&mut found, event));
            found
        };
        let heard = said("session.message_appended", "tool", "1");
        let result = said("agent.message", "agent", "3");
        let asked = [
            heard.clone(),
            said("agent.message", "agent", "2"),
            event("task.auth_required", json!({})),
            event("tool.approved", json!({})),
            result.clone(),
            event("task.completed", json!({})),
        ];
        let replayed = [said("session.message_appended", "tool", "8"), asked[3].clone(), result];
        assert_eq!(steps(&asked), steps(&replayed));
        assert_eq!(steps(&asked).len(), 3);
        assert_ne!(steps(&asked), steps(&[heard]));
    }

    #[test]
    fn a_replacement_has_a_key_and_a_file() {
        assert_eq!(replacement("llm:main:1=a.json"), Ok(("llm:main:1".to_owned(), "a.json".into())));
        assert!(replacement("llm:main:1").is_err());
        assert!(replacement("model=a.json").is_err());
    }
}
