//! The database of a mirror: what was read of the feed, and how far, in one transaction each time.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use serde::Serialize;
use serde_json::Value;

use super::{PLACE, tables};

/// `DORM` in ASCII: a database of ours says so in its header.
const OURS: i32 = 0x444f_524d;
/// First bytes of every file of SQLite (its file format, section 1.3).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes of such a file that say whose it is.
const OWNER: std::ops::Range<usize> = 68..72;
/// The version of the tables.
pub(crate) const VERSION: i32 = 1;
/// Time for which another process may hold the database.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a repository around a workspace does not take in of the folder of its database.
const IGNORED: &str = "/.gitignore\n/history.db*\n";

/// Reason for which there is no mirror. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorError {
    #[error("there is no mirror at {}: `dormouse dev --workspace` makes one, and so does `dormouse mirror`", .0.display())]
    Missing(PathBuf),
    #[error("{} is damaged: it is made anew from the beginning by whoever follows, and nothing is lost by that", .0.display())]
    Corrupt(PathBuf),
    #[error(
        "{} has tables of version {found}, and this program knows {VERSION}: it was written by a newer one and stays as it is; use that one, or \
         name another file with --into", path.display()
    )]
    Newer { path: PathBuf, found: i32 },
    #[error("{} holds something else and stays as it is: name another file with --into", .0.display())]
    Foreign(PathBuf),
    #[error("{} is a link to a file that is not there, and nothing is made through it: remove the link, or make the file", .0.display())]
    Dangling(PathBuf),
    #[error("{} is held by another program: end what works in it; the next attempt goes on where this one was", .0.display())]
    Locked(PathBuf),
    #[error(
        "{} is kept by {}, and of two servers each would undo what the other has read: end that one, or keep the history of this one in \
         a file of its own (`dormouse mirror --data FOLDER --into FILE`)", path.display(), server(holder)
    )]
    Followed { path: PathBuf, holder: String },
    #[error("{} belongs to the workspace {found}, not to {asked}: name another file with --into", path.display())]
    Another { path: PathBuf, found: String, asked: String },
    #[error("{} cannot be used: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} cannot be used: {error}", path.display())]
    Sql { path: PathBuf, error: rusqlite::Error },
}

/// The server that keeps its state in the folder `data`, in words.
fn server(data: &str) -> String {
    match data.trim() {
        "" => "another server".to_owned(),
        data => format!("the server with the data folder `{data}`"),
    }
}

/// Progress of a mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MirrorState {
    pub(crate) workspace_id: String,
    pub(crate) last_event_id: Option<String>,
    pub(crate) last_synced_at: Option<String>,
    /// `idle` or `error`.
    pub(crate) status: String,
    pub(crate) error_message: Option<String>,
    /// Number of events in it.
    pub(crate) events: u64,
    /// Instant at which it last [began again](Mirror::begin_again); none if it never had to.
    pub(crate) begun_again_at: Option<String>,
}

/// An open mirror.
#[derive(Debug)]
pub(crate) struct Mirror {
    path: PathBuf,
    /// One statement at a time, for all threads.
    connection: Mutex<Connection>,
}

impl Mirror {
    /// The mirror of `workspace` at `path`; a missing one is made, and a damaged one made anew.
    pub(crate) fn open(path: &Path, workspace: &str) -> Result<Self, MirrorError> {
        match Self::made(path, workspace) {
            Err(MirrorError::Corrupt(_)) => {
                tracing::warn!(path = %path.display(), "the history mirror is damaged and is made anew from the beginning");
                remove(path)?;
                Self::made(path, workspace)
            }
            made => made,
        }
    }

    /// The mirror at `path`, which must be there; nothing is made.
    pub(crate) fn existing(path: &Path) -> Result<Self, MirrorError> {
        if !path.is_file() {
            return Err(MirrorError::Missing(path.to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mirror = Self::connected(path, Connection::open_with_flags(path, flags))?;
        match mirror.header()? {
            (OURS, VERSION) => Ok(mirror),
            (OURS, found) if found > VERSION => Err(MirrorError::Newer { path: path.to_owned(), found }),
            (_, _) => Err(MirrorError::Foreign(path.to_owned())),
        }
    }

    fn made(path: &Path, workspace: &str) -> Result<Self, MirrorError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| MirrorError::Io { path: path.to_owned(), error })?;
        }
        if path.is_symlink() && !path.exists() {
            return Err(MirrorError::Dangling(path.to_owned()));
        }
        // It holds everything that was said: it is for this user alone, and in no repository.
        for (file, content) in [(path.to_owned(), "")].into_iter().chain(ignoring(path).map(|file| (file, IGNORED))) {
            match begun(&file, content) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(MirrorError::Io { path: file, error });
                }
                Ok(()) | Err(_) => {}
            }
        }
        let mirror = Self::connected(path, Connection::open(path))?;
        let (owner, version) = mirror.header()?;
        let tables: i64 = mirror.ask("SELECT count(*) FROM sqlite_master")?;
        match (owner, version, tables) {
            (OURS, VERSION, _) => mirror.check()?,
            (OURS, found, _) if found > VERSION => return Err(MirrorError::Newer { path: path.to_owned(), found }),
            (0, 0, 0) => mirror.create(workspace)?,
            (_, _, _) => return Err(MirrorError::Foreign(path.to_owned())),
        }
        let found: String = mirror.ask("SELECT workspace_id FROM mirror_state")?;
        match found == workspace {
            true => Ok(mirror),
            false => Err(MirrorError::Another { path: path.to_owned(), found, asked: workspace.to_owned() }),
        }
    }

    fn connected(path: &Path, opened: rusqlite::Result<Connection>) -> Result<Self, MirrorError> {
        let connection = opened.map_err(|error| told(path, error))?;
        connection.busy_timeout(PATIENCE).map_err(|error| told(path, error))?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Application id and version of the database.
    fn header(&self) -> Result<(i32, i32), MirrorError> {
        Ok((self.ask("PRAGMA application_id")?, self.ask("PRAGMA user_version")?))
    }

    fn check(&self) -> Result<(), MirrorError> {
        let sound: String = self.ask("PRAGMA quick_check(1)")?;
        if sound == "ok" { Ok(()) } else { Err(damaged(self.path.clone())) }
    }

    fn create(&self, workspace: &str) -> Result<(), MirrorError> {
        let made = (|| {
            let mut connection = self.connection();
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch(tables::CREATE)?;
            change.execute("INSERT INTO mirror_state (workspace_id, status) VALUES (?1, 'idle')", [workspace])?;
            change.pragma_update(None, "application_id", OURS)?;
            change.pragma_update(None, "user_version", VERSION)?;
            change.commit()
        })();
        made.map_err(|error| told(&self.path, error))
    }

    fn ask<T: rusqlite::types::FromSql>(&self, sql: &str) -> Result<T, MirrorError> {
        self.connection().query_row(sql, [], |row| row.get(0)).map_err(|error| told(&self.path, error))
    }

    /// The event behind which it goes on; none from the beginning.
    pub(crate) fn cursor(&self) -> Result<Option<String>, MirrorError> {
        self.ask("SELECT last_event_id FROM mirror_state")
    }

    /// Progress of the mirror.
    pub(crate) fn state(&self) -> Result<MirrorState, MirrorError> {
        let sql = "SELECT workspace_id, last_event_id, last_synced_at, status, error_message, (SELECT count(*) FROM events) \
                   FROM mirror_state";
        let read = self.connection().query_row(sql, [], |row| {
            Ok(MirrorState {
                workspace_id: row.get(0)?,
                last_event_id: row.get(1)?,
                last_synced_at: row.get(2)?,
                status: row.get(3)?,
                error_message: row.get(4)?,
                events: row.get(5)?,
                begun_again_at: None,
            })
        });
        let state = read.map_err(|error| told(&self.path, error))?;
        let has_gaps: bool = self.ask("SELECT count(*) FROM sqlite_master WHERE name = 'gaps'")?;
        let begun_again_at = if has_gaps { self.ask("SELECT max(found_at) FROM gaps")? } else { None };
        Ok(MirrorState { begun_again_at, ..state })
    }

    /// Begins again with the first event that the server still has, because `cursor` is gone there: what the mirror has
    /// stays, and what it has is not applied twice. False where another process went on from there meanwhile.
    pub(crate) fn begin_again(&self, cursor: &str, now: Timestamp) -> Result<bool, MirrorError> {
        let begun = (|| {
            let mut connection = self.connection();
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let sql = "UPDATE mirror_state SET last_event_id = NULL WHERE last_event_id = ?1";
            if change.execute(sql, [cursor])? == 0 {
                return Ok(false);
            }
            change.execute_batch(tables::GAPS)?;
            change.execute("INSERT INTO gaps VALUES (?1)", [now.to_string()])?;
            change.commit().map(|()| true)
        })();
        begun.map_err(|error| told(&self.path, error))
    }

    /// Applies `events`, which come behind `cursor` and lead to `last`, all of them or none. False where another
    /// process went on from there meanwhile: then nothing was done.
    pub(crate) fn apply(
        &self,
        (cursor, last): (Option<&str>, Option<&str>),
        events: &[Value],
        now: Timestamp,
    ) -> Result<bool, MirrorError> {
        let applied = (|| {
            let mut connection = self.connection();
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let found: Option<String> =
                change.query_row("SELECT last_event_id FROM mirror_state", [], |row| row.get(0)).optional()?.flatten();
            if found.as_deref() != cursor {
                return Ok(false);
            }
            for event in events {
                tables::apply(&change, event)?;
            }
            done(&change, last.or(cursor), now)?;
            change.commit().map(|()| true)
        })();
        applied.map_err(|error| told(&self.path, error))
    }

    /// Notes why it does not go on.
    pub(crate) fn note(&self, message: &str) -> Result<(), MirrorError> {
        let sql = "UPDATE mirror_state SET status = 'error', error_message = ?1";
        self.connection().execute(sql, [message]).map(drop).map_err(|error| told(&self.path, error))
    }

    /// Empties it; the next process that follows begins anew.
    pub(crate) fn rebuild(&self) -> Result<(), MirrorError> {
        let emptied = (|| {
            let mut connection = self.connection();
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch(tables::EMPTY)?;
            change.commit()
        })();
        emptied.map_err(|error| told(&self.path, error))
    }

    /// Removes everything about the things with these ids, also from where it stood in the file; the number of rows.
    pub(crate) fn forget(&self, ids: &BTreeSet<String>) -> Result<usize, MirrorError> {
        let forgotten = (|| {
            let mut connection = self.connection();
            connection.execute_batch("PRAGMA secure_delete = ON")?;
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            change.execute_batch(tables::GONE)?;
            for id in ids {
                change.execute("INSERT INTO gone VALUES (?1)", [id])?;
            }
            change.execute_batch(tables::WITH_THEM)?;
            let mut count = 0;
            for sql in tables::FORGET {
                count += change.execute(sql, [])?;
            }
            change.execute(tables::BEHIND_WHAT_IS_LEFT, [])?;
            change.execute_batch("DROP TABLE gone")?;
            change.commit()?;
            // Pages that were rearranged keep copies of what stood there.
            connection.execute_batch("VACUUM").map(|()| count)
        })();
        forgotten.map_err(|error| told(&self.path, error))
    }

    /// True if the file that it has open is not at its place any more.
    pub(crate) fn is_gone(&self) -> bool {
        !self.path.is_file()
    }
}

fn done(change: &Transaction<'_>, last: Option<&str>, now: Timestamp) -> rusqlite::Result<()> {
    let sql = "UPDATE mirror_state SET last_event_id = ?1, last_synced_at = ?2, status = 'idle', error_message = NULL";
    change.execute(sql, params![last, now.to_string()]).map(drop)
}

/// What is said of a file that is damaged: a mirror can be made anew, and nothing else is ours to remove.
fn damaged(path: PathBuf) -> MirrorError {
    if was_mirror(&path) { MirrorError::Corrupt(path) } else { MirrorError::Foreign(path) }
}

/// True if what is damaged at `path` was a mirror: its header says so, or it is nothing of SQLite and stands where only
/// a mirror does. Whatever else somebody names is theirs, and is not removed.
fn was_mirror(path: &Path) -> bool {
    let mut header = [0; OWNER.end];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read.is_ok() && header.starts_with(MAGIC) {
        true => header[OWNER] == OURS.to_be_bytes(),
        false => path.ends_with(PLACE),
    }
}

/// Removes the mirror at `path`.
pub(super) fn remove(path: &Path) -> Result<(), MirrorError> {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(MirrorError::Io { path: path.to_owned(), error });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn told(path: &Path, error: rusqlite::Error) -> MirrorError {
    let path = path.to_owned();
    let code = error.sqlite_error_code();
    if matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) {
        return damaged(path);
    }
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => MirrorError::Locked(path),
        Some(_) | None => MirrorError::Sql { path, error },
    }
}

/// The file that keeps the database at `path` out of a repository; none where its user has named the place.
fn ignoring(path: &Path) -> Option<PathBuf> {
    path.ends_with(PLACE).then(|| path.with_file_name(".gitignore"))
}

/// Makes a file that only this user can read.
///
/// # Errors
/// It is there, or cannot be made.
fn begun(file: &Path, content: &str) -> io::Result<()> {
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    made.write_all(content.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(n: u64, kind: &str, payload: Value) -> Value {
        json!({
            "id": format!("event_{n}"), "object": "event", "event": kind, "created_at": "2027-01-15T08:00:00Z",
            "resource": { "object": "task", "id": "task_1" }, "sequence": n, "payload": payload,
            "session_id": "session_1", "task_id": "task_1", "workspace_id": "w",
        })
    }

    fn count(path: &Path, table: &str) -> i64 {
        let asked = Connection::open(path).expect("a database");
        asked.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a number")
    }

    /// An event that holds a message.
    fn message(n: u64, kind: &str, role: &str) -> Value {
        let id = format!("message_{n}");
        let parts = json!([{ "type": "text", "text": "hello" }]);
        let mut event = event(n, kind, json!({ "message_id": id, "role": role, "parts": parts }));
        event["resource"] = json!({ "object": "message", "id": id });
        event
    }

    #[test]
    fn messages_are_kept_whoever_said_them_and_runs_of_hooks_with_their_names() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("history.db");
        let mirror = Mirror::open(&path, "w").expect("a mirror");
        let mut repeated = message(4, "agent.message", "assistant");
        repeated["replayed"] = json!(true);
        let hook = json!({ "hook": "guard", "event": "before_tool_dispatch", "status": "blocked" });
        let events = [
            message(1, "user.message", "user"),
            message(2, "agent.message", "assistant"),
            message(3, "session.message_appended", "tool"),
            repeated,
            event(5, "vendor.dormouse.hook_run", hook),
            event(6, "vendor.dormouse.run_ended", json!({ "reason": "done" })),
        ];
        assert!(mirror.apply((None, Some("event_6")), &events, Timestamp::UNIX_EPOCH).expect("applied"));
        let rows = |sql: &str| -> Vec<String> {
            let asked = Connection::open(&path).expect("a database");
            let mut asked = asked.prepare(sql).expect("a question");
            asked.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("texts")
        };
        let messages = "SELECT id || ' ' || session_id || ' ' || task_id || ' ' || role || ' ' || (content ->> '$[0].text') \
                        FROM messages ORDER BY id";
        let told = [(1, "user"), (2, "assistant"), (3, "tool")];
        let told = told.map(|(n, role)| format!("message_{n} session_1 task_1 {role} hello"));
        assert_eq!(rows(messages), told);
        let hooks =
            "SELECT run_id || ' ' || hook_name || ' ' || status || ' ' || (detail ->> '$.event') FROM hook_runs";
        assert_eq!(rows(hooks), ["task_1 guard blocked before_tool_dispatch"]);
        let kinds = "SELECT DISTINCT resource_type FROM events ORDER BY resource_type";
        assert_eq!(rows(kinds), ["message", "task"]);
    }

    #[test]
    fn a_batch_is_applied_whole_and_once() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join(".openharness/data/history.db");
        let mirror = Mirror::open(&path, "w").expect("a mirror");
        let events = [
            event(1, "task.submitted", json!({})),
            message(2, "user.message", "user"),
            event(3, "task.completed", json!({})),
        ];
        assert!(mirror.apply((None, Some("event_3")), &events, Timestamp::UNIX_EPOCH).expect("applied"));
        assert!(
            !mirror.apply((None, Some("event_3")), &events, Timestamp::UNIX_EPOCH).expect("looked at"),
            "somebody was here before"
        );
        assert_eq!(mirror.cursor().expect("a cursor").as_deref(), Some("event_3"));
        assert_eq!((count(&path, "events"), count(&path, "messages"), count(&path, "runs")), (3, 1, 1));
        let broken = [event(4, "task.started", json!({})), json!({ "event": "task.failed" })];
        assert!(mirror.apply((Some("event_3"), None), &broken, Timestamp::UNIX_EPOCH).is_err());
        assert_eq!((mirror.state().expect("a state").events, count(&path, "events")), (3, 3), "all or nothing");
        mirror.rebuild().expect("emptied");
        assert_eq!((mirror.cursor().expect("a cursor"), count(&path, "events")), (None, 0));
    }

    #[test]
    fn one_whose_last_event_is_gone_at_the_server_keeps_what_it_has_and_reads_what_is_left() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("history.db");
        let mirror = Mirror::open(&path, "w").expect("a mirror");
        let [one, two] = [1, 2].map(|n| event(n, "task.submitted", json!({})));
        let now = Timestamp::UNIX_EPOCH;
        assert!(mirror.apply((None, Some("event_2")), &[one.clone(), two], now).expect("applied"));
        assert_eq!(mirror.state().expect("a state").begun_again_at, None);
        assert!(!mirror.begin_again("event_1", now).expect("looked at"), "somebody went on meanwhile");
        assert!(mirror.begin_again("event_2", now).expect("begun"));
        assert_eq!((mirror.cursor().expect("a cursor"), count(&path, "events")), (None, 2));
        let three = event(3, "task.submitted", json!({}));
        assert!(mirror.apply((None, Some("event_3")), &[one, three], now).expect("applied"));
        let state = mirror.state().expect("a state");
        assert_eq!((state.events, state.status.as_str(), state.last_event_id.as_deref()), (3, "idle", Some("event_3")));
        assert_eq!(state.begun_again_at, Some(now.to_string()), "it says so from then on");
        mirror.rebuild().expect("emptied");
        assert_eq!(mirror.state().expect("a state").begun_again_at, None);
    }

    #[test]
    fn what_is_damaged_is_made_anew_and_nothing_else_is() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join(PLACE);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, vec![7; 9000]).expect("a file");
        assert!(matches!(Mirror::existing(&path), Err(MirrorError::Corrupt(_))));
        let mirror = Mirror::open(&path, "w").expect("made anew");
        mirror
            .apply((None, Some("event_1")), &[event(1, "task.submitted", json!({}))], Timestamp::UNIX_EPOCH)
            .expect("applied");
        drop(mirror);
        assert!(matches!(Mirror::open(&path, "other"), Err(MirrorError::Another { .. })));
        Connection::open(&path).expect("a database").pragma_update(None, "user_version", VERSION + 1).expect("set");
        assert!(matches!(Mirror::open(&path, "w"), Err(MirrorError::Newer { .. })));
        assert_eq!(count(&path, "events"), 1, "it stays as it is");
        let other = place.path().join("other.db");
        Connection::open(&other).expect("a database").execute_batch("CREATE TABLE mine (x)").expect("made");
        assert!(matches!(Mirror::open(&other, "w"), Err(MirrorError::Foreign(_))));
        assert_eq!(count(&other, "mine"), 0, "it stays as it is");
        let notes = place.path().join("notes.md");
        for mine in [&b"what I wrote\n"[..], &[b'x'; 9000]] {
            fs::write(&notes, mine).expect("a file");
            assert!(matches!(Mirror::existing(&notes), Err(MirrorError::Foreign(_))));
            assert!(matches!(Mirror::open(&notes, "w"), Err(MirrorError::Foreign(_))));
            assert_eq!(fs::read(&notes).expect("a file"), mine, "a slip removes nothing");
        }
        let elsewhere = place.path().join("elsewhere.db");
        drop(Mirror::open(&elsewhere, "w").expect("a mirror"));
        let mut damaged = fs::read(&elsewhere).expect("a file");
        damaged[100..].fill(7);
        fs::write(&elsewhere, damaged).expect("a file");
        Mirror::open(&elsewhere, "w").expect("a mirror that is damaged is made anew wherever it is");
        assert!(matches!(Mirror::existing(&place.path().join("none")), Err(MirrorError::Missing(_))));
    }

    #[test]
    fn what_was_said_is_for_its_user_alone_and_in_no_repository() {
        use std::os::unix::fs::PermissionsExt;

        let place = tempfile::tempdir().expect("a folder");
        let (path, elsewhere) = (place.path().join(PLACE), place.path().join("support.db"));
        for path in [&path, &elsewhere] {
            drop(Mirror::open(path, "w").expect("a mirror"));
            let mode = fs::metadata(path).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        let ignored = path.with_file_name(".gitignore");
        assert!(fs::read_to_string(&ignored).expect("a file").contains("/history.db*"));
        assert!(!place.path().join(".gitignore").exists(), "who names a place knows what is around it");
        fs::write(&ignored, "mine").expect("a file");
        drop(Mirror::open(&path, "w").expect("a mirror"));
        assert_eq!(fs::read_to_string(&ignored).expect("a file"), "mine", "it stays as it is");
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_made_through_a_link_that_leads_nowhere() {
        let place = tempfile::tempdir().expect("a folder");
        let (path, elsewhere) = (place.path().join("history.db"), place.path().join("elsewhere.db"));
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link");
        assert!(matches!(Mirror::open(&path, "w"), Err(MirrorError::Dangling(_))));
        assert!(path.is_symlink() && !elsewhere.exists(), "nothing is made, and nothing is removed");
        drop(Mirror::open(&elsewhere, "w").expect("a mirror"));
        Mirror::open(&path, "w").expect("a link to a mirror is one");
    }

    #[test]
    fn one_that_is_held_is_waited_for_and_told() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("history.db");
        let mirror = Mirror::open(&path, "w").expect("a mirror");
        let holder = Connection::open(&path).expect("a database");
        holder.execute_batch("BEGIN EXCLUSIVE").expect("held");
        let refused =
            mirror.apply((None, Some("event_1")), &[event(1, "task.submitted", json!({}))], Timestamp::UNIX_EPOCH);
        assert!(matches!(refused, Err(MirrorError::Locked(_))), "{refused:?}");
        holder.execute_batch("COMMIT").expect("let go");
        assert!(
            mirror
                .apply((None, Some("event_1")), &[event(1, "task.submitted", json!({}))], Timestamp::UNIX_EPOCH)
                .expect("applied")
        );
    }
}
