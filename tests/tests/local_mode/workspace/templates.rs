//! Workspaces to begin with, and agents that a platform brings to every workspace.

use std::fs;
use std::path::Path;

use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use super::world::Project;
use super::{DONE, WAITING};
use crate::assistant::world::Wire;
use crate::process::{program, text};

fn made(template: &str, folder: &Path) {
    let made = program().args(["new", "--template", template]).arg(folder).output().expect("it runs");
    assert!(made.status.success(), "{made:?}");
    let checked = program().args(["workspace", "check"]).arg(folder).output().expect("it runs");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && !said.contains("warning"), "{template}: {said}");
}

#[test]
fn every_template_is_sound_and_replaces_nothing() {
    let place = tempfile::tempdir().expect("a folder");
    for template in ["assistant", "approver", "reviewer"] {
        let folder = place.path().join(template);
        made(template, &folder);
        fs::write(folder.join("AGENTS.md"), "mine").expect("a file");
        let again = program().args(["new", "--template", template]).arg(&folder).output().expect("it runs");
        assert!(
            !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("is there already"),
            "{again:?}"
        );
        assert_eq!(fs::read_to_string(folder.join("AGENTS.md")).expect("a text"), "mine");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approver_pays_what_was_approved_and_nothing_else() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("approver");
    made("approver", &folder);
    let paths = [
        "AGENTS.md",
        ".openharness/settings.yaml",
        ".openharness/agents/approver.md",
        ".openharness/actions/pay/ACTION.yaml",
        ".openharness/actions/pay/pay.sh",
    ];
    let texts = paths.map(|path| (path, fs::read_to_string(folder.join(path)).expect("a text")));
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let project = Project::of(&files).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let pay = |invoice: &str| {
        let arguments = json!({ "invoice": invoice, "payee": "Example Ltd", "amount_cents": 12_000 });
        let said = format!("script {}", json!([["pay", arguments]]));
        let sent = dormouse.command(&["send", "--persona", "approver", "--json", &said]).output().expect("it runs");
        assert!(sent.status.success(), "{sent:?}");
        text(&serde_json::from_slice::<Value>(&sent.stdout).expect("a task"), "id").to_owned()
    };
    let (first, second) = (pay("4711"), pay("4712"));
    for task in [&first, &second] {
        assert_eq!(wire.task(task, &WAITING).await.status, TaskStatus::AuthRequired);
    }
    assert!(!project.exists("ledger.csv"), "nothing is paid before anybody approved");
    assert_eq!(wire.answer(&first, None, json!({ "approved": true })).await.0, 201);
    wire.task(&first, &DONE).await;
    assert_eq!(wire.answer(&second, None, json!({ "approved": false, "reason": "twice" })).await.0, 201);
    wire.task(&second, &DONE).await;
    let ledger = project.read("ledger.csv");
    assert!(ledger.contains("4711") && !ledger.contains("4712"), "{ledger}");
}

#[test]
fn agents_of_a_platform_are_merged_one_by_one_and_the_workspace_wins() {
    let place = tempfile::tempdir().expect("a folder");
    let (workspace, platform) = (place.path().join("workspace"), place.path().join("platform"));
    made("assistant", &workspace);
    made("reviewer", &platform);
    let mine = "---\ndescription: Ours.\nmodel: default\n---\nOurs.\n";
    fs::write(workspace.join(".openharness/agents/explainer.md"), mine).expect("a file");
    fs::create_dir_all(platform.join(".openharness/models")).expect("a folder");
    let large = "large:\n  provider: openai\n  name: gpt-large\n  key: ${env.OPENAI_API_KEY}\n";
    fs::write(platform.join(".openharness/models/large.yaml"), large).expect("a file");
    let other = "---\ndescription: Asks the model of the platform.\nmodel: platform/large\n---\nAsk.\n";
    fs::write(workspace.join(".openharness/agents/other.md"), other).expect("a file");
    let shown =
        program().args(["workspace", "show", "--json"]).arg(&workspace).env("DORMOUSE_PLATFORM", &platform).output();
    let shown: Value = serde_json::from_slice(&shown.expect("it runs").stdout).expect("one JSON document");
    let told = |name: &str| {
        let agents = shown["agents"].as_array().expect("agents");
        let found = agents.iter().find(|agent| agent["name"] == name).unwrap_or_else(|| panic!("{name}: {shown}"));
        found["description"].as_str().expect("a text").to_owned()
    };
    assert_eq!(told("explainer"), "Ours.", "the workspace wins");
    assert!(told("reviewer").starts_with("Reviews changes") && told("assistant").starts_with("Answers"), "one by one");
    let models = shown["models"].as_array().expect("models");
    assert!(models.iter().any(|model| model["name"] == "platform/large" && model["enabled"] == true), "{shown}");
    let agents = shown["agents"].as_array().expect("agents");
    assert!(agents.iter().any(|agent| agent["name"] == "other" && agent["enabled"] == true), "{shown}");
    let alone = program().args(["workspace", "show", "--json"]).arg(&workspace).output().expect("it runs");
    assert!(!String::from_utf8_lossy(&alone.stdout).contains("reviewer"));
}

#[test]
fn a_mistake_in_a_file_of_the_platform_is_told_with_its_path_there() {
    let place = tempfile::tempdir().expect("a folder");
    let (workspace, platform) = (place.path().join("workspace"), place.path().join("platform"));
    made("assistant", &workspace);
    fs::create_dir_all(platform.join(".openharness/agents")).expect("a folder");
    let broken = platform.join(".openharness/agents/broken.md");
    fs::write(&broken, "---\nmode: 7\n---\nHi.\n").expect("a file");
    let check = |arguments: &[&str]| {
        let mut asked = program();
        asked.args(["workspace", "check"]).args(arguments).arg(&workspace).env("DORMOUSE_PLATFORM", &platform);
        let ran = asked.output().expect("it runs");
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let (status, said) = check(&[]);
    let expected = format!("{}:2: error", broken.display());
    assert!(status == Some(3) && said.lines().any(|line| line.starts_with(&expected)), "{expected}: {said}");
    let told: Value = serde_json::from_str(&check(&["--json"]).1).expect("JSON");
    let files: Vec<&Value> = told["problems"].as_array().expect("problems").iter().map(|one| &one["file"]).collect();
    assert_eq!(files, [&Value::from(broken.display().to_string())]);
}

#[test]
fn a_template_of_the_platform_imports_once_and_nothing_is_imported_later() {
    let place = tempfile::tempdir().expect("a folder");
    let (desk, platform) = (place.path().join("desk"), place.path().join("platform"));
    let put = |path: &str, text: &str| {
        let path = platform.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    };
    put("templates/desk/AGENTS.md", "Be brief.\n");
    put("templates/desk/.openharness/agents/clerk.md", "---\nmodel: platform/large\n---\nAnswer.\n");
    put("templates/desk/.openharness/settings.yaml", "imports: {skills: [filing], tools: [docs]}\n");
    put(".openharness/models/large.yaml", "large: {provider: openai, name: gpt-large, key: '${env.OPENAI_API_KEY}'}\n");
    put(".openharness/skills/filing/SKILL.md", "---\nname: filing\ndescription: Files papers.\n---\nBy date.\n");
    put(".openharness/tools/settings.yaml", "docs:\n  url: https://docs.example.com/mcp\n");
    let run = |arguments: &[&str]| {
        let ran = program().args(arguments).arg(&desk).env("DORMOUSE_PLATFORM", &platform).output().expect("it runs");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        (ran.status.success(), said)
    };
    let (made, said) = run(&["new", "--template", "desk"]);
    assert!(made && !said.contains("models.yaml"), "it has no models of its own: {said}");
    fs::remove_dir_all(platform.join(".openharness/skills")).expect("it was there");
    fs::remove_dir_all(platform.join("templates")).expect("it was there");
    let (shown, said) = run(&["workspace", "show", "--json"]);
    let catalog: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert!(shown && catalog["skills"][0]["name"] == "filing" && catalog["tools"][0]["name"] == "docs", "{catalog}");
    fs::remove_dir_all(desk.join(".openharness/skills")).expect("it was there");
    let (_, said) = run(&["workspace", "check"]);
    assert!(said.contains("there is no skill `filing` here, and none is imported when a workspace runs"), "{said}");
    fs::remove_dir_all(&desk).expect("it was there");
    put("templates/desk/.openharness/settings.yaml", "imports: {skills: [filing]}\n");
    let (made, said) = run(&["new", "--template", "desk"]);
    assert!(!made && said.contains("the platform has no skill `filing`") && !desk.exists(), "{said}");
    let (made, said) = run(&["new", "--template", "none"]);
    assert!(!made && said.contains("there are `desk`, `assistant`, `approver`, `reviewer`"), "{said}");
    std::os::unix::fs::symlink(place.path(), platform.join("templates/desk/out")).expect("a link");
    put("templates/large/AGENTS.md", &"x".repeat(1 << 20));
    for flawed in ["desk", "large"] {
        let (made, said) = run(&["new", "--template", flawed]);
        assert!(!made && said.contains(&format!("the template `{flawed}` cannot be used")) && !desk.exists(), "{said}");
    }
    let (made, said) = run(&["new", "--template", "assistant"]);
    assert!(made, "others are none the worse for it: {said}");
}
