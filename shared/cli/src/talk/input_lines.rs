//! The lines that a person types at the terminal, or that a script has written.

use std::io::{self, BufRead, IsTerminal, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::raw_terminal::{RawTerminal, TerminalModes};
use super::screen::{DIM, PLAIN, Screen};
use super::typed_area::Entered;
use crate::terminal::plain;

/// What a person does at the terminal.
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// The end of the input: Ctrl-D.
    End,
    /// Ctrl-C.
    Interrupted,
}

/// What a person is asked for a message with.
const PROMPT: &str = "> ";

/// The most lines of a person that wait to be taken.
const MOST_TYPED: usize = 1024;

/// Time within which the next line of a text comes that is pasted. Nobody types as fast.
const PASTED: Duration = Duration::from_millis(50);

/// Bytes of the longest line that a terminal takes where no line is edited, without its end: what is typed or pasted behind them is
/// dropped before anybody reads it.
const LONGEST_TYPED: usize = 4095;

/// A line, and when it was read.
struct InputLine {
    at: Instant,
    text: String,
    /// True if it is edited, and was sent while nobody was asked to type.
    is_ahead: bool,
}

/// Lines of the standard input, read beside everything else.
pub(super) struct InputLines {
    lines: mpsc::Receiver<io::Result<InputLine>>,
    /// One that was looked at and is to be taken next.
    ahead: Option<InputLine>,
    /// When the line was read that was taken last.
    taken_at: Instant,
    /// Closed with the input.
    open: watch::Receiver<()>,
    /// True if a person types them. A script's lines are answers in their order, whenever they were written.
    are_typed: bool,
    /// The terminal, where lines are edited.
    terminal: Option<RawTerminal>,
}

impl InputLines {
    pub(super) fn start(screen: &Arc<Screen>) -> Self {
        let are_typed = io::stdin().is_terminal();
        // What a person types is read at once, so that it is known whether a question was there.
        let (send, lines) = mpsc::channel(if are_typed { MOST_TYPED } else { 1 });
        let (input, open) = watch::channel(());
        let terminal = RawTerminal::begin(screen);
        let edited = terminal.as_ref().map(|terminal| (terminal.modes().clone(), screen.clone()));
        std::thread::spawn(move || {
            let is_taken = |line: io::Result<InputLine>| send.blocking_send(line).is_ok();
            match edited {
                Some((modes, screen)) => read_keys(&modes, &screen, is_taken),
                None => read_lines(are_typed, is_taken),
            }
            drop(input);
        });
        Self { lines, ahead: None, taken_at: Instant::now(), open, are_typed, terminal }
    }

    /// True if a person types them.
    pub(super) fn are_typed(&self) -> bool {
        self.are_typed
    }

    /// True if a person edits them.
    pub(super) fn are_edited(&self) -> bool {
        self.terminal.is_some()
    }

    /// Lines that have come, each read so many milliseconds after the first.
    #[cfg(test)]
    fn that_came<'l>(came: impl IntoIterator<Item = (u64, &'l str)>, are_typed: bool) -> Self {
        let (send, lines) = mpsc::channel(8);
        let began = Instant::now();
        for (millis, text) in came {
            let at = began + Duration::from_millis(millis);
            let line = InputLine { at, text: text.to_owned(), is_ahead: false };
            send.try_send(Ok(line)).expect("there is room");
        }
        let (_, open) = watch::channel(());
        Self { lines, ahead: None, taken_at: began, open, are_typed, terminal: None }
    }

    /// Those of a script that has written all of its `lines`.
    #[cfg(test)]
    pub(super) fn written(lines: &[&str]) -> Self {
        Self::that_came(lines.iter().map(|text| (0, *text)), false)
    }

    /// Those of a person at a terminal who types nothing.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self::that_came([], true)
    }

    /// Leaves out what a person has typed before the question was there that is asked now, and says so: it is no answer to what
    /// nobody has seen.
    pub(super) fn leave_out_early(&mut self, screen: &Screen) {
        for line in self.early(screen) {
            screen.line(&format!("{DIM}  typed before this was asked, and no answer to it: {}{PLAIN}", plain(&line)));
        }
    }

    /// Ends the prompt where the conversation ends, and says what a person has typed and nobody has taken.
    pub(super) fn tell_unsent(&mut self, screen: &Screen) {
        let begun = Some(screen.unsent()).filter(|line| !line.trim().is_empty());
        screen.end_prompt();
        for line in self.early(screen).into_iter().chain(begun) {
            screen.line(&format!("{DIM}not sent: {}{PLAIN}", plain(&line)));
        }
    }

    /// The lines that a person has typed and that nobody has taken; they are taken with this.
    fn early(&mut self, screen: &Screen) -> Vec<String> {
        let mut early: Vec<InputLine> = self.ahead.take().into_iter().collect();
        while self.are_typed
            && let Ok(Ok(line)) = self.lines.try_recv()
        {
            early.push(line);
        }
        early.iter().filter(|line| line.is_ahead).for_each(|_| screen.left_out());
        early.into_iter().map(|line| line.text).filter(|line| !line.trim().is_empty()).collect()
    }

    /// Waits until a person ends the input. A script ends it when all is written, and means nothing by that.
    pub(super) async fn ended(&mut self) {
        if !self.are_typed {
            std::future::pending::<()>().await;
        }
        while self.open.changed().await.is_ok() {}
    }

    /// What a person does where they are asked by `prompt`.
    pub(super) async fn next(&mut self, screen: &Screen, prompt: impl FnOnce(&Screen)) -> io::Result<Typed> {
        // Who sees the prompt is heard from then on.
        let mut interrupts = signal(SignalKind::interrupt())?;
        prompt(screen);
        if let Some(line) = self.ahead.take() {
            return Ok(Typed::Line(self.taken(line, screen)));
        }
        let line = tokio::select! {
            line = self.lines.recv() => line.transpose()?,
            Some(()) = interrupts.recv() => return Ok(Typed::Interrupted),
        };
        Ok(line.map_or(Typed::End, |line| Typed::Line(self.taken(line, screen))))
    }

    /// What a person says next. Lines that come at once are pasted: they are one message, which Enter ends, since the last of them
    /// often comes with that. Ctrl-C drops them, and a line that was begun. A command is a line of its own, also among them: a
    /// program may type faster.
    pub(super) async fn message(&mut self, screen: &Screen, is_command: fn(&str) -> bool) -> io::Result<Typed> {
        let first = match self.next(screen, |screen| screen.prompt(PROMPT)).await? {
            Typed::Line(line) if line.trim().is_empty() || is_command(&line) => {
                screen.remember(&line);
                return Ok(Typed::Line(line));
            }
            Typed::Line(line) => line,
            Typed::Interrupted if screen.drop_typed() => return Ok(Typed::Line(String::new())),
            typed @ (Typed::End | Typed::Interrupted) => return Ok(typed),
        };
        let mut lines = vec![first];
        while let Some(line) = self.pasted(screen, is_command).await? {
            lines.push(line);
        }
        let is_whole = self.ahead.as_ref().is_some_and(|line| is_command(&line.text));
        if lines.len() > 1 && !is_whole {
            let prompt = format!("{} lines; Enter sends them as one message, Ctrl-C drops them {PROMPT}", lines.len());
            match self.next(screen, |screen| screen.prompt(&prompt)).await? {
                Typed::Line(last) => lines.push(last),
                Typed::Interrupted => return Ok(Typed::Line(String::new())),
                Typed::End => {
                    screen.line(&format!("the input ended: the {} lines were not sent", lines.len()));
                    return Ok(Typed::End);
                }
            }
        }
        // One that is as long as a line can be may have been longer.
        if self.are_typed && !self.are_edited() && lines.iter().any(|line| line.len() >= LONGEST_TYPED) {
            screen.line(&format!(
                "this was not sent: the terminal drops what stands behind {LONGEST_TYPED} bytes of a line; break it into several lines, \
                 which are one message when they are pasted together"
            ));
            return Ok(Typed::Line(String::new()));
        }
        let message = lines.join("\n");
        screen.remember(&message);
        Ok(Typed::Line(message))
    }

    /// The next line, where it came right behind the one that was taken last, and is no command.
    async fn pasted(&mut self, screen: &Screen, is_command: fn(&str) -> bool) -> io::Result<Option<String>> {
        if !self.are_typed {
            return Ok(None);
        }
        let Ok(Some(line)) = timeout(PASTED, self.lines.recv()).await else { return Ok(None) };
        let line = line?;
        if line.at.saturating_duration_since(self.taken_at) < PASTED && !is_command(&line.text) {
            return Ok(Some(self.taken(line, screen)));
        }
        self.ahead = Some(line);
        Ok(None)
    }

    fn taken(&mut self, line: InputLine, screen: &Screen) -> String {
        self.taken_at = line.at;
        if line.is_ahead {
            screen.took();
        }
        line.text
    }
}

/// Reads lines as they stand in the standard input, or as the system edits them, for as long as they are taken.
fn read_lines(are_typed: bool, is_taken: impl Fn(io::Result<InputLine>) -> bool) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut bytes = Vec::new();
        let (line, is_last) = match stdin.read_until(b'\n', &mut bytes) {
            Ok(0) => return,
            Ok(_) => (line_of(bytes, are_typed), false),
            // A terminal that is gone would say so for ever.
            Err(error) => (Err(error), true),
        };
        let line = line.map(|text| InputLine { at: Instant::now(), text, is_ahead: false });
        if !is_taken(line) || is_last {
            return;
        }
    }
}

/// Reads the keys of a terminal, and the lines that they make, for as long as these are taken.
fn read_keys(modes: &TerminalModes, screen: &Screen, is_taken: impl Fn(io::Result<InputLine>) -> bool) {
    let mut stdin = io::stdin().lock();
    let mut bytes = [0; 4096];
    loop {
        let read = match stdin.read(&mut bytes) {
            Ok(0) => return,
            Ok(length) => &bytes[..length],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                is_taken(Err(error));
                return;
            }
        };
        for entered in screen.typed(read) {
            match entered {
                Entered::Line { text, is_ahead } => {
                    if !is_taken(Ok(InputLine { at: Instant::now(), text, is_ahead })) {
                        return;
                    }
                }
                Entered::End => return,
                Entered::Quit => modes.quit(),
                // The screen has done it.
                Entered::Clear => {}
            }
        }
    }
}

/// The line that `bytes` are. A terminal that does not know how long letters are leaves half of one behind when it is taken back:
/// what a person types is read all the same, and that half is marked.
fn line_of(mut bytes: Vec<u8>, is_typed: bool) -> io::Result<String> {
    if bytes.pop_if(|byte| *byte == b'\n').is_some() {
        bytes.pop_if(|byte| *byte == b'\r');
    }
    match String::from_utf8(bytes) {
        Ok(line) => Ok(line),
        Err(error) if is_typed => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the input is no UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_letter_that_a_terminal_left_ends_no_conversation() {
        let typed = |bytes: &[u8]| line_of(bytes.to_vec(), true).expect("a line");
        assert_eq!(typed(b"caf\xc3\n"), "caf\u{fffd}");
        assert_eq!((typed(b"hi\r\n"), typed(b"no end"), typed(b"\n")), ("hi".into(), "no end".into(), String::new()));
        let refused = line_of(b"caf\xc3\n".to_vec(), false).expect_err("a file may be in another encoding");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_was_typed_before_a_question_is_no_answer_to_it_and_what_a_script_wrote_is() {
        let lines = |are_typed: bool| InputLines { are_typed, ..lines(&[(0, "y"), (1, " "), (2, "also this")]) };
        let (screen, mut typed) = (Screen::default(), lines(true));
        assert_eq!(typed.early(&screen), ["y", "also this"]);
        assert!(typed.lines.try_recv().is_err(), "nothing is left to answer with");
        let mut written = lines(false);
        assert_eq!(written.early(&screen), [] as [&str; 0]);
        assert!(matches!(written.lines.try_recv(), Ok(Ok(line)) if line.text == "y"));
    }

    /// Lines of a person, each read so many milliseconds after the first.
    fn lines(typed: &[(u64, &str)]) -> InputLines {
        InputLines::that_came(typed.iter().copied(), true)
    }

    #[tokio::test]
    async fn lines_that_are_pasted_are_one_message_and_those_that_are_typed_are_several() {
        let mut lines =
            lines(&[(0, "one"), (900, "a"), (901, "  b"), (902, "c"), (2_000, "d"), (4_000, ""), (6_000, "last")]);
        let said = said(&mut lines).await;
        assert_eq!(said, ["one", "a\n  b\nc\nd", "", "last"], "the last line of a paste comes with Enter");
        assert!(lines.early(&Screen::default()).is_empty());
    }

    /// The messages of a person of whom `lines` come.
    async fn said(lines: &mut InputLines) -> Vec<String> {
        let screen = Screen::default();
        let mut said = Vec::new();
        while let Typed::Line(line) = lines.message(&screen, |line| line == "/new").await.expect("it is read") {
            said.push(line);
        }
        said
    }

    #[tokio::test]
    async fn a_paste_that_the_end_of_the_input_drops_is_told_of() {
        let screen = Screen::default();
        let mut lines = lines(&[(0, "a"), (1, "b")]);
        let typed = lines.message(&screen, |_| false).await.expect("it is read");
        assert!(matches!(typed, Typed::End));
        assert!(!screen.prompts(), "a line stands behind the prompt");
    }

    #[tokio::test]
    async fn a_line_that_the_terminal_has_cut_is_not_sent() {
        let longest = "w".repeat(LONGEST_TYPED);
        let (whole, cut) = (&longest[1..], longest.as_str());
        let mut lines = lines(&[(0, whole), (900, cut), (1_800, "a"), (1_801, cut), (2_700, ""), (3_600, "b")]);
        assert_eq!(said(&mut lines).await, [whole, "", "", "b"]);
        let mut written = InputLines::written(&[cut]);
        assert_eq!(said(&mut written).await, [cut], "a file has lines of any length");
    }

    #[test]
    fn what_was_typed_beside_a_run_that_is_left_asleep_is_told_of() {
        let screen = Screen::default();
        let mut lines = lines(&[(0, "and then ship it")]);
        screen.prompt("> ");
        lines.tell_unsent(&screen);
        assert!(!screen.prompts(), "a line stands behind the prompt");
        assert!(lines.early(&Screen::default()).is_empty());
    }

    #[tokio::test]
    async fn a_command_is_a_line_of_its_own_however_fast_it_comes() {
        let mut lines = lines(&[(0, "hello"), (1, "/new"), (2, "a"), (3, "b"), (4, "/new")]);
        assert_eq!(said(&mut lines).await, ["hello", "/new", "a\nb", "/new"]);
    }
}
