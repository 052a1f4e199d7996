use std::path::Path;

use indexmap::IndexMap;

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

    /// Why the case `id` is known not to pass, if it is.
    pub fn reason(&self, id: &str) -> Option<&str> {
        let file = id.split("::").next().unwrap_or(id);
        let folder = file.split_once('/').map(|(folder, _)| folder);
        let keys = [Some(id), Some(file), numbered(file), folder];
        keys.into_iter().flatten().find_map(|key| self.0.get(key)).map(String::as_str)
    }
}

/// `graph-engine/017-observer-fan-out-index` is `graph-engine/017`.
fn numbered(file: &str) -> Option<&str> {
    let name = file.rfind('/').map_or(0, |slash| slash + 1);
    let digits = file[name..].chars().take_while(char::is_ascii_digit).count();
    (digits > 0).then(|| &file[..name + digits])
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
