//! Texts of others, cut to what a reader takes.

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
