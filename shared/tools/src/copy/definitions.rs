//! The definitions of a published bundle, as files.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_json::Bounds;
use dormouse_ports::execution::ExecutionError;
use serde::Deserialize;

/// A bundle has four values for each of 20,000 files at most, and three around them.
const BOUNDS: Bounds = Bounds { depth: 4, values: 80_003 };

/// Paths and contents.
pub(super) type Definitions = BTreeMap<String, Vec<u8>>;

#[derive(Deserialize)]
struct DefinitionsArchive {
    files: Vec<DefinitionFile>,
}

#[derive(Deserialize)]
struct DefinitionFile {
    path: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
}

/// The files of the bundle in `bytes`.
pub(super) fn read(bytes: &[u8]) -> Result<Definitions, ExecutionError> {
    let broken = |reason: String| ExecutionError::Denied { reason: format!("the bundle cannot be read: {reason}") };
    let archive: DefinitionsArchive = dormouse_json::read(bytes, BOUNDS).map_err(|error| broken(error.to_string()))?;
    let mut files = Definitions::new();
    for file in archive.files {
        let content = match (file.text, file.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(encoded)) => STANDARD.decode(encoded).map_err(|error| broken(error.to_string()))?,
            (Some(_), Some(_)) | (None, None) => return Err(broken(format!("{} has no content", file.path))),
        };
        files.insert(file.path, content);
    }
    Ok(files)
}
