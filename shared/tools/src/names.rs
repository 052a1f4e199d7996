//! Names that a tool may have.

pub(crate) use dormouse_ports::tool::check_tool_name as check;

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn names_that_models_can_call_are_taken() {
        for name in ["echo", "docs.search", "a/b-c_D9", &"x".repeat(128)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "two words", "naïve", "a\nb", "${env.X}", &"x".repeat(129)] {
            assert!(check(name).is_err(), "{name:?}");
        }
    }
}
