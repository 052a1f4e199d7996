//! The folder, and paths in it with their links.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType};
use dormouse_ports::execution::ExecutionError;
use nix::libc::ELOOP;

use crate::paths::{OWN, confined, within};

/// The folder.
#[derive(Debug)]
pub(super) struct Place {
    /// Its path, with all links resolved.
    pub(super) root: PathBuf,
    /// The folder itself: what is opened from here stays below it.
    pub(super) dir: Dir,
    /// Held from the check of a condition to the write.
    pub(super) writing: Mutex<()>,
}

impl Place {
    pub(super) fn open(root: &Path) -> Result<Self, ExecutionError> {
        let shown = root.display().to_string();
        let root = root.canonicalize().map_err(|error| failed(&error, &shown))?;
        let dir = Dir::open_ambient_dir(&root, ambient_authority()).map_err(|error| failed(&error, &shown))?;
        Ok(Self { root, dir, writing: Mutex::new(()) })
    }

    /// The folders that runs keep for themselves.
    pub(super) fn own(&self) -> impl Iterator<Item = PathBuf> {
        OWN.iter().map(|parts| parts.iter().fold(self.root.clone(), |folder, part| folder.join(part)))
    }

    /// `path` as one that is relative to the root; empty for the root itself.
    pub(super) fn inside(&self, path: &str) -> Result<String, ExecutionError> {
        if path.contains('\0') {
            return Err(confined(path, "it is no path"));
        }
        let relative = match path.starts_with('/') {
            true => Path::new(path)
                .strip_prefix(&self.root)
                .ok()
                .and_then(Path::to_str)
                .ok_or_else(|| confined(path, "it is outside of the workspace"))?,
            false => path,
        };
        within(path, relative)
    }

    /// The path of a file or folder that is there, with its links resolved: they must not lead to what may not be used.
    pub(super) fn resolved(&self, path: &str) -> Result<String, ExecutionError> {
        let inside = self.inside(path)?;
        if inside.is_empty() {
            return Ok(inside);
        }
        let found = self.dir.canonicalize(&inside).map_err(|error| failed(&error, path))?;
        self.inside(&found.to_string_lossy())
    }

    /// The path of what is not there yet, with the links of the folders resolved in which it will be.
    pub(super) fn to_be_made(&self, path: &str) -> Result<String, ExecutionError> {
        let Some((folder, name)) = path.rsplit_once('/') else { return self.inside(path) };
        let folder = match self.resolved(folder) {
            Err(ExecutionError::NotFound { .. }) => self.to_be_made(folder)?,
            resolved => resolved?,
        };
        self.inside(&format!("{folder}/{name}"))
    }
}

/// Kind of thing that something is that is no file.
pub(super) fn kind_of(kind: FileType) -> &'static str {
    use cap_std::fs::FileTypeExt;
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "something else"
    }
}

/// The error of an operation on `path`.
pub(super) fn failed(error: &io::Error, path: &str) -> ExecutionError {
    let path = path.to_owned();
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        ExecutionError::NotFound { path }
    } else if kind == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        // The library says so of a path that leads out, with no number of the system.
        ExecutionError::Confined {
            path,
            reason: "it leads out of the workspace, or over a link that names an absolute path".to_owned(),
        }
    } else if error.raw_os_error() == Some(ELOOP) {
        ExecutionError::Confined { path, reason: "its links go in a circle".to_owned() }
    } else if kind == io::ErrorKind::IsADirectory {
        ExecutionError::NoFile { path, kind: "a folder".to_owned() }
    } else {
        ExecutionError::Denied { reason: format!("{path}: {error}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::may_change;

    #[test]
    fn paths_stay_inside_and_off_what_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::open(folder.path()).expect("it opens");
        let root = place.root.display().to_string();
        assert_eq!(place.inside("./a//b/").as_deref(), Ok("a/b"));
        assert_eq!(place.inside(&format!("{root}/a")).as_deref(), Ok("a"));
        assert_eq!(place.inside(".openharness/memory/x.md").as_deref(), Ok(".openharness/memory/x.md"));
        for path in [
            "../x",
            "a/../../x",
            "/etc/passwd",
            "a\0b",
            ".openharness/data/x",
            ".OpenHarness/State",
            &format!("{root}x"),
        ] {
            assert!(matches!(place.inside(path), Err(ExecutionError::Confined { .. })), "{path}");
        }
        let others = ["docs/skills".to_owned()];
        for path in ["src/main.rs", ".openharness/memory/MEMORY.md", "docs/AGENTS.md", "docs/skills.md", "AGENTS.md/x"]
        {
            assert!(may_change(path, &others).is_ok(), "{path}");
        }
        let kept =
            [".openharness/agents/a.md", ".OPENHARNESS/settings.yaml", "AGENTS.md", "agents.md", "docs/Skills/x/y"];
        for path in kept {
            assert!(may_change(path, &others).is_err(), "{path}");
        }
    }
}
