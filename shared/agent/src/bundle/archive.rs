//! The bytes of a bundle: one JSON document that any tool can read. Files stand in the order of their paths; a text as
//! it is, anything else in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_json::Bounds;
use serde::{Deserialize, Serialize};

use super::{Bundle, BundleError, size_of};
use crate::workspace::{FILE_LIMIT, FileContent, Files, INSTRUCTIONS, MOST_FILES, counted};

/// Bytes of an archive: the content of a bundle with what JSON adds.
pub const ARCHIVE_LIMIT: u64 = 12 * 1024 * 1024;

const FORMAT: u32 = 1;
/// An archive has four values for each file at most, and three around them.
const BOUNDS: Bounds = Bounds { depth: 4, values: 4 * MOST_FILES + 3 };

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Archive {
    format: u32,
    files: Vec<ArchivedFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchivedFile {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Bytes of a file that was too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    too_large: Option<u64>,
    /// Why a file could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
}

impl Bundle {
    /// Its bytes; the same for the same files.
    ///
    /// # Errors
    /// When JSON makes it larger than [`ARCHIVE_LIMIT`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, BundleError> {
        let files = self.files.iter().map(|(path, content)| archived(path, content)).collect();
        let bytes = serde_json::to_vec(&Archive { format: FORMAT, files });
        let bytes = bytes.map_err(|error| BundleError::Malformed(error.to_string()))?;
        match size_of(&bytes) > ARCHIVE_LIMIT {
            true => Err(BundleError::TooLarge(size_of(&bytes))),
            false => Ok(bytes),
        }
    }

    /// The bundle called `name` from its bytes.
    ///
    /// # Errors
    /// When they are no archive, or not that of `name`.
    pub fn from_bytes(bytes: &[u8], name: &str) -> Result<Self, BundleError> {
        let archive: Archive =
            dormouse_json::read(bytes, BOUNDS).map_err(|error| BundleError::Malformed(error.to_string()))?;
        if archive.format != FORMAT {
            let reason = format!("its format is {}, and this version reads {FORMAT}", archive.format);
            return Err(BundleError::Malformed(reason));
        }
        let mut files = Files::new();
        for file in archive.files {
            let path = file.path.clone();
            let content = content(file)?;
            if files.insert(path.clone(), content).is_some() {
                return Err(BundleError::Malformed(format!("it has {path} twice")));
            }
        }
        let bundle = Self::checked(files)?;
        let counts = counted(&bundle.files);
        if let Some(path) = bundle.files.keys().find(|path| !counts(path)) {
            return Err(no_definition(path));
        }
        match bundle.digest == name {
            true => Ok(bundle),
            false => Err(BundleError::Changed { name: name.to_owned(), found: bundle.digest }),
        }
    }
}

fn archived(path: &str, content: &FileContent) -> ArchivedFile {
    let mut file = ArchivedFile { path: path.to_owned(), text: None, base64: None, too_large: None, unreadable: None };
    match content {
        FileContent::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => file.text = Some(text.to_owned()),
            Err(_) => file.base64 = Some(STANDARD.encode(bytes)),
        },
        FileContent::TooLarge(size) => file.too_large = Some(*size),
        FileContent::Unreadable(reason) | FileContent::LeftOut(reason) => file.unreadable = Some(reason.clone()),
    }
    file
}

fn no_definition(path: &str) -> BundleError {
    BundleError::Malformed(format!("{path:?} is no path of a definition"))
}

fn content(file: ArchivedFile) -> Result<FileContent, BundleError> {
    let ArchivedFile { path, text, base64, too_large, unreadable } = file;
    let malformed = |what: &str| BundleError::Malformed(format!("{path:?} {what}"));
    let is_plain = path.split('/').all(|part| !["", ".", ".."].contains(&part));
    if !is_plain {
        return Err(no_definition(&path));
    }
    let bytes = match (text, base64, too_large, unreadable) {
        (Some(text), None, None, None) => text.into_bytes(),
        (None, Some(encoded), None, None) => STANDARD.decode(encoded).map_err(|_| malformed("has no base64"))?,
        (None, None, Some(size), None) if path == INSTRUCTIONS => return Ok(FileContent::TooLarge(size)),
        (None, None, None, Some(reason)) if path == INSTRUCTIONS => return Ok(FileContent::Unreadable(reason)),
        (_, _, _, _) => return Err(malformed("needs either a text or base64")),
    };
    match size_of(&bytes) > FILE_LIMIT {
        true => Err(malformed("is larger than a definition may be")),
        false => Ok(FileContent::Bytes(bytes)),
    }
}
