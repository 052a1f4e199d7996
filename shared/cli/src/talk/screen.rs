//! The terminal of a conversation: text that comes in pieces, and what stands between.

mod typing;

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_agent::graph::{AnswerUnderWay, DeltaSink};
use dormouse_ports::model::DeltaKind;

use super::raw_terminal;
use super::typed_area::TypedArea;
use crate::terminal::{has_styles, plain};

pub(super) const DIM: &str = "\u{1b}[2m";
pub(super) const BOLD: &str = "\u{1b}[1m";
pub(super) const PLAIN: &str = "\u{1b}[0m";

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
    /// What stands before it there, of what came in pieces.
    tail: String,
    /// Columns that the terminal had when that began.
    columns: usize,
    /// Lines that came in the midst of the answer's words, and are shown behind them.
    held: Vec<String>,
    /// Pieces of answers that were stopped are not shown.
    stopped: bool,
    /// The last whole message.
    said: String,
    /// True while a person is asked to type where no line is edited.
    prompts: bool,
    /// Where a person types, if lines are edited.
    area: Option<TypedArea>,
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
        self.tail.clear();
        self.held.drain(..).try_for_each(|line| writeln!(out, "{line}"))
    }

    fn line(&mut self, text: String, out: &mut impl Write) -> io::Result<()> {
        if self.in_line && !self.live.is_empty() {
            self.held.push(text);
            return Ok(());
        }
        self.end_line(out)?;
        self.leave_prompt(out)?;
        writeln!(out, "{text}")
    }

    fn prompt(&mut self, text: &str, asks: bool, out: &mut impl Write) -> io::Result<()> {
        self.end_line(out)?;
        self.leave_prompt(out)?;
        match &mut self.area {
            Some(area) => {
                area.prompt(text, asks);
                Ok(())
            }
            None => {
                self.prompts = true;
                write!(out, "{text}")
            }
        }
    }

    /// True while a person is asked to type.
    fn is_asked(&self) -> bool {
        self.area.as_ref().map_or(self.prompts, TypedArea::is_asked)
    }

    /// Nobody is asked to type any more.
    fn leave_prompt(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.prompts = false;
        match &mut self.area {
            Some(area) if area.is_asked() => writeln!(out, "{}", area.leave()),
            Some(_) | None => Ok(()),
        }
    }

    /// True if `answer` is one of the conversation.
    fn is_ours(&self, answer: &AnswerUnderWay) -> bool {
        let Some(here) = &self.session else { return false };
        answer.session.as_ref().is_none_or(|there| here == there.as_str())
    }

    fn began(&mut self, answer: &AnswerUnderWay, out: &mut impl Write) -> io::Result<()> {
        self.stopped = false;
        // Where lines are edited a person types on beneath it.
        self.prompts = false;
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
        let text = screened(text);
        match text.rsplit_once('\n') {
            Some((_, tail)) => tail.clone_into(&mut self.tail),
            None => self.tail.push_str(&text),
        }
        write!(out, "{text}")
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
    fn write(&self, write: impl FnOnce(&mut ScreenState, &mut Vec<u8>) -> io::Result<()>) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = shown.framed(raw_terminal::size(), write);
        let mut out = io::stdout().lock();
        // A terminal that is gone shows nothing.
        let _ = out.write_all(&bytes).and_then(|()| out.flush());
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
            if is_early || shown.in_line || shown.is_asked() || shown.stopped {
                return Ok(());
            }
            shown.progressed = Some(Instant::now());
            writeln!(out, "{text}")
        });
    }

    /// Asks a person for a message.
    pub(super) fn prompt(&self, text: &str) {
        self.write(|shown, out| shown.prompt(text, false, out));
    }

    /// Asks a person for the answer to a question. It is no message, and cannot be had again as one.
    pub(super) fn ask(&self, text: &str) {
        self.write(|shown, out| shown.prompt(text, true, out));
    }

    /// Ends the line in which a person was asked to type, and did not.
    pub(super) fn end_prompt(&self) {
        self.write(|shown, out| {
            if shown.area.is_none() {
                return shown.line(String::new(), out);
            }
            shown.end_line(out)?;
            shown.leave_prompt(out)
        });
    }

    /// The conversation is that of `session` from now on.
    pub(super) fn converse(&self, session: &str) {
        self.write(|shown, _| {
            shown.session = Some(session.to_owned());
            Ok(())
        });
    }

    /// True if the cursor is behind a prompt.
    #[cfg(test)]
    pub(super) fn prompts(&self) -> bool {
        self.0.lock().expect("a lock").is_asked()
    }

    /// The events of `task` are told from now on, behind those that have `told` of its steps.
    pub(super) fn follow(&self, task: &str, told: ToldSteps) {
        self.write(|shown, out| {
            shown.told = ToldSteps { task: task.to_owned(), ..told };
            shown.earlier.clear();
            shown.leave_prompt(out)
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
        self.write(|shown, out| {
            shown.said.clear();
            shown.leave_prompt(out)
        });
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
    if has_styles(&io::stdout()) {
        return text.to_owned();
    }
    [DIM, BOLD, PLAIN].iter().fold(text.to_owned(), |text, code| text.replace(code, ""))
}

/// `text` with its lines and tabs, which code has, and nothing else that a terminal obeys.
pub(super) fn screened(text: &str) -> String {
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
