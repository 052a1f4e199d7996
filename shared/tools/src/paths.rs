//! Paths in a workspace, and which of them tools may use: the same rules wherever its files are.

use dormouse_ports::execution::ExecutionError;

/// Folders that runs keep for themselves.
pub(crate) const OWN: [&[&str]; 2] = [&[".openharness", "data"], &[".openharness", "state"]];
/// Definitions, which people change.
const DEFINITIONS: &[&str] = &[".openharness"];
/// The part of it that agents may change.
const MEMORY: &[&str] = &[".openharness", "memory"];
/// Instructions for every agent.
const INSTRUCTIONS: &[&str] = &["AGENTS.md"];

/// `path` may not be used.
pub(crate) fn confined(path: &str, reason: &str) -> ExecutionError {
    ExecutionError::Confined { path: path.to_owned(), reason: reason.to_owned() }
}

/// The parts of `relative`, which `path` is from the root of the workspace on; joined, empty for the root itself.
pub(crate) fn within(path: &str, relative: &str) -> Result<String, ExecutionError> {
    let parts: Vec<&str> = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(confined(path, "it contains `..`; write the path from the root of the workspace"));
    }
    if OWN.iter().any(|own| begins(&parts, own)) {
        return Err(confined(path, "it belongs to the runs of the workspace"));
    }
    Ok(parts.join("/"))
}

/// True if tools may change the file at `path`, which is relative to the root; `others` are further folders of definitions.
pub(crate) fn may_change(path: &str, others: &[String]) -> Result<(), ExecutionError> {
    let parts: Vec<&str> = path.split('/').collect();
    let is_definition = begins(&parts, DEFINITIONS) && !begins(&parts, MEMORY);
    let is_instructions = parts.len() == INSTRUCTIONS.len() && begins(&parts, INSTRUCTIONS);
    match is_definition || is_instructions || others.iter().any(|folder| is_in(path, folder)) {
        true => Err(confined(path, "definitions of agents are changed by people, not by tools")),
        false => Ok(()),
    }
}

/// True if runs keep the folder at `path` for themselves.
pub(crate) fn is_own(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    OWN.iter().any(|own| begins(&parts, own))
}

/// True if the relative `path` is `folder` or in it.
pub(crate) fn is_in(path: &str, folder: &str) -> bool {
    begins(&path.split('/').collect::<Vec<_>>(), &folder.split('/').collect::<Vec<_>>())
}

fn begins(parts: &[&str], beginning: &[&str]) -> bool {
    parts.len() >= beginning.len() && beginning.iter().zip(parts).all(|(one, other)| folded(one).eq(folded(other)))
}

/// `name` as a file system may compare it that tells no upper from lower case, by the rules of Unicode (`\u{17f}` is an `s`,
/// `\u{df}` two of them), and passes over what is not seen.
fn folded(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !is_unseen(*c)).flat_map(char::to_lowercase).flat_map(char::to_uppercase)
}

fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file systems of Macs find the folder of definitions by each of these.
    #[test]
    fn a_definition_is_not_changed_by_another_way_to_write_its_name() {
        for name in [
            ".openharness",
            ".OpenHarness",
            ".openharne\u{17f}s",
            ".openharne\u{df}",
            ".open\u{200c}harness",
            "\u{feff}.openharness",
        ] {
            assert!(may_change(&format!("{name}/hooks/guard.yaml"), &[]).is_err(), "{name:?}");
            assert!(may_change(&format!("{name}/memory/x.md"), &[]).is_ok(), "{name:?}");
            assert!(is_own(&format!("{name}/data/x")) && within("x", &format!("{name}/state/x")).is_err(), "{name:?}");
        }
        for path in ["AGENT\u{17f}.md", "agents.\u{200d}md", "docs/\u{17f}kills/x"] {
            assert!(may_change(path, &["docs/skills".to_owned()]).is_err(), "{path:?}");
        }
        for path in [".openharnes/x", "openharness/x", "docs/AGENTS.md", ".openharn\u{e9}ss/x"] {
            assert!(may_change(path, &["docs/skills".to_owned()]).is_ok(), "{path:?}");
        }
    }
}
