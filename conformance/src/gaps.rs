use std::collections::BTreeSet;
use std::path::Path;

use indexmap::IndexMap;

use crate::Case;

/// Which cases are known not to pass, and why. A key is a file (`suspension/006-suspend-in-fan-out`), a file's number
/// (`suspension/006`), a single case (`sessions/012-spans::name`) or a whole capability (`llm-provider`).
#[derive(Clone, Debug, Default)]
pub struct Gaps(IndexMap<String, String>);

impl Gaps {
    /// Reads a JSON file that maps keys to reasons.
    ///
    /// # Errors
    /// When the file cannot be read or is no such mapping.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map(Self).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The keys that name none of `cases`: of a file that is gone, or misspelt.
    pub fn unused(&self, cases: &[Case]) -> Vec<&str> {
        let mut unused: BTreeSet<&str> = self.0.keys().map(String::as_str).collect();
        for case in cases {
            for key in keys_of(&case.id) {
                unused.remove(key);
            }
        }
        unused.into_iter().collect()
    }

    /// Why the case `id` is known not to pass, if it is.
    pub fn reason(&self, id: &str) -> Option<&str> {
        keys_of(id).find_map(|key| self.0.get(key)).map(String::as_str)
    }
}

/// The keys that the case `id` is meant by.
fn keys_of(id: &str) -> impl Iterator<Item = &str> {
    let file = id.split("::").next().unwrap_or(id);
    let folder = file.split_once('/').map(|(folder, _)| folder);
    [Some(id), Some(file), numbered(file), folder].into_iter().flatten()
}

/// `graph-engine/017-observer-fan-out-index` is `graph-engine/017`.
fn numbered(file: &str) -> Option<&str> {
    let name = file.rfind('/').map_or(0, |slash| slash + 1);
    let digits = file[name..].chars().take_while(char::is_ascii_digit).count();
    (digits > 0).then(|| &file[..name + digits])
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Map;

    use super::*;
    use crate::Failure;

    #[test]
    fn a_gap_is_found_by_number_by_file_by_case_and_by_capability() {
        let line = |key: &str| (key.to_owned(), format!("because of {key}"));
        let gaps =
            Gaps([line("a-b/006"), line("a/own-file"), line("b/012-spans::one"), line("c")].into_iter().collect());
        assert_eq!(gaps.reason("a-b/006-suspend-in-fan-out::case"), Some("because of a-b/006"));
        assert_eq!(gaps.reason("a/own-file::case"), Some("because of a/own-file"));
        assert_eq!(gaps.reason("b/012-spans::one"), Some("because of b/012-spans::one"));
        assert_eq!(gaps.reason("b/012-spans::two"), None);
        assert_eq!(gaps.reason("c/001-one"), Some("because of c"));
        assert_eq!(gaps.reason("a/own-other"), None);
    }

    #[test]
    fn a_gap_that_names_no_case_is_told() {
        let keys = ["a-b/006", "a-b/007", "b/012-spans::one", "b/012-spans::gone", "c", "d"];
        let gaps = Gaps(keys.map(|key| (key.to_owned(), "because".to_owned())).into_iter().collect());
        let case = |id: &str| Case { id: id.to_owned(), spec: Err(Failure::mismatch("not read")), source: Map::new() };
        let cases = ["a-b/006-suspend::case", "b/012-spans::one", "c/001-one"].map(case);
        assert_eq!(gaps.unused(&cases), ["a-b/007", "b/012-spans::gone", "d"]);
    }
}
