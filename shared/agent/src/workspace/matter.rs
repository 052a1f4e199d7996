//! The settings at the head of a Markdown file.

use super::problem::FileProblems;
use super::yaml::{self, YamlNode};
use crate::names::nearest;

/// The lines among which settings are looked for that stand elsewhere than at the head.
const LOOKED_AT: usize = 100;

/// A Markdown file whose first lines, between two lines of `---`, are YAML.
pub(super) struct FrontMatter<'t> {
    pub(super) yaml: &'t str,
    pub(super) body: &'t str,
    /// Line on which the body begins.
    pub(super) body_line: usize,
}

impl<'t> FrontMatter<'t> {
    /// Splits `text`, and reads what stands between the lines `---`; what is wrong with it is told. Settings have fields of the
    /// names `known`: what looks like some, and is none, is an error.
    pub(super) fn read(text: &'t str, known: &[&str], problems: &mut FileProblems<'_>) -> Option<(Self, YamlNode)> {
        let matter = Self::split(text, known).map_err(|(line, message)| problems.error(line, message)).ok()?;
        let node = yaml::parse(matter.yaml, 2).map_err(|error| problems.error(error.line, error.message)).ok()?;
        Some((matter, node))
    }

    fn split(text: &'t str, known: &[&str]) -> Result<Self, (usize, String)> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.starts_with("---\r") && !text.contains('\n') {
            return Err((
                1,
                "lines end with carriage returns alone: save the file with LF or CRLF as line ends".to_owned(),
            ));
        }
        let Some((_, rest)) = text.split_once('\n').filter(|(first, _)| first.trim_end() == "---") else {
            return match misplaced(text, known) {
                Some(line) => Err((
                    line,
                    "the settings are not read: they begin in line 1 with `---` alone, and end with `---`".to_owned(),
                )),
                None => Ok(Self { yaml: "", body: text, body_line: 1 }),
            };
        };
        let mut at = 0;
        for (line, one) in (2..).zip(rest.split_inclusive('\n')) {
            if one.trim_end() == "---" {
                return Ok(Self { yaml: &rest[..at], body: &rest[at + one.len()..], body_line: line + 1 });
            }
            at += one.len();
        }
        Err((1, "the front matter is not closed: end it with a line `---`".to_owned()))
    }
}

/// The line of a text without front matter that looks as if some had been meant: settings that nobody reads forbid nothing.
fn misplaced(text: &str, known: &[&str]) -> Option<usize> {
    let (top, _) = (1..).zip(text.lines()).find(|(_, line)| !line.trim().is_empty())?;
    let shown = ShownLines { lines: shown_lines(text), top, known };
    shown.begins_wrongly().or_else(|| shown.opened()).or_else(|| shown.closed()).or_else(|| shown.unmarked())
}

/// The lines of a text without front matter, as a reader sees them.
struct ShownLines<'k> {
    /// Lines with their numbers, without comments of HTML and without characters that cannot be seen.
    lines: Vec<(usize, String)>,
    /// Number of the first line of the text that is not blank.
    top: usize,
    /// Names of settings.
    known: &'k [&'k str],
}

impl ShownLines<'_> {
    fn written(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().map(|(number, line)| (*number, line.as_str()));
        lines.filter(|(_, line)| !line.trim().is_empty())
    }

    /// A text that begins with a line of dashes, or with a field and has such a line below.
    fn begins_wrongly(&self) -> Option<usize> {
        let mut lines = self.written();
        let (at, first) = lines.next().filter(|(at, _)| *at == self.top)?;
        let name = first.trim().split_once(':').map(|(name, _)| name);
        let is_field =
            name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        (is_rule(first) || (is_field && lines.any(|(_, line)| is_rule(line)))).then_some(at)
    }

    /// Settings below a line like `---`, above which nothing stands but headings and comments.
    fn opened(&self) -> Option<usize> {
        let mut lines = self.written().skip_while(|(_, line)| line.starts_with('#'));
        let (at, first) = lines.next()?;
        let is_top = at == self.top;
        if !(is_fence(first) || is_top && is_code(first)) {
            return None;
        }
        let below = lines.skip_while(|(_, line)| is_fence(line));
        let mut settings = below.take_while(|(_, line)| !is_fence(line) && is_of_settings(line));
        settings.any(|(_, line)| self.is_like_known(line.trim_start(), is_top)).then_some(at)
    }

    /// Settings above a line like `---`, or between two of them, wherever they stand. Examples in blocks of code are none.
    fn closed(&self) -> Option<usize> {
        let (mut from, mut is_code_block) = (self.top, false);
        let (mut are_settings, mut has_known) = (true, false);
        for (number, line) in self.written().take_while(|(number, _)| *number <= LOOKED_AT) {
            if is_code(line) {
                (is_code_block, are_settings) = (!is_code_block, false);
            } else if is_code_block {
                continue;
            } else if !is_fence(line) {
                are_settings &= is_of_settings(line);
                has_known |= self.is_known(line);
            } else if are_settings && has_known {
                return Some(from);
            } else {
                (from, are_settings, has_known) = (number, true, false);
            }
        }
        None
    }

    /// Settings without any line like `---`: a first paragraph of nothing else.
    fn unmarked(&self) -> Option<usize> {
        let is_above = |line: &str| line.trim().is_empty() || line.starts_with('#');
        let lines = self.lines.iter().skip_while(|(_, line)| is_above(line));
        let first: Vec<_> = lines.take_while(|(_, line)| !line.trim().is_empty()).collect();
        let known = first.iter().filter(|(_, line)| self.is_known(line)).count();
        let has_nested = first.first().is_some_and(|(_, line)| self.is_known(line) && line.trim_end().ends_with(':'))
            && first.get(1).is_some_and(|(_, line)| line.starts_with(' '));
        let are_settings = first.iter().all(|(_, line)| is_of_settings(line)) && (known >= 2 || has_nested);
        first.first().filter(|_| are_settings).map(|(number, _)| *number)
    }

    /// True for a line that sets what is known.
    fn is_known(&self, line: &str) -> bool {
        key_of(line).is_some_and(|key| self.known.contains(&key))
    }

    /// The same for a name with a slip in it, and with `in_any_case` for one with capitals.
    fn is_like_known(&self, line: &str, in_any_case: bool) -> bool {
        let is_cased = |key: &str| in_any_case || !key.chars().any(|c| c.is_ascii_uppercase());
        key_of(line).is_some_and(|key| is_cased(key) && nearest(key, self.known.iter().copied()).is_some())
    }
}

fn shown_lines(text: &str) -> Vec<(usize, String)> {
    let is_unseen = |c: char| matches!(c, '\u{feff}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}');
    let mut in_comment = false;
    let mut shown = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line: String = line.chars().filter(|c| !is_unseen(*c)).collect();
        let is_comment = in_comment || line.trim_start().starts_with("<!--");
        in_comment = is_comment && !line.contains("-->");
        if !is_comment {
            shown.push((number, line));
        }
    }
    shown
}

/// True for a line of dashes.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    let is_long = line.starts_with(['–', '—']) || line.chars().count() >= 2;
    is_long && line.chars().all(|c| matches!(c, '-' | '–' | '—'))
}

/// True for a line that may have been meant to be `---`.
fn is_fence(line: &str) -> bool {
    let line = line.trim().trim_start_matches('\\');
    let drawn = || line.chars().filter(|c| !c.is_whitespace());
    let is_drawn = |c: char| "-–—―−‐‑‒_*=+~".contains(c);
    line.starts_with("---") || is_rule(line) || (drawn().count() >= 2 && drawn().all(is_drawn))
}

/// True for a line that begins or ends a block of code.
fn is_code(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// True for a line as settings have them: a field, what is nested in one, an item of a list, a comment.
fn is_of_settings(line: &str) -> bool {
    line.starts_with([' ', '\t', '#', ']', '}']) || line.starts_with("- ") || key_of(line).is_some()
}

/// The name of the field that `line` sets.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once([':', '='])?;
    let key = key.trim_end().trim_matches(['"', '\'']);
    let is_name = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    (is_name && (rest.is_empty() || rest.starts_with(char::is_whitespace))).then_some(key)
}
