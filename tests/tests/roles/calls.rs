//! Calls that stand in the code.

use serde_json::Value;

use crate::policy;
use crate::template::Template;

/// Calls in `shared/aws` that no function makes.
const OUTSIDE: &[(&str, &str)] = &[
    ("create_table", "local mode and tests; in an account the template makes the table"),
    ("describe_table", "the same"),
    ("update_time_to_live", "the same"),
    ("update_table", "the same"),
];

/// The scenes cannot tell of a call that they never reach. So every call that stands in the code is listed here: it is
/// one that a role grants, or one with a reason why no role needs to.
#[test]
fn every_call_in_the_code_is_granted_or_made_outside_of_functions() {
    let template = Template::read();
    let statements: Vec<Value> = ["InboundRole", "SignalRole", "WakeupRole", "SweepRole", "StreamRole", "SocketRole"]
        .iter()
        .flat_map(|role| template.statements(role))
        .collect();
    let granted: Vec<String> = policy::grants(&statements).iter().map(|grant| snake(grant.action())).collect();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/aws/src");
    let mut calls: Vec<String> = files(&source).iter().flat_map(|text| calls(text)).collect();
    calls.sort_unstable();
    calls.dedup();
    assert!(calls.contains(&"put_item".to_owned()), "calls are found at all: {calls:?}");
    for call in &calls {
        // Its parts are judged, not the transaction.
        let known = call == "transact_write_items" || granted.contains(call);
        let outside = OUTSIDE.iter().any(|(name, _)| name == call);
        assert!(known != outside, "{call} is granted: {known}, listed as outside of functions: {outside}");
    }
    for (name, _) in OUTSIDE {
        assert!(calls.iter().any(|call| call == name), "nobody calls {name} any more");
    }
}

/// `dynamodb:GetItem` as the SDK spells it.
fn snake(action: &str) -> String {
    let name = action.split_once(':').unwrap().1;
    let letters = name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase()));
    letters.collect::<String>().trim_start_matches('_').to_owned()
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // How AWS is reached: nothing is asked of it there.
    let entries = entries.filter(|path| path.file_stem() != Some("connect".as_ref()));
    let read = |path: std::path::PathBuf| {
        if path.is_dir() { files(&path) } else { vec![std::fs::read_to_string(path).unwrap()] }
    };
    entries.flat_map(read).collect()
}

/// The names of what is called on clients in `text`.
fn calls(text: &str) -> Vec<String> {
    let joined: String = text.split_whitespace().collect::<Vec<_>>().join("");
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect::<String>();
    let found = joined.split("client.").skip(1).map(name);
    found
        .filter(|call| {
            !["config", "clone", "into"].contains(&call.as_str()) && joined.contains(&format!("client.{call}()"))
        })
        .collect()
}
