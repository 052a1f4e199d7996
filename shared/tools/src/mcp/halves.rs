//! Halves of characters in JSON: some servers cut a text in the midst of a character beyond U+FFFF, and write what is left of it
//! as an escape (`\ud83d`) that stands for nothing. The message around it would not be read.

/// Bytes of an escape.
const ESCAPE: usize = 6;

/// Puts `\ufffd` in the place of halves. What may go on in the next piece is held.
#[derive(Debug, Default)]
pub(super) struct Halves {
    held: Vec<u8>,
}

impl Halves {
    /// The text behind the last one up to what may go on behind `piece`. No byte is added or lost.
    pub(super) fn mend(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        let mut at = 0;
        while let Some(found) = text[at..].iter().position(|byte| *byte == b'\\') {
            at += found;
            let Some(kind) = escape(&text[at..]) else {
                self.held = text.split_off(at);
                return text;
            };
            if matches!(kind, Escape::Half) {
                text[at..at + ESCAPE].copy_from_slice(br"\ufffd");
            }
            at += kind.bytes();
        }
        text
    }

    /// What is held.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// `json` without halves.
pub(super) fn without_halves(json: Vec<u8>) -> Vec<u8> {
    if !json.windows(3).any(|bytes| bytes.eq_ignore_ascii_case(br"\ud")) {
        return json;
    }
    let mut halves = Halves::default();
    let mut mended = halves.mend(&json);
    mended.extend(halves.rest());
    mended
}

#[derive(Clone, Copy)]
enum Escape {
    /// A backslash and what stands behind it.
    Short,
    /// Of a character, or of none.
    One,
    /// Of the two halves of a character.
    Pair,
    /// Of one half alone.
    Half,
}

impl Escape {
    fn bytes(self) -> usize {
        match self {
            Self::Short => 2,
            Self::One | Self::Half => ESCAPE,
            Self::Pair => 2 * ESCAPE,
        }
    }
}

/// The escape at the start of `text`; `None` where more of it is needed.
fn escape(text: &[u8]) -> Option<Escape> {
    if *text.get(1)? != b'u' {
        return Some(Escape::Short);
    }
    Some(match code(text.get(..ESCAPE)?) {
        None => Escape::Short,
        Some(0xdc00..=0xdfff) => Escape::Half,
        Some(0xd800..=0xdbff) => match low_half(&text[ESCAPE..])? {
            true => Escape::Pair,
            false => Escape::Half,
        },
        Some(_) => Escape::One,
    })
}

fn code(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(br"\u").filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// True if `text` begins with the second half of a character; `None` where more of it is needed.
fn low_half(text: &[u8]) -> Option<bool> {
    let is_so_far = text.iter().zip(br"\ud".iter()).all(|(byte, known)| byte.eq_ignore_ascii_case(known));
    match text.get(..ESCAPE) {
        _ if !is_so_far => Some(false),
        Some(whole) => Some(matches!(code(whole), Some(0xdc00..=0xdfff))),
        None if text.iter().skip(3).all(u8::is_ascii_hexdigit) => None,
        None => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_replaced_and_nothing_else_is_in_whatever_pieces_it_comes() {
        for (given, mended) in [
            (r#"{"a":"\ud83d"}"#, r#"{"a":"\ufffd"}"#),
            (r#"{"a":"\uD83D\n\ude00 \ud83d\ud83d\ude00"}"#, r#"{"a":"\ufffd\n\ufffd \ufffd\ud83d\ude00"}"#),
            (r#"{"a":"\\ud83d \\\ud83d \u00e4 é"}"#, r#"{"a":"\\ud83d \\\ufffd \u00e4 é"}"#),
            (r#"{"a":"\ud83d\u00e4 \ud83d\\"}"#, r#"{"a":"\ufffd\u00e4 \ufffd\\"}"#),
            (r"C:\users \u \ud8", r"C:\users \u \ud8"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            for size in 1..given.len() {
                let mut halves = Halves::default();
                let mut all: Vec<u8> = given.as_bytes().chunks(size).flat_map(|piece| halves.mend(piece)).collect();
                all.extend(halves.rest());
                assert_eq!(String::from_utf8(all).expect("text"), mended, "in pieces of {size}");
            }
            assert_eq!(without_halves(given.as_bytes().to_vec()), mended.as_bytes());
        }
    }

    #[test]
    fn the_end_of_a_message_is_not_held() {
        for message in ["{\"a\":\"\\ud83d\"}\n", "\"\\ud83d\"\n", "\\ud83d\n", "\\\n", "{}\n"] {
            assert_eq!(Halves::default().mend(message.as_bytes()).len(), message.len(), "{message:?}");
        }
    }
}
