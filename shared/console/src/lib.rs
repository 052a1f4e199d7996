//! The console as files: a page, its style and its scripts, embedded at build time as they are and compressed.
//!
//! It is a client of the protocol under `/v1` and of the addresses of pauses. Its server gives each [`Asset`] with the
//! [`policy`], under [`PREFIX`]; it asks for nothing else, and no other server.
//!
//! # Invariants
//! - No file names another origin, holds inline script or style, or makes markup of text.
//! - All files together stay under [`MOST_BYTES`], as they are sent.

#![warn(missing_docs)]

/// Prefix of the paths of the console.
pub const PREFIX: &str = "/console";

/// The most bytes that all files have together, compressed as browsers are sent them.
pub const MOST_BYTES: usize = 150_000;

/// A file of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its path behind [`PREFIX`], with a slash in front.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
    /// Its content, compressed with gzip (RFC 1952).
    pub gzip: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! assets {
    ($($file:literal $kind:ident,)*) => {
        /// All files.
        pub const ASSETS: &[Asset] = &[$(Asset {
            path: concat!("/", $file),
            content_type: $kind,
            bytes: include_bytes!(concat!("../assets/", $file)),
            gzip: include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".gz")),
        },)*];
    };
}

assets! {
    "index.html" HTML,
    "style.css" STYLE,
    "icon.svg" PICTURE,
    "main.js" SCRIPT,
    "api.js" SCRIPT,
    "stream.js" SCRIPT,
    "json.js" SCRIPT,
    "dom.js" SCRIPT,
    "words.js" SCRIPT,
    "list.js" SCRIPT,
    "markdown.js" SCRIPT,
    "pictures.js" SCRIPT,
    "answer.js" SCRIPT,
    "sign-in.js" SCRIPT,
    "oidc.js" SCRIPT,
    "inbox.js" SCRIPT,
    "pause.js" SCRIPT,
    "sessions.js" SCRIPT,
    "run.js" SCRIPT,
    "receipts.js" SCRIPT,
    "asleep.js" SCRIPT,
    "catalog.js" SCRIPT,
    "costs.js" SCRIPT,
}

/// The file at `path`, which begins with [`PREFIX`]. Every path that names no file of a kind is a view of the one page, so
/// that an address leads back to what it was copied from.
pub fn asset(path: &str) -> Option<Asset> {
    let path = path.strip_prefix(PREFIX)?;
    if !path.is_empty() && !path.starts_with('/') {
        return None;
    }
    let found = ASSETS.iter().find(|asset| asset.path == path);
    let is_file = path.strip_prefix('/').is_some_and(|name| !name.contains('/') && name.contains('.'));
    found.or_else(|| ASSETS.first().filter(|_| !is_file)).copied()
}

/// The content security policy of the page: its own files, and requests to itself and `others`.
pub fn policy(others: &[&str]) -> String {
    let connect = others.iter().fold("'self'".to_owned(), |all, other| format!("{all} {other}"));
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {connect}; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    )
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_view_is_the_page_and_a_missing_file_is_none() {
        for view in ["/console", "/console/", "/console/run/task_1", "/console/session/a.b/c", "/console/run/a.js/x"] {
            assert_eq!(asset(view).map(|asset| asset.path), Some("/index.html"), "{view}");
        }
        assert_eq!(asset("/console/main.js").map(|asset| asset.content_type), Some(SCRIPT));
        for none in ["/console/none.js", "/consoles", "/other", "/console/../Cargo.toml.js"] {
            assert!(asset(none).is_none_or(|asset| asset.path == "/index.html"), "{none}");
        }
        assert_eq!(asset("/console/none.js"), None);
    }

    #[test]
    fn all_of_it_is_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(bytes < MOST_BYTES, "{bytes} bytes");
    }

    #[test]
    fn what_is_compressed_is_the_file() {
        for asset in ASSETS {
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(asset.gzip).read_to_end(&mut bytes).expect("gzip");
            assert!(bytes == asset.bytes, "{}", asset.path);
        }
    }

    #[test]
    fn no_file_names_another_origin_or_makes_markup_of_text() {
        let forbidden = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"];
        for asset in ASSETS {
            let text = std::str::from_utf8(asset.bytes).expect("text");
            let origins = text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "");
            for scheme in ["http://", "https://", "//cdn"] {
                assert!(!origins.contains(scheme), "{} names an origin", asset.path);
            }
            for word in forbidden {
                assert!(!text.contains(word), "{} has {word}", asset.path);
            }
        }
    }

    #[test]
    fn scripts_import_only_files_that_are_here() {
        for asset in ASSETS.iter().filter(|asset| asset.content_type == SCRIPT) {
            let text = std::str::from_utf8(asset.bytes).expect("text");
            let imports = text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next());
            for import in imports {
                let path = format!("/{import}");
                assert!(ASSETS.iter().any(|other| other.path == path), "{} imports {import}", asset.path);
            }
        }
    }

    #[test]
    fn the_policy_lets_in_what_is_named() {
        assert!(policy(&[]).contains("connect-src 'self';"));
        assert!(policy(&["https://s.example"]).contains("connect-src 'self' https://s.example;"));
    }
}
