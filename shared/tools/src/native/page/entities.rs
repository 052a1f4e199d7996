use std::borrow::Cow;

/// Characters that pages write by their names most.
const NAMED: [(&str, &str); 50] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("shy", ""),
    ("mdash", "—"),
    ("ndash", "–"),
    ("hellip", "…"),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("bdquo", "„"),
    ("bull", "•"),
    ("middot", "·"),
    ("times", "×"),
    ("euro", "€"),
    ("pound", "£"),
    ("sect", "§"),
    ("deg", "°"),
    ("plusmn", "±"),
    ("rarr", "→"),
    ("larr", "←"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("szlig", "ß"),
    ("eacute", "é"),
    ("egrave", "è"),
    ("ecirc", "ê"),
    ("agrave", "à"),
    ("aacute", "á"),
    ("acirc", "â"),
    ("ccedil", "ç"),
    ("iacute", "í"),
    ("oacute", "ó"),
    ("uacute", "ú"),
    ("ntilde", "ñ"),
    ("oslash", "ø"),
    ("aring", "å"),
];
/// Bytes between `&` and `;`.
const LONGEST: usize = 10;

/// `text` with the characters that it writes by their names or numbers; names that are not known stay.
pub(super) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.bytes().take(LONGEST).position(|byte| byte == b';');
        match end.and_then(|end| Some((character(&rest[..end])?, end))) {
            Some((character, end)) => {
                decoded.push_str(&character);
                rest = &rest[end + 1..];
            }
            None => decoded.push('&'),
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

fn character(name: &str) -> Option<Cow<'static, str>> {
    let Some(number) = name.strip_prefix('#') else {
        return NAMED.iter().find(|(named, _)| *named == name).map(|(_, character)| Cow::Borrowed(*character));
    };
    let number = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    let character = char::from_u32(number.ok()?).filter(|character| *character != '\0')?;
    Some(Cow::Owned(character.to_string()))
}
