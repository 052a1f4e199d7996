//! Answers of a process that are too long to be read.

use rmcp::model::RequestId;

/// Bytes at each end of a line in which it is looked for what it answers.
const EDGE: usize = 256;
/// A field of each message, which says nothing.
const VERSION: &str = r#""jsonrpc":"2.0""#;

/// Tells what the lines answer that are longer than is read.
pub(super) struct LongLines {
    most: usize,
    length: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl LongLines {
    pub(super) fn new(most: usize) -> Self {
        Self { most, length: 0, head: Vec::new(), tail: Vec::new() }
    }

    /// The requests whose answers end in `piece`, which goes on where the last one ended, and are too long.
    pub(super) fn read(&mut self, piece: &[u8]) -> Vec<RequestId> {
        let mut answered = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.add(part);
            if part.ends_with(b"\n") {
                answered.extend(self.end());
            }
        }
        answered
    }

    fn add(&mut self, part: &[u8]) {
        self.length = self.length.saturating_add(part.len());
        let room = EDGE.saturating_sub(self.head.len());
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail.extend_from_slice(&part[part.len().saturating_sub(EDGE)..]);
        let over = self.tail.len().saturating_sub(EDGE);
        self.tail.drain(..over);
    }

    fn end(&mut self) -> Option<RequestId> {
        let next = Self::new(self.most);
        let Self { length, head, tail, .. } = std::mem::replace(self, next);
        if length <= self.most {
            return None;
        }
        let (head, tail) = (compact(&head), compact(&tail));
        id_at_start(&head).or_else(|| id_at_end(&head, &tail)).map(RequestId::Number)
    }
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

    /// What is read of `lines`, which come in pieces of this size.
    fn read(lines: &str, size: usize) -> Vec<i64> {
        let mut long = LongLines::new(600);
        let ids = lines.as_bytes().chunks(size).flat_map(|piece| long.read(piece)).collect::<Vec<_>>();
        let number = |id: RequestId| id.to_string().parse().expect("a number");
        ids.into_iter().map(number).collect()
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
                let lines = format!("{{\"jsonrpc\":\"2.0\",\"id\":6,\"result\":{{}}}}\n{line}\nnoise\n{line}");
                assert_eq!(read(&lines, size), [7], "{line}");
            }
        }
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
            assert_eq!(read(&format!("{line}\n"), 4096), [] as [i64; 0], "{line}");
        }
    }
}
