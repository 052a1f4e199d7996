//! What a person types into the terminal of a conversation, beneath what is shown there.

#[cfg(test)]
mod simulated;

use std::io::{self, Write};

use super::{Screen, ScreenState};
use crate::talk::typed_area::{Entered, TerminalSize, TypedArea};

impl ScreenState {
    fn typed(&mut self, read: &[u8], out: &mut impl Write) -> io::Result<Vec<Entered>> {
        let Some(area) = &mut self.area else { return Ok(Vec::new()) };
        let mut stays = String::new();
        let entered = area.typed(read, &mut stays);
        if entered.contains(&Entered::Clear) {
            // An answer goes on behind what it has said of its line.
            write!(out, "\x1b[H\x1b[2J{}", self.tail)?;
        }
        if !stays.is_empty() {
            self.end_line(out)?;
            write!(out, "{stays}")?;
        }
        Ok(entered)
    }

    fn took(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(stays) = self.area.as_mut().and_then(TypedArea::took) else { return Ok(()) };
        self.end_line(out)?;
        writeln!(out, "{stays}")
    }

    fn drop_typed(&mut self, out: &mut impl Write) -> io::Result<bool> {
        let Some(dropped) = self.area.as_mut().and_then(TypedArea::interrupt) else { return Ok(false) };
        self.end_line(out)?;
        writeln!(out, "{dropped}^C")?;
        Ok(true)
    }

    /// What a terminal is sent where `write` shows something above the lines that are typed.
    pub(super) fn framed(
        &mut self,
        size: TerminalSize,
        write: impl FnOnce(&mut Self, &mut Vec<u8>) -> io::Result<()>,
    ) -> Vec<u8> {
        let (tail, is_resized) = (&self.tail, self.columns != size.columns);
        if self.area.as_mut().is_some_and(|area| area.part(tail, size.columns, is_resized)) {
            self.tail.clear();
            self.in_line = false;
        }
        if self.tail.is_empty() {
            self.columns = size.columns;
        }
        let row = self.area.as_ref().and_then(|area| area.last_row(&self.tail, size.columns));
        let mut said = Vec::new();
        // Writing to memory does not fail.
        let _ = write(self, &mut said);
        match &mut self.area {
            Some(area) => area.frame((&String::from_utf8_lossy(&said), row), !self.tail.is_empty(), size).into_bytes(),
            None => said,
        }
    }
}

impl Screen {
    /// Lines are edited from now on.
    pub(in crate::talk) fn edit(&self) {
        self.write(|shown, _| {
            shown.area = Some(TypedArea::default());
            Ok(())
        });
    }

    /// Lines are edited no more.
    pub(in crate::talk) fn end_editing(&self) {
        self.give_away();
        self.write(|shown, _| {
            shown.area = None;
            Ok(())
        });
    }

    /// Takes the keys whose last bytes are in `read`.
    pub(in crate::talk) fn typed(&self, read: &[u8]) -> Vec<Entered> {
        let mut entered = Vec::new();
        self.write(|shown, out| {
            entered = shown.typed(read, out)?;
            Ok(())
        });
        entered
    }

    /// The first of the lines was taken that were sent while nobody was asked to type.
    pub(in crate::talk) fn took(&self) {
        self.write(ScreenState::took);
    }

    /// The first of them was left out.
    pub(in crate::talk) fn left_out(&self) {
        self.area(TypedArea::leave_out);
    }

    /// Drops what is typed and what is being pasted; false where there is neither.
    pub(in crate::talk) fn drop_typed(&self) -> bool {
        let mut is_dropped = false;
        self.write(|shown, out| {
            is_dropped = shown.drop_typed(out)?;
            Ok(())
        });
        is_dropped
    }

    /// Keeps a `message`, so that a person can have it again.
    pub(in crate::talk) fn remember(&self, message: &str) {
        self.area(|area| area.remember(message));
    }

    /// Takes what was typed and not sent.
    pub(in crate::talk) fn unsent(&self) -> String {
        let mut unsent = String::new();
        self.area(|area| unsent = area.unsent());
        unsent
    }

    /// Another program has the terminal from now on.
    pub(in crate::talk) fn give_away(&self) {
        self.area(|area| area.is_away = true);
    }

    /// The terminal is this program's again, and whatever stands on it.
    pub(in crate::talk) fn take_back(&self) {
        self.write(|shown, _| {
            shown.tail.clear();
            if let Some(area) = &mut shown.area {
                area.take_back();
            }
            Ok(())
        });
    }

    /// Shows what is typed anew.
    pub(in crate::talk) fn repaint(&self) {
        self.area(|_| ());
    }

    /// Does something to the lines that are typed, where they are edited.
    fn area(&self, change: impl FnOnce(&mut TypedArea)) {
        self.write(|shown, _| {
            if let Some(area) = &mut shown.area {
                change(area);
            }
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthChar;

    use super::simulated::pieces;
    use super::*;

    /// A terminal that breaks lines as terminals do, and has no bottom.
    struct Paper {
        size: TerminalSize,
        rows: Vec<Vec<char>>,
        row: usize,
        column: usize,
        breaks: bool,
    }

    impl Paper {
        fn of(columns: usize) -> Self {
            let size = TerminalSize { columns, rows: 10 };
            Self { size, rows: vec![Vec::new()], row: 0, column: 0, breaks: true }
        }

        fn take(&mut self, bytes: &[u8]) {
            for sent in pieces(bytes) {
                match (sent, sent.strip_prefix('\u{1b}')) {
                    ("\r", _) => self.column = 0,
                    ("\n", _) => {
                        (self.row, self.column) = (self.row + 1, 0);
                        self.rows.resize(self.rows.len().max(self.row + 1), Vec::new());
                    }
                    ("\t", _) => self.column = (self.column / 8 + 1) * 8,
                    (_, Some(sequence)) => self.obey(sequence),
                    (letter, None) => letter.chars().for_each(|c| self.put(c)),
                }
            }
        }

        fn obey(&mut self, sequence: &str) {
            match sequence {
                "[?7l" | "[?7h" => self.breaks = sequence == "[?7h",
                "[H" => (self.row, self.column) = (0, 0),
                "[2J" => self.rows = vec![Vec::new()],
                "[K" => self.rows[self.row].truncate(self.column),
                "[J" => {
                    self.rows.truncate(self.row + 1);
                    self.rows[self.row].truncate(self.column);
                }
                "[A" => self.row -= 1,
                up => self.row -= up[1..up.len() - 1].parse::<usize>().expect("rows"),
            }
        }

        fn put(&mut self, c: char) {
            let width = c.width().unwrap_or_default();
            if self.column + width > self.size.columns {
                assert!(self.breaks, "it is cut: {c}");
                self.take(b"\n");
            }
            let row = &mut self.rows[self.row];
            row.resize(row.len().max(self.column + width), ' ');
            // Behind a wide letter a column is taken, and stays empty.
            row[self.column] = c;
            row[self.column + 1..self.column + width].fill('\0');
            self.column += width;
        }

        /// Its rows, with the cursor as `|`.
        fn shown(&self) -> String {
            let mut rows = self.rows.clone();
            rows[self.row].insert(self.column, '|');
            // A row that was shown and taken away.
            rows.truncate(rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1));
            let rows = rows.into_iter().map(|row| row.into_iter().filter(|c| *c != '\0').collect::<String>());
            rows.collect::<Vec<_>>().join("\n")
        }
    }

    /// A person at a terminal, and a conversation in it.
    struct Sitting {
        state: ScreenState,
        paper: Paper,
    }

    impl Sitting {
        fn of(columns: usize) -> Self {
            let state = ScreenState { area: Some(TypedArea::default()), ..ScreenState::default() };
            Self { state, paper: Paper::of(columns) }
        }

        fn shows(&mut self, write: impl FnOnce(&mut ScreenState, &mut Vec<u8>) -> io::Result<()>) -> String {
            let bytes = self.state.framed(self.paper.size, write);
            self.paper.take(&bytes);
            self.paper.shown()
        }

        fn prompts(&mut self, text: &str) -> String {
            self.shows(|shown, out| shown.prompt(text, false, out))
        }

        fn asks(&mut self, text: &str) -> String {
            self.shows(|shown, out| shown.prompt(text, true, out))
        }

        fn types(&mut self, keys: &str) -> String {
            self.enters(keys).1
        }

        fn enters(&mut self, keys: &str) -> (Vec<Entered>, String) {
            let mut entered = Vec::new();
            let shown = self.shows(|shown, out| {
                entered = shown.typed(keys.as_bytes(), out)?;
                Ok(())
            });
            (entered, shown)
        }

        /// A message is kept, so that it can be had again.
        fn remembers(&mut self, message: &str) {
            self.shows(|shown, _| {
                shown.area.as_mut().expect("it is edited").remember(message);
                Ok(())
            });
        }

        /// Whether Ctrl-C drops something, and what stands there then.
        fn drops(&mut self) -> (bool, String) {
            let mut is_dropped = false;
            let shown = self.shows(|shown, out| {
                is_dropped = shown.drop_typed(out)?;
                Ok(())
            });
            (is_dropped, shown)
        }

        /// A piece of an answer comes.
        fn comes(&mut self, text: &str) -> String {
            self.shows(|shown, out| shown.show(text, out))
        }
    }

    fn line(text: &str, is_ahead: bool) -> Vec<Entered> {
        vec![Entered::Line { text: text.to_owned(), is_ahead }]
    }

    #[test]
    fn a_line_is_edited_behind_its_prompt_and_stays_as_it_was_sent() {
        let mut sitting = Sitting::of(10);
        assert_eq!(sitting.prompts("> "), "> |");
        assert_eq!(sitting.types("hallo"), "> hallo|");
        assert_eq!(sitting.types("\u{1b}[D\u{1b}[D\u{1b}[D\u{1b}[De\u{1b}[3~"), "> he|llo");
        assert_eq!(sitting.types("\u{5} you "), "> hello yo\nu |", "it is broken as wide as the terminal is");
        assert_eq!(sitting.types("\u{1}"), "> |hello yo\nu ");
        assert_eq!(sitting.types("\u{5}\u{17}"), "> hello |");
        assert_eq!(sitting.types("東東"), "> hello 東\n東|", "no letter is cut");
        assert_eq!(sitting.enters("\r"), (line("hello 東東", false), "> hello 東\n東\n|".to_owned()));
        assert!(!sitting.state.is_asked());
    }

    #[test]
    fn what_comes_while_a_line_is_typed_is_shown_above_it() {
        let mut sitting = Sitting::of(10);
        assert_eq!(sitting.comes("I look"), "I look|");
        assert_eq!(sitting.types("and"), "I look\nand|");
        assert_eq!(sitting.comes(" for it now"), "I look for\n it now\nand|");
        assert_eq!(sitting.state.framed(sitting.paper.size, |_, _| Ok(())), b"", "what is as it was is not sent again");
        assert_eq!(sitting.types(" me"), "I look for\n it now\nand me|");
        assert_eq!(sitting.comes(", or"), "I look for\n it now, o\nr\nand me|");
        assert_eq!(sitting.comes(" not."), "I look for\n it now, o\nr not.\nand me|");
        assert_eq!(sitting.types("\u{15}"), "I look for\n it now, o\nr not.|");
        assert_eq!(sitting.comes("\n.."), "I look for\n it now, o\nr not.\n..|");
        assert_eq!(sitting.types("x"), "I look for\n it now, o\nr not.\n..\nx|");
        let shown = sitting.shows(|shown, out| {
            shown.end_line(out)?;
            shown.live.clear();
            shown.line("· done".to_owned(), out)
        });
        assert_eq!(shown, "I look for\n it now, o\nr not.\n..\n· done\nx|");
        assert!(sitting.prompts("> ").ends_with("· done\n> x|"));
    }

    #[test]
    fn a_terminal_that_is_cleared_keeps_the_line_of_an_answer_and_what_waits_for_its_end() {
        let mut sitting = Sitting::of(20);
        sitting.comes("One.\nI look");
        assert_eq!(sitting.types("and"), "One.\nI look\nand|");
        sitting.shows(|shown, out| shown.line("· done".to_owned(), out));
        assert_eq!(sitting.types("\u{c}"), "I look\nand|");
        assert_eq!(sitting.comes(" on"), "I look on\nand|");
        assert_eq!(sitting.shows(ScreenState::end_line), "I look on\n· done\nand|");
        assert_eq!(sitting.types("\u{c}\u{15}"), "|");
    }

    #[test]
    fn a_row_that_is_full_is_gone_on_behind() {
        let mut sitting = Sitting::of(6);
        assert_eq!(sitting.comes("123456"), "123456|");
        assert_eq!(sitting.types("abcdef"), "123456\nabcdef\n|");
        assert_eq!(sitting.comes("78"), "123456\n78\nabcdef\n|");
        assert_eq!(sitting.types("\u{1b}[D"), "123456\n78\nabcde|f");
        assert_eq!(sitting.types("\u{1}\u{b}"), "123456\n78|");
    }

    #[test]
    fn a_line_that_is_sent_beside_a_run_waits_at_the_bottom_until_it_is_taken() {
        let mut sitting = Sitting::of(20);
        sitting.comes("I work");
        assert_eq!(sitting.enters("next\r"), (line("next", true), "I work\nnext\n|".to_owned()));
        assert_eq!(sitting.types("\rmore"), "I work\nnext\nmore|", "nothing is shown of an empty one");
        assert_eq!(sitting.comes(" on"), "I work on\nnext\nmore|");
        sitting.prompts("> ");
        let took = |shown: &mut ScreenState, out: &mut Vec<u8>| shown.took(out);
        assert_eq!(sitting.shows(took), "I work on\n> next\nmore|");
        sitting.prompts("> ");
        assert_eq!(sitting.shows(took), "I work on\n> next\n> \nmore|");
        assert!(!sitting.state.is_asked());
    }

    #[test]
    fn a_question_is_not_answered_by_a_message_that_was_begun() {
        let mut sitting = Sitting::of(20);
        sitting.prompts("> ");
        sitting.types("sent\r");
        sitting.remembers("sent");
        sitting.types("not y");
        assert_eq!(sitting.asks("y or n > "), "> sent\ny or n > |");
        assert_eq!(sitting.types("\u{1b}[A"), "> sent\ny or n > |", "a message is no answer");
        assert_eq!(sitting.enters("n\r"), (line("n", false), "> sent\ny or n > n\nnot y|".to_owned()));
        assert_eq!(sitting.asks("y or n > "), "> sent\ny or n > n\ny or n > |");
        sitting.types("ye");
        let shown = sitting.shows(|shown, out| shown.line("too late".to_owned(), out));
        assert_eq!(shown, "> sent\ny or n > n\ny or n > ye\ntoo late\nnot y|");
        sitting.prompts("> ");
        assert_eq!(sitting.types("\u{1b}[A\r"), "> sent\ny or n > n\ny or n > ye\ntoo late\n> sent\n|");
    }

    #[test]
    fn a_question_sets_aside_what_was_typed_and_no_message_that_was_had_again() {
        let mut sitting = Sitting::of(20);
        sitting.remembers("sent");
        assert_eq!(sitting.types("begun\u{1b}[A"), "sent|");
        sitting.asks("y or n > ");
        assert_eq!(sitting.types("n\r"), "y or n > n\nbegun|");
        assert_eq!(sitting.types("\u{1b}[A!"), "y or n > n\nsent!|");
        sitting.asks("y or n > ");
        assert_eq!(sitting.types("n\r"), "y or n > n\ny or n > n\nsent!|");
    }

    #[test]
    fn a_paste_is_one_line_of_several_rows_and_what_it_would_have_a_terminal_do_is_seen() {
        let mut sitting = Sitting::of(20);
        sitting.prompts("> ");
        assert_eq!(sitting.types("\u{1b}[200~a\rb\tc\u{7}\u{1b}[201~"), "> a\nb       c\\u{7}|");
        assert_eq!(sitting.types("\u{1b}[A!"), "> a!|\nb       c\\u{7}");
        let (entered, _) = sitting.enters("\r");
        assert_eq!(entered, line("a!\nb\tc\u{7}", false));
    }

    #[test]
    fn a_tab_is_no_wider_than_the_terminal() {
        let mut sitting = Sitting::of(6);
        sitting.prompts("> ");
        assert_eq!(sitting.types("a\tb"), "> a\n      \nb|");
        assert_eq!(sitting.types("c"), "> a\n      \nbc|");
    }

    #[test]
    fn of_a_text_that_is_longer_than_the_terminal_is_seen_what_is_at_the_cursor() {
        let mut sitting = Sitting::of(8);
        sitting.prompts("> ");
        let rows: Vec<String> = (0..20).map(|number| format!("row{number}")).collect();
        sitting.types(&format!("\u{1b}[200~{}\u{1b}[201~", rows.join("\n")));
        assert_eq!(sitting.paper.shown(), format!("{}|", rows[11..].join("\n")));
        (0..19).for_each(|_| {
            sitting.types("\u{1b}[A");
        });
        assert_eq!(sitting.paper.shown(), format!("> row0|\n{}", rows[1..9].join("\n")));
        let (entered, shown) = sitting.enters("\r");
        assert_eq!(entered, line(&rows.join("\n"), false));
        assert_eq!(shown, format!("> {}\n|", rows.join("\n")), "all of it stays");
    }

    #[test]
    fn a_terminal_that_is_made_narrower_keeps_what_stands_above_the_line() {
        // One breaks its rows anew, another one cuts them, and nobody knows which: the beginning of the line may stand there twice.
        let kinds: [(&[&str], &str); 2] = [
            (&["said", "> 1234", "5678", "90"], "said\n> 1234\n> 1234\n567890\n|"),
            (&["said", "> 1234", "90"], "said\n> 1234\n567890\n|"),
        ];
        for (rows, expected) in kinds {
            let mut sitting = Sitting::of(10);
            sitting.shows(|shown, out| shown.line("said".to_owned(), out));
            sitting.prompts("> ");
            assert_eq!(sitting.types("1234567890"), "said\n> 12345678\n90|");
            sitting.paper.size.columns = 6;
            sitting.paper.rows = rows.iter().map(|row| row.chars().collect()).collect();
            sitting.paper.row = rows.len() - 1;
            assert_eq!(sitting.shows(|_, _| Ok(())), expected);
            sitting.paper.size.columns = 20;
            assert!(sitting.shows(|_, _| Ok(())).ends_with("\n> 1234567890|"));
        }
    }

    #[test]
    fn a_search_stands_in_the_place_of_the_prompt_and_ctrl_c_ends_it() {
        let mut sitting = Sitting::of(30);
        sitting.remembers("deploy to dev");
        sitting.prompts("> ");
        assert_eq!(sitting.types("\u{12}"), "search:  > |");
        assert_eq!(sitting.types("dep"), "search: dep > deploy to dev|");
        assert_eq!(sitting.enters("\r"), (line("deploy to dev", false), "> deploy to dev\n|".to_owned()));
        sitting.prompts("> ");
        sitting.types("\u{12}");
        assert_eq!(sitting.drops(), (true, "> deploy to dev\n> ^C\n|".to_owned()));
        sitting.prompts("> ");
        assert_eq!(sitting.types("/co\t"), "> deploy to dev\n> ^C\n> /compact|");
    }

    #[test]
    fn a_tab_tells_the_commands_that_a_word_may_be() {
        let mut sitting = Sitting::of(40);
        sitting.prompts("> ");
        let all = "/help  /new  /exit  /quit  /compact";
        assert_eq!(sitting.types("/\t"), format!("{all}\n> /|"));
        assert_eq!(sitting.types("n\t"), format!("{all}\n> /new|"));
        sitting.asks("y or n > ");
        assert!(sitting.types("/\t").ends_with("y or n > /      |"), "an answer is no command");
    }

    #[test]
    fn ctrl_c_drops_a_paste_whose_end_does_not_come() {
        let mut sitting = Sitting::of(20);
        sitting.prompts("> ");
        assert_eq!(sitting.types("\u{1b}[200~half"), "> |");
        assert!(sitting.drops().0);
        sitting.prompts("> ");
        assert_eq!(sitting.types("typed"), "> ^C\n> typed|");
    }

    #[test]
    fn ctrl_c_drops_what_is_typed_and_the_end_of_the_input_needs_an_empty_line() {
        let mut sitting = Sitting::of(20);
        sitting.prompts("> ");
        sitting.types("half\u{1b}[200~ of");
        assert_eq!(sitting.drops(), (true, "> half^C\n|".to_owned()));
        assert!(!sitting.state.is_asked());
        sitting.prompts("> ");
        assert_eq!(sitting.enters("ab\u{1}\u{4}"), (Vec::new(), "> half^C\n> |b".to_owned()));
        assert_eq!(sitting.enters("\u{4}\u{4}x").0, [Entered::End]);
        assert!(!sitting.drops().0, "nothing is typed, and the conversation ends");
    }
}
