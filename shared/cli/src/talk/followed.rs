//! What a terminal was following when it was closed.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The file that names the task of which a person at the terminal waits to hear, for the next terminal.
pub(super) struct FollowedFile(PathBuf);

/// How far a task was shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownSoFar {
    pub(super) task: String,
    /// The last event behind which a question was answered; none from the beginning.
    pub(super) after: Option<String>,
}

impl FollowedFile {
    /// That of the conversation with `agent` whose server keeps its data in `data`.
    pub(super) fn of(data: &Path, agent: &str) -> Self {
        Self(data.join(format!("followed-{agent}")))
    }

    /// `task` is shown from now on, from what comes behind the event `after`.
    pub(super) fn begin(&self, task: &str, after: Option<&str>) -> io::Result<()> {
        std::fs::write(&self.0, format!("{task} {}", after.unwrap_or_default()))
    }

    /// What was followed was shown to its end.
    pub(super) fn end(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// What was not shown to its end.
    pub(super) fn left(&self) -> Option<ShownSoFar> {
        let kept = std::fs::read_to_string(&self.0).ok()?;
        let mut words = kept.split_whitespace().map(str::to_owned);
        Some(ShownSoFar { task: words.next()?, after: words.next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_shown_to_its_end_is_known_to_the_next_terminal() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = FollowedFile::of(folder.path(), "clerk");
        assert_eq!(file.left(), None);
        file.end().expect("there is nothing to end");
        let shown =
            |after: Option<&str>| Some(ShownSoFar { task: "task_1".to_owned(), after: after.map(str::to_owned) });
        for after in [None, Some("event_7")] {
            file.begin("task_1", after).expect("it is written");
            assert_eq!(file.left(), shown(after));
        }
        assert_eq!(FollowedFile::of(folder.path(), "other").left(), None);
        file.end().expect("it is removed");
        assert_eq!(file.left(), None);
    }
}
