use std::path::Path;

use indexmap::IndexMap;

/// Which cases are known not to pass, and why. A key is a file (`suspension/006-…`) or a single case
/// (`sessions/012-…::name`).
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
        self.0.get(id).or_else(|| self.0.get(file)).map(String::as_str)
    }
}
