//! The tables of a mirror, and what an event changes in them. Everything is made of events, so everything can be made anew.

use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::MessageId;
use rusqlite::{Transaction, params};
use serde_json::Value;

/// What is behind `vendor.` in the kind of the event of a run of a hook.
const HOOK_RUN: &str = "dormouse.hook_run";

/// Makes them.
pub(super) const CREATE: &str = "
    CREATE TABLE mirror_state (
        workspace_id TEXT PRIMARY KEY, last_event_id TEXT, last_synced_at TEXT, status TEXT NOT NULL, error_message TEXT
    );
    CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, event TEXT NOT NULL,
        resource_type TEXT, resource_id TEXT, session_id TEXT, task_id TEXT, workspace_id TEXT, actor TEXT,
        occurred_at TEXT NOT NULL, payload TEXT NOT NULL
    );
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, workspace_id TEXT, status TEXT NOT NULL, created_at TEXT, updated_at TEXT
    );
    CREATE TABLE messages (
        id TEXT PRIMARY KEY, session_id TEXT, task_id TEXT, role TEXT, content TEXT NOT NULL, created_at TEXT
    );
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, session_id TEXT, status TEXT NOT NULL, created_at TEXT, updated_at TEXT
    );
    CREATE TABLE run_steps (
        event_id TEXT PRIMARY KEY, run_id TEXT, name TEXT, status TEXT NOT NULL, detail TEXT NOT NULL, occurred_at TEXT
    );
    CREATE TABLE tool_calls (
        event_id TEXT PRIMARY KEY, run_id TEXT, tool_name TEXT, status TEXT NOT NULL, detail TEXT NOT NULL, occurred_at TEXT
    );
    CREATE TABLE hook_runs (
        event_id TEXT PRIMARY KEY, run_id TEXT, hook_name TEXT, status TEXT, detail TEXT NOT NULL, occurred_at TEXT
    );
    CREATE TABLE artifacts (id TEXT PRIMARY KEY, run_id TEXT, detail TEXT NOT NULL, updated_at TEXT);
    CREATE INDEX events_of_session ON events (session_id, position);
    CREATE INDEX messages_of_session ON messages (session_id, created_at);
";

/// Empties them.
pub(super) const EMPTY: &str = "
    DELETE FROM events; DELETE FROM sessions; DELETE FROM messages; DELETE FROM runs; DELETE FROM run_steps;
    DELETE FROM tool_calls; DELETE FROM hook_runs; DELETE FROM artifacts; DROP TABLE IF EXISTS gaps;
    UPDATE mirror_state SET last_event_id = NULL, last_synced_at = NULL, status = 'idle', error_message = NULL;
";

/// Makes the table of the instants at which it began again. A mirror that never had to does not have it.
pub(super) const GAPS: &str = "CREATE TABLE IF NOT EXISTS gaps (found_at TEXT NOT NULL)";

/// The ids of what is forgotten, while it is.
pub(super) const GONE: &str = "CREATE TEMP TABLE gone (id TEXT PRIMARY KEY) WITHOUT ROWID";

/// Adds what belongs to them, also where only the mirror still tells of it.
pub(super) const WITH_THEM: &str = "
    INSERT OR IGNORE INTO gone SELECT id FROM sessions WHERE workspace_id IN gone;
    INSERT OR IGNORE INTO gone SELECT session_id FROM events WHERE workspace_id IN gone AND session_id IS NOT NULL;
    INSERT OR IGNORE INTO gone SELECT id FROM runs WHERE session_id IN gone;
";

/// Removes everything about them. What was read last is then what is left of it, for the event may be gone too.
pub(super) const FORGET: [&str; 8] = [
    "DELETE FROM events WHERE session_id IN gone OR task_id IN gone OR resource_id IN gone OR workspace_id IN gone",
    "DELETE FROM sessions WHERE id IN gone OR workspace_id IN gone",
    "DELETE FROM messages WHERE session_id IN gone OR task_id IN gone",
    "DELETE FROM runs WHERE id IN gone OR session_id IN gone",
    "DELETE FROM run_steps WHERE run_id IN gone",
    "DELETE FROM tool_calls WHERE run_id IN gone",
    "DELETE FROM hook_runs WHERE run_id IN gone",
    "DELETE FROM artifacts WHERE id IN gone OR run_id IN gone",
];
pub(super) const BEHIND_WHAT_IS_LEFT: &str = "
    UPDATE mirror_state SET last_event_id = (SELECT id FROM events ORDER BY position DESC LIMIT 1)
    WHERE last_event_id NOT IN (SELECT id FROM events)
";

/// Columns that every table takes of an event.
struct Fact<'e> {
    id: Option<&'e str>,
    kind: &'e str,
    resource: Option<&'e str>,
    session: Option<&'e str>,
    task: Option<&'e str>,
    at: Option<&'e str>,
    payload: &'e Value,
    text: String,
}

/// Applies `event`. One that was applied before changes nothing.
pub(super) fn apply(change: &Transaction<'_>, event: &Value) -> rusqlite::Result<()> {
    let fact = Fact {
        id: event["id"].as_str(),
        kind: event["event"].as_str().unwrap_or_default(),
        resource: event["resource"]["id"].as_str(),
        session: event["session_id"].as_str(),
        task: event["task_id"].as_str(),
        at: event["created_at"].as_str(),
        payload: &event["payload"],
        text: event["payload"].to_string(),
    };
    let added = change.execute(
        "INSERT INTO events (id, event, resource_type, resource_id, session_id, task_id, workspace_id, actor, occurred_at, payload) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (id) DO NOTHING",
        params![
            fact.id,
            fact.kind,
            event["resource"]["object"].as_str(),
            fact.resource,
            fact.session,
            fact.task,
            event["workspace_id"].as_str(),
            event["actor"].as_str(),
            fact.at,
            fact.text
        ],
    )?;
    if added == 0 {
        return Ok(());
    }
    // What a replay repeats was said once.
    if event["resource"]["object"] == MessageId::OBJECT && event["replayed"] != true {
        message(change, &fact)?;
    }
    let (family, what) = fact.kind.split_once('.').unwrap_or((fact.kind, ""));
    match family {
        "session" => session(change, event, &fact, what),
        "task" => run(change, &fact, what),
        "span" => step(change, &fact, what),
        "tool" => tool(change, &fact, what),
        "artifact" => artifact(change, &fact),
        "vendor" if what == HOOK_RUN => hook(change, &fact),
        _ => Ok(()),
    }
}

fn session(change: &Transaction<'_>, event: &Value, fact: &Fact<'_>, what: &str) -> rusqlite::Result<()> {
    let status = if what == "closed" { "closed" } else { "open" };
    let sql = "INSERT INTO sessions (id, workspace_id, status, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4) \
               ON CONFLICT (id) DO UPDATE SET status = CASE WHEN status = 'closed' THEN status ELSE ?3 END, updated_at = ?4";
    let id = fact.session.or(fact.resource);
    change.execute(sql, params![id, event["workspace_id"].as_str(), status, fact.at]).map(drop)
}

fn message(change: &Transaction<'_>, fact: &Fact<'_>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO messages (id, session_id, task_id, role, content, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
               ON CONFLICT (id) DO UPDATE SET content = ?5";
    let (role, content) = (fact.payload["role"].as_str(), fact.payload["parts"].to_string());
    change.execute(sql, params![fact.resource, fact.session, fact.task, role, content, fact.at]).map(drop)
}

fn run(change: &Transaction<'_>, fact: &Fact<'_>, what: &str) -> rusqlite::Result<()> {
    let status = fact.payload["status"].as_str().map_or_else(|| what.to_owned(), str::to_lowercase);
    let sql = "INSERT INTO runs (id, session_id, status, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4) \
               ON CONFLICT (id) DO UPDATE SET status = ?3, updated_at = ?4";
    change.execute(sql, params![fact.task.or(fact.resource), fact.session, status, fact.at]).map(drop)
}

fn step(change: &Transaction<'_>, fact: &Fact<'_>, what: &str) -> rusqlite::Result<()> {
    let sql =
        "INSERT INTO run_steps (event_id, run_id, name, status, detail, occurred_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let name = fact.payload["name"].as_str();
    change.execute(sql, params![fact.id, fact.task, name, what, fact.text, fact.at]).map(drop)
}

fn hook(change: &Transaction<'_>, fact: &Fact<'_>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO hook_runs (event_id, run_id, hook_name, status, detail, occurred_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (name, status) = (fact.payload["hook"].as_str(), fact.payload["status"].as_str());
    change.execute(sql, params![fact.id, fact.task, name, status, fact.text, fact.at]).map(drop)
}

fn tool(change: &Transaction<'_>, fact: &Fact<'_>, what: &str) -> rusqlite::Result<()> {
    let name = fact.payload["tool"].as_str().or_else(|| fact.payload["name"].as_str());
    let sql = "INSERT INTO tool_calls (event_id, run_id, tool_name, status, detail, occurred_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    change.execute(sql, params![fact.id, fact.task, name, what, fact.text, fact.at]).map(drop)
}

fn artifact(change: &Transaction<'_>, fact: &Fact<'_>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO artifacts (id, run_id, detail, updated_at) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (id) DO UPDATE SET detail = ?3, updated_at = ?4";
    change.execute(sql, params![fact.resource, fact.task, fact.text, fact.at]).map(drop)
}
