//! Percent-encoding of paths (RFC 3986).

use std::fmt::Write;

/// `text` as one segment of a path or one value of a query.
pub(crate) fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// `text` without its escapes. What is no escape stays as it is, and bytes that are no UTF-8 become replacement
/// characters, which no id contains.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        match behind.split_at_checked(2).and_then(|(digits, after)| Some((escaped(digits)?, after))) {
            Some((byte, after)) if first == b'%' => {
                bytes.push(byte);
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digits.iter().try_fold(0, |value, byte| Some(value * 16 + digit(byte)?))?;
    u8::try_from(value).ok()
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
