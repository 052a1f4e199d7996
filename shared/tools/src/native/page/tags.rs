/// A part of a page.
pub(super) enum Piece<'h> {
    Text(&'h str),
    Tag(Tag),
    /// A comment, or a declaration.
    Nothing,
}

/// The start or the end of an element, with those of its attributes that are shown.
#[derive(Default)]
pub(super) struct Tag {
    /// In small letters.
    pub(super) name: String,
    pub(super) is_end: bool,
    /// True of `<name/>`.
    pub(super) is_empty: bool,
    pub(super) href: Option<String>,
    pub(super) src: Option<String>,
    pub(super) alt: Option<String>,
}

/// The first piece of `html`, and what is behind it; `None` at the end.
pub(super) fn next(html: &str) -> Option<(Piece<'_>, &str)> {
    let Some(inside) = html.strip_prefix('<') else {
        let end = html.find('<').unwrap_or(html.len());
        return (end > 0).then(|| (Piece::Text(&html[..end]), &html[end..]));
    };
    if let Some(comment) = inside.strip_prefix("!--") {
        return Some((Piece::Nothing, behind("-->", comment)));
    }
    let (is_end, named) = inside.strip_prefix('/').map_or((false, inside), |named| (true, named));
    match named.bytes().next() {
        Some(first) if first.is_ascii_alphabetic() => Some(tag(named, is_end)),
        Some(_) if is_end || inside.starts_with(['!', '?']) => Some((Piece::Nothing, behind(">", inside))),
        Some(_) | None => Some((Piece::Text(&html[..1]), inside)),
    }
}

/// What is behind the end of the element `name`, which began before `html`.
pub(super) fn behind_end_of<'h>(name: &str, html: &'h str) -> &'h str {
    let mut rest = html;
    while let Some(at) = rest.find("</") {
        rest = &rest[at + 2..];
        if rest.as_bytes().get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes())) {
            return behind(">", rest);
        }
    }
    ""
}

fn behind<'h>(end: &str, html: &'h str) -> &'h str {
    html.split_once(end).map_or("", |(_, behind)| behind)
}

/// The tag whose name `html` begins with. One that does not end is the last thing of its page, and is not shown.
fn tag(html: &str, is_end: bool) -> (Piece<'_>, &str) {
    let end = html.find(|c: char| c.is_ascii_whitespace() || c == '/' || c == '>').unwrap_or(html.len());
    let mut tag = Tag { name: html[..end].to_ascii_lowercase(), is_end, ..Tag::default() };
    let mut rest = &html[end..];
    loop {
        let trimmed = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if let Some(behind) = trimmed.strip_prefix('>') {
            tag.is_empty = rest[..rest.len() - trimmed.len()].ends_with('/');
            return (Piece::Tag(tag), behind);
        }
        if trimmed.is_empty() {
            return (Piece::Nothing, "");
        }
        let (name, value, behind) = attribute(trimmed);
        rest = behind;
        let shown = match name {
            name if name.eq_ignore_ascii_case("href") => &mut tag.href,
            name if name.eq_ignore_ascii_case("src") => &mut tag.src,
            name if name.eq_ignore_ascii_case("alt") => &mut tag.alt,
            _ => continue,
        };
        shown.get_or_insert_with(|| value.to_owned());
    }
}

/// The name and the value of the attribute that `html` begins with, and what is behind it.
fn attribute(html: &str) -> (&str, &str, &str) {
    // A name may begin with `=`, so that each attribute has a character at least.
    let first = html.chars().next().map_or(0, char::len_utf8);
    let ends = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>' | '=');
    let end = html[first..].find(ends).map_or(html.len(), |end| first + end);
    let (name, rest) = html.split_at(end);
    let Some(value) = rest.trim_ascii_start().strip_prefix('=').map(str::trim_ascii_start) else {
        return (name, "", rest);
    };
    for quote in ['"', '\''] {
        if let Some(quoted) = value.strip_prefix(quote) {
            return quoted.split_once(quote).map_or((name, quoted, ""), |(value, behind)| (name, value, behind));
        }
    }
    let end = value.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(value.len());
    (name, &value[..end], &value[end..])
}
