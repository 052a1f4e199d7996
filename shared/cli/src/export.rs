//! A session, written whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use dormouse_http::percent::encode;
use serde_json::Value;
use uuid::Uuid;

use crate::talk::{Client, ServerArgs, TalkError};
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct ExportSessionArgs {
    /// The session.
    #[arg(value_name = "SESSION_ID")]
    session: String,
    /// File that is written; the standard output without it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Without the content of artifacts.
    #[arg(long)]
    no_content: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Reason for which a session was not exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionExportError {
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error("{}: {error}", .place.display())]
    File { place: PathBuf, error: io::Error },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl SessionExportError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Talk(error) => error.exit_code(),
            Self::File { .. } | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes the command: one JSON object in each line, the session first.
pub(crate) async fn export(asked: &ExportSessionArgs) -> Result<(), SessionExportError> {
    let client = Client::open(&asked.server)?;
    let session = encode(&asked.session);
    let whole: Value = client.read(&format!("/v1/sessions/{session}")).await?;
    let mut lines = ExportLines::to(asked.out.clone())?;
    lines.write(&whole)?;
    // Tasks and artifacts come newest first, transcripts and events in their order.
    for (path, cursor) in [
        (format!("/v1/tasks?session_id={session}"), "cursor"),
        (format!("/v1/sessions/{session}/messages"), "cursor"),
        (format!("/v1/artifacts?session_id={session}"), "cursor"),
        (format!("/v1/sessions/{session}/events"), "after_event_id"),
    ] {
        let mut pages = client.pages(&path, cursor);
        while let Some(page) = pages.next().await? {
            for mut element in page {
                if element["object"] == "artifact" && !asked.no_content {
                    add_content(&client, &mut element).await?;
                }
                lines.write(&element)?;
            }
        }
    }
    lines.end(&asked.session)
}

/// Adds the content of an artifact that the server has and tells: as it is where it is a text, else in Base64.
async fn add_content(client: &Client, artifact: &mut Value) -> Result<(), TalkError> {
    let Some(id) = artifact["id"].as_str().filter(|_| artifact["uri"].is_null()) else { return Ok(()) };
    match client.read_bytes(&format!("/v1/artifacts/{id}/content")).await.map(String::from_utf8) {
        Ok(Ok(text)) => artifact["content"] = text.into(),
        Ok(Err(no_text)) => artifact["content_base64"] = STANDARD.encode(no_text.as_bytes()).into(),
        Err(TalkError::Refused { status: 403 | 404, .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// What is written, and where.
struct ExportLines {
    out: Box<dyn Write>,
    place: Option<PathBuf>,
    /// The file that takes the place when it is whole: an export that breaks off leaves what was there.
    unfinished: Option<PathBuf>,
    count: usize,
}

impl ExportLines {
    fn to(place: Option<PathBuf>) -> Result<Self, SessionExportError> {
        let unfinished = place.as_deref().filter(|path| is_replaced(path)).map(beside);
        let out: Box<dyn Write> = match unfinished.as_ref().or(place.as_ref()) {
            Some(path) => {
                let file = if unfinished.is_some() { begun(path) } else { File::create(path) };
                let file = file.map_err(|error| SessionExportError::File { place: path.clone(), error })?;
                Box::new(io::BufWriter::new(file))
            }
            None => Box::new(io::stdout()),
        };
        Ok(Self { out, place, unfinished, count: 0 })
    }

    fn write(&mut self, element: &Value) -> io::Result<()> {
        self.count += 1;
        writeln!(self.out, "{}", terminal::json(element, false))
    }

    fn end(mut self, session: &str) -> Result<(), SessionExportError> {
        self.out.flush()?;
        if let Some(place) = &self.place {
            if let Some(unfinished) = self.unfinished.take() {
                let moved = fs::rename(&unfinished, place);
                moved.map_err(|error| SessionExportError::File { place: place.clone(), error })?;
            }
            writeln!(io::stdout(), "{session}: {} lines are in {}", self.count, place.display())?;
        }
        Ok(())
    }
}

impl Drop for ExportLines {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // Where it cannot be removed, no other export is held by it.
            let _ = fs::remove_file(unfinished);
        }
    }
}

/// True if what is at `path` is a file, or nothing yet: a pipe or a device is written as it is.
fn is_replaced(path: &Path) -> bool {
    fs::symlink_metadata(path).map_or(true, |there| there.is_file())
}

/// The file beside `path` that is written first, and by no other export.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.unfinished", Uuid::new_v4().simple()));
    name.into()
}

/// Makes a file that only this user can read: what was said is in it.
fn begun(file: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_export_that_breaks_off_leaves_the_one_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("session.jsonl");
        let names = || fs::read_dir(folder.path()).expect("a folder").count();
        let begun = |words: &str| {
            let mut lines = ExportLines::to(Some(place.clone())).expect("a file");
            lines.write(&json!({ "words": words })).expect("a line");
            lines
        };
        begun("first").end("session_1").expect("it is whole");
        let first = fs::read_to_string(&place).expect("a file");
        assert_eq!((first.as_str(), names()), ("{\"words\":\"first\"}\n", 1));
        drop(begun("broken off"));
        assert_eq!((fs::read_to_string(&place).expect("a file"), names()), (first, 1));
        begun("second").end("session_1").expect("it is whole");
        assert!(fs::read_to_string(&place).expect("a file").contains("second"));
        assert!(!is_replaced(folder.path()) && is_replaced(&folder.path().join("new")));
    }

    #[test]
    fn two_exports_to_one_file_leave_one_of_them_whole_and_to_its_user_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("session.jsonl");
        let mut one = ExportLines::to(Some(place.clone())).expect("a file");
        one.write(&json!("one")).expect("a line");
        let mut other = ExportLines::to(Some(place.clone())).expect("a file");
        other.write(&json!("other")).expect("a line");
        one.write(&json!("one, too")).expect("a line");
        other.end("session_1").expect("it is whole");
        assert_eq!(fs::read_to_string(&place).expect("a file"), "\"other\"\n");
        one.end("session_1").expect("it is whole");
        assert_eq!(fs::read_to_string(&place).expect("a file"), "\"one\"\n\"one, too\"\n");
        assert_eq!(fs::metadata(&place).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
