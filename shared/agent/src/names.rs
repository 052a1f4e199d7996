//! Names of tools of our own, and names that were meant by names that do not exist.

use std::cell::Cell;

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

/// Bytes of a name that is compared with others: how long that takes grows with both, and names of any length come from outside.
const LONGEST_COMPARED: usize = 200;

/// The one of `names` that is most like `wanted`, if one is like it: in another case, or with a slip or two. What is longer than
/// any name is like none.
pub(crate) fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if !is_compared(wanted) {
        return None;
    }
    let names = names.into_iter().filter(|name| is_compared(name));
    let folded = wanted.to_lowercase();
    let likeness = |name: &str| strsim::normalized_damerau_levenshtein(&folded, &name.to_lowercase());
    let rated = names.map(|name| (likeness(name), name)).filter(|(likeness, _)| *likeness >= 0.6);
    rated.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

/// The name that `written` is but for a slip of one or two letters, or their case: sharper than [`nearest`], for where not
/// all names are known.
pub(crate) fn slip_of<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if !is_compared(written) {
        return None;
    }
    let folded = written.to_lowercase();
    let is_close = |name: &&str| {
        let distance = strsim::damerau_levenshtein(&folded, &name.to_lowercase());
        *name != written && distance <= 2 && distance * 3 <= name.chars().count()
    };
    names.into_iter().filter(|name| is_compared(name)).find(is_close)
}

fn is_compared(name: &str) -> bool {
    name.len() <= LONGEST_COMPARED
}

/// Work that the guesses of one check may be: pairs of letters of two names. A workspace of hundreds of tools, and of lists of
/// hundreds of names, needs less.
const MOST_WORK: usize = 200_000_000;
/// What a comparison is beside that.
const EACH: usize = 100;

/// The guesses of one check: whoever writes the names may write as many as he likes, which all were compared with all. When
/// their work is done, no more is guessed.
#[derive(Debug)]
pub(crate) struct Guesses {
    left: Cell<usize>,
}

impl Default for Guesses {
    fn default() -> Self {
        Self { left: Cell::new(MOST_WORK) }
    }
}

impl Guesses {
    /// As [`nearest`].
    pub(crate) fn nearest<'n>(&self, wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
        nearest(wanted, self.compared(wanted, names))
    }

    /// As [`slip_of`].
    pub(crate) fn slip_of<'n>(&self, written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
        slip_of(written, self.compared(written, names))
    }

    /// True if there is work left to hold `pattern` against all of `names`.
    pub(crate) fn affords(&self, pattern: &str, names: &[String]) -> bool {
        if self.left.get() == 0 {
            return false;
        }
        let work = names.iter().map(|name| EACH.saturating_add(pattern.len().saturating_mul(name.len())));
        let work = work.fold(0_usize, usize::saturating_add);
        let left = self.left.get().checked_sub(work);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }

    /// As many of `names` as there is work left to compare `wanted` with.
    fn compared<'n>(&self, wanted: &str, names: impl IntoIterator<Item = &'n str>) -> impl Iterator<Item = &'n str> {
        let size = wanted.len();
        let names = names.into_iter().filter(|name| is_compared(name));
        names.take_while(move |name| {
            let left = self.left.get().checked_sub(EACH + size * name.len());
            self.left.set(left.unwrap_or_default());
            left.is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, EACH, Guesses, nearest, slip_of};

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
    fn what_is_longer_than_a_name_is_like_none() {
        let [one, other] = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(1 << 20)));
        for (wanted, known) in [(one.as_str(), other.as_str()), (one.as_str(), "x"), ("x", one.as_str())] {
            assert_eq!((nearest(wanted, [known]), slip_of(wanted, [known])), (None, None));
        }
    }

    #[test]
    fn the_guesses_of_one_check_have_an_end() {
        let guesses = Guesses { left: Cell::new(4 * (EACH + 36)) };
        let names = ["search", "fetch_", "delete"];
        assert_eq!(guesses.nearest("serach", names), Some("search"));
        assert_eq!(guesses.slip_of("serach", names), Some("search"), "the fourth comparison");
        assert_eq!((guesses.nearest("serach", names), guesses.slip_of("serach", names)), (None, None));
        assert_eq!(Guesses::default().nearest("serach", names), Some("search"));
        let names = names.map(str::to_owned);
        let guesses = Guesses { left: Cell::new(3 * EACH + 4 * 18) };
        assert!(guesses.affords("sea*", &names) && !guesses.affords("sea*", &names));
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
