//! Arguments of a call, which the schema has checked.

use dormouse_ports::Map;
use dormouse_ports::tool::{ToolCall, ToolError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::wrong;

/// Files of which a session knows that they were read; those of long ago are read again before they are changed.
const MOST_FILES: usize = 200;
/// Bytes of JSON of what is known of all of them; a session keeps no notes over 64 KiB, and the list of things to do is
/// among them.
const MOST_BYTES: usize = 32 << 10;

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
    let path = plain(path);
    let size = |path: &str, version: &str| json!({ path: version }).to_string().len();
    let (mut files, mut kept, mut bytes) = (Map::new(), 1, size(&path, version));
    let known = call.notes.get("files").and_then(Value::as_object);
    // The oldest stand first: from the newest on, as many are kept as there is room for.
    for (known, version) in known.into_iter().flatten().rev().filter(|(known, _)| **known != path) {
        bytes += size(known, version.as_str().unwrap_or_default());
        kept += 1;
        if kept > MOST_FILES || bytes > MOST_BYTES {
            files.insert(known.clone(), Value::Null);
        }
    }
    files.insert(path, version.into());
    Map::from_iter([("files".to_owned(), json!(files))])
}

/// The note that there is no file at `path` any more, so that one can be written there.
pub(super) fn forgetting(path: &str) -> Map {
    Map::from_iter([("files".to_owned(), json!({ plain(path): null }))])
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

    #[test]
    fn what_is_known_of_files_with_long_paths_has_a_bound_in_bytes() {
        let mut call = ToolCall::new("1", "Read", Map::new());
        let path = |n: usize| format!("{n:03}{}", "\u{1}".repeat(90));
        for n in 0..150 {
            let patch = knowing(&call, &path(n), "0123456789abcdef");
            let mut files = call.notes.get("files").and_then(Value::as_object).cloned().unwrap_or_default();
            for (path, version) in patch["files"].as_object().expect("files") {
                files.shift_remove(path);
                if !version.is_null() {
                    files.insert(path.clone(), version.clone());
                }
            }
            call.notes = Map::from_iter([("files".to_owned(), Value::Object(files))]);
            assert!(call.notes["files"].to_string().len() <= MOST_BYTES);
        }
        assert!(known(&call, &path(149)).is_some() && known(&call, &path(120)).is_some(), "the newest are kept");
        assert!(known(&call, &path(0)).is_none(), "the oldest is read again before it is changed");
    }
}
