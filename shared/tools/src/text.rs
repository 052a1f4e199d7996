//! Texts of others, cut to what a reader takes, and as parts of addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but what RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// `text` as a part of an address or a form.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// `value`, a secret, as it stands behind `before` in an address: encoded where it is the value of a parameter, unless it is
/// already. What names parameters itself stays as it is, and so does what is in the path.
pub(crate) fn secret_in_address(before: &str, value: &str) -> String {
    let is_value = before.contains('?') && !before.contains('#') && before.ends_with('=');
    if is_value && !is_encoded(value) { encode(value) } else { value.to_owned() }
}

/// True if `value` may stand in a query as it is.
fn is_encoded(value: &str) -> bool {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    let mut pieces = value.split('%');
    let is_begun_well = pieces.next().is_none_or(plain);
    let is_escape = |piece: &str| {
        let (code, rest) = piece.split_at_checked(2).unwrap_or(("", piece));
        !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_hexdigit()) && plain(rest)
    };
    is_begun_well && pieces.all(is_escape)
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
    use super::{cut, secret_in_address};

    #[test]
    fn a_secret_that_is_the_value_of_a_parameter_is_encoded_once() {
        for (before, value, written) in [
            ("http://h/x?key=", "a&b=c+d %", "a%26b%3Dc%2Bd%20%25"),
            ("http://h/x?v=1&key=", "ab-._~", "ab-._~"),
            ("http://h/x?key=", "a%26b%3D", "a%26b%3D"),
            ("http://h/x?key=", "50%", "50%25"),
            ("http://h/x?key=", "é", "%C3%A9"),
            ("http://h/x?", "sig=a%2Fb&se=1", "sig=a%2Fb&se=1"),
            ("http://h/", "a/b", "a/b"),
            ("http://h/x?v=1#key=", "a&b", "a&b"),
        ] {
            assert_eq!(secret_in_address(before, value), written, "{before}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("grün", 3), "gr…");
        assert_eq!(cut("grün", 4), "grü…");
        assert_eq!(cut("grün", 5), "grün");
    }
}
