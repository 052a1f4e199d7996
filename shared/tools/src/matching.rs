//! Patterns of paths and lines, the same wherever the files are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse_ports::execution::{ExecutionError, FileVersion, GrepRequest, Match, Matches};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use sha2::{Digest, Sha256};

/// Digits of the digest that name a version.
const DIGITS: usize = 32;
/// Bytes of a line that are shown.
const LONGEST_LINE: usize = 500;
/// Bytes of a long line that are shown before what was found in it.
const SHOWN_BEFORE: usize = 100;
/// Bytes of a line in which is searched; what a search costs is these times the states of its expression.
const SEARCHED_OF_LINE: usize = 256 << 10;
/// Bytes of a pattern of paths, and of an expression as it is written.
const LONGEST_WRITTEN: usize = 8 << 10;
/// Braces of a pattern; one within the other is compiled by recursion.
const MOST_BRACES: usize = 64;
/// Bytes of a compiled expression.
const LARGEST_EXPRESSION: usize = 1 << 20;
/// Lines after which a search looks whether anybody still waits for it.
const LINES_BETWEEN_LOOKS: u64 = 64;
/// Bytes at the beginning of a file by which a text is told from something else.
const LOOKED_AT: usize = 8 << 10;

/// The version that names content of that digest.
pub(crate) fn version(hash: Sha256) -> FileVersion {
    let mut digits = hex::encode(hash.finalize());
    digits.truncate(DIGITS);
    FileVersion(digits)
}

/// The version of `bytes`.
pub(crate) fn version_of(bytes: &[u8]) -> FileVersion {
    version(Sha256::new_with_prefix(bytes))
}

/// `path` from `folder` on.
pub(crate) fn below<'p>(path: &'p str, folder: &str) -> &'p str {
    path.strip_prefix(folder).map_or(path, |rest| rest.trim_start_matches('/'))
}

/// A pattern of paths.
pub(crate) fn matcher(pattern: &str) -> Result<GlobMatcher, ExecutionError> {
    short("pattern", pattern)?;
    if pattern.matches('{').count() > MOST_BRACES {
        return Err(invalid(format!("a pattern may have {MOST_BRACES} braces")));
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob = glob.map_err(|error| invalid(format!("`{pattern}` is no pattern: {error}")))?;
    Ok(glob.compile_matcher())
}

/// Tells a search that works on a thread of its own that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// Tells it when the guard is dropped.
    pub(crate) fn when_dropped(&self) -> AbandonOnDrop {
        AbandonOnDrop(self.clone())
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Abandons a search where it is dropped.
#[derive(Debug)]
pub(crate) struct AbandonOnDrop(Abandoned);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// The files and the lines that a search looks for.
pub(crate) struct Search {
    files: Option<GlobMatcher>,
    expression: Regex,
    most: usize,
}

impl Search {
    pub(crate) fn of(request: &GrepRequest) -> Result<Self, ExecutionError> {
        short("regular expression", &request.expression)?;
        let files = request.files.as_deref().map(matcher).transpose()?;
        let expression = RegexBuilder::new(&request.expression)
            .case_insensitive(request.ignore_case)
            .size_limit(LARGEST_EXPRESSION)
            .build()
            .map_err(|error| invalid(format!("`{}` is no regular expression: {error}", request.expression)))?;
        Ok(Self { files, expression, most: request.most })
    }

    /// True if the file at `path` is one of those that are searched below `folder`.
    pub(crate) fn looks_at(&self, path: &str, folder: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.files.as_ref().is_none_or(|files| files.is_match(below(path, folder)) || files.is_match(name))
    }

    /// Adds the matching lines of `bytes`, the content of the file at `path`, unless that is no text; false when there are
    /// as many as were asked for, or nobody waits for them any more.
    pub(crate) fn lines(&self, path: &str, bytes: &[u8], abandoned: &Abandoned, found: &mut Matches) -> bool {
        if bytes[..bytes.len().min(LOOKED_AT)].contains(&0) {
            return true;
        }
        for (number, line) in (1_u64..).zip(bytes.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if number % LINES_BETWEEN_LOOKS == 1 && abandoned.is_set() {
                return false;
            }
            let searched = &line[..line.len().min(SEARCHED_OF_LINE)];
            if !self.expression.is_match(searched) {
                continue;
            }
            if found.lines.len() == self.most {
                return false;
            }
            let place = if line.len() > LONGEST_LINE { self.expression.find(searched) } else { None };
            let text = shown(line, place.map_or(0..0, |place| place.start()..place.end()));
            found.lines.push(Match { path: path.to_owned(), line: number, text });
        }
        true
    }
}

/// The part of `line` that is shown where `found` is what was looked for: the beginning, or what stands around that.
fn shown(line: &[u8], found: Range<usize>) -> String {
    let is_within = |at: usize| line.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let start = if found.end <= LONGEST_LINE { 0 } else { found.start.saturating_sub(SHOWN_BEFORE) };
    let end = line.len().min(start + LONGEST_LINE);
    // A character has up to three bytes behind its first one.
    let start = (start..end.min(start + 4)).find(|at| !is_within(*at)).unwrap_or(start);
    let end = (end.saturating_sub(3).max(start)..=end).rev().find(|at| !is_within(*at)).unwrap_or(end);
    let (before, behind) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{behind}", String::from_utf8_lossy(&line[start..end]))
}

fn short(what: &str, written: &str) -> Result<(), ExecutionError> {
    match written.len() {
        size if size > LONGEST_WRITTEN => {
            Err(invalid(format!("the {what} has {size} bytes, and may have {LONGEST_WRITTEN}")))
        }
        _ => Ok(()),
    }
}

fn invalid(reason: String) -> ExecutionError {
    ExecutionError::InvalidRequest { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_that_part_is_shown_in_which_something_was_found() {
        assert_eq!(shown(b"short", 2..3), "short");
        let begin = shown("é".repeat(400).as_bytes(), 0..2);
        assert_eq!(begin, format!("{}…", "é".repeat(250)));
        let line = format!("{}needle{}", "é".repeat(4_000), "x".repeat(4_000));
        let around = shown(line.as_bytes(), 8_000..8_006);
        assert_eq!(around, format!("…{}needle{}…", "é".repeat(50), "x".repeat(394)));
        let odd = shown(line.replace("needle", "yneedle").as_bytes(), 8_001..8_007);
        assert!(odd.starts_with(&format!("…{}yneedle", "é".repeat(49))), "{odd}");
        let last = shown(format!("{}needle", "x".repeat(900)).as_bytes(), 900..906);
        assert_eq!(last, format!("…{}needle", "x".repeat(100)));
        assert!(shown(&[0x80; 2_000], 1_000..1_001).starts_with('…'), "what is no text is shown all the same");
        let request = GrepRequest {
            expression: "needle".to_owned(),
            ignore_case: false,
            path: String::new(),
            files: None,
            most: 1,
        };
        let mut found = Matches::default();
        Search::of(&request).expect("a search").lines("a", line.as_bytes(), &Abandoned::default(), &mut found);
        assert_eq!(found.lines[0].text, around);
    }
}
