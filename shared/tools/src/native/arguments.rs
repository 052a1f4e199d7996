//! Arguments of a call, which the schema has checked.

use dormouse_ports::Map;
use dormouse_ports::tool::{ToolCall, ToolError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::wrong;

/// Files of which a session knows that they were read; those of long ago are read again before they are changed.
const MOST_FILES: usize = 200;

pub(super) fn text<'c>(call: &'c ToolCall, name: &str) -> Result<&'c str, ToolError> {
    optional(call, name).ok_or_else(|| wrong(format!("`{name}` must be a text")))
}

pub(super) fn optional<'c>(call: &'c ToolCall, name: &str) -> Option<&'c str> {
    call.arguments.get(name).and_then(Value::as_str)
}

pub(super) fn whole(call: &ToolCall, name: &str) -> Option<u64> {
    call.arguments.get(name).and_then(Value::as_u64)
}

pub(super) fn is_set(call: &ToolCall, name: &str) -> bool {
    call.arguments.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// The version in which the session knows the file at `path`.
pub(super) fn known(call: &ToolCall, path: &str) -> Option<String> {
    call.notes.get("files")?.get(plain(path))?.as_str().map(str::to_owned)
}

/// The note that the file at `path` is known in `version`.
pub(super) fn knowing(call: &ToolCall, path: &str, version: &str) -> Map {
    let mut files = Map::new();
    let known = call.notes.get("files").and_then(Value::as_object);
    let over = known.map_or(0, Map::len).saturating_sub(MOST_FILES - 1);
    // The oldest stand first.
    files.extend(known.into_iter().flat_map(Map::keys).take(over).map(|path| (path.clone(), Value::Null)));
    files.insert(plain(path), version.into());
    Map::from_iter([("files".to_owned(), json!(files))])
}

/// The hash of the content of a file, as records write it.
pub(super) fn hash(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

/// The path without what does not matter in it.
pub(super) fn plain(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_under_each_way_to_write_its_path_and_the_oldest_are_forgotten() {
        let mut call = ToolCall::new("1", "Read", Map::new());
        call.notes = knowing(&call, "./a//b", "v");
        assert_eq!(known(&call, "a/b").as_deref(), Some("v"));
        let many: Map = (0..MOST_FILES).map(|n| (format!("f{n}"), "v".into())).collect();
        call.notes = Map::from_iter([("files".to_owned(), Value::Object(many))]);
        let patch = knowing(&call, "new", "w");
        assert_eq!(patch["files"], json!({ "f0": null, "new": "w" }));
    }
}
