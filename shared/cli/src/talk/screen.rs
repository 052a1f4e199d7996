//! The terminal of a conversation: lines that a person types, and text that comes in pieces.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_agent::graph::{AnswerUnderWay, DeltaSink};
use dormouse_ports::model::DeltaKind;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

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

/// The most lines of a person that wait to be taken.
const MOST_TYPED: usize = 1024;

/// Time within which the next line of a text comes that is pasted. Nobody types as fast.
const PASTED: Duration = Duration::from_millis(50);

/// A line, and when it was read.
struct InputLine {
    at: Instant,
    text: String,
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
}

impl InputLines {
    pub(super) fn start() -> Self {
        let are_typed = io::stdin().is_terminal();
        // What a person types is read at once, so that it is known whether a question was there.
        let (send, lines) = mpsc::channel(if are_typed { MOST_TYPED } else { 1 });
        let (input, open) = watch::channel(());
        std::thread::spawn(move || {
            let mut stdin = io::stdin().lock();
            loop {
                let mut bytes = Vec::new();
                let (line, is_last) = match stdin.read_until(b'\n', &mut bytes) {
                    Ok(0) => break,
                    Ok(_) => (line_of(bytes, are_typed), false),
                    // A terminal that is gone would say so for ever.
                    Err(error) => (Err(error), true),
                };
                if send.blocking_send(line.map(|text| InputLine { at: Instant::now(), text })).is_err() {
                    return;
                }
                if is_last {
                    break;
                }
            }
            drop(input);
        });
        Self { lines, ahead: None, taken_at: Instant::now(), open, are_typed }
    }

    /// True if a person types them.
    pub(super) fn are_typed(&self) -> bool {
        self.are_typed
    }

    /// Those of a script that has written all of its `lines`.
    #[cfg(test)]
    pub(super) fn written(written: &[&str]) -> Self {
        let (send, lines) = mpsc::channel(written.len());
        for text in written {
            let line = InputLine { at: Instant::now(), text: (*text).to_owned() };
            send.try_send(Ok(line)).expect("there is room");
        }
        let (_, open) = watch::channel(());
        Self { lines, ahead: None, taken_at: Instant::now(), open, are_typed: false }
    }

    /// Leaves out what a person has typed before the question was there that is asked now, and says so: it is no answer to what
    /// nobody has seen.
    pub(super) fn leave_out_early(&mut self, screen: &Screen) {
        for line in self.early() {
            screen.line(&format!("{DIM}  typed before this was asked, and no answer to it: {}{PLAIN}", plain(&line)));
        }
    }

    /// The lines that a person has typed and that nobody has taken; they are taken with this.
    fn early(&mut self) -> Vec<String> {
        let mut early: Vec<String> = self.ahead.take().map(|line| line.text).into_iter().collect();
        while self.are_typed
            && let Ok(Ok(line)) = self.lines.try_recv()
        {
            early.push(line.text);
        }
        early.retain(|line| !line.trim().is_empty());
        early
    }

    /// Waits until a person ends the input. A script ends it when all is written, and means nothing by that.
    pub(super) async fn ended(&mut self) {
        if !self.are_typed {
            std::future::pending::<()>().await;
        }
        while self.open.changed().await.is_ok() {}
    }

    pub(super) async fn next(&mut self) -> io::Result<Typed> {
        if let Some(line) = self.ahead.take() {
            return Ok(self.taken(line));
        }
        let line = tokio::select! {
            line = self.lines.recv() => line.transpose()?,
            interrupted = tokio::signal::ctrl_c() => return interrupted.map(|()| Typed::Interrupted),
        };
        Ok(line.map_or(Typed::End, |line| self.taken(line)))
    }

    /// What a person says next. Lines that come at once are pasted: they are one message, which Enter ends, since the last of them
    /// often comes with that. Ctrl-C drops them. A command is a line of its own, also among them: a program may type faster.
    pub(super) async fn message(&mut self, screen: &Screen, is_command: fn(&str) -> bool) -> io::Result<Typed> {
        let first = match self.next().await? {
            Typed::Line(line) if !line.trim().is_empty() && !is_command(&line) => line,
            typed @ (Typed::Line(_) | Typed::End | Typed::Interrupted) => return Ok(typed),
        };
        let mut lines = vec![first];
        while let Some(line) = self.pasted(is_command).await? {
            lines.push(line);
        }
        let is_whole = self.ahead.as_ref().is_some_and(|line| is_command(&line.text));
        if lines.len() > 1 && !is_whole {
            screen.prompt(&format!("{} lines; Enter sends them as one message, Ctrl-C drops them > ", lines.len()));
            match self.next().await? {
                Typed::Line(last) => lines.push(last),
                Typed::Interrupted => return Ok(Typed::Line(String::new())),
                Typed::End => {
                    screen.line(&format!("the input ended: the {} lines were not sent", lines.len()));
                    return Ok(Typed::End);
                }
            }
        }
        Ok(Typed::Line(lines.join("\n")))
    }

    /// The next line, where it came right behind the one that was taken last, and is no command.
    async fn pasted(&mut self, is_command: fn(&str) -> bool) -> io::Result<Option<String>> {
        if !self.are_typed {
            return Ok(None);
        }
        let Ok(Some(line)) = timeout(PASTED, self.lines.recv()).await else { return Ok(None) };
        let line = line?;
        if line.at.saturating_duration_since(self.taken_at) < PASTED && !is_command(&line.text) {
            self.taken_at = line.at;
            return Ok(Some(line.text));
        }
        self.ahead = Some(line);
        Ok(None)
    }

    fn taken(&mut self, line: InputLine) -> Typed {
        self.taken_at = line.at;
        Typed::Line(line.text)
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

/// The terminal. Text that comes in pieces is shown at once, and behind what was done before it.
#[derive(Default)]
pub(super) struct Screen(Mutex<ScreenState>);

#[derive(Default)]
struct ScreenState {
    /// The session of the conversation, as soon as it is known. Answers in others are not shown: those of agents that were asked,
    /// of which whoever asked tells what came of it, and those of runs that a server before this one had begun.
    session: Option<String>,
    /// The answer that is under way, or came last.
    answer: Option<AnswerUnderWay>,
    /// Its text, as far as it is shown.
    live: String,
    /// Answers before it, which were shown as they came and have not come as messages.
    earlier: Vec<String>,
    /// Its text, which waits for what was done before it.
    early: Option<EarlyText>,
    told: ToldSteps,
    /// True if the cursor is not at the beginning of a line.
    in_line: bool,
    /// Lines that came in the midst of the answer's words, and are shown behind them.
    held: Vec<String>,
    /// Pieces of answers that were stopped are not shown.
    stopped: bool,
    /// The last whole message.
    said: String,
    /// True while a person is asked to type.
    prompts: bool,
    /// When it was shown last how far a call is.
    progressed: Option<Instant>,
}

/// Time after which it is shown again how far calls are.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Longest time for which text waits for what was done before it.
const LONGEST_EARLY: Duration = Duration::from_secs(2);

/// Text of an answer that is not shown yet.
struct EarlyText {
    since: Instant,
    text: String,
}

/// What the events of a task have told of its steps.
#[derive(Default)]
pub(super) struct ToldSteps {
    task: String,
    /// The last answer of the model.
    step: u64,
    /// Calls of which no result was told.
    open: u64,
}

impl ToldSteps {
    /// Takes in what the next event tells.
    pub(super) fn take(&mut self, step: ToldStep) {
        match step {
            ToldStep::Answered(number) => self.step = self.step.max(number),
            ToldStep::Called => self.open += 1,
            ToldStep::Returned => self.open = self.open.saturating_sub(1),
            ToldStep::Said => {}
        }
    }

    /// True if everything was told that was done before `answer`, as far as that is known.
    fn reach(&self, answer: &AnswerUnderWay) -> bool {
        answer.invocation.as_str() != self.task || (answer.step <= self.step.saturating_add(1) && self.open == 0)
    }
}

/// What an event tells of the steps of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToldStep {
    /// The model gave the answer of that number.
    Answered(u64),
    /// A tool is called.
    Called,
    /// The result of a call is in the conversation.
    Returned,
    /// Something else is.
    Said,
}

impl ScreenState {
    /// Ends the line that is under way, and shows what waited for that.
    fn end_line(&mut self, out: &mut impl Write) -> io::Result<()> {
        if std::mem::take(&mut self.in_line) {
            writeln!(out)?;
        }
        self.held.drain(..).try_for_each(|line| writeln!(out, "{line}"))
    }

    fn line(&mut self, text: String, out: &mut impl Write) -> io::Result<()> {
        if self.in_line && !self.live.is_empty() {
            self.held.push(text);
            return Ok(());
        }
        self.prompts = false;
        self.end_line(out)?;
        writeln!(out, "{text}")
    }

    /// True if `answer` is one of the conversation.
    fn is_ours(&self, answer: &AnswerUnderWay) -> bool {
        let Some(here) = &self.session else { return false };
        answer.session.as_ref().is_none_or(|there| here == there.as_str())
    }

    fn began(&mut self, answer: &AnswerUnderWay, out: &mut impl Write) -> io::Result<()> {
        (self.stopped, self.prompts) = (false, false);
        let is_again = self.answer.replace(answer.clone()).is_some_and(|before| before == *answer);
        let shown = std::mem::take(&mut self.live);
        if is_again && !shown.is_empty() && self.in_line {
            write!(out, "{}", styled(&format!("{DIM}…{PLAIN}")))?;
        } else if !is_again && !shown.is_empty() {
            self.earlier.push(shown);
        }
        let is_early = !self.told.reach(answer);
        self.early = is_early.then(|| EarlyText { since: Instant::now(), text: String::new() });
        self.end_line(out)
    }

    fn delta(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        if self.stopped {
            return Ok(());
        }
        let Some(early) = &mut self.early else { return self.show(text, out) };
        early.text.push_str(text);
        if early.since.elapsed() < LONGEST_EARLY { Ok(()) } else { self.release(out) }
    }

    fn show(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        self.live.push_str(text);
        self.in_line = true;
        write!(out, "{}", screened(text))
    }

    /// Shows text that waited.
    fn release(&mut self, out: &mut impl Write) -> io::Result<()> {
        match self.early.take() {
            Some(EarlyText { text, .. }) if !text.is_empty() => self.show(&text, out),
            Some(_) | None => Ok(()),
        }
    }

    fn told(&mut self, step: ToldStep, out: &mut impl Write) -> io::Result<()> {
        self.told.take(step);
        // What is said comes behind everything else of its step.
        let is_said = matches!(step, ToldStep::Returned | ToldStep::Said);
        let reaches = self.answer.as_ref().is_some_and(|answer| self.told.reach(answer));
        if is_said && reaches { self.release(out) } else { Ok(()) }
    }

    /// A whole message, of which is shown what was not shown as it came.
    fn whole(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        let is_it = |shown: &str| shown.trim() == text.trim();
        text.trim().clone_into(&mut self.said);
        if let Some(at) = self.earlier.iter().position(|shown| is_it(shown)) {
            self.earlier.remove(at);
            return Ok(());
        }
        if self.early.as_ref().is_some_and(|early| is_it(&early.text)) {
            self.release(out)?;
        }
        let live = std::mem::take(&mut self.live);
        if is_it(&live) { Ok(()) } else { self.line(screened(text), out) }
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
        let text = styled(text);
        self.write(|shown, out| shown.line(text, out));
    }

    /// How far a call is: once a second, and neither in the midst of words nor of a question.
    pub(super) fn progress(&self, text: &str) {
        let text = styled(text);
        self.write(|shown, out| {
            let is_early = shown.progressed.is_some_and(|at| at.elapsed() < PROGRESS_EVERY);
            if is_early || shown.in_line || shown.prompts || shown.stopped {
                return Ok(());
            }
            shown.progressed = Some(Instant::now());
            writeln!(out, "{text}")
        });
    }

    pub(super) fn prompt(&self, text: &str) {
        self.write(|shown, out| {
            shown.end_line(out)?;
            shown.prompts = true;
            write!(out, "{text}")
        });
    }

    /// The conversation is that of `session` from now on.
    pub(super) fn converse(&self, session: &str) {
        self.write(|shown, _| {
            shown.session = Some(session.to_owned());
            Ok(())
        });
    }

    /// The events of `task` are told from now on, behind those that have `told` of its steps.
    pub(super) fn follow(&self, task: &str, told: ToldSteps) {
        self.write(|shown, _| {
            shown.told = ToldSteps { task: task.to_owned(), ..told };
            shown.prompts = false;
            shown.earlier.clear();
            Ok(())
        });
    }

    /// An event told `step`; what it says is shown.
    pub(super) fn told(&self, step: ToldStep) {
        self.write(|shown, out| shown.told(step, out));
    }

    /// A whole message, unless it was shown as it came.
    pub(super) fn whole(&self, text: &str) {
        self.write(|shown, out| shown.whole(text, out));
    }

    /// A question, unless it is what was said last.
    pub(super) fn question(&self, text: &str) {
        let before = {
            let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut shown.said, text.trim().to_owned())
        };
        if before != text.trim() {
            for (at, line) in text.trim().lines().enumerate() {
                let mark = if at == 0 { "?" } else { " " };
                self.line(&format!("{BOLD}{mark} {}{PLAIN}", plain(line)));
            }
        }
    }

    /// The question was answered: the next one is shown, whatever it says.
    pub(super) fn answered(&self) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.said.clear();
        shown.prompts = false;
    }

    /// The answer under way is stopped.
    pub(super) fn stop(&self) {
        self.write(|shown, _| {
            shown.stopped = true;
            shown.live.clear();
            shown.early = None;
            Ok(())
        });
        self.line(&format!("{DIM}stopped{PLAIN}"));
    }

    pub(super) fn end_of_answer(&self) {
        self.write(|shown, out| {
            shown.release(out)?;
            shown.end_line(out)
        });
    }
}

impl DeltaSink for Screen {
    fn began(&self, answer: &AnswerUnderWay) {
        self.write(|shown, out| if shown.is_ours(answer) { shown.began(answer, out) } else { Ok(()) });
    }

    fn delta(&self, answer: &AnswerUnderWay, kind: DeltaKind, _: u64, text: &str) {
        if kind == DeltaKind::Content {
            self.write(|shown, out| {
                // One whose beginning was not shown comes as a whole message.
                let is_shown = shown.is_ours(answer) && shown.answer.as_ref() == Some(answer);
                if is_shown { shown.delta(text, out) } else { Ok(()) }
            });
        }
    }
}

/// `text` as it is for a terminal; without its styles elsewhere.
fn styled(text: &str) -> String {
    if io::stdout().is_terminal() {
        return text.to_owned();
    }
    [DIM, BOLD, PLAIN].iter().fold(text.to_owned(), |text, code| text.replace(code, ""))
}

/// `text` with its lines and tabs, which code has, and nothing else that a terminal obeys.
fn screened(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(plain).collect::<Vec<_>>().join("\t");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_a_model_moves_no_cursor() {
        assert_eq!(screened("a\nb\u{1b}[2J"), "a\nb\\u{1b}[2J");
        assert_eq!(screened("all:\n\tgo build\r"), "all:\n\tgo build\\r");
    }

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
        let mut typed = lines(true);
        assert_eq!(typed.early(), ["y", "also this"]);
        assert!(typed.lines.try_recv().is_err(), "nothing is left to answer with");
        let mut written = lines(false);
        assert_eq!(written.early(), [] as [&str; 0]);
        assert!(matches!(written.lines.try_recv(), Ok(Ok(line)) if line.text == "y"));
    }

    /// Lines of a person, each read so many milliseconds after the first.
    fn lines(typed: &[(u64, &str)]) -> InputLines {
        let (send, lines) = mpsc::channel(8);
        let began = Instant::now();
        for (millis, text) in typed {
            let line = InputLine { at: began + Duration::from_millis(*millis), text: (*text).to_owned() };
            send.try_send(Ok(line)).expect("there is room");
        }
        let (_, open) = watch::channel(());
        InputLines { lines, ahead: None, taken_at: began, open, are_typed: true }
    }

    #[tokio::test]
    async fn lines_that_are_pasted_are_one_message_and_those_that_are_typed_are_several() {
        let mut lines =
            lines(&[(0, "one"), (900, "a"), (901, "  b"), (902, "c"), (2_000, "d"), (4_000, ""), (6_000, "last")]);
        let said = said(&mut lines).await;
        assert_eq!(said, ["one", "a\n  b\nc\nd", "", "last"], "the last line of a paste comes with Enter");
        assert!(lines.early().is_empty());
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
        assert!(!screen.0.lock().expect("a lock").prompts, "a line stands behind the prompt");
    }

    #[tokio::test]
    async fn a_command_is_a_line_of_its_own_however_fast_it_comes() {
        let mut lines = lines(&[(0, "hello"), (1, "/new"), (2, "a"), (3, "b"), (4, "/new")]);
        assert_eq!(said(&mut lines).await, ["hello", "/new", "a\nb", "/new"]);
    }

    const TASK: &str = "task-1";

    fn answer(step: u64) -> AnswerUnderWay {
        AnswerUnderWay { invocation: TASK.into(), session: None, step }
    }

    /// A screen that follows [`TASK`], on which a first answer has called a tool.
    fn called(out: &mut Vec<u8>) -> ScreenState {
        let told = ToldSteps { task: TASK.to_owned(), ..ToldSteps::default() };
        let mut screen = ScreenState { told, ..ScreenState::default() };
        screen.began(&answer(1), out).expect("it writes");
        screen.delta("I look.", out).expect("it writes");
        screen
    }

    /// The events of the first answer, of its call and of its result.
    fn told(screen: &mut ScreenState, out: &mut Vec<u8>) {
        screen.told(ToldStep::Answered(1), out).expect("it writes");
        screen.told(ToldStep::Called, out).expect("it writes");
        screen.whole("I look.", out).expect("it writes");
        screen.told(ToldStep::Said, out).expect("it writes");
        screen.line("· look completed".to_owned(), out).expect("it writes");
        screen.told(ToldStep::Returned, out).expect("it writes");
    }

    fn end(mut screen: ScreenState, mut out: Vec<u8>) -> String {
        screen.end_line(&mut out).expect("it writes");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_a_call_came_to_stands_before_the_answer_behind_it_however_late_it_is_told() {
        let mut out = Vec::new();
        let mut screen = called(&mut out);
        told(&mut screen, &mut out);
        screen.began(&answer(2), &mut out).expect("it writes");
        screen.delta("Found.", &mut out).expect("it writes");
        screen.whole("Found.", &mut out).expect("it writes");
        assert_eq!(end(screen, out), "I look.\n· look completed\nFound.\n", "told in time");

        let mut out = Vec::new();
        let mut screen = called(&mut out);
        screen.began(&answer(2), &mut out).expect("it writes");
        screen.delta("Found", &mut out).expect("it writes");
        assert_eq!(String::from_utf8_lossy(&out), "I look.\n");
        told(&mut screen, &mut out);
        screen.delta(".", &mut out).expect("it writes");
        screen.whole("Found.", &mut out).expect("it writes");
        assert_eq!(end(screen, out), "I look.\n· look completed\nFound.\n", "told in the midst of it");

        let mut out = Vec::new();
        let mut screen = called(&mut out);
        screen.began(&answer(2), &mut out).expect("it writes");
        screen.delta("Found.", &mut out).expect("it writes");
        told(&mut screen, &mut out);
        screen.whole("Found.", &mut out).expect("it writes");
        assert_eq!(end(screen, out), "I look.\n· look completed\nFound.\n", "told behind it");
    }

    #[test]
    fn an_answer_in_another_session_is_none_of_the_conversation() {
        let mut screen = ScreenState::default();
        let of = |session: &str| AnswerUnderWay { session: Some(session.into()), ..answer(1) };
        assert!(!screen.is_ours(&of("here")), "nobody knows yet");
        screen.session = Some("here".to_owned());
        assert!(screen.is_ours(&of("here")) && screen.is_ours(&answer(1)));
        assert!(!screen.is_ours(&of("there")));
    }

    #[test]
    fn an_answer_that_is_cut_begins_again_and_one_of_another_task_waits_for_nothing() {
        let mut out = Vec::new();
        let mut screen = called(&mut out);
        screen.began(&answer(1), &mut out).expect("it writes");
        screen.delta("I look.", &mut out).expect("it writes");
        let other = AnswerUnderWay { invocation: "task-2".into(), session: None, step: 7 };
        screen.began(&other, &mut out).expect("it writes");
        screen.delta("Elsewhere.", &mut out).expect("it writes");
        let shown = end(screen, out);
        assert_eq!(shown, format!("I look.{}\nI look.\nElsewhere.\n", styled(&format!("{DIM}…{PLAIN}"))));
    }
}
