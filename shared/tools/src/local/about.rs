//! What a model is told of the folder.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::place::Place;

/// Bytes of a file of Git that are looked at.
const LONGEST: u64 = 4096;

/// System, folder, and the branch where the folder is under Git.
pub(super) fn facts(place: &Place) -> Vec<(String, String)> {
    let system = format!("{} ({})", std::env::consts::OS, std::env::consts::ARCH);
    let facts =
        [("system", Some(system)), ("folder", Some(place.root.display().to_string())), ("git", git(&place.root))];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), one_line(&value?)))).collect()
}

/// What is checked out in the folder or the nearest one around it that is under Git. Nothing is run.
fn git(root: &Path) -> Option<String> {
    let found = root.ancestors().map(|folder| folder.join(".git")).find(|git| git.exists())?;
    let git = if found.is_dir() { found } else { elsewhere(&found)? };
    let head = beginning(&git.join("HEAD"))?;
    let head = head.trim();
    Some(match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => format!("branch {branch}"),
        None => format!("detached at {}", head.get(..12).unwrap_or(head)),
    })
}

/// The folder that the file `.git` of a work tree names.
fn elsewhere(file: &Path) -> Option<PathBuf> {
    let named = beginning(file)?;
    let named = named.trim().strip_prefix("gitdir: ")?;
    Some(file.parent()?.join(named))
}

fn beginning(file: &Path) -> Option<String> {
    let is_file = fs::metadata(file).is_ok_and(|metadata| metadata.is_file());
    let mut text = String::new();
    File::open(file).ok().filter(|_| is_file)?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// `text` without what would look like another fact.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_is_that_of_the_folder_or_of_one_around_it() {
        let place = tempfile::tempdir().expect("a folder");
        let inner = place.path().join("a/b");
        fs::create_dir_all(&inner).expect("folders");
        let git = place.path().join(".git");
        fs::create_dir(&git).expect("a folder");
        assert_eq!(super::git(&inner), None, "nothing is checked out");
        fs::write(git.join("HEAD"), "ref: refs/heads/fix/it\n").expect("a file");
        assert_eq!(super::git(&inner).as_deref(), Some("branch fix/it"));
        fs::write(git.join("HEAD"), "0123456789abcdef0123\n").expect("a file");
        assert_eq!(super::git(&inner).as_deref(), Some("detached at 0123456789ab"));
        let tree = place.path().join("tree");
        fs::create_dir(&tree).expect("a folder");
        fs::write(tree.join(".git"), "gitdir: ../.git\n").expect("a file");
        assert_eq!(super::git(&tree).as_deref(), Some("detached at 0123456789ab"));
        let facts = facts(&Place::open(&tree).expect("a place"));
        assert_eq!(facts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["system", "folder", "git"]);
        assert_eq!(one_line("a\nfolder: b"), "a folder: b");
    }
}
