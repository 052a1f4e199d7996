//! A terminal with a bottom, which breaks its lines anew or cuts them when it is made wider or narrower, and conversations at
//! random in it.

use std::mem::take;

use unicode_width::UnicodeWidthChar;

use super::*;

/// What is sent to a terminal: letters, and sequences with the escape before them.
pub(super) fn pieces(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = std::str::from_utf8(bytes).expect("text");
    std::iter::from_fn(move || {
        let length = match rest.chars().next()? {
            '\u{1b}' => rest.find(|c: char| c.is_ascii_alphabetic()).expect("a sequence") + 1,
            c => c.len_utf8(),
        };
        let (piece, behind) = rest.split_at(length);
        rest = behind;
        Some(piece)
    })
}

#[derive(Clone, Default)]
struct Row {
    /// Behind a wide letter a column is taken, and stays empty.
    cells: Vec<char>,
    /// True if its line goes on in the next one.
    goes_on: bool,
}

struct Terminal {
    size: TerminalSize,
    /// All of them, also those that have gone out of sight.
    rows: Vec<Row>,
    /// The first that is in sight.
    top: usize,
    row: usize,
    column: usize,
    /// True if the last column is written, and the next letter goes to the next row.
    is_full: bool,
    breaks: bool,
    /// True if it breaks its lines anew when it is made wider or narrower. Others cut them (xterm, screen, st).
    breaks_anew: bool,
}

impl Terminal {
    fn of(columns: usize, rows: usize) -> Self {
        let size = TerminalSize { columns, rows };
        let rows = vec![Row::default()];
        Self { size, rows, top: 0, row: 0, column: 0, is_full: false, breaks: true, breaks_anew: true }
    }

    fn take(&mut self, bytes: &[u8]) {
        for sent in pieces(bytes) {
            match (sent, sent.strip_prefix('\u{1b}')) {
                ("\r", _) => (self.column, self.is_full) = (0, false),
                ("\n", _) => self.feed(),
                (_, Some(sequence)) => self.obey(sequence),
                (letter, None) => letter.chars().for_each(|c| self.put(c)),
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        match sequence {
            "[?7l" | "[?7h" => self.breaks = sequence == "[?7h",
            "[K" | "[J" => {
                let row = &mut self.rows[self.row];
                row.cells.truncate(self.column);
                (row.goes_on, self.is_full) = (false, false);
                if sequence == "[J" {
                    self.rows.truncate(self.row + 1);
                }
            }
            "[A" => self.up(1),
            up => self.up(up[1..up.len() - 1].parse().expect("rows")),
        }
    }

    /// What has gone out of sight is out of reach.
    fn up(&mut self, rows: usize) {
        (self.row, self.is_full) = (self.row.saturating_sub(rows).max(self.top), false);
    }

    fn feed(&mut self) {
        (self.row, self.column, self.is_full) = (self.row + 1, 0, false);
        if self.row == self.rows.len() {
            self.rows.push(Row::default());
        }
        self.top = self.top.max((self.row + 1).saturating_sub(self.size.rows));
    }

    fn put(&mut self, c: char) {
        // It takes each character by itself. What has no width stands with the letter before it.
        let Some(width) = c.width().filter(|width| *width > 0) else { return };
        if self.breaks && (self.is_full || self.column + width > self.size.columns) {
            self.rows[self.row].goes_on = true;
            self.feed();
        }
        let at = self.column.min(self.size.columns - width);
        let cells = &mut self.rows[self.row].cells;
        cells.resize(cells.len().max(at + width), ' ');
        if at > 0 && cells[at] == '\0' {
            cells[at - 1] = ' ';
        }
        cells[at] = c;
        cells[at + 1..at + width].fill('\0');
        if let Some(half) = cells.get_mut(at + width).filter(|behind| **behind == '\0') {
            *half = ' ';
        }
        self.is_full = at + width == self.size.columns;
        self.column = (at + width).min(self.size.columns - 1);
    }

    fn resize(&mut self, columns: usize, rows: usize) {
        self.size = TerminalSize { columns, rows };
        if !self.breaks_anew {
            // What it cuts off itself counts as kept.
            (self.column, self.is_full) = (self.column.min(columns - 1), false);
            self.top = self.rows.len().saturating_sub(rows).min(self.row);
            return;
        }
        let cursor = self.column + usize::from(self.is_full);
        let (mut line, mut at): (Vec<char>, Option<usize>) = (Vec::new(), None);
        let (mut anew, mut place): (Vec<Row>, (usize, usize)) = (Vec::new(), (0, 0));
        for (number, row) in take(&mut self.rows).into_iter().enumerate() {
            if number == self.row {
                at = Some(line.len() + cursor);
            }
            line.extend(row.cells);
            if row.goes_on {
                continue;
            }
            let (mut last, mut seen) = (Row::default(), 0);
            for letter in take(&mut line).chunk_by(|_, behind| *behind == '\0') {
                if last.cells.len() + letter.len() > columns {
                    last.goes_on = true;
                    anew.push(take(&mut last));
                }
                if at == Some(seen) {
                    (place, at) = ((anew.len(), last.cells.len()), None);
                }
                last.cells.extend(letter);
                seen += letter.len();
            }
            if at.take().is_some() {
                place = (anew.len(), last.cells.len());
            }
            anew.push(last);
        }
        self.rows = anew;
        self.row = place.0;
        self.is_full = place.1 == columns;
        self.column = place.1.min(columns - 1);
        self.top = self.rows.len().saturating_sub(rows).min(self.row);
    }

    /// All that stands there, and that has stood there, without ends of rows.
    fn text(&self) -> String {
        self.rows.iter().flat_map(|row| &row.cells).filter(|c| **c != '\0').collect()
    }
}

/// A person at a terminal, and a conversation in it.
struct Sitting {
    state: ScreenState,
    terminal: Terminal,
    /// What was said.
    said: Vec<String>,
}

impl Sitting {
    fn of(columns: usize, rows: usize) -> Self {
        let state = ScreenState { area: Some(TypedArea::default()), ..ScreenState::default() };
        Self { state, terminal: Terminal::of(columns, rows), said: Vec::new() }
    }

    fn shows(&mut self, write: impl FnOnce(&mut ScreenState, &mut Vec<u8>) -> io::Result<()>) {
        let bytes = self.state.framed(self.terminal.size, write);
        self.terminal.take(&bytes);
    }

    fn types(&mut self, keys: &str) {
        self.shows(|shown, out| shown.typed(keys.as_bytes(), out).map(drop));
    }

    /// A piece of an answer comes: a number, and something behind it.
    fn comes(&mut self, more: &str) {
        let number = format!("<{}>", self.said.len());
        self.shows(|shown, out| shown.show(&format!("{number}{more}"), out));
        self.said.push(number);
    }

    /// A line of its own comes.
    fn line(&mut self) {
        let number = format!("<{}>", self.said.len());
        self.shows(|shown, out| {
            shown.end_line(out)?;
            shown.live.clear();
            shown.line(number.clone(), out)
        });
        self.said.push(number);
    }

    fn resizes(&mut self, columns: usize, rows: usize) {
        self.terminal.resize(columns, rows);
        self.shows(|_, _| Ok(()));
    }

    /// Nothing is lost of what was said.
    fn holds(&self, what: &str) {
        let text = self.terminal.text();
        let lost: Vec<&String> = self.said.iter().filter(|one| !text.contains(one.as_str())).collect();
        assert!(lost.is_empty(), "{what}: {lost:?} of {text}");
    }
}

#[test]
fn an_answer_goes_on_in_a_row_of_its_own_where_a_terminal_has_broken_its_line_anew() {
    let mut sitting = Sitting::of(13, 5);
    sitting.types(&"y".repeat(25));
    sitting.comes("xxxxxxxxx");
    sitting.comes("xxxxxx");
    sitting.resizes(6, 5);
    sitting.comes("x");
    sitting.resizes(24, 6);
    sitting.comes("xxx");
    sitting.holds("what touched the top of the screen");
    assert_eq!(sitting.terminal.text().matches("<2>").count(), 1, "it stands there once");
}

#[test]
fn an_answer_that_goes_on_before_the_line_is_shown_anew_is_broken_once() {
    let mut sitting = Sitting::of(20, 8);
    sitting.types("y");
    sitting.comes("x");
    sitting.terminal.resize(30, 8);
    sitting.comes("a");
    sitting.comes("b");
    let rows: Vec<String> = sitting.terminal.rows.iter().map(|row| row.cells.iter().collect()).collect();
    assert_eq!(rows, ["<0>x", "<1>a<2>b", "y"]);
}

#[test]
fn a_terminal_that_cuts_its_rows_keeps_those_above_the_line_that_is_typed() {
    let mut sitting = Sitting::of(20, 8);
    sitting.terminal.breaks_anew = false;
    sitting.line();
    sitting.comes("x");
    sitting.types(&"y".repeat(30));
    sitting.resizes(12, 8);
    sitting.holds("made narrower");
    let rows: Vec<usize> = sitting.terminal.rows[2..].iter().map(|row| row.cells.len()).collect();
    assert_eq!(rows, [12, 12, 6], "the line stands there once");
}

#[test]
fn pictures_whose_width_terminals_do_not_agree_on_have_nothing_overwritten() {
    for picture in ["\u{2764}\u{fe0f}", "\u{1f469}\u{200d}\u{1f680}", "\u{1f44d}\u{1f3fd}"] {
        for before in 0..12 {
            let mut sitting = Sitting::of(10, 8);
            sitting.comes(&"x".repeat(before));
            sitting.comes(picture);
            sitting.types("y");
            for _ in 0..7 {
                sitting.comes("z");
                sitting.holds(&format!("{picture} behind {before}"));
            }
        }
    }
}

const PIECES: [&str; 8] = ["", "東", "東東", "\u{2764}\u{fe0f}", "\u{1f44d}\u{1f3fd}", "x", "wort\n", "\n"];

/// Numbers that are the same each time, and look like chance (Knuth's MMIX).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

#[test]
fn nothing_of_an_answer_is_lost_whatever_is_typed_and_however_the_terminal_is_drawn() {
    for seed in 0..500 {
        let mut chance = Chance(seed);
        let mut sitting = Sitting::of(10 + chance.below(20), 4 + chance.below(8));
        sitting.terminal.breaks_anew = seed % 2 == 0;
        for step in 0..60 {
            match chance.below(20) {
                0..=6 => sitting.comes(PIECES[chance.below(PIECES.len())]),
                7 => sitting.shows(ScreenState::end_line),
                8 => sitting.line(),
                9..=13 => sitting.types(["a", "bc", "def ghi", "東", "a long word here"][chance.below(5)]),
                14 => sitting.types("\u{1b}[200~\n\u{1b}[201~"),
                15 => sitting.types("\u{1b}[D\u{1b}[D\u{1b}[D"),
                16 => sitting.types("\u{15}"),
                17 => sitting.types("\u{5}"),
                _ => {
                    // Where nothing is typed the cursor stands in the answer, of which such a terminal cuts what is behind it.
                    if !sitting.terminal.breaks_anew {
                        sitting.types("y");
                    }
                    sitting.resizes(10 + chance.below(20), 4 + chance.below(8));
                }
            }
            sitting.holds(&format!("seed {seed}, step {step}"));
        }
    }
}
