//! Names of tools of our own, and names that were meant by names that do not exist.

use dormouse_ports::tool::NATIVE_TOOLS;

/// Reads a skill, or a file beside it.
pub(crate) const SKILL: &str = "Skill";
/// One name for all actions.
pub(crate) const RUN_ACTION: &str = "run_action";
/// Hands a run over to another agent.
pub(crate) const SWITCH: &str = "AgentSwitch";
/// Asks another agent.
pub(crate) const ASK: &str = "SubAgent";
/// Keeps a note for the session.
pub(crate) const REMEMBER: &str = "Remember";
/// The tools beside the native ones that no source but ours has.
pub(crate) const OWN_TOOLS: [&str; 5] = [SKILL, RUN_ACTION, SWITCH, ASK, REMEMBER];

/// True for the name of a native tool or one beside them, in upper or lower case.
pub(crate) fn is_reserved(name: &str) -> bool {
    NATIVE_TOOLS.iter().chain(&OWN_TOOLS).any(|native| native.eq_ignore_ascii_case(name))
}

/// The one of `names` that is most like `wanted`, if one is like it: in another case, or with a slip or two.
pub(crate) fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let folded = wanted.to_lowercase();
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&folded, &name.to_lowercase());
    let rated = names.into_iter().map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= 0.6);
    rated.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

/// The name that `written` is but for a slip of one or two letters, or their case: sharper than [`nearest`], for where not
/// all names are known.
pub(crate) fn slip_of<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let folded = written.to_lowercase();
    let is_close = |name: &&str| {
        let distance = strsim::damerau_levenshtein(&folded, &name.to_lowercase());
        *name != written && distance <= 2 && distance * 3 <= name.chars().count()
    };
    names.into_iter().find(is_close)
}

#[cfg(test)]
mod tests {
    use super::{nearest, slip_of};

    #[test]
    fn a_slip_is_a_letter_or_two_and_a_sibling_is_none() {
        let names = ["delete_note", "create_page", "WebFetch", "Bash"];
        assert_eq!(slip_of("delete_nota", names), Some("delete_note"));
        assert_eq!(slip_of("bsh", names), Some("Bash"));
        for other in ["delete_page", "create_issue", "web_search", "fetch", "Bash", "cash flow"] {
            assert_eq!(slip_of(other, names), None, "{other}");
        }
    }

    #[test]
    fn a_slip_or_another_case_is_recognised() {
        let names = ["read_file", "search", "Write"];
        assert_eq!(nearest("ReadFile", names), Some("read_file"));
        assert_eq!(nearest("serach", names), Some("search"));
        assert_eq!(nearest("WRITE", names), Some("Write"));
        assert_eq!(nearest("quux", names), None);
    }
}
