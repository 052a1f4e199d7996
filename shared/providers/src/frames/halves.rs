use dormouse_json::ReadError;
use serde_json::Value;

/// Bytes of an escape such as `\ud83d`.
const LENGTH: usize = 6;

/// Letters that a server cut in two, as those do that count in UTF-16: the first half ends a piece, and the second begins another.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// The escape of a first half that has no second one yet.
    first: Option<String>,
}

impl Halves {
    /// Reads a piece. What is no JSON for its halves of letters alone is read with these put together.
    pub(crate) fn read(&mut self, text: &str) -> Result<Value, ReadError> {
        let read = |text: &str| dormouse_json::read(text.as_bytes(), dormouse_json::ENTRY);
        read(text).or_else(|error| match self.joined(text) {
            Some(joined) => read(&joined),
            None => Err(error),
        })
    }

    /// `text` without a first half at an end, and with the one before in front of its second; `None` where it has none.
    fn joined(&mut self, text: &str) -> Option<String> {
        let mut joined = String::with_capacity(text.len() + LENGTH);
        let mut has_halves = false;
        let mut rest = text;
        while let Some(at) = rest.find('\\') {
            joined.push_str(&rest[..at]);
            let escape = &rest[at..];
            let length = match unit(escape) {
                Some(0xd800..=0xdbff) if matches!(unit(&escape[LENGTH..]), Some(0xdc00..=0xdfff)) => 2 * LENGTH,
                Some(0xd800..=0xdbff) => {
                    has_halves = true;
                    self.first = Some(escape[..LENGTH].to_owned());
                    rest = &escape[LENGTH..];
                    continue;
                }
                Some(0xdc00..=0xdfff) => {
                    has_halves = true;
                    let Some(first) = self.first.take() else {
                        joined.push_str("\\ufffd");
                        rest = &escape[LENGTH..];
                        continue;
                    };
                    joined.push_str(&first);
                    LENGTH
                }
                Some(_) => LENGTH,
                None => escape.chars().take(2).map(char::len_utf8).sum(),
            };
            joined.push_str(&escape[..length]);
            rest = &escape[length..];
        }
        joined.push_str(rest);
        has_halves.then_some(joined)
    }
}

/// The unit of UTF-16 that the escape at the beginning of `text` stands for.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_letter_in_two_pieces_is_one() {
        let mut halves = Halves::default();
        let mut read = |text: &str| halves.read(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"["ä\\ud83d \ud83d\ude00\ud83d"]"#), Ok(json!(["ä\\ud83d 😀"])));
        assert_eq!(read(r#"[""]"#), Ok(json!([""])));
        assert_eq!(read(r#"["\ude01\n\u0041"]"#), Ok(json!(["😁\nA"])));
        assert_eq!(read(r#"["\ude01!"]"#), Ok(json!(["\u{fffd}!"])), "there is no first half");
        assert!(read(r#"["\ud83"]"#).is_err());
        assert!(read("[").is_err());
        assert!(read("[\"\\").is_err());
    }
}
