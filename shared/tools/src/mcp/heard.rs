//! What a process says besides the messages of its conversation: it explains why there is none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_ports::tool::ToolError;
use serde_json::Value;
use tokio::sync::watch;

use crate::mask::Mask;
use crate::text::cut;

/// Bytes that are kept of each output, and of a line that is looked at. What is shown is less, so that a secret at its edge
/// was whole when it was looked for.
const KEPT: usize = 16 * 1024;
/// Bytes of what a process writes to its error output that are shown.
const COMPLAINTS_SHOWN: usize = 2 * 1024;
/// Bytes of what is no message that are shown.
const NOISE_SHOWN: usize = 1024;
/// Time for which the error output of a process that has ended is waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The same for all that have a clone of it. Nothing is heard of a server that is no process.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    /// The end of its error output.
    complaints: Vec<u8>,
    /// The beginning of its output that is no message.
    noise: Vec<u8>,
    /// The last line of its output, which is not complete.
    line: Vec<u8>,
    /// True when its output needs no explanation any more.
    is_settled: bool,
    /// True if it wrote anything.
    spoke: bool,
    /// Closed when its error output ends; absent where there is no process.
    ended: Option<watch::Receiver<()>>,
}

impl Heard {
    fn words(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its output is that of a server.
    pub(super) fn settle(&self) {
        let mut words = self.words();
        words.is_settled = true;
        words.line = Vec::new();
        words.noise = Vec::new();
    }

    /// `error`, with what the process said so far.
    pub(super) fn explain(&self, error: ToolError, mask: &Mask) -> ToolError {
        let words = self.words();
        if words.ended.is_none() {
            return error;
        }
        let text = |bytes: &[u8]| mask.text(String::from_utf8_lossy(bytes).trim().to_owned());
        let noise = match is_message(&words.line) {
            true => text(&words.noise),
            false => text(&[words.noise.as_slice(), &words.line].concat()),
        };
        let complaints = text(&words.complaints);
        let mut message = error.message.clone();
        if !noise.is_empty() {
            let noise = cut(&noise, NOISE_SHOWN);
            message.push_str(&format!(". Its standard output, which is for messages, one in each line, has: {noise}"));
        }
        if !complaints.is_empty() {
            message.push_str(&format!(". It wrote last: {}", end_of(&complaints, COMPLAINTS_SHOWN)));
        } else if !words.spoke {
            message.push_str(". It wrote nothing");
        }
        ToolError { message, ..error }
    }

    /// The same of a process that does not go on.
    pub(super) async fn last_words(&self, error: ToolError, mask: &Mask) -> ToolError {
        let ended = self.words().ended.clone();
        if let Some(mut ended) = ended {
            // What is late is not waited for: it only explains.
            let _ = tokio::time::timeout(LAST_WORDS, async { while ended.changed().await.is_ok() {} }).await;
        }
        self.explain(error, mask)
    }
}

#[cfg(feature = "stdio")]
impl Heard {
    /// A process begins, whose error output ends with the sender of `ended`.
    pub(super) fn begin(&self, ended: watch::Receiver<()>) {
        *self.words() = Words { ended: Some(ended), ..Words::default() };
    }

    /// The process wrote `piece` to its error output.
    pub(super) fn complains(&self, piece: &[u8]) {
        let mut words = self.words();
        words.spoke = true;
        words.complaints.extend_from_slice(piece);
        let over = words.complaints.len().saturating_sub(KEPT);
        words.complaints.drain(..over);
    }

    /// The process wrote `piece` to its output.
    pub(super) fn says(&self, piece: &[u8]) {
        let mut words = self.words();
        words.spoke = true;
        if words.is_settled {
            return;
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let room = KEPT.saturating_sub(words.line.len());
            words.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut words.line);
                if words.noise.len() < KEPT && !is_message(&line) {
                    words.noise.extend_from_slice(&line);
                }
            }
        }
    }
}

/// The last lines of `text` that have `most` bytes together; a part of the last one where that has more.
fn end_of(text: &str, most: usize) -> &str {
    let end = &text[text.ceil_char_boundary(text.len().saturating_sub(most))..];
    match end.split_once('\n') {
        Some((_, whole)) if end.len() < text.len() && !whole.is_empty() => whole,
        Some(_) | None => end,
    }
}

/// True for a message, and for a line that is too long to be judged.
fn is_message(line: &[u8]) -> bool {
    line.len() >= KEPT || serde_json::from_slice::<Value>(line).is_ok_and(|message| message["jsonrpc"].is_string())
}

#[cfg(all(test, feature = "stdio"))]
mod tests {
    use super::*;

    /// A process that is heard of, and the end of its error output.
    fn process() -> (Heard, watch::Sender<()>) {
        let heard = Heard::default();
        let (end, ended) = watch::channel(());
        heard.begin(ended);
        (heard, end)
    }

    fn told(heard: &Heard) -> String {
        heard.explain(ToolError::permanent("it is late"), &Mask::default()).message
    }

    #[test]
    fn what_is_no_message_is_told_and_messages_are_not() {
        let (heard, _end) = process();
        assert_eq!(told(&heard), "it is late. It wrote nothing");
        heard.says(b"Welcome!\n{\"jsonrpc\": \"2.0\", ");
        heard.says(b"\"id\": 1, \"result\": {}}\nContent-Len");
        let has = ". Its standard output, which is for messages, one in each line, has: Welcome!\nContent-Len";
        assert_eq!(told(&heard), format!("it is late{has}"));
        heard.complains(b"warming up\n");
        assert_eq!(told(&heard), format!("it is late{has}. It wrote last: warming up"));
        heard.settle();
        heard.says(b"by the way\n");
        assert_eq!(told(&heard), "it is late. It wrote last: warming up");
    }

    #[test]
    fn a_message_over_several_lines_is_none() {
        let (heard, _end) = process();
        heard.says(b"{\n  \"jsonrpc\": \"2.0\"\n}\n");
        assert!(told(&heard).ends_with("has: {\n  \"jsonrpc\": \"2.0\"\n}"), "{}", told(&heard));
    }

    #[test]
    fn of_much_the_beginning_of_the_output_and_the_end_of_the_complaints_is_told() {
        let (heard, _end) = process();
        for line in 0..10_000 {
            heard.says(format!("said {line}\n").as_bytes());
            heard.complains(format!("line {line}\n").as_bytes());
        }
        let told = told(&heard);
        assert!(told.contains("has: said 0\nsaid 1\n") && told.ends_with("line 9998\nline 9999"), "{told}");
        assert!(told.len() < 4096 && told.contains("It wrote last: line "), "{told}");
    }

    #[test]
    fn nothing_is_told_of_a_server_that_is_no_process() {
        assert_eq!(told(&Heard::default()), "it is late");
    }

    #[test]
    fn the_end_of_a_text_is_whole_lines() {
        assert_eq!(end_of("one\ntwo\nthree", 100), "one\ntwo\nthree");
        assert_eq!(end_of("one\ntwo\nthree", 10), "two\nthree");
        assert_eq!(end_of("one\ntwo\nthree", 8), "three");
        assert_eq!(end_of("one\ntwo\nthree", 4), "hree");
        assert_eq!(end_of("grün", 2), "n");
    }
}
