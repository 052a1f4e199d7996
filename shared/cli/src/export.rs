//! A session, written whole.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use dormouse_http::percent::encode;
use serde_json::Value;

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
    count: usize,
}

impl ExportLines {
    fn to(place: Option<PathBuf>) -> Result<Self, SessionExportError> {
        let out: Box<dyn Write> = match &place {
            Some(path) => {
                let file = File::create(path);
                let file = file.map_err(|error| SessionExportError::File { place: path.clone(), error })?;
                Box::new(io::BufWriter::new(file))
            }
            None => Box::new(io::stdout()),
        };
        Ok(Self { out, place, count: 0 })
    }

    fn write(&mut self, element: &Value) -> io::Result<()> {
        self.count += 1;
        writeln!(self.out, "{}", terminal::json(element, false))
    }

    fn end(mut self, session: &str) -> Result<(), SessionExportError> {
        self.out.flush()?;
        if let Some(place) = &self.place {
            writeln!(io::stdout(), "{session}: {} lines are in {}", self.count, place.display())?;
        }
        Ok(())
    }
}
