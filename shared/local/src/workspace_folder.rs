//! A folder as the source of a workspace's definitions.

use std::fs::{self, DirEntry, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{KEPT_APART, ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

/// The files of a folder. Links that lead out of it are not followed.
#[derive(Debug)]
pub struct WorkspaceFolder {
    /// The folder, with all links on the way to it resolved.
    root: PathBuf,
}

impl WorkspaceFolder {
    /// The folder `root`.
    ///
    /// # Errors
    /// When there is no such folder, or it may not be read.
    pub fn open(root: &Path) -> Result<Self, WorkspaceError> {
        let found = root.canonicalize().map_err(|error| failed(&error, &root.display().to_string()))?;
        match found.is_dir() {
            true => Ok(Self { root: found }),
            false => Err(WorkspaceError::Denied(format!("{} is a file and no folder", root.display()))),
        }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn walk(&self, folder: &Path, depth: usize, walk: &mut FolderWalk<'_>) -> Result<(), WorkspaceError> {
        let failed = |error| failed(&error, &folder.display().to_string());
        let mut entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(failed)?;
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Some(relative) = self.relative(&path).filter(|relative| walk.leads_to(relative)) else { continue };
            match self.inside(&entry, &path) {
                // Whoever reads it learns that it is a folder.
                Some(metadata) if metadata.is_dir() && walk.asks_for(&relative) && names_definition(&relative) => {
                    walk.add(WorkspaceFile { path: relative, size: 0, version: None })?;
                }
                Some(metadata) if metadata.is_dir() => {
                    // There may be more than all definitions may be together.
                    let is_kept_apart = entry.file_name().to_str().is_some_and(|name| KEPT_APART.contains(&name));
                    if depth >= walk.limits.depth || is_kept_apart {
                        continue;
                    }
                    match self.walk(&path, depth + 1, walk) {
                        // Whoever reads it learns why it cannot be read.
                        Err(WorkspaceError::Denied(_)) if walk.asks_for(&relative) => {
                            walk.add(WorkspaceFile { path: relative, size: 0, version: None })?;
                        }
                        walked => walked?,
                    }
                }
                Some(metadata) if metadata.is_file() => {
                    walk.add(WorkspaceFile { path: relative, size: metadata.len(), version: version(&metadata) })?;
                }
                // Whoever reads it learns why it cannot be read.
                Some(_) | None if walk.asks_for(&relative) && is_meant(&path) => {
                    walk.add(WorkspaceFile { path: relative, size: 0, version: None })?;
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// What is at `path`, where `entry` leads. A link may lead anywhere: what it leads to counts, if that is inside. What is
    /// no link is where its folder is, and asking for more than that costs most of a look at a large folder.
    fn inside(&self, entry: &DirEntry, path: &Path) -> Option<Metadata> {
        let found = entry.metadata().ok()?;
        if !found.is_symlink() {
            return Some(found);
        }
        path.canonicalize()
            .ok()
            .filter(|inside| inside.starts_with(&self.root))
            .and_then(|inside| fs::metadata(inside).ok())
    }

    /// The path of `file` in the bundle, unless it is no text.
    fn relative(&self, file: &Path) -> Option<String> {
        let parts = file.strip_prefix(&self.root).ok()?.components();
        let parts: Option<Vec<&str>> = parts.map(|part| part.as_os_str().to_str()).collect();
        Some(parts?.join("/"))
    }

    fn locate(&self, path: &str) -> Result<PathBuf, WorkspaceError> {
        let is_plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let invalid = || WorkspaceError::InvalidPath(path.to_owned());
        if !is_plain || path.is_empty() {
            return Err(invalid());
        }
        let place = self.root.join(path);
        // A link may lead nowhere, or to itself.
        let is_broken = |error: &io::Error| place.is_symlink() && error.kind() != io::ErrorKind::PermissionDenied;
        let found =
            place.canonicalize().map_err(|error| if is_broken(&error) { invalid() } else { failed(&error, path) })?;
        if found.starts_with(&self.root) { Ok(found) } else { Err(invalid()) }
    }
}

/// A walk through the folder, and what it has found.
struct FolderWalk<'l> {
    limits: &'l ListLimits,
    found: Vec<WorkspaceFile>,
}

impl FolderWalk<'_> {
    /// True if `path` is asked for, or a folder on the way to what is.
    fn leads_to(&self, path: &str) -> bool {
        let is_excepted = self.limits.except.iter().any(|folder| is_inside(path, folder));
        self.asks_for(path) || (!is_excepted && self.limits.under.iter().any(|under| is_inside(under, path)))
    }

    /// True if `path` is asked for.
    fn asks_for(&self, path: &str) -> bool {
        let under = &self.limits.under;
        let is_asked = under.is_empty() || under.iter().any(|under| is_inside(path, under));
        is_asked && !self.limits.except.iter().any(|folder| is_inside(path, folder))
    }

    fn add(&mut self, file: WorkspaceFile) -> Result<(), WorkspaceError> {
        if self.found.len() == self.limits.files {
            let limit = u64::try_from(self.limits.files).unwrap_or(u64::MAX);
            return Err(WorkspaceError::TooLarge { what: "the number of files".to_owned(), limit });
        }
        self.found.push(file);
        Ok(())
    }
}

fn is_inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// True if a definition that is one file would stand at `path`.
fn names_definition(path: &str) -> bool {
    const FOLDERS: [&str; 5] = ["agents", "models", "hooks", "tools", "prompts"];
    let is_text = [".md", ".yaml", ".yml"].iter().any(|ending| path.ends_with(ending));
    let is_in_place = match path.strip_prefix(".openharness/") {
        Some(inside) => inside.rsplit_once('/').is_none_or(|(folder, _)| FOLDERS.contains(&folder)),
        None => path.eq_ignore_ascii_case("AGENTS.md"),
    };
    is_text && is_in_place
}

/// True if somebody wants what is at `path` to be read: it is there, and no mark of an editor, which often is a link that
/// leads nowhere.
fn is_meant(path: &Path) -> bool {
    let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    path.symlink_metadata().is_ok() && (!is_hidden || path.ends_with(".openharness"))
}

/// A file that was changed just now may be changed again within the same tick of the clock of its file system.
const TICK: Duration = Duration::from_secs(2);

/// The content of a file, as far as its file system tells.
fn version(metadata: &Metadata) -> Option<String> {
    let age = metadata.modified().ok()?.elapsed().ok()?;
    let stamps = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    (age >= TICK).then(|| format!("{}-{}-{stamps:?}", metadata.ino(), metadata.len()))
}

fn failed(error: &io::Error, what: &str) -> WorkspaceError {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return WorkspaceError::NotFound(what.to_owned());
    }
    let message = format!("{what}: {error}");
    match kind == io::ErrorKind::PermissionDenied {
        true => WorkspaceError::Denied(message),
        false => WorkspaceError::Transient(message),
    }
}

#[async_trait]
impl WorkspaceSource for WorkspaceFolder {
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError> {
        let mut walk = FolderWalk { limits, found: Vec::new() };
        self.walk(&self.root, 0, &mut walk)?;
        walk.found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(walk.found)
    }

    async fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        let place = self.locate(path)?;
        let metadata = fs::metadata(&place).map_err(|error| failed(&error, path))?;
        if !metadata.is_file() {
            if metadata.is_dir() {
                fs::read_dir(&place).map_err(|error| failed(&error, path))?;
            }
            // Reading from a pipe or a device may wait for ever, or never end.
            let found = if metadata.is_dir() { "a folder" } else { "a socket, a pipe or a device" };
            return Err(WorkspaceError::Denied(format!("{path} is {found} and no file")));
        }
        let file = File::open(place).map_err(|error| failed(&error, path))?;
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| failed(&error, path))?;
        match u64::try_from(bytes.len()).is_ok_and(|read| read <= limit) {
            true => Ok(bytes),
            false => Err(WorkspaceError::TooLarge { what: path.to_owned(), limit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    use super::*;

    #[tokio::test]
    async fn files_inside_are_listed_and_read_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().join("workspace");
        fs::create_dir_all(root.join(".openharness/agents")).expect("folders");
        fs::create_dir_all(root.join("src")).expect("a folder");
        fs::create_dir_all(root.join(".openharness/data/runs")).expect("folders");
        fs::write(root.join(".openharness/data/runs/one"), "a run").expect("a file");
        fs::write(root.join("AGENTS.md"), "rules").expect("a file");
        fs::write(root.join(".openharness/agents/a.md"), "agent").expect("a file");
        fs::write(root.join("src/main.rs"), "code").expect("a file");
        fs::write(place.path().join("secret"), "hush").expect("a file");
        symlink(place.path().join("secret"), root.join(".openharness/agents/b.md")).expect("a link");
        symlink(root.join("AGENTS.md"), root.join(".openharness/agents/c.md")).expect("a link");
        let folder = WorkspaceFolder::open(&root).expect("it is there");
        let under = vec!["AGENTS.md".to_owned(), ".openharness".to_owned()];
        let limits =
            |files| ListLimits { under: under.clone(), except: vec![".openharness/data".to_owned()], files, depth: 4 };
        let listed = folder.list(&limits(10)).await.expect("a list");
        let paths: Vec<_> = listed.iter().map(|file| file.path.as_str()).collect();
        let there = [".openharness/agents/a.md", ".openharness/agents/b.md", ".openharness/agents/c.md", "AGENTS.md"];
        assert_eq!(paths, there, "one that leads out is listed, and cannot be read");
        let few = folder.list(&limits(2)).await;
        assert!(matches!(few, Err(WorkspaceError::TooLarge { .. })), "{few:?}");
        assert_eq!(folder.read("AGENTS.md", 5).await.expect("its content"), b"rules");
        assert!(matches!(folder.read("AGENTS.md", 4).await, Err(WorkspaceError::TooLarge { .. })));
        for outside in ["../secret", "/etc/passwd", ".openharness/agents/b.md", "", "./AGENTS.md/.."] {
            let refused = folder.read(outside, 100).await;
            assert!(matches!(refused, Err(WorkspaceError::InvalidPath(_))), "{outside}: {refused:?}");
        }
        assert!(matches!(folder.read("nothing", 100).await, Err(WorkspaceError::NotFound(_))));
        fs::write(root.join("alone"), "x").expect("a file");
        let refused = WorkspaceFolder::open(&root.join("alone")).expect_err("it is no folder").to_string();
        assert!(refused.ends_with("alone is a file and no folder"), "{refused}");
    }

    #[tokio::test]
    async fn a_folder_that_may_not_be_read_takes_no_other_along() {
        let place = tempfile::tempdir().expect("a folder");
        for path in [".openharness/hooks/inner", ".openharness/agents"] {
            fs::create_dir_all(place.path().join(path)).expect("a folder");
        }
        fs::write(place.path().join(".openharness/agents/clerk.md"), "x").expect("a file");
        let hooks = place.path().join(".openharness/hooks");
        let allow = |mode| fs::set_permissions(&hooks, fs::Permissions::from_mode(mode)).expect("they are set");
        allow(0o000);
        if fs::read_dir(&hooks).is_ok() {
            // Whoever runs this may read anything.
            return;
        }
        let folder = WorkspaceFolder::open(place.path()).expect("a folder");
        let under = |path: &str| ListLimits { under: vec![path.to_owned()], except: Vec::new(), files: 9, depth: 4 };
        let found = folder.list(&under(".openharness")).await.expect("a list");
        let paths: Vec<&str> = found.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [".openharness/agents/clerk.md", ".openharness/hooks"]);
        let refused = folder.read(".openharness/hooks", 9).await.expect_err("it may not be read").to_string();
        allow(0o700);
        assert!(refused.starts_with(".openharness/hooks: ") && !refused.contains("no file"), "{refused}");
    }

    #[tokio::test]
    async fn what_a_version_control_keeps_takes_no_room_of_definitions() {
        let place = tempfile::tempdir().expect("a folder");
        let objects = place.path().join(".openharness/.git/objects");
        fs::create_dir_all(&objects).expect("folders");
        for number in 0..3 {
            fs::write(objects.join(number.to_string()), "x").expect("a file");
        }
        fs::write(place.path().join(".openharness/settings.yaml"), "kind: chat").expect("a file");
        let folder = WorkspaceFolder::open(place.path()).expect("it is there");
        let limits = ListLimits { under: vec![".openharness".to_owned()], except: Vec::new(), files: 1, depth: 4 };
        let listed = folder.list(&limits).await.expect("a list, however much is in there");
        assert_eq!(listed[0].path, ".openharness/settings.yaml");
    }

    #[tokio::test]
    async fn a_file_has_a_version_when_it_has_lain_there_for_a_while_and_another_one_when_it_is_written() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = WorkspaceFolder::open(place.path()).expect("it is there");
        let written = async |text: &str, ago: u64| {
            let path = place.path().join("AGENTS.md");
            fs::write(&path, text).expect("a file");
            let file = File::options().write(true).open(&path).expect("the file");
            file.set_modified(SystemTime::now() - Duration::from_secs(ago)).expect("a time");
            let limits = ListLimits { under: Vec::new(), except: Vec::new(), files: 10, depth: 4 };
            folder.list(&limits).await.expect("a list").remove(0).version
        };
        // On a busy machine it may have lain there for that long when it is looked at.
        let fresh = loop {
            let began = std::time::Instant::now();
            let version = written("one", 0).await;
            if began.elapsed() < TICK {
                break version;
            }
        };
        assert_eq!(fresh, None, "it may be written again within the same tick");
        let first = written("one", 60).await;
        let again = written("two", 60).await;
        assert!(first.is_some() && again.is_some() && first != again, "{first:?} {again:?}");
    }

    #[tokio::test]
    async fn what_is_there_and_cannot_be_read_is_listed_and_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let root = place.path().join("workspace");
        fs::create_dir_all(root.join(".openharness/agents")).expect("folders");
        fs::write(place.path().join("settings.yaml"), "kind: chat").expect("a file");
        symlink(place.path().join("settings.yaml"), root.join(".openharness/settings.yaml")).expect("a link");
        symlink("/dev/zero", root.join(".openharness/agents/zero.md")).expect("a link");
        symlink("loop.md", root.join(".openharness/agents/loop.md")).expect("a link to itself");
        symlink("nothing.md", root.join(".openharness/agents/gone.md")).expect("a link to nothing");
        symlink("nobody@nowhere", root.join(".openharness/agents/.#note.md")).expect("the mark of an editor");
        let pipe = std::process::Command::new("mkfifo").arg(root.join(".openharness/agents/pipe.md")).status();
        assert!(pipe.expect("it runs").success());
        fs::create_dir_all(root.join("AGENTS.md/inside")).expect("a folder");
        fs::create_dir_all(root.join(".openharness/agents/dir.md")).expect("a folder");
        fs::create_dir_all(root.join(".openharness/skills/dir.md")).expect("a folder");
        fs::write(root.join(".openharness/skills/dir.md/SKILL.md"), "a skill").expect("a file");
        let _socket = UnixListener::bind(root.join(".openharness/agents/socket.md")).expect("a socket");
        let folder = WorkspaceFolder::open(&root).expect("it is there");
        let under = vec!["AGENTS.md".to_owned(), ".openharness".to_owned()];
        let limits = ListLimits { under, except: vec![".openharness/skills".to_owned()], files: 10, depth: 4 };
        let listed = folder.list(&limits).await.expect("a list");
        let paths: Vec<_> = listed.iter().map(|file| file.path.as_str()).collect();
        let there =
            ["dir", "gone", "loop", "pipe", "socket", "zero"].map(|name| format!(".openharness/agents/{name}.md"));
        let there: Vec<_> =
            there.iter().map(String::as_str).chain([".openharness/settings.yaml", "AGENTS.md"]).collect();
        assert_eq!(paths, there);
        for path in there {
            let refused = folder.read(path, 100).await;
            let is_refused = matches!(refused, Err(WorkspaceError::InvalidPath(_) | WorkspaceError::Denied(_)));
            assert!(is_refused, "{path}: {refused:?}");
        }
        let said = |refused: Result<Vec<u8>, WorkspaceError>| refused.expect_err("refused").to_string();
        assert!(said(folder.read("AGENTS.md", 100).await).contains("AGENTS.md is a folder and no file"));
        let link = said(folder.read(".openharness/settings.yaml", 100).await);
        assert!(link.contains("a link that leads out of it"), "{link}");
        let socket = said(folder.read(".openharness/agents/socket.md", 100).await);
        assert!(socket.contains("agents/socket.md is a socket, a pipe or a device and no file"), "{socket}");
        let skills = ListLimits { under: vec![".openharness/skills".to_owned()], except: Vec::new(), ..limits };
        let skills = folder.list(&skills).await.expect("a list");
        assert_eq!(skills[0].path, ".openharness/skills/dir.md/SKILL.md", "the folder of a skill may be called so");
    }
}
