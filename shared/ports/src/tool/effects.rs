use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Hosts, and files, that are noted of one call; more than a call of any tool that is known.
const MOST_NOTED: usize = 100;

/// What one call does outside of its process, noted by its source before it happens where it may happen in part: it counts
/// too where no outcome comes back. Clones note into the same place.
#[derive(Clone, Default)]
pub struct SideEffects(Arc<Mutex<NotedEffects>>);

/// Side effects that a source noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedEffects {
    /// Hosts that were asked, with their ports where an address names one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Files that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<WrittenFile>,
}

/// A file that a call wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Its path from the root of the workspace.
    pub path: String,
    /// What happened to it.
    pub operation: FileOperation,
    /// SHA-256 of its content before, `sha256:` and hexadecimal digits, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_sha256: Option<String>,
    /// SHA-256 of its content.
    pub after_sha256: String,
}

/// What happened to a file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOperation {
    /// There was none before.
    Create,
    /// Its content was replaced.
    Modify,
}

impl SideEffects {
    /// Notes that the host of `url` is asked. Nothing else of the address is kept: path, query and user are no facts for
    /// everybody.
    pub fn asked(&self, url: &str) {
        let host = host_of(url);
        let mut noted = self.lock();
        if !host.is_empty() && noted.hosts.len() < MOST_NOTED && !noted.hosts.contains(&host) {
            noted.hosts.push(host);
        }
    }

    /// Notes that a file was written.
    pub fn wrote(&self, file: WrittenFile) {
        let mut noted = self.lock();
        if noted.files.len() < MOST_NOTED {
            noted.files.push(file);
        }
    }

    /// Notes again what was noted of an earlier run of the same call.
    pub fn repeat(&self, again: NotedEffects) {
        *self.lock() = again;
    }

    /// All that was noted so far.
    pub fn noted(&self) -> NotedEffects {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, NotedEffects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SideEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.noted().fmt(f)
    }
}

impl PartialEq for SideEffects {
    fn eq(&self, other: &Self) -> bool {
        self.noted() == other.noted()
    }
}

/// The host of `url`, with the port that it names.
fn host_of(url: &str) -> String {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let authority = behind.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_address_only_the_host_is_noted_once() {
        let effects = SideEffects::default();
        for url in ["https://ada:secret@API.example:8443/v1?key=secret#x", "https://api.example:8443", "nonsense?x", ""]
        {
            effects.clone().asked(url);
        }
        assert_eq!(effects.noted().hosts, ["api.example:8443", "nonsense"]);
    }
}
