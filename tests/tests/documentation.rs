//! What the documentation shows and points to exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

/// Pages that are read on their own, beside the documentation of the code.
const FOLDERS: &[&str] = &[".", "conformance", "functions", "infra", "shared", "tests"];
/// What a source file ends in.
const SOURCES: &[&str] = &[".rs", ".py", ".mjs"];
/// Two pages of a screen each, and a little.
const LONGEST_README: usize = 150;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the workspace")
}

fn read(place: impl AsRef<Path>) -> String {
    let place = place.as_ref();
    fs::read_to_string(place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

fn files_in(folder: &Path, deep: bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder can be read") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if deep && !["target", "fixtures"].contains(&name) && !name.starts_with('.') {
                files_in(&path, deep, found);
            }
        } else {
            found.push(path);
        }
    }
}

/// The files whose names end in one of `endings`.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    for folder in FOLDERS {
        files_in(&root.join(folder), *folder != ".", &mut found);
    }
    found.retain(|path| endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)));
    assert!(found.len() > 10, "only {found:?}");
    found
}

fn pages() -> Vec<PathBuf> {
    files(&[".md"])
}

/// The anchors of the headings in `page`, as a forge makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings =
        page.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    let letter = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    headings.map(|heading| heading.chars().filter_map(letter).collect()).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for place in pages() {
        let page = read(&place);
        let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { place.clone() } else { place.with_file_name("").join(path) };
            let leads = target.exists() && anchor.is_none_or(|anchor| anchors(&read(&target)).contains(anchor));
            wrong.extend((!leads).then(|| format!("{}: {link}", place.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `{a,b}` in `path` stands for.
fn spelled_out(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a closed brace");
    choices.split(',').map(|choice| format!("{before}{choice}{after}")).collect()
}

/// What stands between backticks in `text`.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether `name` is that of a source file: its end, for example `walk.rs`, or a path, which may leave out `src`.
fn is_source(name: &str) -> bool {
    SOURCES.iter().any(|ending| name.ends_with(ending))
}

/// Whether the file at `place` can be meant by `name`.
fn is_named(place: &Path, name: &str) -> bool {
    let end = format!("/{}", name.trim_start_matches("…/"));
    let place = place.to_string_lossy();
    place.ends_with(&end) || place.replace("/src/", "/").ends_with(&end)
}

#[test]
fn every_file_that_a_page_names_exists() {
    let root = root();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for place in pages() {
        let page = read(&place);
        for name in quoted(&page).filter(|name| !name.contains(char::is_whitespace)) {
            let first = name.split('/').next().unwrap_or_default();
            let is_path = name.contains('/') && FOLDERS[1..].contains(&first);
            for path in spelled_out(name).into_iter().filter(|path| is_path && !path.contains(['*', '…'])) {
                seen += 1;
                let beside = place.with_file_name("");
                let exists = [root, beside.as_path()]
                    .map(|from| from.join(&path))
                    .iter()
                    .any(|at| at.exists() || at.with_extension("rs").exists());
                wrong.extend((!exists).then(|| format!("{}: {path}", place.display())));
            }
        }
    }
    assert!(seen > 50, "only {seen} paths were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Also in short, and in comments: `run/walk.rs`.
#[test]
fn every_source_file_that_is_named_exists() {
    let sources = files(SOURCES);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for place in pages().iter().chain(&sources) {
        let mut text = read(place);
        if is_source(&place.to_string_lossy()) {
            text = text.lines().filter(|line| line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        }
        let names = quoted(&text).filter(|name| is_source(name) && !name.contains(['*', ' ', '\n']));
        for name in names.flat_map(spelled_out) {
            seen += 1;
            let exists = sources.iter().any(|source| is_named(source, &name));
            wrong.extend((!exists).then(|| format!("{}: {name}", place.display())));
        }
    }
    assert!(seen > 200, "only {seen} files were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_test_that_holds_a_promise_of_a_workspace_exists() {
    let sources = files(SOURCES);
    let page = read(root().join("tests/README.md"));
    let (_, promises) = page.split_once("| promise | test |").expect("the promises");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for tests in promises.lines().filter_map(|row| row.split('|').nth(2)) {
        let mut named: Vec<String> = Vec::new();
        for name in quoted(tests) {
            if is_source(name) {
                named = sources.iter().filter(|place| is_named(place, name)).map(read).collect();
            } else if name.contains('_') && !name.contains('/') {
                seen += 1;
                let function = format!("fn {}", name.trim_end_matches('…'));
                let exists = named.iter().any(|source| source.contains(&function));
                wrong.extend((!exists).then_some(name));
            }
        }
    }
    assert!(seen > 20, "only {seen} tests were found");
    assert!(wrong.is_empty(), "not in the files that are named: {wrong:?}");
}

#[test]
fn the_code_map_has_a_row_for_each_crate() {
    let workspace = MetadataCommand::new().no_deps().exec().expect("cargo metadata runs");
    let map = read(root().join("shared/dormouse/guide/architecture.md"));
    let rows: BTreeSet<String> =
        map.lines().filter_map(|line| Some(line.strip_prefix("| `shared/")?.split('`').next()?.to_owned())).collect();
    let shared = workspace.workspace_root.join("shared");
    let crates: BTreeSet<String> = workspace
        .packages
        .iter()
        .filter_map(|package| Some(package.manifest_path.parent()?.strip_prefix(&shared).ok()?.to_string()))
        .filter(|folder| !folder.contains('/'))
        .collect();
    assert_eq!(rows, crates);
}

#[test]
fn the_readme_is_two_pages_and_its_code_is_that_of_the_example() {
    let root = root();
    let example = read(root.join("shared/dormouse/examples/own-agent/src/lib.rs"));
    let readme = read(root.join("README.md"));
    assert!(readme.lines().count() < LONGEST_README, "{} lines", readme.lines().count());
    let blocks: Vec<&str> = readme.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "the README shows code");
    for block in blocks {
        assert!(example.contains(block), "the example has not, or not any more:\n{block}");
    }
}

#[test]
fn the_console_counts_a_task_at_what_the_guide_says() {
    let guide = read(root().join("shared/dormouse/guide/costs.md"));
    let million =
        guide.split("| **without compute** | **").nth(1).and_then(|rest| rest.split('*').next()).expect("its cost");
    let console = read(root().join("shared/console/assets/costs.js"));
    assert!(console.contains(&format!("const TASK = {million}e-6;")), "the guide says {million} dollars a million");
}
