use dormouse_ports::execution::{ExecutionBackend, ExecutionError};
use dormouse_ports::tool::{Effect, SHOWN_OUTPUT, ToolCall, ToolError, ToolOutput, ToolSpec};
use serde_json::json;

use super::arguments::{forgetting, knowing, known, text, whole};
use super::{refused, tool, wrong};

/// Bytes of a file that is read or edited.
pub(super) const LARGEST: u64 = 8 << 20;
/// Lines that are shown where nothing is said.
const USUAL: u64 = 2000;
/// Bytes of a line that are shown.
const LONGEST_LINE: usize = 2000;
/// Bytes of all lines behind which no other is shown: one more of them, and what is said of the rest, are shown as well.
const MOST_SHOWN: usize = SHOWN_OUTPUT - (4 << 10);

pub(super) fn spec() -> ToolSpec {
    let properties = json!({
        "file_path": { "type": "string", "minLength": 1, "description": "Path from the root of the workspace" },
        "offset": { "type": "integer", "minimum": 1, "description": "The first line that is shown; 1 if left out" },
        "limit": { "type": "integer", "minimum": 1, "maximum": 20000, "description": "Lines that are shown; 2000 if left out" }
    });
    tool("Read", "Shows a text file, with a number before each line.", Effect::Safe, properties, &["file_path"])
}

pub(super) async fn call(backend: &dyn ExecutionBackend, call: &ToolCall) -> Result<ToolOutput, ToolError> {
    let path = text(call, "file_path")?;
    let read = match backend.read(path, LARGEST).await {
        Err(ExecutionError::NotFound { .. }) if known(call, path).is_some() => {
            return Ok(gone(path).noting(forgetting(path)));
        }
        read => read.map_err(|error| too_large(&error))?,
    };
    let content = as_text(path, &read.bytes)?;
    let offset = whole(call, "offset").unwrap_or(1);
    let shown = numbered(content, offset, whole(call, "limit").unwrap_or(USUAL));
    let shown = match (content.is_empty(), shown) {
        (true, _) => format!("`{path}` is empty"),
        (false, Some(shown)) => shown,
        (false, None) => {
            return Err(wrong(format!(
                "`{path}` has {} lines, and none from line {offset} on",
                content.lines().count()
            )));
        }
    };
    Ok(ToolOutput::text(shown).noting(knowing(call, path, &read.version.0)))
}

/// What is said of a file that was read before and is not there any more.
pub(super) fn gone(path: &str) -> ToolOutput {
    ToolOutput::error(format!("there is no file `{path}` any more: Write makes a new one"))
}

/// The error of reading a file, with what helps where it is too large.
pub(super) fn too_large(error: &ExecutionError) -> ToolError {
    if let ExecutionError::TooLarge { path, size, limit } = error {
        return wrong(format!(
            "`{path}` has {size} bytes, and files up to {limit} can be read and searched: take a part of it with Bash"
        ));
    }
    refused(error)
}

/// The content of a text file.
pub(super) fn as_text<'b>(path: &str, bytes: &'b [u8]) -> Result<&'b str, ToolError> {
    let binary = || wrong(format!("`{path}` is no text: {} bytes of something else", bytes.len()));
    let text = std::str::from_utf8(bytes).map_err(|_| binary())?;
    if text.contains('\0') { Err(binary()) } else { Ok(text) }
}

/// At most `limit` lines from line `offset` on; `None` where there is no such line.
fn numbered(content: &str, offset: u64, limit: u64) -> Option<String> {
    let mut shown = String::new();
    let mut last = None;
    let mut lines = (1_u64..).zip(content.lines()).skip_while(|(number, _)| *number < offset);
    for (number, line) in lines.by_ref() {
        let cut = &line[..line.floor_char_boundary(LONGEST_LINE)];
        let mark = if cut.len() < line.len() { " [cut]" } else { "" };
        shown.push_str(&format!("{number:>6}\t{cut}{mark}\n"));
        last = Some(number);
        if number - offset + 1 == limit || shown.len() >= MOST_SHOWN {
            break;
        }
    }
    let last = last?;
    let left = lines.count();
    if left > 0 {
        shown.push_str(&format!("[{left} more lines: read on with offset {}]\n", last + 1));
    }
    Some(shown)
}
