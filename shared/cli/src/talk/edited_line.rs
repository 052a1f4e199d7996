//! A line that a person edits, and those before it.

use std::collections::VecDeque;
use std::mem::take;

use unicode_segmentation::UnicodeSegmentation;

use super::keys::Key;

/// Lines before it that are kept. They are in memory alone, and gone with the conversation.
const MOST_EARLIER: usize = 500;

/// The line, which has line ends where several were pasted.
#[derive(Default)]
pub(super) struct EditedLine {
    text: String,
    /// The cursor, in bytes.
    at: usize,
    /// What was taken out last.
    cut: String,
    earlier: VecDeque<String>,
    recalled: Option<RecalledLine>,
    /// What earlier lines are searched for, while they are.
    sought: Option<String>,
}

/// An earlier line that stands in the place of the one that was typed.
struct RecalledLine {
    number: usize,
    /// What was typed before.
    typed: String,
}

impl EditedLine {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The cursor, in bytes of the text.
    pub(super) fn cursor(&self) -> usize {
        self.at
    }

    /// What earlier lines are searched for; `None` while they are not.
    pub(super) fn sought(&self) -> Option<&str> {
        self.sought.as_deref()
    }

    /// Takes the text out.
    pub(super) fn take(&mut self) -> String {
        (self.recalled, self.sought) = (None, None);
        self.at = 0;
        take(&mut self.text)
    }

    /// Takes out what is not sent: where an earlier line stands there as it was, that is what was typed before.
    pub(super) fn take_unsent(&mut self) -> String {
        let recalled = self.recalled.take();
        let text = self.take();
        match recalled {
            Some(RecalledLine { number, typed }) if self.earlier.get(number) == Some(&text) => typed,
            Some(_) | None => text,
        }
    }

    /// Puts `text` there, with the cursor behind it.
    pub(super) fn put(&mut self, text: String) {
        self.at = text.len();
        self.text = text;
    }

    /// Keeps `line`, so that it can be had again.
    pub(super) fn remember(&mut self, line: &str) {
        if line.trim().is_empty() || self.earlier.back().is_some_and(|last| last == line) {
            return;
        }
        if self.earlier.len() == MOST_EARLIER {
            self.earlier.pop_front();
            // The one that stands there moves up with the others.
            if let Some(recalled) = &mut self.recalled {
                recalled.number = recalled.number.saturating_sub(1);
            }
        }
        self.earlier.push_back(line.to_owned());
    }

    /// Does what `key` does to the text. Earlier lines are had where it `recalls` any.
    pub(super) fn press(&mut self, key: Key, recalls: bool) {
        if self.search(&key, recalls) {
            return;
        }
        match key {
            Key::Letter(letter) => self.insert(letter.encode_utf8(&mut [0; 4])),
            Key::Paste(text) => self.insert(&text),
            Key::Left => self.at = self.before(),
            Key::Right => self.at = self.behind(),
            Key::WordLeft => self.at = self.word_before(char::is_alphanumeric),
            Key::WordRight => self.at = self.word_behind(),
            Key::Home => self.at = self.row_begins(),
            Key::End => self.at = self.row_ends(),
            Key::Up => {
                if !self.row_up() && recalls {
                    self.recall_before();
                }
            }
            Key::Down => {
                if !self.row_down() && recalls {
                    self.recall_behind();
                }
            }
            Key::Backspace => {
                self.remove(self.before(), self.at);
            }
            Key::Delete | Key::EndOrDelete => {
                self.remove(self.at, self.behind());
            }
            Key::CutHead => {
                let from = if self.row_begins() == self.at { self.before() } else { self.row_begins() };
                self.cut(from, self.at);
            }
            Key::CutTail => {
                let to = if self.row_ends() == self.at { self.behind() } else { self.row_ends() };
                self.cut(self.at, to);
            }
            Key::CutWordLeft => self.cut(self.word_before(|c| !c.is_whitespace()), self.at),
            Key::CutWordRight => self.cut(self.at, self.word_behind()),
            Key::PutBack => {
                let cut = self.cut.clone();
                self.insert(&cut);
            }
            // They are no matter of the text.
            Key::Enter | Key::Quit | Key::Clear | Key::Search | Key::Leave => {}
        }
    }

    /// Does what `key` does to a search; false where it does something to the text, which ends the search.
    fn search(&mut self, key: &Key, recalls: bool) -> bool {
        let (is_search, all) = (*key == Key::Search, self.earlier.len());
        let Some(words) = &mut self.sought else {
            self.sought = (is_search && recalls).then(String::new);
            return is_search;
        };
        let mut end = all;
        if let Key::Letter(letter) = key
            && !letter.is_control()
        {
            words.push(*letter);
        } else if *key == Key::Backspace {
            words.pop();
        } else if is_search {
            end = self.recalled.as_ref().map_or(all, |recalled| recalled.number.min(all));
        } else if *key == Key::Leave {
            let typed = self.take_unsent();
            self.put(typed);
            return true;
        } else {
            self.sought = None;
            return false;
        }
        let found = self.earlier.range(..end).rposition(|line| !words.is_empty() && line.contains(words.as_str()));
        if let Some(number) = found {
            self.recall(number);
        }
        true
    }

    /// Those of `words` that the line is the beginning of. It is ended where that is one alone.
    pub(super) fn complete<'w>(&mut self, words: &[&'w str]) -> Vec<&'w str> {
        if self.text.is_empty() || self.at < self.text.len() {
            return Vec::new();
        }
        let fitting: Vec<&'w str> = words.iter().copied().filter(|word| word.starts_with(&self.text)).collect();
        if let [word] = fitting[..] {
            self.put(word.to_owned());
            self.sought = None;
        }
        fitting
    }

    fn insert(&mut self, text: &str) {
        self.text.insert_str(self.at, text);
        self.at += text.len();
    }

    fn remove(&mut self, from: usize, to: usize) -> String {
        self.at = from;
        self.text.drain(from..to).collect()
    }

    fn cut(&mut self, from: usize, to: usize) {
        if from < to {
            self.cut = self.remove(from, to);
        }
    }

    /// Where the letter before the cursor begins.
    fn before(&self) -> usize {
        self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    /// Where the letter behind the cursor ends.
    fn behind(&self) -> usize {
        self.at + self.text[self.at..].graphemes(true).next().map_or(0, str::len)
    }

    fn word_before(&self, is_word: fn(char) -> bool) -> usize {
        self.text[..self.at].trim_end_matches(|c| !is_word(c)).trim_end_matches(is_word).len()
    }

    fn word_behind(&self) -> usize {
        let behind = self.text[self.at..].trim_start_matches(|c: char| !c.is_alphanumeric());
        self.text.len() - behind.trim_start_matches(char::is_alphanumeric).len()
    }

    fn row_begins(&self) -> usize {
        self.text[..self.at].rfind('\n').map_or(0, |end| end + 1)
    }

    fn row_ends(&self) -> usize {
        self.text[self.at..].find('\n').map_or(self.text.len(), |end| self.at + end)
    }

    /// Goes to the line above, where several were pasted; false where there is none.
    fn row_up(&mut self) -> bool {
        let begins = self.row_begins();
        let column = self.text[begins..self.at].graphemes(true).count();
        let Some(end) = begins.checked_sub(1) else { return false };
        self.at = end;
        self.at = self.column(column);
        true
    }

    /// Goes to the line below, where several were pasted; false where there is none.
    fn row_down(&mut self) -> bool {
        let column = self.text[self.row_begins()..self.at].graphemes(true).count();
        let end = self.row_ends();
        if end == self.text.len() {
            return false;
        }
        self.at = end + 1;
        self.at = self.column(column);
        true
    }

    /// Where the letter of that number is, in the line with the cursor; its end where it is shorter.
    fn column(&self, number: usize) -> usize {
        let (begins, ends) = (self.row_begins(), self.row_ends());
        self.text[begins..ends].grapheme_indices(true).nth(number).map_or(ends, |(at, _)| begins + at)
    }

    fn recall_before(&mut self) {
        let number = self.recalled.as_ref().map_or(self.earlier.len(), |recalled| recalled.number);
        if let Some(number) = number.checked_sub(1) {
            self.recall(number);
        }
    }

    /// Puts the earlier line of that number there.
    fn recall(&mut self, number: usize) {
        let Some(earlier) = self.earlier.get(number).cloned() else { return };
        let typed = match self.recalled.take() {
            Some(recalled) => recalled.typed,
            None => take(&mut self.text),
        };
        self.recalled = Some(RecalledLine { number, typed });
        self.put(earlier);
    }

    fn recall_behind(&mut self) {
        let Some(RecalledLine { number, typed }) = self.recalled.take() else { return };
        match self.earlier.get(number + 1).cloned() {
            Some(later) => {
                self.recalled = Some(RecalledLine { number: number + 1, typed });
                self.put(later);
            }
            None => self.put(typed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a line behind `keys`, with its cursor as `|`.
    fn edited(line: &mut EditedLine, keys: impl IntoIterator<Item = Key>) -> String {
        keys.into_iter().for_each(|key| line.press(key, true));
        let (head, tail) = line.text.split_at(line.at);
        format!("{head}|{tail}")
    }

    fn line(text: &str) -> EditedLine {
        let mut line = EditedLine::default();
        line.put(text.to_owned());
        line
    }

    #[test]
    fn a_line_is_edited_in_its_midst() {
        let mut typed = line("send it to ada");
        assert_eq!(edited(&mut typed, [Key::Left, Key::Left, Key::Left, Key::Letter('m')]), "send it to m|ada");
        assert_eq!(edited(&mut typed, [Key::Home, Key::WordRight, Key::Delete]), "send|it to mada");
        assert_eq!(edited(&mut typed, [Key::Letter(' '), Key::End, Key::Backspace]), "send it to mad|");
        assert_eq!(edited(&mut typed, [Key::CutWordLeft, Key::CutWordLeft]), "send it |");
        assert_eq!(edited(&mut typed, [Key::WordLeft, Key::CutHead]), "|it ");
        assert_eq!(edited(&mut typed, [Key::Right, Key::CutTail, Key::PutBack, Key::PutBack]), "it t |");
        assert_eq!(edited(&mut typed, [Key::Home, Key::Left, Key::Backspace, Key::CutHead]), "|it t ");
        assert_eq!(edited(&mut typed, [Key::EndOrDelete, Key::CutWordRight, Key::CutWordRight]), "| ");
    }

    #[test]
    fn what_is_one_letter_to_a_person_is_one_here() {
        let mut typed = line("a\u{1f469}\u{200d}\u{1f680}e\u{301}東");
        assert_eq!(edited(&mut typed, [Key::Left, Key::Left]), "a\u{1f469}\u{200d}\u{1f680}|e\u{301}東");
        assert_eq!(edited(&mut typed, [Key::Backspace, Key::Delete]), "a|東");
    }

    #[test]
    fn lines_that_were_pasted_are_gone_through_before_those_that_were_sent() {
        let mut typed = line("");
        typed.remember("before");
        let pasted = Key::Paste("one\nthree\nx".to_owned());
        assert_eq!(edited(&mut typed, [pasted, Key::Up, Key::End]), "one\nthree|\nx");
        assert_eq!(edited(&mut typed, [Key::Up, Key::Down]), "one\nthr|ee\nx");
        assert_eq!(edited(&mut typed, [Key::CutTail, Key::CutTail]), "one\nthr|x");
        assert_eq!(edited(&mut typed, [Key::CutHead, Key::CutHead, Key::Home]), "|onex");
        assert_eq!(edited(&mut typed, [Key::Up]), "before|");
        assert_eq!(edited(&mut typed, [Key::Down]), "onex|");
    }

    #[test]
    fn lines_that_were_sent_come_again_and_what_was_typed_behind_them() {
        let mut typed = line("");
        for sent in ["one", "two", "two", " "] {
            typed.remember(sent);
        }
        typed.press(Key::Letter('d'), true);
        assert_eq!(edited(&mut typed, [Key::Up, Key::Up, Key::Up]), "one|");
        assert_eq!(edited(&mut typed, [Key::Down, Key::Down, Key::Down]), "d|");
        typed.press(Key::Up, false);
        assert_eq!(typed.take(), "d", "an answer is no message");
        (0..MOST_EARLIER).for_each(|number| typed.remember(&number.to_string()));
        assert_eq!(typed.earlier.len(), MOST_EARLIER);
        assert_eq!(edited(&mut typed, [Key::Up]), format!("{}|", MOST_EARLIER - 1));
    }

    #[test]
    fn lines_that_were_sent_are_searched() {
        let mut typed = line("");
        for sent in ["deploy to dev", "tests", "deploy to prod"] {
            typed.remember(sent);
        }
        let letters = |text: &str| text.chars().map(Key::Letter).collect::<Vec<_>>();
        typed.press(Key::Letter('x'), true);
        assert_eq!(edited(&mut typed, [Key::Search]), "x|", "nothing is sought yet");
        assert_eq!(edited(&mut typed, letters("dep")), "deploy to prod|");
        assert_eq!((edited(&mut typed, [Key::Search]).as_str(), typed.sought()), ("deploy to dev|", Some("dep")));
        assert_eq!(edited(&mut typed, [Key::Search]), "deploy to dev|", "there is none before it");
        assert_eq!(edited(&mut typed, [Key::Backspace]), "deploy to prod|", "from the last one on");
        assert_eq!(edited(&mut typed, letters("none")), "deploy to prod|", "where nothing is found it stays");
        assert_eq!((edited(&mut typed, [Key::Left]).as_str(), typed.sought()), ("deploy to pro|d", None));
        assert_eq!(edited(&mut typed, [Key::Down]), "x|", "what was typed comes behind the last one");
        assert_eq!(edited(&mut typed, [Key::Search, Key::Letter('t')]), "deploy to prod|");
        assert_eq!((typed.take().as_str(), typed.sought()), ("deploy to prod", None));
        typed.press(Key::Search, false);
        assert_eq!(typed.sought(), None, "an answer is no message");
        typed.put("begun".to_owned());
        assert_eq!(edited(&mut typed, [Key::Search, Key::Letter('t')]), "deploy to prod|");
        assert_eq!((edited(&mut typed, [Key::Leave]).as_str(), typed.sought()), ("begun|", None));
        let tab = [Key::Search, Key::Letter('x'), Key::Letter('\t')];
        assert_eq!(edited(&mut typed, tab), "begun\t|", "no tab is sought");
    }

    #[test]
    fn a_command_is_ended_where_there_is_one_alone() {
        let words = ["/new", "/exit", "/exile"];
        let mut typed = line("/n");
        assert_eq!((typed.complete(&words), typed.text()), (vec!["/new"], "/new"));
        typed.put("/ex".to_owned());
        assert_eq!((typed.complete(&words), typed.text()), (vec!["/exit", "/exile"], "/ex"));
        for text in ["/x", "", "new", "/new "] {
            typed.put(text.to_owned());
            assert_eq!((typed.complete(&words), typed.text()), (Vec::new(), text));
        }
    }
}
