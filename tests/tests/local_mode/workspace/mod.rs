//! What a workspace declares, driven over the protocol with a scripted model: the real binary serves a folder, and each
//! message says which tools the model is to call.

mod agents;
mod bad_input;
mod context;
mod export;
mod guest;
mod hooks;
mod images;
mod lists;
mod mirror;
mod own;
mod queue;
mod rust_tools;
mod secrets;
mod templates;
mod world;

use std::fs;

use dormouse_protocol::EventKind;
use dormouse_protocol::resource::TaskStatus;
use reqwest::Method;
use serde_json::{Value, json};

use crate::assistant::world::{Wire, command, eventually};
use crate::process::{Dormouse, program};
use world::{Project, SOUND};

const DONE: [TaskStatus; 1] = [TaskStatus::Completed];
const WAITING: [TaskStatus; 2] = [TaskStatus::AuthRequired, TaskStatus::InputRequired];

const WORKER: (&str, &str) = (
    ".openharness/agents/assistant.md",
    "---\ntools: {native: [Bash, Read, Write, Edit, Glob, Grep, TodoWrite]}\n---\nWork.\n",
);
const ADD: (&str, &str) = (
    ".openharness/actions/add/ACTION.yaml",
    "name: math.add\ndescription: Adds two numbers.\nentry:\n  command: ./add.sh\n  environment: {PLACE: '${env.HOME}'}\n\
     input_schema: {type: object, properties: {a: {type: integer}, b: {type: integer}}, required: [a, b]}\n\
     recovery: {retry_policy: safe}\n",
);
const ADD_SCRIPT: (&str, &str) = (
    ".openharness/actions/add/add.sh",
    "#!/bin/sh\nread -r input\ntest \"$PLACE\" = \"$HOME\" && test \"$OPENHARNESS_ACTION_INPUT\" = \"$input\" && test -n \"$OPENHARNESS_RUN_ID\" && test -f \"$OPENHARNESS_WORKSPACE_ROOT/AGENTS.md\" && echo \"$DORMOUSE_ACTION_NAME got $input in $(basename \"$PWD\")\"\n",
);
const SKILL: (&str, &str) =
    (".openharness/skills/review/SKILL.md", "---\ndescription: How to review\n---\nLook twice.\n");
const RESOURCE: (&str, &str) = (".openharness/skills/review/references/list.md", "One. Two.");

#[tokio::test(flavor = "multi_thread")]
async fn native_tools_work_in_the_folder_and_nowhere_else() {
    let project = Project::of(&[WORKER, ("src/a.txt", "one\ntwo\n"), ("b.bin", "a\0b")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let calls = [
        ("Glob", json!({ "pattern": "**/*.txt" })),
        ("Edit", json!({ "file_path": "src/a.txt", "old_string": "two", "new_string": "2" })),
        ("Read", json!({ "file_path": "src/a.txt" })),
        ("Edit", json!({ "file_path": "src/a.txt", "old_string": "two", "new_string": "2" })),
        ("Grep", json!({ "pattern": "2" })),
        ("Write", json!({ "file_path": "b.bin", "content": "x" })),
        ("Read", json!({ "file_path": "b.bin" })),
        ("Read", json!({ "file_path": "../../etc/passwd" })),
        ("Bash", json!({ "command": "cat src/a.txt; echo $HOME_OF_NOBODY" })),
        ("Write", json!({ "file_path": ".openharness/settings.yaml", "content": "kind: project" })),
    ];
    let task = project.say(&dormouse, &calls);
    wire.task(&task, &DONE).await;
    let results = project.results();
    let expected = [
        "src/a.txt",
        "was not read in this session",
        "     2\ttwo",
        "is changed in one place",
        "src/a.txt:2:2",
        "read it before it is written over",
        "is no text",
        "contains `..`",
        "one\n2",
        "changed by people",
    ];
    assert_eq!(results.len(), expected.len(), "{results:#?}");
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.contains(expected), "{result} has no {expected}");
    }
    assert_eq!(project.read("src/a.txt"), "one\n2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_read_it_may_change_in_a_later_run_and_another_session_may_not() {
    let project = Project::of(&[WORKER, ("a.txt", "one")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let write = |text: &str| [("Write", json!({ "file_path": "a.txt", "content": text }))];
    let read = [("Read", json!({ "file_path": "a.txt" }))];
    let first = project.say(&dormouse, &read);
    let session = wire.task(&first, &DONE).await.session_id.to_string();
    let next = project.say_in(&dormouse, &session, &write("two"));
    wire.task(&next, &DONE).await;
    assert_eq!(project.read("a.txt"), "two");
    let other = project.say(&dormouse, &write("three"));
    wire.task(&other, &DONE).await;
    assert!(project.results()[0].contains("read it before"), "{:?}", project.results());
    project.write("a.txt", "somebody else");
    let late = project.say_in(&dormouse, &session, &write("four"));
    wire.task(&late, &DONE).await;
    assert_eq!(project.read("a.txt"), "somebody else", "nothing is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_approval_by_its_pattern_and_what_is_denied_does_not_run() {
    let matter = "---\ntools: {native: [Bash, Read]}\npolicy: {approval: {native: [Bash]}}\n---\nWork.\n";
    let project = Project::of(&[(".openharness/agents/assistant.md", matter), ("a.txt", "one")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let touch = [("Read", json!({ "file_path": "a.txt" })), ("Bash", json!({ "command": "touch ran" }))];
    let task = project.say(&dormouse, &touch);
    wire.task(&task, &WAITING).await;
    assert_eq!(project.results().len(), 1, "what needs no approval has run");
    wire.answer(&task, None, json!({ "decision": "deny", "reason": "not today" })).await;
    wire.task(&task, &DONE).await;
    assert!(project.results()[1].contains("not today") && !project.exists("ran"), "{:?}", project.results());
    let task = project.say(&dormouse, &touch);
    wire.task(&task, &WAITING).await;
    wire.answer(&task, None, json!({ "decision": "approve" })).await;
    wire.task(&task, &DONE).await;
    assert!(project.exists("ran"));
    let kinds: Vec<_> = wire.events(&task).await.into_iter().map(|event| event.event).collect();
    for kind in
        [EventKind::ToolRequested, EventKind::ToolApprovalRequired, EventKind::ToolApproved, EventKind::ToolCompleted]
    {
        assert!(kinds.contains(&kind), "{kind:?} is not in {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_run_with_checked_input_and_skills_are_read_with_their_files() {
    let project = Project::of(&[ADD, ADD_SCRIPT, SKILL, RESOURCE]).await;
    project.make_runnable(ADD_SCRIPT.0);
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let calls = [
        ("math_add", json!({ "a": 1, "b": 2 })),
        ("run_action", json!({ "name": "math.add", "input": { "a": 3, "b": 4 } })),
        ("math_add", json!({ "a": "one" })),
        ("run_action", json!({ "name": "math.sub", "input": {} })),
        ("Skill", json!({ "skill": "review" })),
        ("Skill", json!({ "skill": "review", "resource_path": "references/list.md" })),
        ("Skill", json!({ "skill": "review", "resource_path": "../../../etc/passwd" })),
    ];
    let task = project.say(&dormouse, &calls);
    wire.task(&task, &DONE).await;
    let expected = [
        "math.add got {\"a\":1,\"b\":2} in add",
        "math.add got {\"a\":3,\"b\":4} in add",
        "do not fit the schema",
        "there is no tool `math_sub`; did you mean `math_add`?",
        "Look twice.\n</skill>\n<resources>\nreferences/list.md",
        "One. Two.",
        "has no file",
    ];
    let results = project.results();
    assert_eq!(results.len(), expected.len(), "{results:#?}");
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.contains(expected), "{result} has no {expected}");
    }
    let offered = project.offered();
    assert!(offered.contains(&"math_add".to_owned()) && offered.contains(&"Skill".to_owned()), "{offered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_fails_or_hides_is_the_models_problem_and_not_the_end() {
    let fails = (
        ".openharness/actions/fails/ACTION.yaml",
        "name: fails\ndescription: Fails.\nentry: {command: 'echo reason >&2; exit 4', timeout_seconds: 60}\n",
    );
    let hangs = (
        ".openharness/actions/hangs/ACTION.yaml",
        "name: hangs\ndescription: Hangs.\nentry: {command: \"trap '' TERM; sleep 60\", timeout_seconds: 1}\n",
    );
    let hidden = (
        ".openharness/actions/hidden/ACTION.yaml",
        "name: hidden\ndescription: For people.\nentry: {command: touch ran}\nexpose: {to_llm: false}\n",
    );
    let project = Project::of(&[fails, hangs, hidden]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("fails", json!({})), ("hangs", json!({})), ("hidden", json!({}))]);
    wire.task(&task, &DONE).await;
    let results = project.results();
    assert!(results[0].contains("ended with status 4") && results[0].contains("reason"), "{results:?}");
    assert!(results[1].contains("was ended after 1 second"), "{results:?}");
    assert!(results[2].contains("there is no tool `hidden`"), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_workspace_has_no_tools_whatever_lies_on_its_disk() {
    let settings = (".openharness/settings.yaml", "kind: chat\n");
    let project = Project::of(&[settings, WORKER, ADD, ADD_SCRIPT, SKILL, RESOURCE]).await;
    project.write(".openharness/tools/settings.yaml", "docs: {command: 'touch started'}\n");
    let shown = command(&["workspace", "show", &project.folder(), "--json"]);
    let catalog: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    for part in ["tools", "actions", "skills", "native_tools"] {
        assert_eq!(catalog[part], json!([]), "{part}");
    }
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task =
        project.say(&dormouse, &[("Bash", json!({ "command": "touch ran" })), ("Skill", json!({ "skill": "review" }))]);
    wire.task(&task, &DONE).await;
    assert_eq!(project.offered(), [""; 0], "the model is offered nothing");
    assert!(
        project.results().iter().all(|result| result.contains("no tools can be called")),
        "{:?}",
        project.results()
    );
    assert!(!project.exists("ran") && !project.exists("started"));
    let problems = async || {
        let catalog = wire.get("/v1/x-catalog").await;
        let lines = catalog["data"].as_array().cloned().expect("lines").into_iter();
        lines.filter(|line| line["kind"] == "problem" && line["name"] == ".openharness").collect::<Vec<_>>()
    };
    assert_eq!(problems().await, [Value::Null; 0]);
    project.write(".openharness/settings.yaml", "kind: project\n");
    let told = problems().await;
    assert!(told.len() == 1 && told[0]["enabled"] == false && told[0].to_string().contains("chat"), "{told:?}");
    project.write(".openharness/settings.yaml", settings.1);
    assert_eq!(problems().await, [Value::Null; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_is_to_become_a_chat_workspace_stays_one_and_says_so() {
    let settings = ".openharness/settings.yaml";
    let project = Project::of(&[(settings, "kind: project\n"), WORKER]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    wire.task(&project.say(&dormouse, &[]), &DONE).await;
    project.write(settings, "kind: chat\n");
    let catalog = wire.get("/v1/x-catalog").await;
    let lines = catalog["data"].as_array().expect("lines");
    let told = lines.iter().find(|line| line["kind"] == "problem" && line["name"] == ".openharness");
    let reason = told.map(|line| line["reasons"].to_string()).unwrap_or_default();
    assert!(reason.contains("is a `project` workspace and stays one"), "{catalog}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_chat_workspace_no_file_is_written_and_no_memory_told() {
    let settings = (".openharness/settings.yaml", "kind: chat\nengine: {workspace_memory: {enabled: true}}\n");
    let project = Project::of(&[settings, (".openharness/memory/MEMORY.md", "The cat is grey.\n")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[]);
    wire.task(&task, &DONE).await;
    let told = project.instructions();
    assert!(told.contains("Project rules.") && !told.contains("The cat is grey."), "{told}");
    let workspace = wire.get("/v1/workspaces").await["data"][0]["id"].as_str().expect("an id").to_owned();
    let files = format!("/v1/workspaces/{workspace}/files");
    let (status, refusal) = wire.send((Method::PUT, &files), "w", &json!({ "path": "a.txt", "content": "x" })).await;
    assert_eq!((status, &refusal["error"]["details"]["reason"]), (403, &json!("workspace_read_only")), "{refusal}");
    let (status, refusal) = wire.send((Method::DELETE, &format!("{files}?path=a.txt")), "d", &json!({})).await;
    assert_eq!(status, 403, "{refusal}");
    for (number, slip) in
        ["kind: Project\n", "kind: [project]\n", "kind: project\n", "kind:\n", ": {"].iter().enumerate()
    {
        project.write(".openharness/settings.yaml", slip);
        let key = format!("slip-{number}");
        let (status, refusal) =
            wire.send((Method::PUT, &files), &key, &json!({ "path": "a.txt", "content": "x" })).await;
        assert_eq!(status, 403, "it stays one, whatever its settings say: {slip}: {refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_would_pass_for_a_native_one_is_left_out() {
    let impostor = (
        ".openharness/tools/settings.yaml",
        "Read:\n  http: {method: POST, url: 'http://127.0.0.1:9/', description: Reads.}\n\
         x:\n  http: {method: POST, url: 'http://127.0.0.1:9/'}\n  expose: {tool_prefix: ''}\n",
    );
    let project = Project::of(&[impostor, (".openharness/agents/assistant.md", "---\n{}\n---\nWork.\n")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("Read", json!({ "file_path": "x" }))]);
    wire.task(&task, &DONE).await;
    assert_eq!(project.offered(), ["x"]);
    assert!(project.results()[0].contains("there is no tool `Read`"), "{:?}", project.results());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_name_another_one_has_is_told_with_what_helps() {
    let twins = (
        ".openharness/tools/settings.yaml",
        "x:\n  http: {method: POST, url: 'http://127.0.0.1:9/', description: One.}\n  expose: {tool_prefix: a}\n\
         a_x:\n  http: {method: POST, url: 'http://127.0.0.1:9/', description: Another.}\n",
    );
    let project = Project::of(&[twins, SKILL, (".openharness/agents/assistant.md", "---\n{}\n---\nWork.\n")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("Skill", json!({ "skill": "review" }))]);
    wire.task(&task, &DONE).await;
    let events = wire.events(&task).await;
    let told = events.iter().find(|event| event.event.as_str() == "vendor.dormouse.tools_missing");
    let told = &told.expect("what is missing is told").payload["missing"];
    let reason = "`a_x` has the name of `a.x` of `x`, which counts; give `a_x` a `tool_prefix`";
    assert_eq!(told, &json!([{ "source": "a_x", "reason": reason }]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_mistake_disables_is_told_to_who_follows_a_run_without_it() {
    let servers = (
        ".openharness/tools/settings.yaml",
        "docs:\n  url: http://127.0.0.1:9/mcp\n  command: x\n\
         off:\n  enabled: false\n  url: http://127.0.0.1:9/mcp\n",
    );
    let project = Project::of(&[servers, SKILL, (".openharness/agents/assistant.md", "---\n{}\n---\nWork.\n")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("Skill", json!({ "skill": "review" }))]);
    wire.task(&task, &DONE).await;
    let events = wire.events(&task).await;
    let told: Vec<_> = events.iter().filter(|event| event.event.as_str() == "vendor.dormouse.tools_missing").collect();
    let missing = told.first().expect("what is missing is told").payload["missing"].as_array().expect("a list");
    let reason = missing[0]["reason"].as_str().expect("a reason");
    assert_eq!((told.len(), missing.len(), &missing[0]["source"]), (1, 1, &json!("docs")));
    let why = "it is disabled: tool server `docs` has more than one of `command`, `url`";
    assert!(reason.starts_with(why), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_one_definition_disables_that_one_alone() {
    let project = Project::of(&[
        ADD,
        (".openharness/actions/bad/ACTION.yaml", "name: bad\ndescription: x\nentry: {comand: x}\n"),
        (".openharness/skills/empty/SKILL.md", "---\nname: empty\n---\n"),
        SKILL,
    ])
    .await;
    let checked = command(&["workspace", "check", &project.folder()]);
    let told = String::from_utf8(checked.stdout).expect("text");
    assert_eq!(checked.status.code(), Some(3), "{told}");
    assert!(
        told.contains("bad/ACTION.yaml:3: error: `entry` has no field `comand`: did you mean `command`?"),
        "{told}"
    );
    assert!(told.contains("the skill `empty` has no instructions"), "{told}");
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("Skill", json!({ "skill": "review" }))]);
    wire.task(&task, &DONE).await;
    assert!(project.results()[0].contains("Look twice"), "{:?}", project.results());
    assert_eq!(project.offered(), ["math_add", "Skill"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_amid_a_command_asks_a_person_whether_it_happened() {
    let project = Project::of(&[WORKER]).await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[("Bash", json!({ "command": "echo once >> count; sleep 30" }))]);
    project.eventually_exists("count").await;
    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    wire.task(&task, &WAITING).await;
    wire.answer(&task, None, json!({ "decision": "happened" })).await;
    wire.task(&task, &DONE).await;
    assert_eq!(fs::read_to_string(project.path("count")).expect("a file"), "once\n", "it is not run twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_with_the_runs_of_another_workspace_is_told_of_at_the_start() {
    let (project, other) = (Project::of(&[]).await, Project::of(&[]).await);
    let place = tempfile::tempdir().expect("a folder");
    let serve = |folder: &str| Dormouse::start_with(place.path(), &["--workspace", folder, "--no-tour"]);
    let told = "the data folder has the runs of another workspace";
    for again in 0..2 {
        let dormouse = serve(&project.folder());
        assert!(!dormouse.logged().contains(told), "start {again}: {}", dormouse.logged());
    }
    let dormouse = serve(&other.folder());
    eventually("it is told", || dormouse.logged().contains(told)).await;
}

/// The agents would have the keys of the server among their files.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_that_is_the_workspace_or_around_it_is_refused() {
    let project = Project::of(&[]).await;
    let around = project.path("").parent().expect("a folder").to_owned();
    std::os::unix::fs::symlink(project.path(""), around.join("other")).expect("a link");
    let before = fs::read_dir(project.path("")).expect("a folder").count();
    for data in [project.path(""), around.join("other"), around] {
        let mut dev = program();
        dev.args(["dev", "--port", "0", "--no-tour", "--workspace", &project.folder(), "--data"]).arg(&data);
        let refused = dev.output().expect("it runs");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && told.contains("or a folder around it"), "{refused:?}");
    }
    assert_eq!(fs::read_dir(project.path("")).expect("a folder").count(), before, "nothing is made");
}

#[test]
fn the_sound_parts_are_what_every_test_begins_with() {
    assert!(SOUND.iter().all(|(path, _)| path.starts_with(".openharness/") || *path == "AGENTS.md"));
}

#[tokio::test(flavor = "multi_thread")]
async fn instructions_are_composed_as_the_workspace_says() {
    let prompts = "base: Base.\nllm_optimized: {providers: {openai-compatible: For this provider.}}\n\
                   compose: {order: [base, agent, llm_optimized, project_agents_md]}\n";
    let project = Project::of(&[(".openharness/prompts.yaml", prompts)]).await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[]);
    Wire::of(&dormouse).task(&task, &DONE).await;
    let expected =
        "Base.\n\nWork.\n\nFor this provider.\n\n<project_instructions>\nProject rules.\n\n</project_instructions>";
    assert_eq!(project.instructions(), expected);
}
