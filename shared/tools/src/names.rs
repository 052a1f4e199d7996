//! Names that a tool may have.

/// The longest name of a tool.
const LONGEST: usize = 128;

/// Checks the name of a tool: 1 to 128 letters, digits, `_`, `-`, `.` and `/` (MCP 2025-11-25, "Tool names").
///
/// # Errors
/// A sentence that says what is wrong with it.
pub(crate) fn check(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if name.is_empty() || name.len() > LONGEST {
        return Err(format!("its name has {} characters, and may have 1 to {LONGEST}", name.chars().count()));
    }
    match name.chars().find(|c| !sound(*c)) {
        Some(wrong) => Err(format!("its name has {wrong:?}; a name has letters, digits, `_`, `-`, `.` and `/` only")),
        None => Ok(()),
    }
}

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
