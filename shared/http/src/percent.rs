//! Percent-encoding of paths (RFC 3986).

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// `text` as one segment of a path or one value of a query.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// `text` without its escapes. What is no escape stays as it is, and bytes that are no UTF-8 become replacement
/// characters, which no id contains.
pub fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_again() {
        for text in ["order-7", "a/b?c#d", "50%41", "ü", ""] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(encode("a/b?c"), "a%2Fb%3Fc");
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(decode("100%"), "100%");
        assert_eq!(decode("%zz%4"), "%zz%4");
        assert_eq!(decode("order%3A7"), "order:7");
        assert_eq!(decode("%ff"), "\u{fffd}");
    }
}
