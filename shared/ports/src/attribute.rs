/// A value of an attribute of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// Texts in order.
    Texts(Vec<String>),
    /// Yes or no.
    Flag(bool),
    /// An integer.
    Integer(i64),
    /// A number.
    Number(f64),
}

/// The most bytes of each attribute of content, where content is shown (observability §5.5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLimit(usize);

impl PayloadLimit {
    /// The least that it may be: below it there would be hardly anything but the mark of the cut.
    pub const LEAST: usize = 256;

    /// That many bytes; `None` below [`LEAST`](Self::LEAST).
    pub fn new(bytes: usize) -> Option<Self> {
        (bytes >= Self::LEAST).then_some(Self(bytes))
    }

    /// `text` within the limit, cut between two characters and marked where it is longer.
    #[must_use]
    pub fn cut(self, text: String) -> String {
        if text.len() <= self.0 {
            return text;
        }
        let mark = format!("…[truncated, {} bytes total]", text.len());
        let end = text.floor_char_boundary(self.0 - mark.len());
        format!("{}{mark}", &text[..end])
    }
}

impl Default for PayloadLimit {
    /// 64 KiB.
    fn default() -> Self {
        Self(65_536)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_says_how_long_it_was() {
        let limit = PayloadLimit::new(256).expect("a limit");
        let text = "ä".repeat(300);
        let cut = limit.cut(text);
        assert!(cut.len() <= 256 && cut.len() >= 255, "{}", cut.len());
        assert!(cut.ends_with("ä…[truncated, 600 bytes total]"), "{cut}");
        assert_eq!(limit.cut("a".repeat(256)).len(), 256);
        assert_eq!(PayloadLimit::new(255), None);
    }
}
