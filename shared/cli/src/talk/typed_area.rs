//! The lines at the bottom of the terminal in which a person types, beneath whatever is shown above them at any moment.
//!
//! It is our own: a line editor of a library asks with one fixed prompt until Enter. Here answers come in pieces in the midst of a
//! line while somebody types, questions take the place of a prompt, and go when somebody else has answered them.

use std::collections::VecDeque;
use std::fmt::Write;
use std::mem::take;
use std::time::Instant;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::edited_line::EditedLine;
use super::keys::{Key, Keys};
use super::screen::screened;
use crate::terminal::plain;

/// What a person may do besides talking. Tab ends these words.
pub(super) const COMMAND_WORDS: [&str; 5] = ["/help", "/new", "/exit", "/quit", "/compact"];

/// Columns between the stops of tabs.
const TAB: usize = 8;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// What a person does with the keys of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// A line is sent. Without a prompt it waits to be taken.
    Line { text: String, is_ahead: bool },
    /// The input ends.
    End,
    /// The program is to end as it stands.
    Quit,
    /// The terminal is cleared.
    Clear,
}

/// The prompt, and what is typed behind it.
#[derive(Default)]
pub(super) struct TypedArea {
    keys: Keys,
    line: EditedLine,
    /// Empty where nobody is asked to type.
    prompt: String,
    /// True if the prompt is that of a question: its answers are no messages.
    asks: bool,
    /// A message that was begun when the question came.
    set_aside: String,
    /// Lines that were sent while nobody was asked to type.
    ahead: VecDeque<String>,
    shown: Option<ShownArea>,
    /// True while another program has the terminal.
    pub(super) is_away: bool,
}

/// The area as it is on the terminal.
struct ShownArea {
    text: String,
    /// The cursor, in bytes of the text.
    cursor: usize,
    size: TerminalSize,
    /// Its rows above that with the cursor. A terminal that became narrower has broken them anew, or has cut them: as far above the
    /// cursor is nothing else in either.
    above: usize,
    /// True if it stands beneath a line that is not at its end.
    beneath: bool,
}

impl TypedArea {
    /// Asks for a message, or for the answer to a question where it `asks`.
    pub(super) fn prompt(&mut self, prompt: &str, asks: bool) {
        prompt.clone_into(&mut self.prompt);
        if asks {
            self.set_aside = self.unsent();
        }
        self.asks = asks;
    }

    /// Nobody is asked any more: the line as it stays on the terminal. What was typed of it is not sent.
    pub(super) fn leave(&mut self) -> String {
        let typed = self.line.take();
        self.said(&typed)
    }

    /// The person drops the line, and a paste that has not ended: what stays of it on the terminal. `None` where there is neither.
    pub(super) fn interrupt(&mut self) -> Option<String> {
        let is_begun = self.is_typed() || self.keys.are_pasted() || self.line.sought().is_some();
        self.keys = Keys::default();
        is_begun.then(|| self.leave())
    }

    /// The prompt with `text` behind it, as it stays on the terminal. Nobody is asked any more.
    fn said(&mut self, text: &str) -> String {
        if take(&mut self.asks) {
            let begun = self.unsent();
            self.line.put(begun);
        }
        format!("{}{}", take(&mut self.prompt), screened(text))
    }

    /// Takes the keys whose last bytes are in `read`. What stays on the terminal is written behind `stays`.
    pub(super) fn typed(&mut self, read: &[u8], stays: &mut String) -> Vec<Entered> {
        let mut entered = Vec::new();
        for key in self.keys.take(read, Instant::now()) {
            if key == Key::Enter {
                entered.push(self.enter(stays));
            } else if key == Key::EndOrDelete && !self.is_typed() {
                entered.push(Entered::End);
                // Nobody reads what comes behind it.
                break;
            } else if key == Key::Quit {
                entered.push(Entered::Quit);
            } else if key == Key::Clear {
                entered.push(Entered::Clear);
            } else if key == Key::Letter('\t') && !self.asks {
                self.tab(stays);
            } else {
                self.line.press(key, !self.asks);
            }
        }
        entered
    }

    /// Ends a command that is begun, or tells those that it may be. In any other line it is a letter.
    fn tab(&mut self, stays: &mut String) {
        let words = self.line.complete(&COMMAND_WORDS);
        if words.is_empty() {
            self.line.press(Key::Letter('\t'), true);
        } else if words.len() > 1 {
            stays.push_str(&words.join("  "));
            stays.push('\n');
        }
    }

    fn enter(&mut self, stays: &mut String) -> Entered {
        let text = self.line.take();
        let is_ahead = !self.is_asked();
        if is_ahead {
            self.ahead.push_back(text.clone());
        } else {
            stays.push_str(&self.said(&text));
            stays.push('\n');
        }
        Entered::Line { text, is_ahead }
    }

    /// The first of the lines that wait was taken: what stays of it on the terminal.
    pub(super) fn took(&mut self) -> Option<String> {
        let text = self.ahead.pop_front()?;
        Some(self.said(&text))
    }

    /// The first of the lines that wait is left out.
    pub(super) fn leave_out(&mut self) {
        self.ahead.pop_front();
    }

    /// True if there is something in the line.
    fn is_typed(&self) -> bool {
        !self.line.text().is_empty()
    }

    /// Keeps a message, so that it can be had again.
    pub(super) fn remember(&mut self, message: &str) {
        self.line.remember(message);
    }

    /// Takes what was typed and not sent.
    pub(super) fn unsent(&mut self) -> String {
        join(take(&mut self.set_aside), self.line.take_unsent())
    }

    /// True if somebody is asked to type.
    pub(super) fn is_asked(&self) -> bool {
        !self.prompt.is_empty()
    }

    /// It is shown again, where the cursor is by now: another program had the terminal.
    pub(super) fn take_back(&mut self) {
        self.is_away = false;
        self.shown = None;
    }

    /// What comes above is shown in a row of its own from now on, if nobody knows where a terminal of so many `columns` breaks the
    /// `line` in whose midst that is; true if so. The terminal `is_resized` if it was wider or narrower when that began.
    pub(super) fn part(&mut self, line: &str, columns: usize, is_resized: bool) -> bool {
        self.shown.as_mut().is_some_and(|shown| {
            let parts = shown.beneath && (is_resized || is_broken_differently(line, columns));
            shown.beneath &= !parts;
            parts
        })
    }

    /// The last row of what is shown above, if that is in the midst of its `line`, and goes on there.
    pub(super) fn last_row(&self, line: &str, columns: usize) -> Option<String> {
        self.shown.as_ref().filter(|shown| shown.beneath).map(|_| broken(line, columns).to_owned())
    }

    /// What a terminal of that `size` is sent so that `said` is shown above the area, and the area as it is now beneath it.
    /// It is said behind the [last `row`](Self::last_row); `is_in_line` where it is not at the end of a line behind that.
    pub(super) fn frame(
        &mut self,
        (said, row): (&str, Option<String>),
        is_in_line: bool,
        size: TerminalSize,
    ) -> String {
        let (text, cursor) = self.text();
        let is_seen = !self.is_away && !text.is_empty();
        let is_same = |shown: &ShownArea| shown.text == text && shown.cursor == cursor && shown.size == size;
        if said.is_empty() && is_seen && self.shown.as_ref().is_some_and(is_same) {
            return String::new();
        }
        let mut frame = String::new();
        let stays = is_seen && said.is_empty();
        let mut beneath = false;
        if let Some(shown) = self.shown.take() {
            frame.push('\r');
            up(shown.above, &mut frame);
            beneath = stays && shown.beneath;
            if !stays {
                frame.push_str("\x1b[J");
                if let Some(row) = row {
                    frame.push_str("\x1b[A");
                    frame.push_str(&row);
                }
            }
        }
        frame.push_str(said);
        if is_seen {
            if is_in_line && !beneath {
                frame.push_str("\r\n");
                beneath = true;
            }
            let above = show(&text, cursor, size, &mut frame);
            self.shown = Some(ShownArea { text, cursor, size, above, beneath });
        }
        frame
    }

    /// What stands there: the lines that wait, the prompt and what is typed; and the cursor, in bytes of it.
    fn text(&self) -> (String, usize) {
        let mut text = String::new();
        for line in self.ahead.iter().filter(|line| !line.trim().is_empty()) {
            text.push_str(line);
            text.push('\n');
        }
        match self.line.sought() {
            Some(words) => text.extend(["search: ", words, " > "]),
            None => text.push_str(&self.prompt),
        }
        let cursor = text.len() + self.line.cursor();
        text.push_str(self.line.text());
        (text, cursor)
    }
}

/// Shows `text` from its first row on, where the cursor is, over whatever is there. Gives the rows above that with the cursor.
fn show(text: &str, cursor: usize, size: TerminalSize, frame: &mut String) -> usize {
    let Rows { rows, row, head } = rows_of(text, cursor, size.columns);
    // As many as fit, and among them that with the cursor.
    let most = size.rows.saturating_sub(1).max(1);
    let first = (row + 1).saturating_sub(most);
    let last = rows.len().min(first + most) - 1;
    // What is wider than it is taken for is cut, and moves no row.
    frame.push_str("\x1b[?7l");
    for row in &rows[first..last] {
        frame.push_str("\x1b[K");
        frame.push_str(row);
        frame.push_str("\r\n");
    }
    frame.push_str("\x1b[J");
    frame.push_str(&rows[last]);
    if row != last || head != rows[row].len() {
        // The terminal knows best how wide that is which stands before the cursor.
        frame.push('\r');
        up(last - row, frame);
        frame.push_str(&rows[row][..head]);
    }
    frame.push_str("\x1b[?7h");
    row - first
}

/// Text in the rows of a terminal.
struct Rows {
    rows: Vec<String>,
    /// That with the cursor.
    row: usize,
    /// Bytes of it before the cursor.
    head: usize,
}

/// `text` in rows of so many `columns`, with the cursor before its byte `cursor`. What a terminal would obey is written as an escape.
fn rows_of(text: &str, cursor: usize, columns: usize) -> Rows {
    let (mut rows, mut width) = (vec![String::new()], 0);
    let mut place = None;
    for (at, letter) in text.grapheme_indices(true) {
        let last = rows.len() - 1;
        let is_here = place.is_none() && at >= cursor;
        if letter.ends_with('\n') {
            place = place.or(is_here.then(|| (last, rows[last].len())));
            rows.push(String::new());
            width = 0;
            continue;
        }
        let mut shown = if letter == "\t" { " ".repeat(TAB - width % TAB) } else { plain(letter) };
        if width > 0 && width + shown.width() > columns {
            rows.push(String::new());
            width = 0;
            if letter == "\t" {
                shown = " ".repeat(TAB.min(columns));
            }
        }
        let last = rows.len() - 1;
        place = place.or(is_here.then(|| (last, rows[last].len())));
        rows[last].push_str(&shown);
        width += shown.width();
    }
    if place.is_none() && width >= columns {
        rows.push(String::new());
    }
    let (row, head) = place.unwrap_or_else(|| (rows.len() - 1, rows[rows.len() - 1].len()));
    Rows { rows, row, head }
}

/// What of `line` stands in the last of the rows in which a terminal of so many `columns` breaks it by itself.
fn broken(line: &str, columns: usize) -> &str {
    let (mut begins, mut width) = (0, 0);
    for (at, letter) in line.grapheme_indices(true) {
        if letter == "\t" {
            // It ends at the last column, and breaks no line.
            width = (width - width % TAB + TAB).min(columns.saturating_sub(1)).max(width);
            continue;
        }
        if width > 0 && width + letter.width() > columns {
            (begins, width) = (at, 0);
        }
        width += letter.width();
    }
    &line[begins..]
}

/// True if not all terminals of so many `columns` break `line` in the same places: some take each character of a picture by itself.
fn is_broken_differently(line: &str, columns: usize) -> bool {
    let (mut most, mut differs) = (0, false);
    for letter in line.graphemes(true).filter(|letter| *letter != "\t") {
        let alone: usize = letter.chars().filter_map(UnicodeWidthChar::width).sum();
        differs |= alone != letter.width();
        most += alone.max(letter.width());
    }
    differs && most >= columns
}

/// Moves the cursor so many `rows` up.
fn up(rows: usize, frame: &mut String) {
    if rows > 0 {
        // Writing to a string does not fail.
        let _ = write!(frame, "\x1b[{rows}A");
    }
}

fn join(before: String, behind: String) -> String {
    if before.is_empty() { behind } else { before + &behind }
}
