//! The lines that a process writes.

use rmcp::model::RequestId;
use serde::de::IgnoredAny;

use super::messages::messages;

/// Bytes at each end of a line in which it is looked for what it answers.
const EDGE: usize = 256;
/// A field of each message, which says nothing.
const VERSION: &str = r#""jsonrpc":"2.0""#;

/// What a line has.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// Its messages.
    Messages(Vec<Vec<u8>>),
    /// More than is read. If it is an answer, then to this request.
    Unread(Option<RequestId>),
}

/// Reads lines that have no more than so many bytes.
pub(super) struct Lines {
    most: usize,
    length: usize,
    /// The line, or the beginning of one that is too long.
    line: Vec<u8>,
    tail: Vec<u8>,
}

impl Lines {
    pub(super) fn new(most: usize) -> Self {
        Self { most, length: 0, line: Vec::new(), tail: Vec::new() }
    }

    /// The lines that end in `piece`, which goes on where the last one ended.
    pub(super) fn read(&mut self, piece: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.add(part);
            if part.ends_with(b"\n") {
                lines.push(self.end());
            }
        }
        lines
    }

    /// The last line, where that has a message whole and the output ends without an end of it.
    pub(super) fn rest(&mut self) -> Option<Line> {
        let is_whole = self.length <= self.most && serde_json::from_slice::<IgnoredAny>(&self.line).is_ok();
        is_whole.then(|| self.end())
    }

    fn add(&mut self, part: &[u8]) {
        self.length = self.length.saturating_add(part.len());
        self.line.extend_from_slice(part);
        if self.length > self.most {
            self.line.truncate(EDGE);
        }
        self.tail.extend_from_slice(&part[part.len().saturating_sub(EDGE)..]);
        let over = self.tail.len().saturating_sub(EDGE);
        self.tail.drain(..over);
    }

    fn end(&mut self) -> Line {
        let next = Self::new(self.most);
        let Self { most, length, line, tail } = std::mem::replace(self, next);
        let head = line[..line.len().min(EDGE)].to_vec();
        match messages(line) {
            Ok(messages) if length <= most => Line::Messages(messages),
            Ok(_) | Err(_) => Line::Unread(answered(&compact(&head), &compact(&tail))),
        }
    }
}

/// The request that a line with this `head` and `tail` answers.
fn answered(head: &str, tail: &str) -> Option<RequestId> {
    id_at_start(head).or_else(|| id_at_end(head, tail)).map(RequestId::Number)
}

fn compact(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|character| !character.is_ascii_whitespace()).collect()
}

/// `fields` behind the version, if that stands first.
fn behind_version(fields: &str) -> &str {
    fields.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix(',')).unwrap_or(fields)
}

fn is_outcome(fields: &str) -> bool {
    fields.starts_with(r#""result":"#) || fields.starts_with(r#""error":"#)
}

/// The id of an answer that begins with it.
fn id_at_start(head: &str) -> Option<i64> {
    let fields = behind_version(head.strip_prefix('{')?).strip_prefix(r#""id":"#)?;
    let (id, rest) = fields.split_once(',')?;
    is_outcome(behind_version(rest)).then(|| id.parse().ok()).flatten()
}

/// The id of an answer that ends with it.
fn id_at_end(head: &str, tail: &str) -> Option<i64> {
    let fields = tail.strip_suffix('}')?;
    let fields = fields.strip_suffix(VERSION).and_then(|rest| rest.strip_suffix(',')).unwrap_or(fields);
    let (_, id) = fields.rsplit_once(r#","id":"#)?;
    is_outcome(behind_version(head.strip_prefix('{')?)).then(|| id.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of `text`, which comes in pieces of this size.
    fn read(text: &str, size: usize) -> Vec<Line> {
        let mut lines = Lines::new(600);
        text.as_bytes().chunks(size).flat_map(|piece| lines.read(piece)).collect()
    }

    fn whole(message: &str) -> Line {
        Line::Messages(vec![message.as_bytes().to_vec()])
    }

    #[test]
    fn an_answer_that_is_too_long_is_found_by_either_end() {
        let long = format!(r#"{{"id":9,"text":"{}"}}"#, "x".repeat(1000));
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{long}}}"#),
            format!(r#"{{"id": 7, "jsonrpc": "2.0", "error": {long}}}"#),
            format!(r#"{{"result":{long},"jsonrpc":"2.0","id":7}}"#),
            format!(r#"{{"jsonrpc":"2.0","result":{long},"id":7}}"#),
            format!("{{\"error\":{long},\"id\":7,\"jsonrpc\":\"2.0\"}}\r"),
        ] {
            for size in [1, 300, 5000] {
                let text = format!("{{\"id\":6,\"result\":{{}}}}\n{line}\nnoise\n{line}");
                let unread = Line::Unread(Some(RequestId::Number(7)));
                let lines = [whole("{\"id\":6,\"result\":{}}\n"), unread, whole("noise\n")];
                assert_eq!(read(&text, size), lines, "{line}");
            }
        }
    }

    #[test]
    fn a_message_that_the_end_of_the_output_ends_is_read_and_a_part_of_one_is_not() {
        let mut lines = Lines::new(600);
        assert_eq!((lines.read(b"{\"id\":"), lines.rest()), (Vec::new(), None));
        assert_eq!((lines.read(b"6}"), lines.rest()), (Vec::new(), Some(whole("{\"id\":6}"))));
        assert_eq!(lines.rest(), None, "once");
    }

    #[test]
    fn what_is_long_and_answers_nothing_is_left() {
        let long = "x".repeat(1000);
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{{"message":"{long}"}}}}"#),
            format!(r#"{{"method":"elicitation/create","params":{{"message":"{long}"}},"id":7}}"#),
            format!(r#"{{"jsonrpc":"2.0","result":{{"text":"{long}","id":7}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":"seven","result":{{"text":"{long}"}}}}"#),
            long,
        ] {
            assert_eq!(read(&format!("{line}\n"), 4096), [Line::Unread(None)], "{line}");
        }
    }

    #[test]
    fn a_batch_is_several_messages_and_what_is_nested_too_deeply_is_unread() {
        let both = ["{\"method\":\"a\"}", "{\"id\":1}"].map(|message| message.as_bytes().to_vec());
        assert_eq!(read("[{\"id\":1},{\"method\":\"a\"}]\n", 4096), [Line::Messages(both.to_vec())]);
        let deep = format!("{{\"id\":7,\"result\":{}{}}}\n", "[".repeat(100), "]".repeat(100));
        assert_eq!(read(&deep, 4096), [Line::Unread(Some(RequestId::Number(7)))]);
    }
}
