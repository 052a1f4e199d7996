//! Pages of HTML as Markdown for a model.
//!
//! A page is read once from its beginning to its end, and no tree is made of it: what it costs grows with its bytes alone,
//! however its elements are nested, and what comes out is at most some twenty times as long.

mod entities;
mod tags;
mod writer;

use tags::{Piece, Tag};
use writer::Writer;

/// Elements of which nothing is shown, with all that is in them.
const SKIPPED: [&str; 6] = ["script", "style", "noscript", "svg", "iframe", "template"];

/// The page as Markdown. What is no HTML comes out as the text that it is.
pub(super) fn as_markdown(html: &str) -> String {
    let mut writer = Writer::default();
    let mut rest = html;
    while let Some((piece, behind)) = tags::next(rest) {
        rest = behind;
        match piece {
            Piece::Text(text) => writer.text(&entities::decoded(text)),
            Piece::Nothing => {}
            Piece::Tag(tag) if tag.is_end => end(&mut writer, &tag.name),
            Piece::Tag(tag) if SKIPPED.contains(&tag.name.as_str()) => {
                rest = if tag.is_empty { rest } else { tags::behind_end_of(&tag.name, rest) };
            }
            Piece::Tag(tag) => start(&mut writer, &tag),
        }
    }
    writer.done()
}

fn start(writer: &mut Writer, tag: &Tag) {
    match tag.name.as_str() {
        "a" => writer.link(tag.href.as_deref().map(entities::decoded)),
        "img" => writer.image(
            &entities::decoded(tag.alt.as_deref().unwrap_or_default()),
            &entities::decoded(tag.src.as_deref().unwrap_or_default()),
        ),
        "br" => writer.line(),
        "hr" => writer.rule(),
        "pre" => writer.begin_code(),
        "blockquote" => writer.quote(true),
        "ul" => writer.begin_list(false),
        "ol" => writer.begin_list(true),
        "li" => writer.item(),
        "tr" => writer.row(),
        "td" | "th" => writer.cell(),
        name => {
            if is_block(name) {
                writer.block();
            } else if is_line(name) {
                writer.line();
            }
            if let Some(mark) = mark(name) {
                writer.begin(mark);
            }
        }
    }
}

fn end(writer: &mut Writer, name: &str) {
    match name {
        "a" => writer.link(None),
        "pre" => writer.end_code(),
        "blockquote" => writer.quote(false),
        "ul" | "ol" => writer.end_list(),
        "li" | "tr" => writer.line(),
        name => {
            if let Some(mark) = mark(name) {
                writer.end(mark);
            }
            if is_block(name) || name == "table" {
                writer.block();
            } else if is_line(name) {
                writer.line();
            }
        }
    }
}

/// What stands before the text of an element.
fn mark(name: &str) -> Option<&'static str> {
    Some(match name {
        "b" | "strong" => "**",
        "i" | "em" => "*",
        "code" => "`",
        "h1" => "# ",
        "h2" => "## ",
        "h3" => "### ",
        "h4" => "#### ",
        "h5" => "##### ",
        "h6" => "###### ",
        _ => return None,
    })
}

/// Elements with an empty line before and behind them.
fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "body"
            | "details"
            | "div"
            | "dl"
            | "fieldset"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "head"
            | "header"
            | "main"
            | "nav"
            | "p"
            | "section"
            | "table"
            | "title"
    )
}

/// Elements that begin a line.
fn is_line(name: &str) -> bool {
    matches!(name, "caption" | "dd" | "dt" | "figcaption" | "legend" | "option" | "summary")
}

#[cfg(test)]
mod tests {
    use super::as_markdown;

    #[test]
    fn a_page_is_markdown() {
        let html = "<!doctype html><html><head><title>T &amp; U</title><style>p > a {}</style></head><body>\
                    <!-- <p>not this --><div><h2>Head <i>line</i></h2><p>One\n  two <b> three </b>four<br>five</p>\
                    <p><a class=x href='/a?b=1&amp;c=2'>A <em>link</em></a>, <a href=\"javascript:x()\">no link</a> \
                    <img alt=Alt src=i.png></p>\
                    <ul><li>a<ul><li><p>b</p></ul><li>c</ul><ol><li>x</li><li>y</li></ol>\
                    <blockquote><p>q<p>r</blockquote><pre><code>\nlet a = 1 &lt; 2;\n\n  b\n</code></pre>\
                    <table><tr><th>h</th><th>i</th></tr><tr><td>1<td>2</table><p>1 < 2 & 3 <code>c</code></body>";
        let markdown = "T & U\n\n## Head *line*\n\nOne two **three** four\nfive\n\n\
                        [A *link*](/a?b=1&c=2), no link ![Alt](i.png)\n\n\
                        - a\n  - b\n- c\n\n1. x\n2. y\n\n> q\n>\n> r\n\n```\nlet a = 1 < 2;\n\n  b\n```\n\n\
                        h | i\n1 | 2\n\n1 < 2 & 3 `c`";
        assert_eq!(as_markdown(html), markdown);
    }

    #[test]
    fn what_is_broken_comes_to_an_end() {
        for html in
            ["", "<", "a <", "</", "<a", "<a href", "<a href=", "<a href='x", "<!--", "<!", "<script>x", "&", "&#;"]
        {
            as_markdown(html);
        }
        assert_eq!(as_markdown("a<b"), "a");
        assert_eq!(as_markdown("</p></b></ul></pre></blockquote></a>x"), "x");
        assert_eq!(as_markdown("&#x41;&#66;&auml;&unknown; &"), "ABä&unknown; &");
        assert_eq!(as_markdown("<SCRIPT>a</Script >b<svg/>c"), "bc");
    }

    #[test]
    fn a_page_costs_by_its_bytes_and_not_by_its_depth() {
        let most = 1 << 20;
        let repeated = |piece: &str| piece.repeat(most / piece.len());
        for piece in [
            "<span>",
            "<div>",
            "<blockquote>x<br>",
            "<ul><li>x",
            "<h1>",
            "</h1><h1>",
            "<b>x<p>",
            "<a href=b>",
            "<table><tr><td>x",
            "<pre>\n\n",
            "<object><div></object>",
            "<svg/>",
            "<template>",
            "<!--",
            "<x y=\"",
            "&amp",
            "<a b c d",
            "<b><i></b></i>",
        ] {
            let page = as_markdown(&repeated(piece));
            assert!(page.len() <= 25 * most, "{piece}: {}", page.len());
        }
        let attributes: String = (0..100_000).map(|n| format!(" a{n}")).collect();
        assert_eq!(as_markdown(&format!("<p{attributes}>x")), "x");
    }
}
