use std::collections::BTreeMap;

use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

use crate::bundle::CONTENT_LIMIT;

use super::litter::is_litter;
use super::load::{FILE_LIMIT, FileContent, Files, MEMORY, skill_dirs};

/// Files of one workspace that are looked at.
pub(crate) const MOST_FILES: usize = 2_000;

/// The folder of all definitions but one.
const ALL: &str = ".openharness";

/// Files that are looked at before all others: what they say must not be missed because of those.
const FIRST: [&str; 6] =
    ["AGENTS.md", "AGENTS.MD", "agents.md", "Agents.md", ".openharness/settings.yaml", ".openharness/prompts.yaml"];

/// The folders of definitions, those first that may forbid something. A folder with more files than there may still be is left
/// out, and so noted: it takes no other along.
pub(super) const FOLDERS: [&str; 9] =
    ["hooks", "agents", "models", "platform", "tools", "actions", "prompts", "skills", "memory"];

/// The file of the memory that comes first, and bytes of the memory that are read: more than agents are told of it.
pub const MEMORY_FIRST: &str = ".openharness/memory/MEMORY.md";
const MOST_OF_MEMORY: u64 = FILE_LIMIT;

/// Folders that runs keep for themselves: what is in them grows and changes all the time.
const OWN: [&str; 2] = ["data", "state"];

/// The folders in which files may stand deep, which scripts and skills read.
const DEEP: [&str; 2] = ["actions", "skills"];
/// Folders between the root and a file.
const DEPTH: usize = 4;
/// The same of a file of a skill or an action, where there is room for all of these.
const DEEPER: usize = 8;
/// How much deeper files are looked for that are left out.
const LOOKED_AT: usize = 8;
/// Why files that stand deeper are left out.
const TOO_DEEP: &str = "files of a skill or an action may stand five folders deep in it, and deeper ones are not read";
const NO_ROOM: &str = "with what stands deep in this folder there are more than 2000 files, and none of that is read";
const TOO_MUCH: &str =
    "with it the memory has more than 256 KiB, of which agents are told 32: remove what nobody needs";
const TOO_LARGE: &str = "with it the definitions have more bytes than they may have together";

/// What is noted of a folder that is left out.
pub(super) const TOO_MANY: &str = "with the files of this folder there are more than 2000, and none of them is read";

/// Reads the files of definitions from `source`: a file that is too large or cannot be read is noted as such.
///
/// # Errors
/// [`WorkspaceError`] when the bundle as a whole cannot be read.
pub async fn read(source: &dyn WorkspaceSource) -> Result<Files, WorkspaceError> {
    KnownFiles::default().read(source).await
}

/// The files of a workspace as they were read last. Only those that have changed since are read again.
#[derive(Clone, Debug, Default)]
pub struct KnownFiles {
    /// Contents by paths, with the versions under which they were read.
    known: BTreeMap<String, (String, FileContent)>,
}

impl KnownFiles {
    /// Reads the files of definitions from `source`, always the same one, as [`read`] does.
    ///
    /// # Errors
    /// [`WorkspaceError`] when the bundle as a whole cannot be read.
    pub async fn read(&mut self, source: &dyn WorkspaceSource) -> Result<Files, WorkspaceError> {
        let mut before = std::mem::take(&mut self.known);
        let mut files = BTreeMap::new();
        let first =
            ListLimits { under: FIRST.map(str::to_owned).to_vec(), except: Vec::new(), files: FIRST.len(), depth: 1 };
        self.add(source, (first, 1), &mut before, &mut files).await?;
        let folders = FOLDERS.iter().map(|folder| Part {
            folder: format!("{ALL}/{folder}"),
            depth: DEPTH,
            deeper: if DEEP.contains(folder) { DEEPER - DEPTH } else { 0 },
            except: Vec::new(),
        });
        // The folder of a skill, and those in it.
        let dirs = skill_dirs(&files).into_iter().map(|folder| Part {
            depth: folder.split('/').count() + DEPTH - 2,
            deeper: DEEPER - DEPTH,
            folder,
            except: Vec::new(),
        });
        let known = FOLDERS.iter().chain(&OWN).map(|folder| format!("{ALL}/{folder}"));
        let except = known.chain(FIRST.map(str::to_owned)).collect();
        let others = Part { folder: ALL.to_owned(), depth: DEPTH, deeper: 0, except };
        let mut parts: Vec<Part> = folders.chain(dirs).chain([others]).collect();
        // What agents write themselves takes the place of nothing else.
        parts.sort_by_key(|part| part.folder == MEMORY.trim_end_matches('/'));
        for part in &parts {
            self.add_part(source, part, &mut before, &mut files).await?;
        }
        leave_out_memory(&mut files);
        if files.values().map(FileContent::size).sum::<u64>() > CONTENT_LIMIT {
            leave_out_deep(&parts, &mut files);
        }
        Ok(files)
    }

    /// Adds the files of `part`: those that stand deep in it where there is room for all, or else without these, or else none.
    async fn add_part(
        &mut self,
        source: &dyn WorkspaceSource,
        part: &Part,
        before: &mut BTreeMap<String, (String, FileContent)>,
        files: &mut Files,
    ) -> Result<(), WorkspaceError> {
        let room = MOST_FILES.saturating_sub(files.values().filter(|content| !content.is_left_out()).count());
        let limits =
            |depth| ListLimits { under: vec![part.folder.clone()], except: part.except.clone(), files: room, depth };
        let depths = match part.deeper {
            0 => vec![part.depth],
            deeper => vec![part.depth + deeper + LOOKED_AT, part.depth + deeper, part.depth],
        };
        for depth in depths {
            match self.add(source, (limits(depth), part.depth + part.deeper), before, files).await {
                Err(WorkspaceError::TooLarge { .. }) => {}
                Ok(()) if depth <= part.depth + part.deeper && part.deeper > 0 => {
                    let reason = if depth == part.depth { NO_ROOM } else { TOO_DEEP };
                    files.insert(part.folder.clone(), FileContent::LeftOut(reason.to_owned()));
                    return Ok(());
                }
                added => return added,
            }
        }
        files.insert(part.folder.clone(), FileContent::Unreadable(TOO_MANY.to_owned()));
        Ok(())
    }

    /// Adds all of the files that `limits` let through, or none of them, without those that nobody means; those that stand
    /// deeper than `deepest` are not read.
    async fn add(
        &mut self,
        source: &dyn WorkspaceSource,
        (limits, deepest): (ListLimits, usize),
        before: &mut BTreeMap<String, (String, FileContent)>,
        files: &mut Files,
    ) -> Result<(), WorkspaceError> {
        for file in source.list(&limits).await?.into_iter().filter(|file| !is_litter(&file.path)) {
            if file.path.matches('/').count() > deepest {
                files.insert(file.path, FileContent::LeftOut(TOO_DEEP.to_owned()));
                continue;
            }
            let seen = before.remove(&file.path).filter(|(version, _)| Some(version) == file.version.as_ref());
            let content = match seen {
                Some((_, content)) => content,
                None => content_of(source, &file).await?,
            };
            if let Some(version) = file.version {
                self.known.insert(file.path.clone(), (version, content.clone()));
            }
            files.insert(file.path, content);
        }
        Ok(())
    }
}

/// Leaves out what the memory has beyond a bound: agents write it, and what they write keeps none from running.
fn leave_out_memory(files: &mut Files) {
    let mut room = MOST_OF_MEMORY;
    let mut memory: Vec<_> = files.iter_mut().filter(|(path, _)| path.starts_with(MEMORY)).collect();
    memory.sort_by_key(|(path, _)| *path != MEMORY_FIRST);
    for (_, content) in memory {
        match room.checked_sub(content.size()) {
            Some(left) => room = left,
            None => *content = FileContent::LeftOut(TOO_MUCH.to_owned()),
        }
    }
}

/// Leaves out what stands deep in `parts`: without it the definitions may be small enough.
fn leave_out_deep(parts: &[Part], files: &mut Files) {
    for part in parts.iter().filter(|part| part.deeper > 0) {
        let inside = format!("{}/", part.folder);
        let is_deep = |path: &String| path.starts_with(&inside) && path.matches('/').count() > part.depth;
        for (_, content) in files.iter_mut().filter(|(path, content)| is_deep(path) && !content.is_left_out()) {
            *content = FileContent::LeftOut(TOO_LARGE.to_owned());
        }
    }
}

/// A folder of which files are read.
struct Part {
    folder: String,
    /// Folders between the root and a file of it.
    depth: usize,
    /// How many more there may be, where there is room for such files.
    deeper: usize,
    /// Folders in it that are left to others.
    except: Vec<String>,
}

async fn content_of(source: &dyn WorkspaceSource, file: &WorkspaceFile) -> Result<FileContent, WorkspaceError> {
    match source.read(&file.path, FILE_LIMIT).await {
        Ok(bytes) => Ok(FileContent::Bytes(bytes)),
        Err(WorkspaceError::TooLarge { .. }) => Ok(FileContent::TooLarge(file.size)),
        Err(error @ WorkspaceError::Transient(_)) => Err(error),
        Err(error @ (WorkspaceError::NotFound(_) | WorkspaceError::InvalidPath(_) | WorkspaceError::Denied(_))) => {
            Ok(FileContent::Unreadable(error.to_string()))
        }
    }
}
