//! `dormouse new` through the real binary: what it makes is the example, which is built and tested with everything else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the agents are pure, the command is not")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dormouse");

fn dormouse(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dormouse")).args(arguments).current_dir(folder).output().unwrap()
}

/// Every file below `folder` with its text.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let place = path.strip_prefix(folder).unwrap().to_owned();
                    files.insert(place, fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    files
}

/// The lines of the tables of the profile `dev`, without comments.
fn profile(manifest: &str) -> Vec<&str> {
    let mut is_within = false;
    let mut lines = manifest.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect::<Vec<_>>();
    lines.retain(|line| {
        if line.starts_with('[') {
            is_within = line.starts_with("[profile.dev");
        }
        is_within
    });
    lines
}

#[test]
fn what_is_made_is_the_example() {
    let place = tempfile::tempdir().unwrap();
    let made = dormouse(&["new", "own-agent", "--dormouse", CRATE], place.path());
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8(made.stdout).unwrap();
    assert!(said.contains("cd own-agent") && said.contains("make test") && said.contains("make run"), "{said}");
    let mut made = files(&place.path().join("own-agent"));
    // The versions with which the crate was tested: the example is in their workspace.
    for name in ["rust-toolchain.toml", "Cargo.lock"] {
        let root = fs::read_to_string(Path::new(CRATE).join("../..").join(name)).unwrap();
        assert_eq!(made.remove(Path::new(name)), Some(root), "{name}");
    }
    let manifest = made.get_mut(Path::new("Cargo.toml")).unwrap();
    let path = fs::canonicalize(CRATE).unwrap();
    assert!(manifest.contains(path.to_str().unwrap()), "{manifest}");
    *manifest = manifest.replace(path.to_str().unwrap(), "../..");
    // Only the root of a workspace has profiles: that of the example is the repository's.
    let root = fs::read_to_string(Path::new(CRATE).join("../../Cargo.toml")).unwrap();
    assert!(!profile(&root).is_empty());
    assert_eq!(profile(manifest), profile(&root), "write the profile of the workspace and that of `new` alike");
    manifest.truncate(manifest.find("\n# Line numbers").unwrap());
    let example = files(&Path::new(CRATE).join("examples/own-agent"));
    assert_eq!(made.keys().collect::<Vec<_>>(), example.keys().collect::<Vec<_>>());
    for (place, text) in &example {
        assert_eq!(&made[place], text, "{}: write the example and the templates of `new` alike", place.display());
    }
}

#[test]
fn what_is_there_stays_and_wrong_names_are_told() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("leave")).unwrap();
    for (folder, said) in [("leave", "is there already"), ("Leave", "cannot name a package"), ("async", "is a word")] {
        let refused = dormouse(&["new", folder], place.path());
        let complaint = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && complaint.contains(said), "{complaint}");
    }
    let refused = dormouse(&["new", "other", "--dormouse", "nowhere"], place.path());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--dormouse names the folder"));
    assert!(!place.path().join("other").exists());
}

#[test]
fn what_deploys_is_that_of_the_repository() {
    let place = tempfile::tempdir().unwrap();
    let written = dormouse(&["infra", "build/infra"], place.path());
    assert!(written.status.success(), "{written:?}");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra");
    for name in ["account.sh", "deploy.sh", "destroy.sh", "restore.sh", "secrets.sh", "template.yaml", "venv.sh"] {
        let written = fs::read_to_string(place.path().join("build/infra").join(name)).unwrap();
        assert_eq!(written, fs::read_to_string(ours.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn functions_are_compiled_as_those_of_the_repository() {
    let place = tempfile::tempdir().unwrap();
    assert!(dormouse(&["infra", "build/infra"], place.path()).status.success());
    let script = fs::read_to_string(place.path().join("build/infra/build.sh")).unwrap();
    // Without that, cargo-lambda has a panic end the process, whatever a profile says.
    assert!(script.contains("--disable-optimizations"), "{script}");
    let root = fs::read_to_string(Path::new(CRATE).join("../../Cargo.toml")).unwrap();
    let (_, profile) = root.split_once("[profile.lambda]\ninherits = \"release\"\n").unwrap();
    let settings = profile.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(" = "));
    let settings: Vec<_> = settings
        .map(|(name, value)| {
            let name = name.to_ascii_uppercase().replace('-', "_");
            format!("CARGO_PROFILE_RELEASE_{name}={}", value.trim_matches('"'))
        })
        .collect();
    assert!(settings.iter().any(|setting| setting.ends_with("PANIC=unwind")), "{settings:?}");
    for setting in settings {
        assert!(script.split_whitespace().any(|word| word == setting), "{setting} is not in {script}");
    }
}
