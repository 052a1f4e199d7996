//! The terminal of a conversation: lines that a person types, and text that comes in pieces.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use dormouse_agent::graph::{AnswerUnderWay, DeltaSink};
use dormouse_ports::model::DeltaKind;
use tokio::sync::mpsc;

use crate::terminal::plain;

pub(super) const DIM: &str = "\u{1b}[2m";
pub(super) const BOLD: &str = "\u{1b}[1m";
pub(super) const PLAIN: &str = "\u{1b}[0m";

/// What a person does at the terminal.
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// The end of the input: Ctrl-D.
    End,
    /// Ctrl-C.
    Interrupted,
}

/// Lines of the standard input, read beside everything else.
pub(super) struct InputLines(mpsc::Receiver<io::Result<String>>);

impl InputLines {
    pub(super) fn start() -> Self {
        let (send, receive) = mpsc::channel(1);
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                if send.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self(receive)
    }

    pub(super) async fn next(&mut self) -> io::Result<Typed> {
        tokio::select! {
            line = self.0.recv() => Ok(line.transpose()?.map_or(Typed::End, Typed::Line)),
            interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| Typed::Interrupted),
        }
    }
}

/// The terminal. Text that comes in pieces is shown at once.
#[derive(Default)]
pub(super) struct Screen(Mutex<ScreenState>);

#[derive(Default)]
struct ScreenState {
    /// The text of the answer that is shown as it comes.
    live: String,
    /// True if the cursor is not at the beginning of a line.
    in_line: bool,
    /// Lines that came in the midst of the answer's words, and are shown behind them.
    held: Vec<String>,
    /// Pieces of answers that were stopped are not shown.
    stopped: bool,
    /// The last whole message.
    said: String,
}

impl ScreenState {
    /// Ends the line that is under way, and shows what waited for that.
    fn end_line(&mut self, out: &mut impl Write) -> io::Result<()> {
        if std::mem::take(&mut self.in_line) {
            writeln!(out)?;
        }
        self.held.drain(..).try_for_each(|line| writeln!(out, "{line}"))
    }
}

impl Screen {
    fn write(&self, write: impl FnOnce(&mut ScreenState, &mut io::StdoutLock<'_>) -> io::Result<()>) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = io::stdout().lock();
        // A terminal that is gone shows nothing.
        let _ = write(&mut shown, &mut out).and_then(|()| out.flush());
    }

    /// A line of its own. Where words of an answer are under way, it follows them.
    pub(super) fn line(&self, text: &str) {
        let text = if io::stdout().is_terminal() {
            text.to_owned()
        } else {
            [DIM, BOLD, PLAIN].iter().fold(text.to_owned(), |text, code| text.replace(code, ""))
        };
        self.write(|shown, out| {
            if shown.in_line && !shown.live.is_empty() {
                shown.held.push(text);
                return Ok(());
            }
            shown.end_line(out)?;
            writeln!(out, "{text}")
        });
    }

    pub(super) fn prompt(&self, text: &str) {
        self.write(|shown, out| {
            shown.end_line(out)?;
            write!(out, "{text}")
        });
    }

    /// A whole message, unless it was shown as it came.
    pub(super) fn whole(&self, text: &str) {
        let seen = {
            let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = shown.live.trim() == text.trim();
            shown.live.clear();
            text.trim().clone_into(&mut shown.said);
            seen
        };
        if !seen {
            self.line(&screened(text));
        }
    }

    /// A question, unless it is what was said last.
    pub(super) fn question(&self, text: &str) {
        let before = {
            let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut shown.said, text.trim().to_owned())
        };
        if before != text.trim() {
            self.line(&format!("{BOLD}? {}{PLAIN}", plain(text)));
        }
    }

    /// The question was answered: the next one is shown, whatever it says.
    pub(super) fn answered(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).said.clear();
    }

    /// The answer under way is stopped.
    pub(super) fn stop(&self) {
        self.write(|shown, _| {
            shown.stopped = true;
            shown.live.clear();
            Ok(())
        });
        self.line(&format!("{DIM}stopped{PLAIN}"));
    }

    pub(super) fn end_of_answer(&self) {
        self.write(|shown, out| shown.end_line(out));
    }
}

impl DeltaSink for Screen {
    fn began(&self, _: &AnswerUnderWay) {
        self.write(|shown, out| {
            shown.stopped = false;
            let cut = !std::mem::take(&mut shown.live).is_empty();
            if std::mem::take(&mut shown.in_line) && cut {
                writeln!(out, "{DIM}…{PLAIN}")?;
            }
            shown.end_line(out)
        });
    }

    fn delta(&self, _: &AnswerUnderWay, kind: DeltaKind, _: u64, text: &str) {
        if kind == DeltaKind::Content {
            self.write(|shown, out| {
                if shown.stopped {
                    return Ok(());
                }
                shown.live.push_str(text);
                shown.in_line = true;
                write!(out, "{}", screened(text))
            });
        }
    }
}

/// `text` with its lines, and nothing that a terminal obeys.
fn screened(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_a_model_moves_no_cursor() {
        assert_eq!(screened("a\nb\u{1b}[2J"), "a\nb\\u{1b}[2J");
    }
}
