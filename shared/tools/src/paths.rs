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
    let is_in = |folder: &String| begins(&parts, &folder.split('/').collect::<Vec<_>>());
    let is_definition = begins(&parts, DEFINITIONS) && !begins(&parts, MEMORY);
    let is_instructions = parts.len() == INSTRUCTIONS.len() && begins(&parts, INSTRUCTIONS);
    match is_definition || is_instructions || others.iter().any(is_in) {
        true => Err(confined(path, "definitions of agents are changed by people, not by tools")),
        false => Ok(()),
    }
}

/// True if runs keep the folder at `path` for themselves.
pub(crate) fn is_own(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    OWN.iter().any(|own| begins(&parts, own))
}

/// Some file systems do not tell upper from lower case.
fn begins(parts: &[&str], beginning: &[&str]) -> bool {
    parts.len() >= beginning.len() && beginning.iter().zip(parts).all(|(one, other)| one.eq_ignore_ascii_case(other))
}
