//! Fixture files: where they are, what they are called, and the cases in them (conformance-adapter §3, §4).

use std::path::{Path, PathBuf};

use dormouse_ports::Map;
use serde_json::Value;

use crate::Failure;
use crate::spec::Spec;

/// A case with its name.
pub struct Case {
    /// `capability/file::case`, or `capability/file` where the file is one case.
    pub id: String,
    pub(crate) spec: Result<Spec, Failure>,
    /// What it was read from, with the keys that its file's cases share.
    pub(crate) source: Map,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.id)
    }
}

/// Every case in the `*.yaml` files under `roots`, in the order of their paths.
///
/// # Errors
/// When a root or a file cannot be read. A file that is no valid fixture is a case that fails.
pub fn discover(roots: &[PathBuf]) -> Result<Vec<Case>, String> {
    let mut files = Vec::new();
    for root in roots {
        walk(root, &mut files)?;
    }
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        cases.extend(read(&file_id(&file), &text));
    }
    Ok(cases)
}

fn walk(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(told)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(told)?;
    entries.sort();
    for entry in entries {
        let is_fixture = entry.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if entry.is_dir() || is_fixture {
            walk(&entry, files)?;
        }
    }
    Ok(())
}

/// `…/suspension/conformance/001-basic.yaml` is `suspension/001-basic`.
fn file_id(file: &Path) -> String {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let folders = file.parent().into_iter().flat_map(Path::components).map(|c| c.as_os_str().to_string_lossy());
    match folders.rev().find(|name| name != "conformance") {
        Some(folder) => format!("{folder}/{stem}"),
        None => stem,
    }
}

fn read(id: &str, text: &str) -> Vec<Case> {
    match load(text) {
        Err(failure) => vec![Case { id: id.to_owned(), spec: Err(failure), source: Map::new() }],
        Ok(document) => cases(id, document),
    }
}

/// Loads YAML in order; a key that stands twice is an error.
fn load(text: &str) -> Result<Map, Failure> {
    let yaml: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(text).map_err(|error| Failure::invalid(error.to_string()))?;
    match serde_json::to_value(yaml) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(Failure::invalid(format!("a fixture must be a mapping, not {other}"))),
        Err(error) => Err(Failure::invalid(error.to_string())),
    }
}

/// The cases of a file. Keys beside `cases:` belong to each of them.
fn cases(id: &str, mut document: Map) -> Vec<Case> {
    let Some(listed) = document.shift_remove("cases") else {
        return vec![Case { id: id.to_owned(), spec: Spec::read(&document), source: document }];
    };
    let Value::Array(listed) = listed else {
        let spec = Err(Failure::invalid("`cases` must be a list"));
        return vec![Case { id: id.to_owned(), spec, source: document }];
    };
    if listed.is_empty() {
        let spec = Err(Failure::invalid("`cases` must list one case at least"));
        return vec![Case { id: id.to_owned(), spec, source: document }];
    }
    let case = |(index, case): (usize, Value)| {
        let name = case.get("name").and_then(Value::as_str).map_or_else(|| index.to_string(), str::to_owned);
        let Value::Object(own) = case else {
            let spec = Err(Failure::invalid("a case must be a mapping"));
            return Case { id: format!("{id}::{name}"), spec, source: document.clone() };
        };
        let mut map = document.clone();
        map.extend(own);
        Case { id: format!("{id}::{name}"), spec: Spec::read(&map), source: map }
    };
    listed.into_iter().enumerate().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_by_capability_and_name() {
        let name = |path: &str| file_id(Path::new(path));
        assert_eq!(name("/spec/suspension/conformance/001-basic.yaml"), "suspension/001-basic");
        assert_eq!(name("/conformance/fixtures/harness-chat/own.yaml"), "harness-chat/own");
    }

    #[test]
    fn a_case_of_which_nothing_would_run_is_no_valid_fixture() {
        let graph = "nodes: {a: {update: {}}}\nentry: a\nedges: [{from: a, to: END}]\n";
        for (text, told) in [
            ("cases: []\n".to_owned(), "`cases` must list one case at least"),
            ("mock_provider: {responses: []}\ncalls: []\n".to_owned(), "`calls` must list one call at least"),
            (format!("{graph}run_count: 0\n"), "run_count must be 1 or more, not 0"),
            (format!("{graph}resume: {{from_first_run: false}}\n"), "a resume is either"),
        ] {
            let failure = read("x/y", &text).remove(0).spec.err().expect("nothing would run").to_string();
            assert!(failure.starts_with("fixture_schema_invalid: ") && failure.contains(told), "{failure}");
        }
        assert!(read("x/y", &format!("{graph}run_count: 1\n")).remove(0).spec.is_ok());
    }

    #[test]
    fn an_unknown_directive_fails_its_case_by_name() {
        let text = "nodes: {a: {update: {}, dance: true}}\nentry: a\nedges: [{from: a, to: END}]\n";
        let failure = read("x/y", text).remove(0).spec.err().expect("the node dances");
        assert_eq!(failure.to_string(), "fixture_directive_unknown: `nodes.a.dance`");
    }
}
