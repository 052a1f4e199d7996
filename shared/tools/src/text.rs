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

/// The characters of windows-1252 from 0x80 on that are others than those of ISO 8859-1, where nobody uses what is there.
const OF_WINDOWS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘', '’',
    '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// What `content_type` names as the encoding of a text, in small letters.
pub(crate) fn charset(content_type: &str) -> Option<String> {
    let mut parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let (_, charset) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Some(charset.trim().trim_matches(['"', '\'']).to_ascii_lowercase())
}

/// `body` in UTF-8, where `charset` is one in which each byte is a character of western languages.
pub(crate) fn in_utf8(body: Vec<u8>, charset: Option<&str>) -> Vec<u8> {
    let character = |byte: &u8| match byte {
        0x80..=0x9f => OF_WINDOWS[usize::from(byte - 0x80)],
        byte => char::from(*byte),
    };
    // As browsers do: who says the one often means the other.
    match charset {
        Some("iso-8859-1" | "iso8859-1" | "latin1" | "windows-1252" | "cp1252") => {
            body.iter().map(character).collect::<String>().into_bytes()
        }
        Some(_) | None => body,
    }
}

#[cfg(test)]
mod tests {
    use super::{charset, cut, in_utf8, secret_in_address};

    #[test]
    fn texts_in_which_each_byte_is_a_character_are_read() {
        let read = |content_type: &str, body: &[u8]| in_utf8(body.to_vec(), charset(content_type).as_deref());
        assert_eq!(read("text/plain; charset=ISO-8859-1", b"caf\xe9"), "café".as_bytes());
        assert_eq!(read("text/html;a=b; Charset=\"windows-1252\"", b"\x80 5 \x96 \x93x\x94"), "€ 5 – “x”".as_bytes());
        assert_eq!(read("text/plain; charset=utf-8", "café".as_bytes()), "café".as_bytes());
        assert_eq!(read("text/plain", b"caf\xe9"), b"caf\xe9");
    }

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
