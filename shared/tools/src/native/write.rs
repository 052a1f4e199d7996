use dormouse_ports::execution::{ExecutionBackend, ExecutionError, FileCondition, FileVersion, FileWrite};
use dormouse_ports::tool::{Effect, FileOperation, ToolCall, ToolError, ToolOutput, ToolSpec, WrittenFile};
use serde_json::json;

use super::arguments::{hash, knowing, known, plain, text};
use super::files::LARGEST;
use super::{refused, tool, wrong};

pub(super) fn spec() -> ToolSpec {
    let properties = json!({
        "file_path": { "type": "string", "minLength": 1, "description": "Path from the root of the workspace" },
        "content": { "type": "string", "description": "The whole content of the file" }
    });
    let description = "Writes a file whole, and makes the folders on the way to it. A file that is there already has to \
                       be read first; to change a part of it, use Edit.";
    tool("Write", description, Effect::Manual, properties, &["file_path", "content"])
}

pub(super) async fn call(
    backend: &dyn ExecutionBackend,
    definitions: &[String],
    call: &ToolCall,
) -> Result<ToolOutput, ToolError> {
    let path = text(call, "file_path")?;
    let content = text(call, "content")?;
    let known = known(call, path);
    let condition = known.clone().map_or(FileCondition::Absent, |version| FileCondition::Is(FileVersion(version)));
    let before_sha256 = match &known {
        Some(version) => replaced(backend, path, version).await,
        None => None,
    };
    let bytes = content.as_bytes().to_vec();
    let write = FileWrite { path: path.to_owned(), bytes, condition, definitions: definitions.to_vec() };
    let version = match backend.write(&write).await {
        Ok(version) => version,
        Err(ExecutionError::Changed { .. }) if known.is_none() => {
            return Err(wrong(format!("there is a file `{path}` already: read it before it is written over")));
        }
        Err(ExecutionError::Changed { .. }) => return Err(changed(path)),
        Err(error) => return Err(refused(&error)),
    };
    let operation = if known.is_some() { FileOperation::Modify } else { FileOperation::Create };
    let after_sha256 = hash(content.as_bytes());
    call.effects.wrote(WrittenFile { path: plain(path), operation, before_sha256, after_sha256 });
    let lines = match content.lines().count() {
        1 => "1 line".to_owned(),
        count => format!("{count} lines"),
    };
    let done = if known.is_some() { "written over" } else { "written" };
    Ok(ToolOutput::text(format!("`{path}` is {done}: {lines}")).noting(knowing(call, path, &version.0)))
}

/// The hash of what is written over; `None` of a file that is too large to be read, or that is not in `version` any more.
async fn replaced(backend: &dyn ExecutionBackend, path: &str, version: &str) -> Option<String> {
    let read = backend.read(path, LARGEST).await.ok()?;
    (read.version.0 == version).then(|| hash(&read.bytes))
}

/// The file is not as it was read.
pub(super) fn changed(path: &str) -> ToolError {
    wrong(format!("`{path}` was changed, moved or removed since it was read: read it again, then decide anew"))
}
