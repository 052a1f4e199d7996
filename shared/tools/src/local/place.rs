//! The folder, and paths in it with their links.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType};
use dormouse_ports::execution::ExecutionError;
use nix::libc::ELOOP;

use crate::paths::{OWN, confined, is_in, is_own, within};

/// The folder.
#[derive(Debug)]
pub(super) struct Place {
    /// Its path, with all links resolved.
    pub(super) root: PathBuf,
    /// The folder itself: what is opened from here stays below it.
    pub(super) dir: Dir,
    /// Held from the check of a condition to the write.
    pub(super) writing: Mutex<()>,
    /// The data folder of the server, where that is in here; empty where it is this folder itself.
    data: OnceLock<String>,
}

impl Place {
    pub(super) fn open(root: &Path) -> Result<Self, ExecutionError> {
        let shown = root.display().to_string();
        let root = root.canonicalize().map_err(|error| failed(&error, &shown))?;
        let dir = Dir::open_ambient_dir(&root, ambient_authority()).map_err(|error| failed(&error, &shown))?;
        Ok(Self { root, dir, writing: Mutex::new(()), data: OnceLock::new() })
    }

    /// The folders that runs keep for themselves.
    pub(super) fn own(&self) -> impl Iterator<Item = PathBuf> {
        OWN.iter().map(|parts| parts.iter().fold(self.root.clone(), |folder, part| folder.join(part)))
    }

    /// Also keeps the data folder of the server, `data`, from tools. It need not be there yet.
    pub(super) fn keep(&self, data: &Path) {
        let data = real(data);
        if let Some(inside) = data.strip_prefix(&self.root).ok().and_then(Path::to_str) {
            let _ = self.data.set(inside.trim_end_matches('/').to_owned());
        }
    }

    /// True if the folder at the relative `path` is not for tools.
    pub(super) fn is_kept(&self, path: &str) -> bool {
        is_own(path) || self.is_data(path)
    }

    fn is_data(&self, path: &str) -> bool {
        self.data.get().is_some_and(|data| data.is_empty() || is_in(path, data))
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
        let inside = within(path, relative)?;
        match self.is_data(&inside) {
            true => Err(confined(path, "it is in the data folder of the server, which has its keys")),
            false => Ok(inside),
        }
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

/// `path` with the links resolved of as much of it as is there.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|folder| Some((folder, folder.canonicalize().ok()?)));
    let real = there.and_then(|(folder, real)| Some(real.join(path.strip_prefix(folder).ok()?)));
    real.unwrap_or(path)
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
    fn a_data_folder_in_the_workspace_is_kept_from_tools_by_whatever_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::open(folder.path()).expect("it opens");
        let root = place.root.clone();
        std::os::unix::fs::symlink(&root, root.join("here")).expect("a link");
        place.keep(&root.join("here/state/server"));
        std::fs::create_dir_all(root.join("state/server")).expect("folders");
        std::fs::write(root.join("state/server/api-key"), "dm_1").expect("a file");
        std::os::unix::fs::symlink("state/server", root.join("other")).expect("a link");
        let absolute = root.join("state/server/api-key").display().to_string();
        for path in ["state/server/api-key", "STATE/Server", "./state//server/x", "other/api-key", &absolute] {
            assert!(matches!(place.resolved(path), Err(ExecutionError::Confined { .. })), "{path}");
        }
        assert!(place.is_kept("state/server") && !place.is_kept("state") && !place.is_kept("state/servers"));
        assert_eq!(place.inside("state/server.md").as_deref(), Ok("state/server.md"));
        let again = Place::open(&root).expect("it opens");
        again.keep(&root.join("state/server/"));
        assert!(again.inside("state/server/api-key").is_err(), "one that is there already");
        let elsewhere = Place::open(&root.join("state/server")).expect("it opens");
        elsewhere.keep(&root);
        assert_eq!(elsewhere.inside("api-key").as_deref(), Ok("api-key"), "another folder that is around this one");
        let itself = Place::open(&root).expect("it opens");
        itself.keep(&root);
        assert!(itself.inside("state").is_err() && itself.resolved("").is_err());
    }

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
