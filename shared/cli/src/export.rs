//! A session, written whole.

use std::ffi::OsStr;
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
        let at = |path: &Path| {
            let place = path.to_owned();
            move |error| SessionExportError::File { place, error }
        };
        let (out, unfinished): (Box<dyn Write>, _) = match place.as_deref() {
            Some(path) if is_replaced(path) => {
                remove_left(path);
                let (file, unfinished) = begun(path).map_err(at(path))?;
                (Box::new(io::BufWriter::new(file)), Some(unfinished))
            }
            Some(path) => (Box::new(io::BufWriter::new(File::create(path).map_err(at(path))?)), None),
            None => (Box::new(io::stdout()), None),
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

/// Ending of the file that an export writes first, behind the name of its own and 32 digits.
const UNFINISHED: &str = ".unfinished";

/// Makes the file beside `path` that is written first: by no other export, and to be read by this user alone, since what was said
/// is in it. It is locked for as long as this process has it.
fn begun(path: &Path) -> io::Result<(File, PathBuf)> {
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}{UNFINISHED}", Uuid::new_v4().simple()));
        let unfinished = PathBuf::from(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        // Where there are no locks, none is removed either.
        let _ = file.lock();
        // Before it was locked another export may have taken it for one that was left.
        if unfinished.try_exists()? {
            return Ok((file, unfinished));
        }
    }
}

/// Removes what exports to `path` left that were killed: files that no process has locked.
fn remove_left(path: &Path) {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file_name = entry.file_name();
        let digits = || file_name.to_str()?.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(UNFINISHED);
        let is_ours = digits().is_some_and(|digits| Uuid::try_parse(digits).is_ok());
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(left) = OpenOptions::new().write(true).open(entry.path()) else { continue };
        if left.try_lock().is_ok() {
            // Where it cannot be removed, this export is not held up by it.
            let _ = fs::remove_file(entry.path());
        }
    }
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
    fn what_exports_left_that_were_killed_goes_with_the_next_one_to_the_same_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (place, digits) = (at("session.jsonl"), "0123456789abcdef0123456789abcdef");
        let left = at(&format!("session.jsonl.{digits}.unfinished"));
        let others = [at(&format!("other.jsonl.{digits}.unfinished")), at("session.jsonl.mine.unfinished")];
        for path in others.iter().chain([&left]) {
            fs::write(path, "half").expect("a file");
        }
        let under_way = ExportLines::to(Some(place.clone())).expect("a file");
        assert!(!left.exists() && others.iter().all(|other| other.exists()));
        ExportLines::to(Some(place.clone())).expect("a file").end("session_1").expect("it is whole");
        let unfinished = under_way.unfinished.clone().expect("it is beside");
        assert!(unfinished.exists(), "another export has it");
        under_way.end("session_1").expect("it is whole");
        assert!(!unfinished.exists() && place.exists());
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
