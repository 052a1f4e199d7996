//! Texts of others, cut to what a reader takes, and as parts of addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// `text` as a part of an address or a form.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The first `most` bytes of `text`, cut between characters, with a mark where something is left out.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.floor_char_boundary(most) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("grün", 3), "gr…");
        assert_eq!(cut("grün", 4), "grü…");
        assert_eq!(cut("grün", 5), "grün");
    }
}
