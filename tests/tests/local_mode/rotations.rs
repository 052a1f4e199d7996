//! Keys that several people replace at the same time: one of them does, and the others are told by which key.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::access::key;
use crate::folder;
use crate::process::{Dormouse, text};

const AT_ONCE: usize = 8;

/// What came of `arguments`, run by many at once.
fn all_at_once(dormouse: &Dormouse, arguments: &[&str]) -> Vec<Output> {
    let spawn = |_| {
        let mut command = dormouse.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let running: Vec<_> = (0..AT_ONCE).map(spawn).collect();
    running.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_replace_a_key_one_does_and_the_others_are_told_by_which() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let old = key(&dormouse, &["--actor", "ci", "--scope", "tasks:read"]);
    let outputs = all_at_once(&dormouse, &["keys", "rotate", text(&old, "id"), "--grace", "1h", "--json"]);
    let (done, refused): (Vec<_>, Vec<_>) = outputs.iter().partition(|output| output.status.success());
    assert_eq!(done.len(), 1, "{outputs:?}");
    let new: Value = serde_json::from_slice(&done[0].stdout).expect("JSON");
    let secret = text(&new, "key").rsplit('_').next().expect("a secret").to_owned();
    for output in refused {
        let told = complaint(output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(text(&new, "id")) && told.contains("keys create") && !told.contains(&secret), "{told}");
    }
    let listed = dormouse.command(&["keys", "list", "--json"]).output().expect("it runs");
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let of_ci = listed["keys"].as_array().expect("keys").iter().filter(|key| key["actor"] == "ci").count();
    assert_eq!(of_ci, 2, "the old one and the new one: {listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_replace_the_key_of_receipts_each_is_told_the_truth() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let outputs = all_at_once(&dormouse, &["receipts", "rotate"]);
    let kept = std::fs::read_to_string(folder.path().join("data/receipt-keys")).expect("the keys");
    let kept: Value = serde_json::from_str(&kept).expect("JSON");
    let done: Vec<&Output> = outputs.iter().filter(|output| output.status.success()).collect();
    assert_eq!(kept["former"].as_array().map(Vec::len), Some(done.len()), "each takes the place of one: {kept}");
    let made: Vec<String> = done
        .iter()
        .map(|output| String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned())
        .collect();
    let former = kept["former"].to_string();
    let lost: Vec<&String> = made.iter().filter(|id| !former.contains(id.as_str())).collect();
    assert_eq!(lost.len(), 1, "all but the last are kept, and that one signs: {made:?} {former}");
    for output in outputs.iter().filter(|output| !output.status.success()) {
        let told = complaint(output);
        assert!(made.iter().any(|id| told.contains(id)) && told.contains("receipts rotate"), "{told}");
    }
}
