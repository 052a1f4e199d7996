//! Searching the folder. Links are not followed, and of version control only the files are seen.

use std::io::Read;

use cap_std::fs::Dir;
use dormouse_ports::execution::{ExecutionError, FoundFiles, GlobRequest, GrepRequest, Matches};

use super::files;
use super::place::{Place, failed};
use crate::matching::{Abandoned, Search, below, matcher};

/// Entries of folders that one search looks at.
const MOST_ENTRIES: usize = 200_000;
/// Folders between the root and a file.
const DEEPEST: usize = 64;
/// Bytes of a file that is searched for lines.
const LARGEST: u64 = 16 << 20;
/// Names of files that are told as left out.
const MOST_SKIPPED: usize = 20;

pub(super) fn glob(place: &Place, request: &GlobRequest, abandoned: &Abandoned) -> Result<FoundFiles, ExecutionError> {
    let folder = place.resolved(&request.folder)?;
    let pattern = matcher(place.inside(&request.pattern).as_deref().unwrap_or(&request.pattern))?;
    let mut found = FoundFiles::default();
    let cut = walk(place, &folder, abandoned, &mut |path| {
        if pattern.is_match(below(path, &folder)) {
            if found.paths.len() == request.most {
                return false;
            }
            found.paths.push(path.to_owned());
        }
        true
    })?;
    found.cut = cut;
    Ok(found)
}

pub(super) fn grep(place: &Place, request: &GrepRequest, abandoned: &Abandoned) -> Result<Matches, ExecutionError> {
    let path = place.resolved(&request.path)?;
    let search = Search::of(request)?;
    let mut found = Matches::default();
    if !path.is_empty() && place.dir.metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
        found.cut = !lines(place, &path, &search, abandoned, &mut found);
        return Ok(found);
    }
    found.cut = walk(place, &path, abandoned, &mut |file| {
        !search.looks_at(file, &path) || lines(place, file, &search, abandoned, &mut found)
    })?;
    Ok(found)
}

/// Adds the matching lines of a file; false when there are as many as were asked for.
fn lines(place: &Place, path: &str, search: &Search, abandoned: &Abandoned, found: &mut Matches) -> bool {
    match content(place, path, found) {
        Some(bytes) => search.lines(path, &bytes, abandoned, found),
        None => true,
    }
}

/// The content of a file, unless it is too large, or cannot be read.
fn content(place: &Place, path: &str, found: &mut Matches) -> Option<Vec<u8>> {
    let file = files::open(place, path).ok()?;
    if file.metadata().ok()?.len() > LARGEST {
        if found.skipped.len() < MOST_SKIPPED {
            found.skipped.push(path.to_owned());
        }
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Tells `visit` of every file below `folder`, in the order of their paths, until it returns false. True if there may be
/// more.
fn walk(
    place: &Place,
    folder: &str,
    abandoned: &Abandoned,
    visit: &mut dyn FnMut(&str) -> bool,
) -> Result<bool, ExecutionError> {
    let dir = match folder.is_empty() {
        true => place.dir.try_clone(),
        false => place.dir.open_dir(folder),
    };
    let dir = dir.map_err(|error| failed(&error, folder))?;
    let mut walk = SearchWalk { place, visit, abandoned, left: MOST_ENTRIES };
    Ok(!walk.folder(&dir, folder, 0))
}

struct SearchWalk<'v> {
    place: &'v Place,
    visit: &'v mut dyn FnMut(&str) -> bool,
    abandoned: &'v Abandoned,
    left: usize,
}

impl SearchWalk<'_> {
    /// False when the walk is to end.
    fn folder(&mut self, dir: &Dir, path: &str, depth: usize) -> bool {
        // A folder that may not be read has no files for us.
        let Ok(entries) = dir.entries() else { return true };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            if self.left == 0 || self.abandoned.is_set() {
                return false;
            }
            self.left -= 1;
            let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
            found.push((name, kind));
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found.into_iter().all(|(name, kind)| {
            if self.abandoned.is_set() {
                return false;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if kind.is_file() {
                return (self.visit)(&path);
            }
            if !kind.is_dir() || name == ".git" || depth == DEEPEST || self.place.is_kept(&path) {
                return true;
            }
            match dir.open_dir(&name) {
                Ok(inner) => self.folder(&inner, &path, depth + 1),
                // It is gone, or may not be read.
                Err(_) => true,
            }
        })
    }
}
