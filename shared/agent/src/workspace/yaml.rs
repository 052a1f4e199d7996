//! YAML as values that know their lines, bounded while it is read.
//!
//! What makes YAML dangerous or surprising is refused by name: anchors and aliases (a few lines that stand for
//! gigabytes), tags such as `!include`, several documents in a file, keys that are no text, keys that come twice.

use std::borrow::Cow;
use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Number, Value};

/// The deepest nesting.
const DEPTH: usize = 32;
/// The most values in one file.
const VALUES: usize = 20_000;

/// A value, and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlNode {
    pub(crate) line: usize,
    pub(crate) value: NodeValue,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A field of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YamlEntry {
    pub(crate) key: String,
    /// Line of the key.
    pub(crate) line: usize,
    pub(crate) value: YamlNode,
}

/// A mistake, with its line and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl YamlNode {
    /// The kind of its value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "nothing",
            NodeValue::Bool(_) => "a boolean",
            NodeValue::Number(_) => "a number",
            NodeValue::Text(_) => "a text",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a mapping",
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let NodeValue::Bool(value) = self.value { Some(value) } else { None }
    }

    pub(crate) fn as_number(&self) -> Option<&Number> {
        if let NodeValue::Number(number) = &self.value { Some(number) } else { None }
    }

    pub(crate) fn as_list(&self) -> Option<&[YamlNode]> {
        if let NodeValue::List(items) = &self.value { Some(items) } else { None }
    }

    pub(crate) fn as_map(&self) -> Option<&[YamlEntry]> {
        if let NodeValue::Map(entries) = &self.value { Some(entries) } else { None }
    }

    /// True for a mapping of mappings, as a level is that stands around definitions.
    pub(crate) fn holds_mappings(&self) -> bool {
        let is_mapping = |entry: &YamlEntry| entry.value.as_map().is_some();
        self.as_map().is_some_and(|entries| !entries.is_empty() && entries.iter().all(is_mapping))
    }

    /// The same as JSON.
    pub(crate) fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Null => Value::Null,
            NodeValue::Bool(value) => Value::Bool(*value),
            NodeValue::Number(number) => Value::Number(number.clone()),
            NodeValue::Text(text) => Value::String(text.clone()),
            NodeValue::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            NodeValue::Map(entries) => {
                let fields = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

/// Reads the one document in `text`, which begins at line `first` of its file. An empty text is a null.
pub(crate) fn parse(text: &str, first: usize) -> Result<YamlNode, YamlError> {
    let before = first.saturating_sub(1);
    let lines = text.lines().count().max(1);
    let mut reader = YamlReader { text, parser: Parser::new_from_str(text), before, lines, values: 0 };
    match reader.document() {
        Err(error) => Err(error),
        Ok(node) => Ok(node.unwrap_or(YamlNode { line: first, value: NodeValue::Null })),
    }
}

struct YamlReader<'t> {
    text: &'t str,
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    /// Lines of the file before the text.
    before: usize,
    /// Lines of the text.
    lines: usize,
    values: usize,
}

impl<'t> YamlReader<'t> {
    fn document(&mut self) -> Result<Option<YamlNode>, YamlError> {
        let mut found = None;
        while let Some((event, span)) = self.next()? {
            let is_frame = matches!(
                event,
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd
            );
            if !is_frame && found.is_some() {
                return Err(self.refuse(span, "the file has a second document: leave one, without `---` in between"));
            }
            if !is_frame {
                found = Some(self.node(event, span, 0)?);
            }
        }
        Ok(found)
    }

    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, YamlError> {
        self.parser.next_event().transpose().map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &ScanError) -> YamlError {
        let (line, column) = self.place_of(error);
        let written = self.written(line);
        let reason = explained(error.info(), written);
        YamlError { line, message: format!("this is no valid YAML at column {column}: {reason}") }
    }

    /// Line and column of `error`: a tab below a value is told by the parser with the value.
    fn place_of(&self, error: &ScanError) -> (usize, usize) {
        let line = self.before + error.marker().line().clamp(1, self.lines);
        let is_tabbed = |line: &usize| self.written(*line).trim_start_matches(' ').starts_with('\t');
        match error.info().contains("found a tab").then(|| (line..=self.before + self.lines).find(is_tabbed)).flatten()
        {
            Some(tabbed) => (tabbed, self.written(tabbed).find('\t').unwrap_or_default() + 1),
            None => (line, error.marker().col() + 1),
        }
    }

    /// What stands on `line` of the file.
    fn written(&self, line: usize) -> &'t str {
        self.text.lines().nth(line - self.before - 1).unwrap_or_default()
    }

    fn refuse(&self, span: Span, message: impl Into<String>) -> YamlError {
        YamlError { line: self.line(span), message: message.into() }
    }

    fn line(&self, span: Span) -> usize {
        self.before + span.start.line().max(1)
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<YamlNode, YamlError> {
        self.values += 1;
        if self.values > VALUES {
            return Err(self.refuse(span, format!("the file has more than {VALUES} values: split it")));
        }
        if depth > DEPTH {
            return Err(self.refuse(span, format!("values are nested more than {DEPTH} deep: flatten them")));
        }
        let line = self.line(span);
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.plain(anchor, tag.is_some(), span)?;
                scalar(text, style)
            }
            Event::SequenceStart(anchor, tag) => {
                self.plain(anchor, tag.is_some(), span)?;
                NodeValue::List(self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.plain(anchor, tag.is_some(), span)?;
                NodeValue::Map(self.map(depth)?)
            }
            Event::Alias(_) => return Err(self.refuse(span, "an alias (`*name`) stands here: write the value out")),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(self.refuse(span, "a value is missing here")),
        };
        Ok(YamlNode { line, value })
    }

    /// Refuses anchors and tags.
    fn plain(&self, anchor: usize, tagged: bool, span: Span) -> Result<(), YamlError> {
        match (anchor, tagged) {
            (0, false) => Ok(()),
            (0, true) => {
                Err(self.refuse(span, "a tag (`!name`) stands here: nothing is included or converted; leave it out"))
            }
            (_, _) => Err(self.refuse(span, "an anchor (`&name`) stands here: write the value out where it is used")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<YamlNode>, YamlError> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::SequenceEnd {
                break;
            }
            items.push(self.node(event, span, depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<YamlEntry>, YamlError> {
        let mut entries = Vec::new();
        let mut lines = BTreeMap::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::MappingEnd {
                break;
            }
            let (key, line) = self.key(event, span, depth)?;
            if let Some(first) = lines.insert(key.clone(), line) {
                let message = format!("`{key}` is set twice, first on line {first}: leave one");
                return Err(YamlError { line, message });
            }
            let Some((event, span)) = self.next()? else { break };
            let value = self.node(event, span, depth + 1)?;
            entries.push(YamlEntry { key, line, value });
        }
        Ok(entries)
    }

    fn key(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<(String, usize), YamlError> {
        let Event::Scalar(text, _, anchor, tag) = event else {
            // Counted like any other value, so that a deep key is refused as deep.
            self.node(event, span, depth + 1)?;
            return Err(self.refuse(span, "a key must be a text"));
        };
        self.plain(anchor, tag.is_some(), span)?;
        if text == "<<" {
            return Err(self.refuse(span, "`<<` merges nothing here: write the fields out"));
        }
        Ok((text.into_owned(), self.line(span)))
    }
}

/// What the parser says of the line `written`, with what to do about it where that is known.
fn explained(info: &str, written: &str) -> String {
    if info.contains("mapping values are not allowed") {
        return match written.matches(": ").count() + usize::from(written.trim_end().ends_with(':')) {
            0 | 1 => format!("{info}; indent the fields of one mapping alike"),
            _ => format!("{info}; a value with `: ` in it stands in quotes: \"…: …\""),
        };
    }
    if info.contains("trailing content after double-quoted") {
        return "a quote ends the text here, and more stands behind it; within '…' a quote is written twice (''), and \"…\" may \
                have single ones in it"
            .to_owned();
    }
    if info.contains("tabs disallowed") || info.contains("found a tab") {
        return format!("{info}; indent with blanks");
    }
    if info.contains("scanning an anchor or alias") || info.contains("unknown anchor") {
        return format!("{info}; a value that begins with `*` or `&` stands in quotes: \"*\"");
    }
    info.to_owned()
}

/// A scalar by the core schema of YAML 1.2: `yes` and `no` are texts.
fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> NodeValue {
    if style != ScalarStyle::Plain {
        return NodeValue::Text(text.into_owned());
    }
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => NodeValue::Null,
        "true" | "True" | "TRUE" => NodeValue::Bool(true),
        "false" | "False" | "FALSE" => NodeValue::Bool(false),
        plain => number(plain).map_or_else(|| NodeValue::Text(plain.to_owned()), NodeValue::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    if !is_number || !text.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let whole = text.strip_prefix('+').unwrap_or(text);
    if let Ok(number) = whole.parse::<i64>() {
        return Some(number.into());
    }
    whole.parse::<u64>().ok().map(Number::from).or_else(|| Number::from_f64(whole.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let error = parse(text, 1).expect_err(text);
        (error.line, error.message)
    }

    #[test]
    fn values_are_those_of_the_core_schema() {
        let node = parse("a: 1\nb: [yes, true, ~, 1.5, '2', -3]\nc:\n  d: |\n    text\n", 1).expect("it reads");
        assert_eq!(node.to_json(), json!({ "a": 1, "b": ["yes", true, null, 1.5, "2", -3], "c": { "d": "text\n" } }));
        let NodeValue::Map(entries) = node.value else { panic!("a mapping") };
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(parse("", 7).expect("nothing").value, NodeValue::Null);
    }

    #[test]
    fn what_is_dangerous_is_refused_with_its_line() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
        assert_eq!(refused(bomb).0, 1);
        assert!(refused(bomb).1.contains("an anchor"));
        assert!(refused("a: 1\nb: *a\n").1.contains("no valid YAML") || refused("a: 1\nb: *a\n").1.contains("alias"));
        assert_eq!(refused("x: !include other.yaml\n").0, 1);
        assert_eq!(refused("a: 1\na: 2\n"), (2, "`a` is set twice, first on line 1: leave one".to_owned()));
        assert!(refused(&"[".repeat(40)).1.contains("nested"));
        assert!(parse(&"[".repeat(5000), 1).is_err());
        assert!(refused(&format!("[{}]", "1,".repeat(30_000))).1.contains("more than"));
        assert!(refused("a: 1\n---\nb: 2\n").1.contains("second document"));
        assert!(refused("a: b: c\n").1.contains("no valid YAML"));
        assert!(refused("? [a]\n: 1\n").1.contains("a key must be a text"));
    }

    /// Each name was looked for among all before it.
    #[test]
    fn a_mapping_of_many_names_is_read_and_knows_one_that_comes_twice() {
        let many: String = (0..VALUES - 2).map(|at| format!("k{at}: 1\n")).collect();
        assert_eq!(parse(&many, 1).expect("it reads").as_map().expect("a mapping").len(), VALUES - 2);
        let (line, message) = refused(&format!("{many}k7: 2\n"));
        assert_eq!((line, message.as_str()), (VALUES - 1, "`k7` is set twice, first on line 8: leave one"));
    }

    #[test]
    fn what_is_often_meant_otherwise_is_told_with_what_to_do() {
        for (text, line, advice) in [
            ("a: 1\ndescription: Sorts: invoices\n", 2, "a value with `: ` in it stands in quotes"),
            ("description: Sorts:\n", 1, "a value with `: ` in it stands in quotes"),
            ("a: 1\n  b: 2\n", 2, "indent the fields of one mapping alike"),
            ("description: 'Bob's desk'\n", 1, "within '…' a quote is written twice"),
            ("external: [*]\n", 1, "stands in quotes: \"*\""),
            ("external: *\n", 1, "stands in quotes: \"*\""),
            ("external: [*_mail]\n", 1, "stands in quotes: \"*\""),
            ("main:\n\tprovider: openai\n", 2, "indent with blanks"),
            ("main:\n  provider: openai\n\tname: x\n", 3, "at column 1: "),
            ("main:\n  provider: openai\n\tname: x\n", 3, "indent with blanks"),
        ] {
            let (at, message) = refused(text);
            assert!(at == line && message.contains(advice), "{text}: {at}: {message}");
        }
    }

    #[test]
    fn lines_count_from_where_the_text_begins_in_its_file() {
        assert_eq!(parse("a: 1\nb: [", 5).expect_err("broken").line, 6);
    }
}
