use serde_json::{Value, json};

use super::{ADD, ADD_SCRIPT, RESOURCE, SKILL};
use crate::assistant::world::{Wire, command};
use crate::workspace::world::Project;

const DESK: (&str, &str) = (
    ".openharness/tools/settings.yaml",
    "book:\n  http:\n    method: POST\n    url: http://127.0.0.1:9/book\n    description: Books a room.\n",
);
const WORKER: (&str, &str) =
    (".openharness/agents/assistant.md", "---\ntools: {native: [Bash, Read]}\nsubagents: [helper]\n---\nWork.\n");
const HELPER: (&str, &str) =
    (".openharness/agents/helper.md", "---\ndescription: Helps\nmode: subagent\ntools: {native: [Grep]}\n---\nHelp.\n");
const GHOST: (&str, &str) =
    (".openharness/agents/ghost.md", "---\nhidden: true\ntools: {native: [Glob]}\n---\nHaunt.\n");

/// The values of `field` in the list at `path`, in order.
async fn listed(wire: &Wire<'_>, path: &str, field: &str) -> Vec<String> {
    let list = wire.get(path).await;
    let all = list["data"].as_array().unwrap_or_else(|| panic!("{path} is no list: {list}"));
    let mut values: Vec<String> = all.iter().map(|one| one[field].as_str().unwrap_or_default().to_owned()).collect();
    values.sort();
    values
}

/// The names of `kind` in the catalog that can be used, and those that cannot.
async fn declared(wire: &Wire<'_>, kind: &str) -> (Vec<Value>, Vec<Value>) {
    let catalog = wire.get("/v1/x-catalog").await;
    let all = catalog["data"].as_array().cloned().expect("a list").into_iter().filter(|one| one["kind"] == kind);
    let (usable, other): (Vec<Value>, Vec<Value>) = all.partition(|one| one["enabled"] == true);
    let names = |lines: Vec<Value>| lines.into_iter().map(|line| line["name"].clone()).collect();
    (names(usable), names(other))
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_show_the_tools_skills_and_agents_that_there_are_and_follow_the_folder() {
    let project = Project::of(&[WORKER, HELPER, GHOST, DESK, ADD, ADD_SCRIPT, SKILL, RESOURCE]).await;
    project.make_runnable(ADD_SCRIPT.0);
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    assert_eq!(
        listed(&wire, "/v1/tools", "name").await,
        ["Bash", "Grep", "Read", "Skill", "SubAgent", "book", "math_add"],
        "what agents that are shown may call"
    );
    let tool = wire.get("/v1/tools/tool_math_add").await;
    assert_eq!(tool["input_schema"]["required"], json!(["a", "b"]));
    assert_eq!(listed(&wire, "/v1/skills", "id").await, ["skill_assistant", "skill_review.md"]);
    assert_eq!(wire.get("/v1/skills/skill_review.md").await["description"], "How to review");
    assert_eq!(listed(&wire, "/v1/personas", "name").await, ["assistant"]);
    let assistant = wire.get("/v1/personas/persona_assistant").await;
    let tools = ["tool_Bash", "tool_Read", "tool_Skill", "tool_SubAgent", "tool_book", "tool_math_add"];
    assert_eq!(assistant["tools"], json!(tools), "its own, by their ids");
    assert_eq!((&assistant["handoffs"], &assistant["capabilities"]), (&json!(["helper"]), &json!(["skill_review.md"])));
    assert!(assistant["model_policy"]["model"].is_string(), "{assistant}");
    assert_eq!(wire.get("/v1/personas/persona_ghost").await["name"], "ghost", "who knows its name may use it");
    assert_eq!(declared(&wire, "agent").await, (vec![json!("assistant")], vec![]));
    assert_eq!(declared(&wire, "subagent").await, (vec![json!("helper")], vec![]));
    assert_eq!(declared(&wire, "tier").await, (vec![json!("local")], vec![]));

    project.write(".openharness/agents/late.md", "---\ndescription: Came late\nmodel: workspace/nothing\n---\nWork.\n");
    project.write(".openharness/skills/other/SKILL.md", "---\ndescription: Another\n---\nDo.\n");
    assert_eq!(declared(&wire, "agent").await, (vec![json!("assistant")], vec![json!("late")]));
    assert_eq!(declared(&wire, "skill").await.0, ["other", "review"]);
    assert!(listed(&wire, "/v1/skills", "id").await.contains(&"skill_other.md".to_owned()));
}

#[tokio::test]
async fn the_command_line_shows_subagents_and_where_commands_work() {
    let project = Project::of(&[WORKER, HELPER, GHOST]).await;
    let shown = String::from_utf8(command(&["workspace", "show", &project.folder()]).stdout).expect("text");
    assert!(shown.contains("tier local\n") && shown.contains("  helper (subagent)  Helps\n"), "{shown}");
    assert!(shown.contains("  helper (subagent)  Helps\n    no call waits for a person\n"), "{shown}");
    assert!(!shown.contains("ghost"), "{shown}");
}

#[tokio::test]
async fn the_command_line_shows_mistakes_in_what_is_in_no_list() {
    let settings = (".openharness/settings.yaml", "default_agent: asistant\n");
    let ghost = (GHOST.0, "---\nhidden: true\nmodel: workspace/mian\n---\nHaunt.\n");
    let prompts = (".openharness/prompts.yaml", "base: {file: prompts/gone.md}\n");
    let late = (".openharness/agents/late.md", "---\nmodel: workspace/mian\n---\nWork.\n");
    let project = Project::of(&[settings, ghost, prompts, late]).await;
    project.write("AGENTS.md", &"x".repeat(300_000));
    let shown = String::from_utf8(command(&["workspace", "show", &project.folder()]).stdout).expect("text");
    let checked = project.check();
    for place in ["AGENTS.md: error", ".openharness/settings.yaml:1: error", ".openharness/prompts.yaml:1: error"] {
        assert!(checked.contains(place) && shown.matches(place).count() == 1, "{place}: {checked}\n{shown}");
    }
    assert!(shown.contains(&format!("{}:3: error: there is no model `workspace/mian`", ghost.0)), "{shown}");
    let reason = "    disabled: there is no model `workspace/mian`: did you mean `main`?\n";
    assert!(shown.contains(reason) && !shown.contains(late.0), "it is told once: {shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_set_is_told_before_anything_runs_and_is_no_mistake() {
    let servers = "docs:\n  url: http://127.0.0.1:9/mcp\n  headers: {authorization: '${secrets.DORMOUSE_NOT_THERE}'}\n\
                   off:\n  enabled: false\n  command: x\n  environment: {A: '${env.DORMOUSE_NOT_ASKED}'}\n";
    let project = Project::of(&[(".openharness/tools/settings.yaml", servers)]).await;
    let models = project.read(".openharness/models/models.yaml");
    project.write(".openharness/models/models.yaml", &models.replace("key: none", "key: ${env.DORMOUSE_NOT_SET}"));
    project.describe_model("spare: {provider: openai, name: x, key: '${env.DORMOUSE_NOT_ASKED}'}\n");
    project.write(".openharness/agents/assistant.md", "---\nmodel: workspace/main\n---\nWork.\n");
    let checked = command(&["workspace", "check", &project.folder()]);
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let shown = command(&["workspace", "show", &project.folder()]);
    let dormouse = project.serve();
    let texts = [checked.stdout, shown.stdout].map(|text| String::from_utf8(text).expect("text"));
    for told in texts.into_iter().chain([dormouse.logged()]) {
        for note in [
            "note: model `workspace/main`: the variable `DORMOUSE_NOT_SET` is not set in the environment: `export",
            "note: tool server `docs`: there is no secret `DORMOUSE_NOT_THERE`: ",
        ] {
            assert_eq!(told.matches(note).count(), 1, "{note}: {told}");
        }
        assert!(!told.contains("DORMOUSE_NOT_ASKED"), "nobody asks for it: {told}");
    }
}
