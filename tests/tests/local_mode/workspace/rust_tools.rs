use std::path::Path;
use std::process::{Command, Output};

use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use super::{DONE, WAITING};
use crate::assistant::world::{Wire, command};
use crate::process::{Dormouse, program_of, text};
use crate::workspace::guest::Guest;
use crate::workspace::world::Project;

/// A program with tools in Rust.
const STOCKED: &str = env!("CARGO_BIN_EXE_stocked");
const CLERK: (&str, &str) = (
    ".openharness/agents/assistant.md",
    "---\ndescription: Minds the shop\ntools: {external: [shop]}\npolicy: {approval: manual}\n---\nWork.\n",
);
const TOOLS: &str = ".openharness/tools/settings.yaml";
const SHOP: (&str, &str) = (TOOLS, "shop:\n  rust: stock\n  expose: {tool_prefix: shop, exclude: [burn]}\n");

/// What the program says of the folder.
fn asked(what: &str, project: &Project) -> Output {
    let mut asked: Command = program_of(Path::new(STOCKED));
    asked.args(["workspace", what, &project.folder()]).output().expect("it runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Why the source of tools cannot be used, as the catalog tells it.
async fn reasons(dormouse: &Dormouse) -> Value {
    let catalog = Wire::of(dormouse).get("/v1/x-catalog").await;
    let lines = catalog["data"].as_array().cloned().unwrap_or_default();
    let line = lines.into_iter().find(|line| line["kind"] == "tool" && line["name"] == "shop").expect("a line");
    assert_eq!(line["enabled"], line["reasons"] == json!([]), "{line}");
    line["reasons"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_folder_call_tools_in_rust_of_the_program_as_those_of_servers() {
    let project = Project::of(&[CLERK, SHOP]).await;
    let (checked, shown) = (asked("check", &project), asked("show", &project));
    assert!(checked.status.success() && printed(&checked).contains("1 of 1 agents can run"), "{checked:?}");
    assert!(!printed(&checked).contains(TOOLS), "nothing is wrong with the tools: {checked:?}");
    assert!(printed(&shown).contains("tools in Rust `stock`"), "{shown:?}");
    let dormouse = project.serve_by(STOCKED);
    assert_eq!(reasons(&dormouse).await, json!([]));
    let calls = [
        ("shop_count", json!({ "item": "lamp" })),
        ("shop_count", json!({ "item": 7 })),
        ("shop_count", json!({ "item": "sofa" })),
        ("shop_burn", json!({})),
        ("shop_order", json!({ "item": "lamp" })),
    ];
    let task = project.say(&dormouse, &calls);
    Wire::of(&dormouse).task(&task, &WAITING).await;
    assert_eq!(project.offered().iter().filter(|name| name.starts_with("shop_")).count(), 2, "{:?}", project.offered());
    let results = project.results();
    let expected = ["7", "item", "there is no item `sofa`", "there is no tool `shop_burn`"];
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.contains(expected), "{expected}: {results:?}");
    }
    assert_eq!(results.len(), expected.len(), "what changes something waits: {results:?}");

    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    let (status, answered) = wire.answer(&task, None, json!({ "decision": "approve" })).await;
    assert!(status < 300, "{status}: {answered}");
    wire.task(&task, &DONE).await;
    assert!(project.results()[4].contains("ordered a lamp"), "{:?}", project.results());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_the_tools_in_rust_serves_the_agents_without_them_and_says_what_to_do() {
    let project = Project::of(&[CLERK, SHOP]).await;
    let remedy = "run that of the crate which registers `stock` with `Agents::tools`";
    let checked = command(&["workspace", "check", &project.folder()]);
    assert_eq!(checked.status.code(), Some(0), "it may be meant for another program: {checked:?}");
    let told = printed(&checked);
    assert!(told.contains(&format!("{TOOLS}:2: warning: tool server `shop` is left out: ")), "{told}");
    assert!(told.contains(remedy), "{told}");
    let dormouse = project.serve();
    assert!(dormouse.logged().contains(remedy), "{}", dormouse.logged());
    assert!(reasons(&dormouse).await.to_string().contains(remedy));
    let task = project.say(&dormouse, &[("shop_count", json!({ "item": "lamp" }))]);
    Wire::of(&dormouse).task(&task, &[TaskStatus::Completed]).await;
    assert!(project.results()[0].contains("there is no tool `shop_count`"), "{:?}", project.results());

    project.write(TOOLS, "shop:\n  rust: stok\n");
    let checked = asked("check", &project);
    assert_eq!(checked.status.code(), Some(3), "{checked:?}");
    let told = printed(&checked);
    assert!(told.contains(&format!("{TOOLS}:2: error: no tools in Rust are registered as `stok`")), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_tools_alone_says_that_nobody_can_call_them_where_no_folder_is_served() {
    let place = tempfile::tempdir().expect("a folder");
    let dormouse = Dormouse::start_by(STOCKED, place.path(), &["--no-tour"]);
    let told = dormouse.logged();
    assert!(
        told.contains("no agent can call the tools in Rust `stock`") && told.contains("--workspace FOLDER"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_in_files_of_a_stored_workspace_have_no_tools_in_rust_of_the_program() {
    let project = Project::of(&[CLERK, SHOP]).await;
    let dormouse = project.serve_by(STOCKED);
    let guest = Guest::of(&dormouse);
    let mine = (".openharness/agents/mine.md", "---\nmodel: workspace/main\ntools: {external: [shop]}\n---\nWork.\n");
    let workspace = guest.workspace(&[mine, (TOOLS, "shop: {rust: stock}\n")]).await;
    let said = guest.reasons(&workspace, "tool", "shop").await;
    assert!(said.contains("it names tools of the server's program"), "{said}");
    let session = guest.session(&workspace).await;
    let task = guest.run(&session, Some("persona_mine"), &[("count", json!({ "item": "lamp" }))]).await;
    assert_eq!(text(&task, "status"), "COMPLETED", "{task}");
    assert!(project.results()[0].contains("there is no tool `count`"), "{:?}", project.results());
}
