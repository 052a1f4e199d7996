use dormouse_ports::execution::{ExecutionBackend, ExecutionError, FileCondition, FileWrite};
use dormouse_ports::tool::{Effect, FileOperation, ToolCall, ToolError, ToolOutput, ToolSpec, WrittenFile};
use serde_json::json;

use super::arguments::{forgetting, hash, is_set, knowing, known, plain, text};
use super::files::{LARGEST, as_text, gone, too_large};
use super::write::changed;
use super::{refused, tool, wrong};

/// Lines that are named where a text is found more than once.
const MOST_LINES: usize = 10;

pub(super) fn spec() -> ToolSpec {
    let properties = json!({
        "file_path": { "type": "string", "minLength": 1, "description": "Path from the root of the workspace" },
        "old_string": { "type": "string", "minLength": 1, "description": "The text to replace, exactly as it stands in the file, without line numbers" },
        "new_string": { "type": "string", "description": "The text to put in its place" },
        "replace_all": { "type": "boolean", "description": "Replace every occurrence; without it there must be exactly one" }
    });
    let description = "Replaces a text in a file that was read before. The text must be found exactly once, unless \
                       `replace_all` is set.";
    tool("Edit", description, Effect::Manual, properties, &["file_path", "old_string", "new_string"])
}

pub(super) async fn call(
    backend: &dyn ExecutionBackend,
    definitions: &[String],
    call: &ToolCall,
) -> Result<ToolOutput, ToolError> {
    let path = text(call, "file_path")?;
    let known =
        known(call, path).ok_or_else(|| wrong(format!("`{path}` was not read in this session: read it first")))?;
    let read = match backend.read(path, LARGEST).await {
        Err(ExecutionError::NotFound { .. }) => return Ok(gone(path).noting(forgetting(path))),
        read => read.map_err(|error| too_large(&error))?,
    };
    if read.version.0 != known {
        return Err(changed(path));
    }
    let (edited, count) = edited(path, as_text(path, &read.bytes)?, call)?;
    let written = WrittenFile {
        path: plain(path),
        operation: FileOperation::Modify,
        before_sha256: Some(hash(&read.bytes)),
        after_sha256: hash(edited.as_bytes()),
    };
    let write = FileWrite {
        path: path.to_owned(),
        bytes: edited.into_bytes(),
        condition: FileCondition::Is(read.version),
        definitions: definitions.to_vec(),
    };
    match backend.write(&write).await {
        Ok(version) => {
            call.effects.wrote(written);
            let places = if count == 1 { "one place".to_owned() } else { format!("{count} places") };
            Ok(ToolOutput::text(format!("`{path}` is changed in {places}")).noting(knowing(call, path, &version.0)))
        }
        Err(ExecutionError::Changed { .. }) => Err(changed(path)),
        Err(error) => Err(refused(&error)),
    }
}

/// The content with the replacement, and how often it was made.
fn edited(path: &str, content: &str, call: &ToolCall) -> Result<(String, usize), ToolError> {
    let (old, new) = (text(call, "old_string")?, text(call, "new_string")?);
    if old.is_empty() {
        return Err(wrong("`old_string` is empty: write the whole file with Write"));
    }
    if old == new {
        return Err(wrong("`old_string` and `new_string` are equal: nothing would change"));
    }
    let count = content.matches(old).count();
    if count == 1 && !is_set(call, "replace_all") && overlaps(content, old) {
        return Err(wrong(format!(
            "`old_string` is in `{path}` at two places that overlap, in {}: take more of the text around it",
            lines_of(content, old, 1)
        )));
    }
    match count {
        0 => Err(wrong(format!("`old_string` is not in `{path}`{}", advice(content, old)))),
        count if count == 1 || is_set(call, "replace_all") => {
            fits(path, content, (old, new), count)?;
            Ok((content.replace(old, new), count))
        }
        count => Err(wrong(format!(
            "`old_string` is in `{path}` {count} times, in {}: take more of the text around it, or set `replace_all`",
            lines_of(content, old, count)
        ))),
    }
}

/// True if `old` begins once more within its first place in `content`.
fn overlaps(content: &str, old: &str) -> bool {
    let first = content.find(old).unwrap_or_default();
    let next = first + old.chars().next().map_or(1, char::len_utf8);
    content[next..].contains(old)
}

/// Refuses an edit that would make the file larger than one that can be edited, before anything is built: each place
/// multiplies what is put in.
fn fits(path: &str, content: &str, (old, new): (&str, &str), count: usize) -> Result<(), ToolError> {
    let kept = content.len() - count * old.len();
    let size = count.saturating_mul(new.len()).saturating_add(kept);
    match u64::try_from(size).unwrap_or(u64::MAX) {
        size if size > LARGEST => {
            Err(wrong(format!("`{path}` would have {size} bytes, and may have {LARGEST}: it is not changed")))
        }
        _ => Ok(()),
    }
}

fn lines_of(content: &str, old: &str, count: usize) -> String {
    let line = |(at, _): (usize, &str)| (1 + content[..at].matches('\n').count()).to_string();
    let shown = content.match_indices(old).take(MOST_LINES).map(line).collect::<Vec<_>>().join(", ");
    if count > MOST_LINES { format!("lines {shown} and more") } else { format!("lines {shown}") }
}

/// Reason why the text may not have been found.
fn advice(content: &str, old: &str) -> &'static str {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if content.contains("\r\n") && content.replace("\r\n", "\n").contains(&old.replace("\r\n", "\n")) {
        return ": the lines of the file end with a carriage return and a line feed";
    }
    match squeezed(content).contains(&squeezed(old)) {
        true => ": it is there with other blanks or line ends; take the text exactly as Read shows it",
        false => "; read the file again and take the text exactly",
    }
}
