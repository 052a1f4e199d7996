//! What a model or a workspace may hand to files and processes, over the real binary: each is refused or ended with what to
//! do, the run goes on, and nothing is left behind.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use serde_json::json;

use super::world::Project;
use super::{DONE, WORKER};
use crate::assistant::world::{Wire, eventually};

/// For how long the command `number` of this process sleeps: no other run of the tests on this machine has one of these.
fn nap(number: usize) -> String {
    format!("{number}.{}", std::process::id())
}

/// Processes of this machine whose command line contains `needle`.
fn alive(needle: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(needle)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_none_of_its_business_are_refused_one_by_one() {
    let project = Project::of(&[WORKER, ("twice.txt", "one\none\n"), ("own.txt", "one\n")]).await;
    symlink("/etc/passwd", project.path("passwd")).expect("a link");
    symlink("/etc", project.path("etc")).expect("a link");
    symlink("/dev/zero", project.path("zero")).expect("a link");
    symlink("round", project.path("round")).expect("a link");
    File::create(project.path("huge"))
        .expect("a file")
        .set_len(1 << 30)
        .expect("a gigabyte, of which nothing is written");
    assert!(Command::new("mkfifo").arg(project.path("pipe")).status().expect("mkfifo runs").success());
    let dormouse = project.serve();
    let before = fs::read("/etc/passwd").expect("a file");
    let read = |path: &str| ("Read", json!({ "file_path": path }));
    let write = |path: &str| ("Write", json!({ "file_path": path, "content": "x" }));
    let calls_and_answers = [
        (read("passwd"), "may not be used"),
        (read("etc/passwd"), "may not be used"),
        (read("/etc/passwd"), "may not be used"),
        (read("a/../../x"), "contains `..`"),
        (read("zero"), "may not be used"),
        (read("round"), "may not be used"),
        (read("pipe"), "is no file but a pipe"),
        (read("."), "is no file but a folder"),
        (read("huge"), "has 1073741824 bytes, and files up to"),
        (write("passwd"), "may not be used"),
        (write("etc/dormouse-was-here"), "may not be used"),
        (("Glob", json!({ "pattern": "**", "path": "etc" })), "may not be used"),
        (("Grep", json!({ "pattern": "root", "path": ".." })), "contains `..`"),
        (read("twice.txt"), "     1\tone"),
        (
            ("Edit", json!({ "file_path": "twice.txt", "old_string": "one", "new_string": "2" })),
            "2 times, in lines 1, 2",
        ),
        (
            ("Edit", json!({ "file_path": "twice.txt", "old_string": "three", "new_string": "2" })),
            "is not in `twice.txt`",
        ),
        (read("own.txt"), "     1\tone"),
        (("Bash", json!({ "command": "echo somebody else > own.txt" })), ""),
        (write("own.txt"), "read it again"),
    ];
    let (calls, answers): (Vec<_>, Vec<_>) = calls_and_answers.into_iter().unzip();
    let task = project.say(&dormouse, &calls);
    Wire::of(&dormouse).task(&task, &DONE).await;
    let results = project.results();
    assert_eq!(results.len(), answers.len(), "{results:#?}");
    for (result, (answer, (name, arguments))) in results.iter().zip(answers.iter().zip(&calls)) {
        assert!(result.contains(answer), "{name} {arguments}: {result} has no {answer:?}");
    }
    assert_eq!(fs::read("/etc/passwd").expect("a file"), before);
    assert!(!std::path::Path::new("/etc/dormouse-was-here").exists());
    assert_eq!(
        (project.read("own.txt").as_str(), project.read("twice.txt").as_str()),
        ("somebody else\n", "one\none\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_end_are_ended_and_nothing_of_them_is_left() {
    let project = Project::of(&[WORKER]).await;
    let dormouse = project.serve();
    let bash = |command: &str| ("Bash", json!({ "command": command, "timeout_seconds": 100 }));
    let naps: Vec<String> = (4831..=4836).map(nap).collect();
    let [of_bomb, behind_bomb, heedless, heedless_too, aside, aside_too] = &naps[..] else { panic!("six") };
    let calls = [
        bash("yes"),
        bash(&format!("bomb() {{ sleep {of_bomb} & sleep 0.02; bomb | bomb & }}; bomb; sleep {behind_bomb}")),
        (
            "Bash",
            json!({ "command": format!("trap '' TERM INT HUP; sleep {heedless}; sleep {heedless_too}"), "timeout_seconds": 1 }),
        ),
        bash(&format!("(setsid sleep {aside} &) ; nohup sleep {aside_too} >/dev/null 2>&1 & echo begun")),
        bash("cat"),
        bash("exit 7"),
    ];
    let task = project.say(&dormouse, &calls);
    Wire::of(&dormouse).task(&task, &DONE).await;
    let results = project.results();
    let expected = [
        "it wrote more than 67108864 bytes",
        "it started more than 256 processes",
        "was ended after 1 second",
        "begun",
        "",
        "ended with status 7",
    ];
    assert_eq!(results.len(), expected.len(), "{results:#?}");
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.contains(expected), "{result} has no {expected:?}");
    }
    assert!(results[0].len() < 200_000, "what is kept of endless output is bounded: {}", results[0].len());
    for nap in &naps {
        eventually(&format!("sleep {nap} has ended"), || alive(&format!("sleep {nap}")) == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_command_outlives_a_server_that_is_killed() {
    let project = Project::of(&[WORKER]).await;
    let mut dormouse = project.serve();
    if !project.confines(&dormouse).await {
        return;
    }
    let naps: Vec<String> = (4841..=4843).map(nap).collect();
    let command = format!("setsid sleep {} & (setsid sleep {} &); touch begun; sleep {}", naps[0], naps[1], naps[2]);
    project.say(&dormouse, &[("Bash", json!({ "command": command }))]);
    let each = || naps.iter().map(|nap| alive(&format!("sleep {nap}")));
    let all = || each().sum::<usize>();
    eventually("it runs", || project.exists("begun") && each().all(|count| count > 0)).await;
    dormouse.kill();
    eventually("everything of it has ended", || all() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_sees_no_process_but_its_own() {
    let project = Project::of(&[WORKER]).await;
    let dormouse = project.serve();
    if !project.confines(&dormouse).await {
        return;
    }
    let command = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c ASSISTANT_KEY; ls -d /proc/[0-9]* | wc -l";
    let task = project.say(&dormouse, &[("Bash", json!({ "command": command }))]);
    Wire::of(&dormouse).task(&task, &DONE).await;
    let result = project.results().remove(0);
    let counts: Vec<usize> = result.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert!(counts[0] == 0 && counts[1] < 12, "the keys of the server are in its environment: {result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_a_folder_or_a_socket_is_an_error_that_names_it() {
    let project = Project::of(&[]).await;
    fs::remove_file(project.path("AGENTS.md")).expect("it was there");
    fs::create_dir(project.path("AGENTS.md")).expect("a folder");
    fs::create_dir(project.path(".openharness/settings.yaml")).expect("a folder");
    let _socket = UnixListener::bind(project.path(".openharness/agents/other.md")).expect("a socket");
    let told = project.check();
    for (path, kind) in [
        ("AGENTS.md", "a folder"),
        (".openharness/settings.yaml", "a folder"),
        (".openharness/agents/other.md", "a socket, a pipe or a device"),
    ] {
        assert!(told.contains(&format!("{path} is {kind} and no file")), "{path}: {told}");
    }
}
