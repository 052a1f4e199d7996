use std::borrow::Cow;

/// Bytes of an address that is shown.
const LONGEST_ADDRESS: usize = 2000;
/// Lists in lists, and quotations in quotations, that are shown as such.
const MOST_LISTS: usize = 8;
const MOST_QUOTES: usize = 4;
/// Ends of lines one after the other.
const MOST_ENDS: usize = 2;
const MOST_ENDS_IN_CODE: usize = 4;
const FENCE: &str = "```";

/// Writes Markdown. What stands before a text (ends of lines, marks) is written when the text comes.
#[derive(Default)]
pub(super) struct Writer {
    written: String,
    ends: usize,
    blank: bool,
    /// Marks that begin with the next text; each at most once.
    begin: Vec<&'static str>,
    /// Marks that have begun.
    begun: Vec<&'static str>,
    link: Option<String>,
    /// The mark of an item that begins with the next text.
    item: Option<String>,
    /// The lists around, with the number of the last item of those that are numbered.
    lists: Vec<Option<u64>>,
    quotes: usize,
    /// Quotations around the line before.
    quotes_before: usize,
    in_code: bool,
    code_begins: bool,
    cells: usize,
}

impl Writer {
    pub(super) fn text(&mut self, text: &str) {
        if self.in_code {
            return self.code(text);
        }
        let mut words = text.split_whitespace();
        let Some(first) = words.next() else {
            self.blank = true;
            return;
        };
        self.blank |= text.starts_with(char::is_whitespace);
        self.put(first);
        for word in words {
            self.written.push(' ');
            self.written.push_str(word);
        }
        self.blank = text.ends_with(char::is_whitespace);
    }

    fn code(&mut self, text: &str) {
        let text = if self.code_begins { text.strip_prefix('\n').unwrap_or(text) } else { text };
        self.code_begins = false;
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                self.ends = (self.ends + 1).min(MOST_ENDS_IN_CODE);
            }
            if !line.is_empty() {
                self.put(line);
            }
        }
    }

    /// Writes `text` behind what has to stand before it.
    fn put(&mut self, text: &str) {
        let begins_line = self.ends > 0 || self.written.is_empty();
        if begins_line {
            self.begin_line();
        } else if self.blank && !self.written.ends_with(['\n', ' ']) {
            self.written.push(' ');
        }
        self.ends = 0;
        self.blank = false;
        if let Some(item) = self.item.take() {
            self.written.push_str(&item);
        }
        for mark in std::mem::take(&mut self.begin) {
            self.written.push_str(mark);
            self.begun.push(mark);
        }
        self.written.push_str(text);
    }

    fn begin_line(&mut self) {
        let quotes = self.quotes.min(MOST_QUOTES);
        let between = "> ".repeat(quotes.min(self.quotes_before));
        self.quotes_before = quotes;
        if !self.written.is_empty() {
            for at in 0..self.ends {
                if at > 0 {
                    self.written.push_str(between.trim_end());
                }
                self.written.push('\n');
            }
        }
        let lists = self.lists.len().min(MOST_LISTS);
        let indented = if self.item.is_some() { lists.saturating_sub(1) } else { lists };
        self.written.push_str(&"> ".repeat(quotes));
        self.written.push_str(&"  ".repeat(indented));
    }

    fn ends(&mut self, ends: usize) {
        if self.in_code {
            self.ends = (self.ends + 1).min(MOST_ENDS_IN_CODE);
        } else if self.item.is_none() {
            // A list has no empty lines.
            self.ends = self.ends.max(if self.lists.is_empty() { ends } else { 1 });
        }
        self.blank = false;
    }

    /// What comes stands on a line of its own.
    pub(super) fn line(&mut self) {
        self.ends(1);
    }

    /// What comes stands behind an empty line.
    pub(super) fn block(&mut self) {
        self.ends(MOST_ENDS);
    }

    /// Begins `mark`, unless it has begun.
    pub(super) fn begin(&mut self, mark: &'static str) {
        if !self.in_code && !self.begin.contains(&mark) && !self.begun.contains(&mark) {
            self.begin.push(mark);
        }
    }

    /// Ends `mark`; true if there is text in it.
    pub(super) fn end(&mut self, mark: &'static str) -> bool {
        self.begin.retain(|begins| *begins != mark);
        let Some(at) = self.begun.iter().position(|begun| *begun == mark) else { return false };
        self.begun.remove(at);
        if !mark.ends_with(' ') && mark != "[" {
            self.written.push_str(mark);
        }
        true
    }

    /// Begins a link to `address`, or ends the one that has begun.
    pub(super) fn link(&mut self, address: Option<Cow<'_, str>>) {
        let link = self.link.take();
        if self.end("[")
            && let Some(link) = link
        {
            self.written.push_str(&format!("]({link})"));
        }
        if let Some(address) = address.filter(|address| !self.in_code && is_shown(address)) {
            self.link = Some(address.trim().to_owned());
            self.begin("[");
        }
    }

    pub(super) fn image(&mut self, alternative: &str, address: &str) {
        let words: Vec<&str> = alternative.split_whitespace().collect();
        if !words.is_empty() && !self.in_code && is_shown(address) {
            self.put(&format!("![{}]({})", words.join(" "), address.trim()));
        }
    }

    pub(super) fn rule(&mut self) {
        self.block();
        self.put("---");
        self.block();
    }

    pub(super) fn begin_code(&mut self) {
        if !self.in_code {
            self.block();
            self.put(FENCE);
            self.ends = 1;
            (self.in_code, self.code_begins) = (true, true);
        }
    }

    pub(super) fn end_code(&mut self) {
        if std::mem::take(&mut self.in_code) {
            self.ends = 1;
            self.put(FENCE);
            self.block();
        }
    }

    pub(super) fn quote(&mut self, begins: bool) {
        self.block();
        self.quotes = if begins { self.quotes + 1 } else { self.quotes.saturating_sub(1) };
    }

    pub(super) fn begin_list(&mut self, is_numbered: bool) {
        self.block();
        self.lists.push(is_numbered.then_some(0));
    }

    pub(super) fn end_list(&mut self) {
        self.item = None;
        self.lists.pop();
        self.block();
    }

    pub(super) fn item(&mut self) {
        self.line();
        self.item = Some(match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{number}. ")
            }
            Some(None) | None => "- ".to_owned(),
        });
    }

    pub(super) fn row(&mut self) {
        self.line();
        self.cells = 0;
    }

    pub(super) fn cell(&mut self) {
        if self.cells > 0 {
            self.text(" | ");
        }
        self.cells += 1;
    }

    pub(super) fn done(mut self) -> String {
        self.end_code();
        self.link(None);
        self.written
    }
}

/// True of an address that says where something is; not of one that is the thing itself.
fn is_shown(address: &str) -> bool {
    let address = address.trim();
    let has_scheme = |scheme: &str| address.get(..scheme.len()).is_some_and(|at| at.eq_ignore_ascii_case(scheme));
    !address.is_empty() && address.len() <= LONGEST_ADDRESS && !has_scheme("javascript:") && !has_scheme("data:")
}
