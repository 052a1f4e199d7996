//! The runner itself: a fixture whose expectation is false fails, and so does one that says what the runner does not know.

use std::path::Path;
use std::sync::Mutex;

use dormouse_conformance::{Case, Gaps, discover, passes};

const CAPABILITIES: &[&str] =
    &["graph-engine", "sessions", "suspension", "harness", "harness-chat", "pipeline-utilities", "llm-provider"];

/// Ours, and those of the specification where they are.
fn fixtures() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let gaps = Gaps::load(&folder.join("gaps.json")).expect("a list of gaps");
    let specification = folder.join("../../shared/openarmature/spec");
    let theirs = CAPABILITIES.iter().map(|capability| specification.join(capability)).filter(|root| root.is_dir());
    let mut cases = discover(&theirs.chain([folder.join("fixtures")]).collect::<Vec<_>>()).expect("fixtures");
    cases.retain(|case| gaps.reason(&case.id).is_none());
    cases
}

/// Most of the time goes by in fixtures that wait: many threads wait together.
#[test]
fn an_expectation_that_is_false_fails_its_case() {
    let all: Vec<Case> = fixtures().iter().flat_map(Case::falsified).collect();
    assert!(all.len() > 2000, "only {} expectations were falsified", all.len());
    let left = Mutex::new(all.iter());
    let unnoticed = Mutex::new(Vec::new());
    let next = || left.lock().expect("nobody panics with it").next();
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        while let Some(case) = next() {
            if runtime.block_on(passes(case)).expect("everything is in memory") {
                unnoticed.lock().expect("nobody panics with it").push(case.id.clone());
            }
        }
    };
    std::thread::scope(|threads| (0..16).for_each(|_| drop(threads.spawn(work))));
    let unnoticed = unnoticed.into_inner().expect("nobody panics with it");
    assert!(unnoticed.is_empty(), "of {} passed {}:\n{}", all.len(), unnoticed.len(), unnoticed.join("\n"));
}

#[test]
fn a_directive_that_is_not_known_is_told_wherever_it_stands() {
    let all = fixtures().into_iter().flat_map(|case| case.with_unknown_directives());
    let unnoticed: Vec<String> = all.filter(Case::is_known).map(|case| case.id).collect();
    assert!(unnoticed.is_empty(), "{} were not told:\n{}", unnoticed.len(), unnoticed.join("\n"));
}
