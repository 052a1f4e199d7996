use dormouse_ports::execution::{ExecutionBackend, GlobRequest, GrepRequest, Matches};
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolSpec};
use serde_json::json;

use super::arguments::{is_set, optional, text};
use super::{refused, tool};

/// Files that Glob returns.
const MOST_FILES: usize = 100;
/// Lines that Grep returns.
const MOST_LINES: usize = 250;

pub(super) fn glob() -> ToolSpec {
    let properties = json!({
        "pattern": { "type": "string", "minLength": 1, "description": "For example `src/**/*.rs`" },
        "path": { "type": "string", "description": "The folder to which the pattern is relative; the root if left out" }
    });
    tool("Glob", "Finds files by a pattern of their paths, up to 100.", Effect::Safe, properties, &["pattern"])
}

pub(super) fn grep() -> ToolSpec {
    let properties = json!({
        "pattern": { "type": "string", "minLength": 1, "description": "A regular expression, matched within a line" },
        "path": { "type": "string", "description": "The file or folder to search; the root if left out" },
        "glob": { "type": "string", "description": "Only files that match, for example `*.rs`" },
        "ignore_case": { "type": "boolean" },
        "output_mode": { "enum": ["content", "files"], "description": "Lines (if left out), or only the paths of their files" }
    });
    tool(
        "Grep",
        "Finds lines of text files by a regular expression, up to 250.",
        Effect::Safe,
        properties,
        &["pattern"],
    )
}

pub(super) async fn call_glob(backend: &dyn ExecutionBackend, call: &ToolCall) -> Result<ToolOutput, ToolError> {
    let request = GlobRequest {
        pattern: text(call, "pattern")?.to_owned(),
        folder: optional(call, "path").unwrap_or_default().to_owned(),
        most: MOST_FILES,
    };
    let found = backend.glob(&request).await.map_err(|error| refused(&error))?;
    let mut shown = found.paths.join("\n");
    if found.cut {
        shown.push_str("\n[there are more: narrow the pattern]");
    }
    Ok(ToolOutput::text(if shown.is_empty() { "no file matches".to_owned() } else { shown }))
}

pub(super) async fn call_grep(backend: &dyn ExecutionBackend, call: &ToolCall) -> Result<ToolOutput, ToolError> {
    let request = GrepRequest {
        expression: text(call, "pattern")?.to_owned(),
        ignore_case: is_set(call, "ignore_case"),
        path: optional(call, "path").unwrap_or_default().to_owned(),
        files: optional(call, "glob").map(str::to_owned),
        most: MOST_LINES,
    };
    let found = backend.grep(&request).await.map_err(|error| refused(&error))?;
    Ok(ToolOutput::text(match optional(call, "output_mode") {
        Some("files") => paths(&found),
        Some(_) | None => lines(&found),
    }))
}

fn lines(found: &Matches) -> String {
    let lines = found.lines.iter().map(|line| format!("{}:{}:{}", line.path, line.line, line.text));
    ended(found, lines.collect())
}

fn paths(found: &Matches) -> String {
    let mut paths: Vec<String> = found.lines.iter().map(|line| line.path.clone()).collect();
    paths.dedup();
    ended(found, paths)
}

fn ended(found: &Matches, mut shown: Vec<String>) -> String {
    if shown.is_empty() {
        shown.push("no line matches".to_owned());
    }
    if found.cut {
        shown.push("[there may be more: narrow the search]".to_owned());
    }
    if !found.skipped.is_empty() {
        shown.push(format!("[too large to be searched: {}]", found.skipped.join(", ")));
    }
    shown.join("\n")
}
