//! The files of a workspace as one value, as bytes, and in a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileTypeExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use dormouse_json::Bounds;
use dormouse_ports::execution::ExecutionError;
use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use super::CopyLimits;
use super::definitions::Definitions;

const FORMAT: u32 = 1;
/// Folders between the root and a file.
const DEEPEST: usize = 64;
const LEVEL: i32 = 1;
/// Rights of a file of definitions: bundles keep none, and scripts of actions are among them, which commands run by their paths.
const MODE_OF_DEFINITIONS: u32 = 0o755;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TreeEntry {
    Folder,
    Link(String),
    Pipe,
    File { mode: u32, bytes: Vec<u8> },
}

/// The files of a workspace that are no definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileTree(BTreeMap<String, TreeEntry>);

/// Files of a workspace that cannot be kept.
#[derive(Debug, Default)]
pub(super) struct Unkept {
    count: usize,
    first: String,
}

impl Unkept {
    fn add(&mut self, folder: &str, name: &OsStr) {
        if self.count == 0 {
            self.first = Path::new(folder).join(name).to_string_lossy().into_owned();
        }
        self.count += 1;
    }

    /// A line that tells of them, where there are some.
    pub(super) fn told(&self) -> Option<String> {
        let Self { count, first } = self;
        let what = match count {
            0 => return None,
            1 => format!("`{first}` is not kept: its name, or where it leads as a link, is no UTF-8 text"),
            _ => format!("{count} files are not kept, `{first}` among them: their names are no UTF-8 text"),
        };
        Some(format!("[{what}]"))
    }
}

/// The beginning of an archive: what comes behind it.
#[derive(Serialize, Deserialize)]
struct ArchiveHead {
    format: u32,
    entries: Vec<ListedPath>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ListedPath {
    Folder { path: String },
    Link { path: String, target: String },
    Pipe { path: String },
    File { path: String, mode: u32, size: u64 },
}

impl FileTree {
    /// The files in `root` that are none of `definitions`, and those that cannot be kept. Links are kept as they are and never
    /// followed; devices and sockets are left out.
    pub(super) fn of(
        root: &Path,
        definitions: &Definitions,
        limits: CopyLimits,
    ) -> Result<(Self, Unkept), ExecutionError> {
        let dir = Dir::open_ambient_dir(root, ambient_authority()).map_err(|error| failed(&error))?;
        let folders = definitions.keys().flat_map(|path| folders_of(path)).collect();
        let (found, unkept) = (BTreeMap::new(), Unkept::default());
        let mut walk = TreeWalk { definitions, folders, limits, bytes: 0, found, unkept };
        walk.folder(&dir, "", 0)?;
        Ok((Self(walk.found), walk.unkept))
    }

    /// Its bytes; the same for the same files.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, ExecutionError> {
        let listed = |(path, entry): (&String, &TreeEntry)| match entry {
            TreeEntry::Folder => ListedPath::Folder { path: path.clone() },
            TreeEntry::Link(target) => ListedPath::Link { path: path.clone(), target: target.clone() },
            TreeEntry::Pipe => ListedPath::Pipe { path: path.clone() },
            TreeEntry::File { mode, bytes } => ListedPath::File {
                path: path.clone(),
                mode: *mode,
                size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            },
        };
        let index = ArchiveHead { format: FORMAT, entries: self.0.iter().map(listed).collect() };
        let index = serde_json::to_vec(&index).map_err(|error| failed(&error.into()))?;
        let written = (|| {
            let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
            encoder.write_all(&u64::try_from(index.len()).unwrap_or(u64::MAX).to_le_bytes())?;
            encoder.write_all(&index)?;
            for entry in self.0.values() {
                if let TreeEntry::File { bytes, .. } = entry {
                    encoder.write_all(bytes)?;
                }
            }
            encoder.finish()
        })();
        written.map_err(|error: io::Error| failed(&error))
    }

    /// The files in `bytes`, within `limits`.
    pub(super) fn from_bytes(bytes: &[u8], limits: CopyLimits) -> Result<Self, ExecutionError> {
        let broken = |reason: &str| ExecutionError::Denied {
            reason: format!("the files of the workspace are damaged: {reason}"),
        };
        let most = limits.bytes + (32 << 20);
        let decoder = zstd::Decoder::new(bytes).map_err(|error| broken(&error.to_string()))?;
        let mut from = decoder.take(most);
        let mut length = [0; 8];
        from.read_exact(&mut length).map_err(|error| broken(&error.to_string()))?;
        let length = u64::from_le_bytes(length);
        let mut index = Vec::new();
        (&mut from).take(length).read_to_end(&mut index).map_err(|error| broken(&error.to_string()))?;
        let bounds = Bounds { depth: 4, values: limits.entries * 5 + 4 };
        let index: ArchiveHead = dormouse_json::read(&index, bounds).map_err(|error| broken(&error.to_string()))?;
        if index.format != FORMAT {
            return Err(broken("they have the format of another version"));
        }
        let mut tree = BTreeMap::new();
        for listed in index.entries {
            let (path, entry) = match listed {
                ListedPath::Folder { path } => (path, TreeEntry::Folder),
                ListedPath::Link { path, target } => (path, TreeEntry::Link(target)),
                ListedPath::Pipe { path } => (path, TreeEntry::Pipe),
                ListedPath::File { path, mode, size } => {
                    let mut bytes = Vec::new();
                    (&mut from).take(size).read_to_end(&mut bytes).map_err(|error| broken(&error.to_string()))?;
                    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) != size {
                        return Err(broken("their end is missing"));
                    }
                    (path, TreeEntry::File { mode, bytes })
                }
            };
            tree.insert(path, entry);
        }
        Ok(Self(tree))
    }

    /// `theirs` with what is different in this one from `before`.
    ///
    /// # Errors
    /// [`ExecutionError::Changed`] for a path that both changed, and for one that would stand below what is no folder any more.
    pub(super) fn merged_into(&self, before: &Self, mut theirs: Self) -> Result<Self, ExecutionError> {
        let paths: BTreeSet<&String> = self.0.keys().chain(before.0.keys()).collect();
        for path in paths {
            let (mine, was) = (self.0.get(path), before.0.get(path));
            if mine == was {
                continue;
            }
            let found = theirs.0.get(path);
            if found != was && found != mine {
                return Err(ExecutionError::Changed { path: path.clone() });
            }
            match mine {
                Some(entry) => theirs.0.insert(path.clone(), entry.clone()),
                None => theirs.0.remove(path),
            };
        }
        match theirs.below_no_folder() {
            Some(path) => Err(ExecutionError::Changed { path: path.to_owned() }),
            None => Ok(theirs),
        }
    }

    /// A path in it that stands below what is no folder.
    fn below_no_folder(&self) -> Option<&str> {
        self.0.keys().map(String::as_str).find(|path| self.is_below_no_folder(path))
    }

    /// True if `path` stands below what is no folder: such files cannot be laid out.
    fn is_below_no_folder(&self, path: &str) -> bool {
        let is_other = |folder: &str| self.0.get(folder).is_some_and(|entry| *entry != TreeEntry::Folder);
        folders_of(path).any(is_other)
    }
}

/// The folders on the way to `path`.
fn folders_of(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

struct TreeWalk<'d> {
    definitions: &'d Definitions,
    /// The folders in which definitions are.
    folders: BTreeSet<&'d str>,
    limits: CopyLimits,
    bytes: u64,
    found: BTreeMap<String, TreeEntry>,
    unkept: Unkept,
}

impl TreeWalk<'_> {
    fn folder(&mut self, dir: &Dir, path: &str, depth: usize) -> Result<(), ExecutionError> {
        if depth > DEEPEST {
            return Err(too_much(&format!("more than {DEEPEST} folders in each other")));
        }
        for entry in dir.entries().map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let Ok(kind) = entry.file_type() else { continue };
            let name = match entry.file_name().into_string() {
                Ok(name) => name,
                // A name that is no text cannot be asked for.
                Err(name) => {
                    self.unkept.add(path, &name);
                    continue;
                }
            };
            let inner = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            // What stands in the place of a definition, or of a folder of some, is none of the files.
            let is_in_the_way = !kind.is_dir() && self.folders.contains(inner.as_str());
            if is_in_the_way || self.definitions.contains_key(&inner) {
                continue;
            }
            if self.found.len() >= self.limits.entries {
                return Err(too_much(&format!("more than {} files", self.limits.entries)));
            }
            if kind.is_dir() {
                let below = dir.open_dir(&name).map_err(|error| failed(&error))?;
                if !self.folders.contains(inner.as_str()) {
                    self.found.insert(inner.clone(), TreeEntry::Folder);
                }
                self.folder(&below, &inner, depth + 1)?;
            } else if kind.is_symlink() {
                let target = dir.read_link_contents(&name).map_err(|error| failed(&error))?;
                match target.to_str() {
                    Some(target) => {
                        self.found.insert(inner, TreeEntry::Link(target.to_owned()));
                    }
                    None => self.unkept.add(path, OsStr::new(&name)),
                }
            } else if kind.is_fifo() {
                self.found.insert(inner, TreeEntry::Pipe);
            } else if kind.is_file() {
                let file = self.file(dir, &name)?;
                self.found.insert(inner, file);
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: &Dir, name: &str) -> Result<TreeEntry, ExecutionError> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(O_NONBLOCK);
        let file = dir.open_with(name, &options).map_err(|error| failed(&error))?;
        let metadata = file.metadata().map_err(|error| failed(&error))?;
        let left = self.limits.bytes - self.bytes;
        let refused = || too_much(&format!("more than {} bytes", self.limits.bytes));
        if metadata.len() > left {
            return Err(refused());
        }
        let mut bytes = Vec::new();
        file.take(left + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > left {
            return Err(refused());
        }
        self.bytes += size;
        Ok(TreeEntry::File { mode: metadata.permissions().mode() & 0o777, bytes })
    }
}

/// Makes the files of `definitions` and of `tree` in the empty folder `root`. What stands in the way of a definition is
/// left out.
pub(super) fn lay_out(root: &Path, definitions: &Definitions, tree: &FileTree) -> Result<(), ExecutionError> {
    let dir = Dir::open_ambient_dir(root, ambient_authority()).map_err(|error| failed(&error))?;
    for (path, bytes) in definitions {
        let entry = TreeEntry::File { mode: MODE_OF_DEFINITIONS, bytes: bytes.clone() };
        make(&dir, path, &entry).map_err(|error| failed(&error))?;
    }
    let folders: BTreeSet<&str> = definitions.keys().flat_map(|path| folders_of(path)).collect();
    // A definition stays as it is published, even if what has its name, or that of a folder around it, is something else.
    let is_in_the_way = |path: &str, entry: &TreeEntry| {
        definitions.contains_key(path)
            || folders_of(path).any(|folder| definitions.contains_key(folder))
            || (*entry != TreeEntry::Folder && folders.contains(path))
            // An earlier version kept such files, and nothing of their workspace could be laid out any more.
            || tree.is_below_no_folder(path)
    };
    for (path, entry) in tree.0.iter().filter(|(path, entry)| !is_in_the_way(path, entry)) {
        make(&dir, path, entry).map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Makes `entry`, which is not there yet; no link is followed out of `dir`.
fn make(dir: &Dir, path: &str, entry: &TreeEntry) -> io::Result<()> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if !folder.is_empty() {
        dir.create_dir_all(folder)?;
    }
    match entry {
        TreeEntry::Folder => match dir.create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        },
        TreeEntry::Link(target) => dir.symlink_contents(target, path),
        TreeEntry::Pipe => {
            let below = if folder.is_empty() { dir.try_clone()? } else { dir.open_dir(folder)? };
            nix::unistd::mkfifoat(&below, name, Mode::from_bits_truncate(0o600)).map_err(io::Error::from)
        }
        TreeEntry::File { mode, bytes } => {
            let mut file = dir.open_with(path, OpenOptions::new().write(true).create_new(true))?;
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(*mode))
        }
    }
}

fn too_much(what: &str) -> ExecutionError {
    ExecutionError::Denied {
        reason: format!(
            "the workspace has {what}, and may have no more here: nothing of what the command wrote was kept; write less, \
             or remove files before the command ends"
        ),
    }
}

fn failed(error: &io::Error) -> ExecutionError {
    ExecutionError::Denied { reason: format!("the copy of the workspace cannot be used: {error}") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> FileTree {
        let file = |text: &str| TreeEntry::File { mode: 0o644, bytes: text.as_bytes().to_vec() };
        FileTree(files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect())
    }

    #[test]
    fn what_two_wrote_is_kept_unless_it_is_one_file() {
        let before = tree(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let mine = tree(&[("a", "2"), ("c", "1"), ("d", "1")]);
        let theirs = tree(&[("a", "1"), ("b", "1"), ("c", "2"), ("e", "1")]);
        let merged = mine.merged_into(&before, theirs).expect("nothing collides");
        assert_eq!(merged, tree(&[("a", "2"), ("c", "2"), ("d", "1"), ("e", "1")]));
        let theirs = tree(&[("a", "3"), ("b", "1"), ("c", "1")]);
        let refused = mine.merged_into(&before, theirs).expect_err("both wrote it");
        assert_eq!(refused, ExecutionError::Changed { path: "a".to_owned() });
    }

    #[test]
    fn what_one_wrote_into_a_folder_that_another_made_a_file_is_refused_and_not_kept_for_ever() {
        let mut before = tree(&[("out/old", "1")]);
        before.0.insert("out".to_owned(), TreeEntry::Folder);
        let mut added = before.clone();
        added.0.extend(tree(&[("out/new", "1")]).0);
        let replaced = tree(&[("out", "now a file")]);
        for (mine, theirs) in [(&added, &replaced), (&replaced, &added)] {
            let refused = mine.merged_into(&before, theirs.clone()).expect_err("nobody could lay that out");
            assert_eq!(refused, ExecutionError::Changed { path: "out/new".to_owned() });
        }
    }

    #[test]
    fn what_stands_in_the_place_of_a_folder_of_definitions_is_not_kept_and_keeps_nothing_from_being_laid_out() {
        let script = ".openharness/actions/hi/run.sh";
        let definitions = Definitions::from([
            (script.to_owned(), b"echo hi".to_vec()),
            ("AGENTS.md".to_owned(), b"# Rules".to_vec()),
        ]);
        let laid_out = |files: &FileTree| {
            let place = tempfile::tempdir().expect("a folder");
            lay_out(place.path(), &definitions, files).expect("it is laid out");
            place
        };
        let kept = |place: &Path| FileTree::of(place, &definitions, CopyLimits::default()).expect("files").0;
        let place = laid_out(&tree(&[("ok", "1")]));
        std::fs::remove_dir_all(place.path().join(".openharness")).expect("a command removes it");
        std::fs::write(place.path().join(".openharness"), "mine").expect("and writes a file of its name");
        assert_eq!(kept(place.path()), tree(&[("ok", "1")]));
        // An earlier version kept such files.
        let mut before = tree(&[("AGENTS.md/x", "1"), ("ok", "1")]);
        before.0.insert("AGENTS.md".to_owned(), TreeEntry::Folder);
        before.0.insert(".openharness".to_owned(), TreeEntry::Link("elsewhere".to_owned()));
        before.0.extend(tree(&[("out", "1"), ("out/new", "1")]).0);
        let place = laid_out(&before);
        assert_eq!(kept(place.path()), tree(&[("ok", "1"), ("out", "1")]));
        let run = std::process::Command::new("sh").args(["-c", script]).current_dir(place.path()).output();
        assert_eq!(run.expect("it runs").stdout, b"hi\n", "a script can be run by its path");
    }

    #[test]
    fn files_that_cannot_be_kept_are_told() {
        let place = tempfile::tempdir().expect("a folder");
        let told = || {
            let (files, unkept) =
                FileTree::of(place.path(), &Definitions::new(), CopyLimits::default()).expect("files");
            (files.0.len(), unkept.told())
        };
        std::fs::write(place.path().join("ok"), "1").expect("a file");
        assert_eq!(told(), (1, None));
        std::fs::write(place.path().join(OsStr::from_bytes(b"caf\xe9")), "1").expect("a file");
        let (kept, line) = told();
        let line = line.expect("a line");
        assert!(kept == 1 && line.starts_with("[`caf\u{fffd}` is not kept"), "{line}");
        std::fs::create_dir(place.path().join(OsStr::from_bytes(b"\xff"))).expect("a folder");
        let line = told().1.expect("a line");
        assert!(line.starts_with("[2 files are not kept"), "{line}");
    }

    #[test]
    fn an_archive_is_read_as_it_was_written_and_nothing_else_is() {
        let mut files = tree(&[("a/b", "text"), ("c", "")]);
        files.0.insert("a".to_owned(), TreeEntry::Folder);
        files.0.insert("l".to_owned(), TreeEntry::Link("/etc/passwd".to_owned()));
        files.0.insert("p".to_owned(), TreeEntry::Pipe);
        let bytes = files.to_bytes().expect("bytes");
        assert_eq!(FileTree::from_bytes(&bytes, CopyLimits::default()), Ok(files));
        for broken in [&bytes[..bytes.len() - 4], b"nothing", b""] {
            assert!(matches!(FileTree::from_bytes(broken, CopyLimits::default()), Err(ExecutionError::Denied { .. })));
        }
        let few = CopyLimits { entries: 1, ..CopyLimits::default() };
        assert!(FileTree::from_bytes(&bytes, few).is_err());
    }

    #[test]
    fn a_link_is_not_followed_and_definitions_stay() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().join("root");
        std::fs::create_dir(&root).expect("a folder");
        let mut files = tree(&[("out/x", "x"), (".openharness/agents/a.md", "mine"), ("ok", "1")]);
        files.0.insert("out".to_owned(), TreeEntry::Link("..".to_owned()));
        let definitions = Definitions::from([(".openharness/agents/a.md".to_owned(), b"theirs".to_vec())]);
        lay_out(&root, &definitions, &files).expect("what stands below no folder is left out");
        let dir = Dir::open_ambient_dir(&root, ambient_authority()).expect("a folder");
        let below = TreeEntry::File { mode: 0o644, bytes: b"x".to_vec() };
        assert!(make(&dir, "out/x", &below).is_err(), "an entry below a link that leads out");
        assert!(root.join("out").is_symlink() && !place.path().join("x").exists());
        let defined = std::fs::read_to_string(root.join(".openharness/agents/a.md")).expect("a file");
        assert_eq!(defined, "theirs");
    }
}
