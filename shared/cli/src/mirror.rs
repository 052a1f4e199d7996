//! The history mirror: a SQLite database beside a workspace that follows the events of its runs.
//!
//! The truth is the table of the server. The mirror reads the feed of events behind its cursor, in batches, applies each
//! batch in one transaction together with the cursor, and is never in the way of a run: it is a client like any other.

mod alone;
mod database;
mod tables;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dormouse_http::percent::encode;
use dormouse_local::{follower_key, own_address};
use dormouse_protocol::{ErrorCode, List};
use jiff::Timestamp;
use serde_json::Value;

use crate::declared::FolderHistory;
use crate::talk::{Client, ServerArgs, TalkError};
use crate::terminal::plain;
pub(crate) use database::{Mirror, MirrorError};

/// Place of the database in a workspace.
pub(crate) const PLACE: &str = ".openharness/data/history.db";
/// Name of the workspace in a mirror of everything that a server has.
const EVERYTHING: &str = "*";
/// Events of a batch.
const BATCH: usize = 200;
/// Time between two looks at the database and after an error at the server, and the longest after more of them.
const EVERY: Duration = Duration::from_secs(1);
/// For how long the feed is listened to before it is read again in any case.
const LISTENED: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What is said where the event that was read last is gone at the server.
const ANEW: &str = "the event that was read last is gone at the server: all that is left there is read again, and what the mirror \
                    has stays; what came in between and was removed is in neither";

/// Keeps what a server tells of a workspace in a SQLite database.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse mirror --url https://agents.example.com --workspace workspace_01J… --into support.db\n  \
    dormouse mirror --into .openharness/data/history.db --status\n\n\
    The mirror goes on where it was. A missing or damaged one is made anew from the beginning. Where the event that it read \
    last is gone at the server, it reads all that is left there and keeps what it has (begun_again_at in --status). One of a \
    newer version and a file of something else are left as they are.\n\n\
    Exit code 4: there is no such workspace."
)]
pub(crate) struct MirrorArgs {
    /// Workspace that is followed, by its id; all that the key may see without it.
    #[arg(long, value_name = "WORKSPACE_ID")]
    workspace: Option<String>,
    /// The database.
    #[arg(long, value_name = "FILE", default_value = PLACE)]
    into: PathBuf,
    /// Read what there is, and end.
    #[arg(long)]
    once: bool,
    /// Print how far it is, as JSON, and end; no server is asked.
    #[arg(long, conflicts_with_all = ["once", "rebuild"])]
    status: bool,
    /// Empty it; whoever follows it begins anew. No server is asked.
    #[arg(long, conflicts_with = "once")]
    rebuild: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Reason for which nothing is mirrored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MirrorFailure {
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error("{0}")]
    Write(#[from] io::Error),
}

impl MirrorFailure {
    /// The exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Talk(error) => error.exit_code(),
            Self::Mirror(_) | Self::Write(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes `asked`.
pub(crate) async fn mirror(asked: MirrorArgs) -> Result<(), MirrorFailure> {
    let workspace = asked.workspace.as_deref();
    if asked.status {
        let state = Mirror::existing(&asked.into)?.state()?;
        writeln!(io::stdout(), "{}", crate::terminal::json(&serde_json::json!(state), true))?;
        return Ok(());
    }
    if asked.rebuild {
        Mirror::existing(&asked.into)?.rebuild()?;
        writeln!(io::stdout(), "{} is empty; whoever follows it begins anew", asked.into.display())?;
        return Ok(());
    }
    let client = Client::open(&asked.server)?;
    let is_new = !asked.into.exists();
    let mirror = Mirror::open(&asked.into, workspace.unwrap_or(EVERYTHING))?;
    let caught_up = catch_up(&client, &mirror, workspace).await;
    // The feed of a workspace that is not there is an empty one, and stays so.
    if let Some(id) = workspace.filter(|_| is_new)
        && mirror.state()?.events == 0
        && let Err(error) = client.read::<Value>(&format!("/v1/workspaces/{}", encode(id))).await
        && matches!(error, TalkError::Refused { code: ErrorCode::ResourceNotFound, .. })
    {
        drop(mirror);
        database::remove(&asked.into)?;
        return Err(error.into());
    }
    if asked.once {
        if caught_up? {
            writeln!(io::stdout(), "{}: {ANEW}", asked.into.display())?;
        }
        return Ok(());
    }
    // A key that is refused, or a workspace that is not there, would be asked for in vain for ever.
    if let Err(MirrorFailure::Talk(error)) = caught_up
        && !error.is_transient()
    {
        return Err(error.into());
    }
    drop(mirror);
    follow(&client, &asked.into, workspace, None).await;
    Ok(())
}

/// Follows the runs of the folder of a workspace in `into` as long as its `history` is kept, until it is dropped; its server
/// keeps its state in `data`.
pub(crate) async fn follow_folder(data: PathBuf, into: PathBuf, history: FolderHistory) {
    loop {
        // It serves when its address is noted; one that is not answered at is of an earlier start. A folder that another
        // process serves is refused to this one, and what that does is none of this history. Without a key of its own it
        // would spend what its user may ask.
        let url = own_address(&data).zip(follower_key(&data));
        let server = url.map(|(url, key)| ServerArgs { url: Some(url), key: Some(key), data: data.clone() });
        if let Some(Ok(client)) = server.map(|server| Client::open(&server)) {
            follow(&client, &into, None, Some((&history, data.as_path()))).await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Follows for ever, or where it is the `history` of a folder until no server is there; that is kept for the server with its state
/// in the folder beside it, as long as no other server keeps its own there. What goes wrong is noted in the mirror, and tried
/// again; of a command, which has no log, it is told once, and that it goes on.
async fn follow(client: &Client, into: &Path, workspace: Option<&str>, history: Option<(&FolderHistory, &Path)>) {
    let mut pause = EVERY;
    let mut followed = FollowedMirror::default();
    let mut is_told = false;
    loop {
        let is_wanted = match history {
            Some((history, _)) => history.is_mirrored().await,
            None => true,
        };
        if !is_wanted {
            followed = FollowedMirror::default();
            tokio::time::sleep(EVERY).await;
            continue;
        }
        match round(client, (into, history.map(|(_, data)| data)), workspace, &mut followed).await {
            Ok(()) => {
                pause = EVERY;
                if std::mem::take(&mut is_told) {
                    tell("the mirror goes on");
                }
                if let Some(mirror) = &followed.mirror {
                    listen(client, mirror, workspace).await;
                }
            }
            Err(MirrorFailure::Talk(TalkError::Unreachable { .. })) if history.is_some() => return,
            Err(error) => {
                let message = error.to_string();
                tracing::warn!(error = message, again_in = ?pause, "the history mirror does not go on");
                if history.is_none() && !std::mem::replace(&mut is_told, true) {
                    tell(&format!("the mirror does not go on, and is tried again until Ctrl-C: {message}"));
                }
                // It is opened anew, and is this server's meanwhile. Where it cannot be written to either, the log has said so.
                let _ = followed.mirror.take().map(|mirror| mirror.note(&plain(&message)));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Tells whoever started the command.
fn tell(text: &str) {
    // Without an error stream there is no reader.
    let _ = writeln!(io::stderr(), "note: {}", plain(text));
}

/// A mirror that is followed.
#[derive(Default)]
struct FollowedMirror {
    /// None until it could be opened.
    mirror: Option<Mirror>,
    /// The right to keep it, of a server that keeps the history of its folder.
    held: Option<File>,
}

/// Reads what there is into the mirror `into`, for the server with its state in the folder beside it.
async fn round(
    client: &Client,
    (into, data): (&Path, Option<&Path>),
    workspace: Option<&str>,
    followed: &mut FollowedMirror,
) -> Result<(), MirrorFailure> {
    if followed.mirror.as_ref().is_none_or(Mirror::is_gone) {
        followed.mirror = None;
        if let Some(data) = data
            && followed.held.as_ref().is_none_or(|held| !alone::is_held(held, into))
        {
            followed.held = Some(alone::taken_for(data, into)?);
        }
        followed.mirror = Some(Mirror::open(into, workspace.unwrap_or(EVERYTHING))?);
    }
    if let Some(mirror) = &followed.mirror {
        catch_up(client, mirror, workspace).await?;
    }
    Ok(())
}

/// Waits until there is something to do: an event in the feed, or a database that is gone or was emptied.
async fn listen(client: &Client, mirror: &Mirror, workspace: Option<&str>) {
    let Ok(cursor) = mirror.cursor() else { return };
    let changed = async {
        while !mirror.is_gone() && mirror.cursor().is_ok_and(|now| now == cursor) {
            tokio::time::sleep(EVERY).await;
        }
    };
    let path =
        workspace.map_or("/v1/events/stream".to_owned(), |id| format!("/v1/events/stream?workspace_id={}", encode(id)));
    let told = async {
        // Where it cannot be listened to, it is read again a little later.
        let Ok(mut stream) = client.stream(&path, cursor.as_deref()).await else { return };
        while let Ok(Some(piece)) = stream.chunk().await {
            if String::from_utf8_lossy(&piece).contains("data:") {
                return;
            }
        }
    };
    tokio::select! {
        () = changed => {}
        () = told => {}
        () = tokio::time::sleep(LISTENED) => {}
    }
}

/// Reads to the end of what the server has; true if that began again because the event that was read last is gone there.
async fn catch_up(client: &Client, mirror: &Mirror, workspace: Option<&str>) -> Result<bool, MirrorFailure> {
    let mut begun_again = false;
    loop {
        let cursor = mirror.cursor()?;
        let read = batch(client, mirror, cursor.as_deref(), workspace).await;
        match (read, cursor) {
            (Ok(true), _) => {}
            (Ok(false), _) => return Ok(begun_again),
            // Once: a server that does not take the cursors that it gives would be read for ever.
            (Err(MirrorFailure::Talk(TalkError::Refused { code: ErrorCode::CursorExpired, .. })), Some(gone))
                if !begun_again =>
            {
                begun_again = mirror.begin_again(&gone, Timestamp::now())?;
                if begun_again {
                    tracing::warn!(last_event_id = gone, "{ANEW}");
                }
            }
            (Err(error), _) => return Err(error),
        }
    }
}

/// One batch behind `cursor`; false where there is nothing behind it.
async fn batch(
    client: &Client,
    mirror: &Mirror,
    cursor: Option<&str>,
    workspace: Option<&str>,
) -> Result<bool, MirrorFailure> {
    let mut path = format!("/v1/events?limit={BATCH}");
    for (name, value) in [("workspace_id", workspace), ("after_event_id", cursor)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    let page: List<Value> = client.read(&path).await?;
    let state = mirror.state()?;
    let is_new = state.status != "idle" || state.last_synced_at.is_none();
    if page.data.is_empty() && page.page.next_cursor.is_none() && !is_new {
        return Ok(false);
    }
    // A page of one workspace may be empty and go on.
    let last = page.page.next_cursor.as_deref().or_else(|| page.data.last().and_then(|event| event["id"].as_str()));
    mirror.apply((cursor, last), &page.data, Timestamp::now())?;
    Ok(page.page.has_more)
}
