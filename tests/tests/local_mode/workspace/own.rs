//! Agents that the files of a workspace declare, which is made and written over the protocol.

use reqwest::Method;
use serde_json::{Value, json};

use super::guest::Guest;
use super::world::Project;
use crate::process::{Dormouse, text};
use crate::vault::deliver;

const MINE: (&str, &str) = (
    ".openharness/agents/mine.md",
    "---\ndescription: Works here\nmodel: workspace/main\n\
     tools: {native: [Read, Write, Edit, Glob, Grep, WebFetch, TodoWrite]}\n---\nWork as agreed.\n",
);
const RULES: (&str, &str) = ("AGENTS.md", "Rules of the desk.\n");
const DEFAULT: (&str, &str) = (".openharness/settings.yaml", "default_agent: mine\n");

fn names(listed: &Value) -> Vec<&str> {
    listed["data"].as_array().expect("a list").iter().map(|one| text(one, "name")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_files_works_in_the_files_of_its_workspace() {
    let project = Project::of(&[("served.txt", "of the folder")]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let workspace = guest.workspace(&[MINE, RULES, DEFAULT, ("notes/a.txt", "one\ntwo\n")]).await;
    let session = guest.session(&workspace).await;
    let calls = [
        ("Glob", json!({ "pattern": "**/*.txt" })),
        ("Read", json!({ "file_path": "notes/a.txt" })),
        ("Edit", json!({ "file_path": "notes/a.txt", "old_string": "two", "new_string": "2" })),
        ("Write", json!({ "file_path": "notes/new.txt", "content": "three" })),
        ("Grep", json!({ "pattern": "2|three" })),
        ("Read", json!({ "file_path": "served.txt" })),
        ("Read", json!({ "file_path": "../project/served.txt" })),
        ("Write", json!({ "file_path": ".openharness/agents/other.md", "content": "x" })),
        ("Bash", json!({ "command": "pwd" })),
    ];
    let task = guest.run(&session, None, &calls).await;
    assert_eq!((text(&task, "status"), text(&task, "persona_id")), ("COMPLETED", "persona_mine"), "{task}");
    let results = project.results();
    let expected = [
        "notes/a.txt",
        "two",
        "is changed in one place",
        "notes/new.txt",
        "notes/a.txt:2:2",
        "there is no `served.txt`",
        "contains `..`",
        "changed by people",
        "Bash",
    ];
    assert_eq!(results.len(), expected.len(), "{results:#?}");
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.contains(expected), "{expected}: {results:#?}");
    }
    assert!(!project.offered().iter().any(|name| name == "Bash"), "{:?}", project.offered());
    let told = project.instructions();
    assert!(told.contains("Rules of the desk.") && told.contains("Work as agreed."), "{told}");
    assert!(!told.contains("Project rules."), "{told}");
    assert_eq!(guest.file(&workspace, "notes/a.txt").await, (200, "one\n2\n".to_owned()));
    assert_eq!(guest.file(&workspace, "notes/new.txt").await, (200, "three".to_owned()));
    assert!(!project.exists("notes"), "the served folder is not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_workspace_tenant_or_bound_key_finds_no_agent_of_files() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let (mine, other) = (guest.workspace(&[MINE, RULES]).await, guest.workspace(&[RULES]).await);
    let at = |workspace: &str| format!("/v1/personas?workspace_id={workspace}");
    assert_eq!(names(&guest.got("/v1/personas").await), ["assistant"]);
    assert_eq!(names(&guest.got(&at(&mine)).await), ["assistant", "mine"]);
    assert_eq!(names(&guest.got(&at(&other)).await), ["assistant"]);
    let one = |workspace: &str| format!("/v1/personas/persona_mine?workspace_id={workspace}");
    assert_eq!(text(&guest.got(&one(&mine)).await, "description"), "Works here");
    assert_eq!(guest.ask(Method::GET, &one(&other), &Value::Null).await.0, 404);
    assert_eq!(guest.ask(Method::GET, "/v1/personas/persona_mine", &Value::Null).await.0, 404);
    let session = guest.session(&other).await;
    let (status, refused) = guest.submit(&session, Some("persona_mine"), &[]).await;
    assert!(status == 404 && refused.to_string().contains("run there alone"), "{status} {refused}");
    let body = json!({ "workspace_id": other, "persona_id": "persona_mine" });
    assert_eq!(guest.ask(Method::POST, "/v1/sessions", &body).await.0, 404);
    let task = guest.run(&session, None, &[]).await;
    assert_eq!(text(&task, "persona_id"), "persona_assistant", "without agents of its own that of the server works");

    let bound = Guest::with_key(&dormouse, &["--workspace", &other]);
    let stranger = Guest::with_key(&dormouse, &["--tenant", "elsewhere"]);
    for asker in [&bound, &stranger] {
        for target in [at(&mine), one(&mine), format!("/v1/x-catalog?workspace_id={mine}")] {
            assert_eq!(asker.ask(Method::GET, &target, &Value::Null).await.0, 404, "{target}");
        }
        assert_eq!(names(&asker.got("/v1/personas").await), ["assistant"]);
    }
    assert_eq!(bound.submit(&bound.session(&other).await, Some("persona_mine"), &[]).await.0, 404);
    let at_home = Guest::with_key(&dormouse, &["--workspace", &mine]);
    let task = at_home.run(&at_home.session(&mine).await, Some("persona_mine"), &[]).await;
    assert_eq!((text(&task, "status"), text(&task, "persona_id")), ("COMPLETED", "persona_mine"), "{task}");
    let (status, _) = guest.ask(Method::POST, "/graphs/mine/turns", &json!({ "state": {} })).await;
    assert_eq!(status, 404, "nobody begins it beside the protocol");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_with_the_files_that_it_began_with_also_after_a_kill() {
    let project = Project::of(&[]).await;
    let mut dormouse = project.serve();
    let asks = "---\nmodel: workspace/main\ntools: {native: [Write]}\npolicy: {approval: {native: [Write]}}\n---\n";
    let guest = Guest::of(&dormouse);
    let agent = MINE.0;
    let workspace = guest.workspace(&[(agent, &format!("{asks}First words.\n")), DEFAULT]).await;
    let session = guest.session(&workspace).await;
    let write = [("Write", json!({ "file_path": "out.txt", "content": "x" }))];
    let task = guest.run(&session, None, &write).await;
    assert_eq!(text(&task, "status"), "AUTH_REQUIRED", "{task}");
    guest.write(&workspace, agent, &format!("{asks}Second words.\n")).await;
    assert_eq!(guest.file(&workspace, "out.txt").await.0, 404);
    dormouse = dormouse.kill_and_restart();
    let guest = Guest::of(&dormouse);
    let id = text(&task, "id");
    let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
    let answer = json!({ "kind": "input", "message": { "role": "user", "parts": parts } });
    let (status, taken) = guest.ask(Method::POST, &format!("/v1/tasks/{id}/messages"), &answer).await;
    assert_eq!(status, 201, "{taken}");
    assert_eq!(text(&guest.settled(id).await, "status"), "COMPLETED");
    assert!(project.instructions().contains("First words."), "{}", project.instructions());
    assert_eq!(guest.file(&workspace, "out.txt").await, (200, "x".to_owned()));
    guest.run(&session, None, &[]).await;
    assert!(project.instructions().contains("Second words."), "{}", project.instructions());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_files_of_a_workspace_may_not_ask_for_is_refused_alone_and_said() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let agent = |fields: &str| format!("---\n{fields}\n---\nWork.\n");
    let (shell, keyed, clouded, looked_up) = (
        agent("model: workspace/main\ntools: {native: [Bash]}"),
        agent("model: workspace/keyed"),
        agent("model: workspace/clouded"),
        agent("model: workspace/looked_up"),
    );
    let models = "keyed: {provider: openai, name: gpt, key: '${secrets.OPENAI}'}\n\
                  clouded: {provider: bedrock, name: some}\n\
                  looked_up: {provider: openai-compatible, name: x, url: 'http://${env.HOST}/v1'}\n";
    let tools = "process: {command: server}\n\
                 headed: {url: 'https://docs.example.com/mcp', headers: {authorization: '${env.HOME}'}}\n\
                 flow: {url: 'https://docs.example.com/mcp', oauth: {token_url: 'https://id.example.com', \
                 client_id: '${secrets.ID}'}}\n\
                 called: {http: {method: GET, url: 'https://example.com/${env.HOME}', description: d}}\n";
    // What stands in the place of the platform's models is no word of the server's.
    let smuggled = "smuggled: {provider: openai-compatible, name: x, url: 'http://x/v1', key: '${env.HOME}'}\n";
    let smuggler = agent("model: platform/smuggled");
    let workspace = guest
        .workspace(&[
            MINE,
            DEFAULT,
            (".openharness/agents/shell.md", &shell),
            (".openharness/agents/keyed.md", &keyed),
            (".openharness/agents/clouded.md", &clouded),
            (".openharness/agents/looked_up.md", &looked_up),
            (".openharness/agents/smuggler.md", &smuggler),
            (".openharness/agents/assistant.md", &agent("model: workspace/main")),
            (".openharness/models/models.yaml", models),
            (".openharness/platform/models/models.yaml", smuggled),
            (".openharness/tools/settings.yaml", tools),
            (".openharness/actions/run/ACTION.yaml", "name: run\ndescription: d\nentry: {command: pwd}\n"),
        ])
        .await;
    let session = guest.session(&workspace).await;
    let agents = [
        ("shell", "files of a workspace run no commands"),
        ("keyed", "it names a key"),
        ("clouded", "with the credentials of the server"),
        ("looked_up", "refers to the environment or to secrets"),
        ("smuggler", "the platform has no model `smuggled`"),
    ];
    for (name, reason) in agents {
        let (status, refused) = guest.submit(&session, Some(&format!("persona_{name}")), &[]).await;
        let said = refused["error"]["message"].as_str().unwrap_or_default();
        assert!((400..500).contains(&status) && said.contains(reason), "{name}: {status} {refused}");
        assert!(guest.reasons(&workspace, "agent", name).await.contains(reason), "{name}");
    }
    for (kind, name, reason) in [
        ("model", "keyed", "it names a key"),
        ("tool", "process", "it is a process"),
        ("tool", "headed", "refers to the environment or to secrets"),
        ("tool", "flow", "refers to the environment or to secrets"),
        ("tool", "called", "refers to the environment or to secrets"),
        ("action", "run", "it is a command"),
    ] {
        let said = guest.reasons(&workspace, kind, name).await;
        assert!(said.contains(reason), "{kind} {name}: {said}");
    }
    let task = guest.run(&session, Some("persona_assistant"), &[]).await;
    assert_eq!(text(&task, "status"), "COMPLETED", "{task}");
    assert!(!project.instructions().contains("Project rules."), "here that of the workspace is meant");
    let task = guest.run(&session, None, &[("run", json!({})), ("run_action", json!({ "name": "run" }))]).await;
    assert_eq!((text(&task, "status"), text(&task, "persona_id")), ("COMPLETED", "persona_mine"), "the others run");
    assert!(!project.results().join("\n").contains(&project.folder()), "{:?}", project.results());

    let hook = "name: guard\nevents: [before_tool_dispatch]\nhandler: {type: command, command: 'true'}\n";
    let guarded = guest.workspace(&[MINE, DEFAULT, (".openharness/hooks/guard.yaml", hook)]).await;
    let session = guest.session(&guarded).await;
    let task = guest.run(&session, None, &[("Glob", json!({ "pattern": "*" }))]).await;
    assert_eq!(text(&task, "status"), "AUTH_REQUIRED", "it may have forbidden the call: {task}");

    let refused = agent("model: workspace/main\ntools: {native: [Bash]}");
    let same = guest.workspace(&[MINE, DEFAULT, (".openharness/agents/assistant.md", &refused)]).await;
    let (status, refused) = guest.submit(&guest.session(&same).await, Some("persona_assistant"), &[]).await;
    assert!(
        status == 422 && refused.to_string().contains("run no commands"),
        "nor does the server's stand in: {refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_files_reach_no_private_address() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let url = project.model.base_url();
    let tools = format!("inner: {{http: {{method: GET, url: '{url}/inner', description: d}}}}\n");
    let models = format!("near: {{provider: openai-compatible, name: x, url: '{url}'}}\n");
    let near = "---\nmodel: workspace/near\n---\nWork.\n";
    let workspace = guest
        .workspace(&[
            MINE,
            DEFAULT,
            (".openharness/tools/settings.yaml", &tools),
            (".openharness/models/models.yaml", &models),
            (".openharness/agents/near.md", near),
        ])
        .await;
    let session = guest.session(&workspace).await;
    let calls = [("inner", json!({})), ("WebFetch", json!({ "url": url }))];
    let task = guest.run(&session, Some("persona_mine"), &calls).await;
    assert_eq!(text(&task, "status"), "COMPLETED", "{task}");
    let results = project.results();
    assert!(results.len() == 2 && results.iter().all(|result| result.contains("address")), "{results:?}");
    let asked = project.model.requests().len();
    let task = guest.run(&session, Some("persona_near"), &[]).await;
    assert_ne!(text(&task, "status"), "COMPLETED", "{task}");
    assert_eq!(project.model.requests().len(), asked, "the model on this machine is not asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_chat_folder_that_is_served_a_project_of_its_own_is_written() {
    let project = Project::of(&[(".openharness/settings.yaml", "kind: chat\n")]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let only_its_agents = [MINE];
    let says_its_kind = [(DEFAULT.0, "kind: project\n"), RULES];
    for (files, status) in [(&only_its_agents[..], 200), (&says_its_kind, 200), (&[RULES], 403), (&[], 403)] {
        let workspace = guest.workspace(files).await;
        let target = format!("/v1/workspaces/{workspace}/files?path=notes.txt");
        let (written, answer) = guest.ask(Method::PUT, &target, &json!({ "content": "x" })).await;
        assert_eq!(written, status, "{files:?}: {answer}");
        let task = guest.submit(&guest.session(&workspace).await, None, &[]).await;
        assert_eq!(task.0, 202, "{files:?}: {}", task.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_workspace_over_the_protocol_has_no_tools_and_stays_one() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let chat = "kind: chat\ndefault_agent: mine\n";
    let workspace = guest.workspace(&[MINE, RULES, (DEFAULT.0, chat)]).await;
    let session = guest.session(&workspace).await;
    let task = guest.run(&session, None, &[("Read", json!({ "file_path": "AGENTS.md" }))]).await;
    assert_eq!(text(&task, "status"), "COMPLETED", "{task}");
    assert!(project.offered().is_empty(), "{:?}", project.offered());
    assert!(!project.results().join("\n").contains("Rules of the desk."), "{:?}", project.results());
    let target = format!("/v1/workspaces/{workspace}/files?path={}", DEFAULT.0);
    let (status, refused) = guest.ask(Method::PUT, &target, &json!({ "content": DEFAULT.1 })).await;
    assert!(status == 403 && refused.to_string().contains("workspace_read_only"), "{status} {refused}");
    assert_eq!(guest.ask(Method::DELETE, &target, &Value::Null).await.0, 403);
    // That of the server has the commands of its folder.
    let (status, refused) = guest.submit(&session, Some("persona_assistant"), &[]).await;
    assert!(status == 422 && refused.to_string().contains("nothing acts"), "{status} {refused}");
    let silent = guest.workspace(&[(DEFAULT.0, "kind: chat\n")]).await;
    let (status, refused) = guest.submit(&guest.session(&silent).await, None, &[]).await;
    assert!(status == 422 && refused.to_string().contains("nothing acts"), "{status} {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_agent_stands_in_for_a_default_one_that_cannot_run() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let shell = (".openharness/agents/shell.md", "---\nmodel: workspace/main\ntools: {native: [Bash]}\n---\nWork.\n");
    for (settings, reason) in
        [("default_agent: shell\n", "run no commands"), ("default_agent: nobody\n", "there is no agent of that name")]
    {
        let workspace = guest.workspace(&[MINE, shell, (DEFAULT.0, settings)]).await;
        let (status, refused) = guest.submit(&guest.session(&workspace).await, None, &[]).await;
        assert!(status == 422 && refused.to_string().contains(reason), "{status} {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_served_folder_the_models_of_the_platform_are_lent() {
    let project = Project::of(&[]).await;
    let place = tempfile::tempdir().expect("a folder");
    let platform: &'static str = project.folder().leak();
    let dormouse = Dormouse::start_in(place.path(), &["--no-tour"], &[("DORMOUSE_PLATFORM", platform)]);
    let guest = Guest::of(&dormouse);
    let other = (MINE.0, "---\nmodel: workspace/nowhere\n---\nWork.\n");
    let (fine, poor) = (guest.workspace(&[MINE, RULES, DEFAULT]).await, guest.workspace(&[other]).await);
    let task = guest.run(&guest.session(&fine).await, None, &[]).await;
    assert_eq!((text(&task, "status"), text(&task, "persona_id")), ("COMPLETED", "persona_mine"), "{task}");
    assert!(project.instructions().contains("Rules of the desk."));
    let (status, refused) = guest.submit(&guest.session(&poor).await, None, &[]).await;
    assert!((400..500).contains(&status) && refused.to_string().contains("no model"), "{status} {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_names_an_agent_that_cannot_be_addressed_is_told_why() {
    let broken = (".openharness/agents/broken.md", "---\npolicy: {max_concurrent_subagents: 40}\n---\nWork.\n");
    let asked = (".openharness/agents/asked.md", "---\nmode: subagent\n---\nWork.\n");
    let project = Project::of(&[broken, asked]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let refused = async |workspace: &str, persona: Option<&str>, reason: &str| {
        let (status, refused) = guest.submit(&guest.session(workspace).await, persona, &[]).await;
        assert!(status == 422 && refused.to_string().contains(reason), "{persona:?}: {status} {refused}");
    };
    let silent = guest.workspace(&[RULES]).await;
    refused(&silent, Some("persona_broken"), "max_concurrent_subagents").await;
    refused(&silent, Some("persona_asked"), "it is a `subagent`").await;
    let (status, none) = guest.submit(&guest.session(&silent).await, Some("persona_nobody"), &[]).await;
    assert!(status == 404 && none.to_string().contains("there is no such persona"), "{status} {none}");

    let helper = (".openharness/agents/helper.md", "---\nmode: subagent\nmodel: workspace/main\n---\nHelp.\n");
    let workspace = guest.workspace(&[MINE, helper, DEFAULT]).await;
    refused(&workspace, Some("persona_helper"), "it is a `subagent`").await;
    refused(&guest.workspace(&[helper]).await, None, "it is a `subagent`").await;
    let task = guest.run(&guest.session(&workspace).await, None, &[]).await;
    assert_eq!(text(&task, "status"), "COMPLETED", "{task}");
    guest.write(&workspace, DEFAULT.0, "kind: chat\n").await;
    for persona in [None, Some("persona_mine"), Some("persona_helper"), Some("persona_assistant")] {
        refused(&workspace, persona, "stays one").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_files_of_a_workspace_are_told_and_no_agent_goes_without_a_part_of_its_instructions() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let settings = "default_agent: mine\ndefault_agnt: good\n";
    let models = "bomb: {provider: openai-compatible, name: x, url: 'https://models.example.com', nme: y}\n";
    let deep = (".openharness/agents/sub/deep.md", "---\n---\nWork.\n");
    let workspace =
        guest.workspace(&[MINE, deep, (DEFAULT.0, settings), (".openharness/models/models.yaml", models)]).await;
    let catalog = guest.got(&format!("/v1/x-catalog?workspace_id={workspace}")).await;
    let told: Vec<String> = catalog["data"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|line| line["kind"] == "problem")
        .map(|line| format!("{}: {}", text(line, "name"), line["reasons"][0]))
        .collect();
    for expected in [
        ".openharness/settings.yaml:2: \"`settings.yaml` has no field `default_agnt`: did you mean `default_agent`?",
        ".openharness/models/models.yaml:1: ",
        ".openharness/agents/sub/deep.md: ",
    ] {
        assert!(told.iter().any(|line| line.starts_with(expected)), "{expected}: {told:#?}");
    }
    let task = guest.run(&guest.session(&workspace).await, None, &[]).await;
    assert_eq!(text(&task, "status"), "COMPLETED", "the agent is whole: {task}");

    let prompts = ".openharness/prompts.yaml";
    for (path, content, reason) in [
        (prompts, "base: {file: prompts/none.md}\n", "prompts.yaml:1"),
        (prompts, "base: [", "prompts.yaml"),
        (prompts, "base: 'in ${env.HOME}'\n", "refers to the environment or to secrets"),
        ("AGENTS.md", "Use ${secrets.KEY}.\n", "refers to the environment or to secrets"),
        (DEFAULT.0, "default_agent: mine\nsystem_prompt: 'in ${env.HOME}'\n", "refers to the environment"),
        (MINE.0, "---\nmodel: workspace/main\n---\nUse ${secrets.KEY}.\n", "refers to the environment or to secrets"),
    ] {
        let files = [MINE, DEFAULT].into_iter().filter(|(known, _)| *known != path).chain([(path, content)]);
        let workspace = guest.workspace(&files.collect::<Vec<_>>()).await;
        let asked = project.model.requests().len();
        for persona in [None, Some("persona_mine")] {
            let (status, refused) = guest.submit(&guest.session(&workspace).await, persona, &[]).await;
            assert!(status == 422 && refused.to_string().contains(reason), "{path} {content}: {status} {refused}");
        }
        assert_eq!(project.model.requests().len(), asked, "{content}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_workspace_are_those_of_its_own_agents() {
    let project = Project::of(&[super::WORKER]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let (mine, silent) = (guest.workspace(&[MINE, DEFAULT]).await, guest.workspace(&[RULES]).await);
    let of = async |workspace: &str| guest.got(&format!("/v1/tools?limit=100&workspace_id={workspace}")).await;
    let listed = of(&mine).await;
    assert!(names(&listed).contains(&"Read") && !names(&listed).contains(&"Bash"), "{listed}");
    assert_eq!(names(&of(&silent).await), [""; 0]);
    assert!(names(&guest.got("/v1/tools?limit=100").await).contains(&"Bash"), "without it those of the server");
    let bash = |query: &str| format!("/v1/tools/tool_Bash{query}");
    assert_eq!(guest.ask(Method::GET, &bash(""), &Value::Null).await.0, 200);
    assert_eq!(guest.ask(Method::GET, &bash(&format!("?workspace_id={mine}")), &Value::Null).await.0, 404);
    let stranger = Guest::with_key(&dormouse, &["--tenant", "elsewhere"]);
    assert_eq!(stranger.ask(Method::GET, &format!("/v1/tools?workspace_id={mine}"), &Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_stand_in_refusals_as_they_are_and_a_file_may_have_256_kib() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let guest = Guest::of(&dormouse);
    let workspace = guest.workspace(&[MINE, DEFAULT, (".openharness/agents/ä.md", "---\n---\nWork.\n")]).await;
    let (status, refused) = guest.submit(&guest.session(&workspace).await, Some("persona_ä"), &[]).await;
    assert!(status == 422 && refused.to_string().contains("the agent `ä`"), "{status} {refused}");
    let target = format!("/v1/workspaces/{workspace}/files?path=large.txt");
    let content = "\"\n".repeat(128 * 1024);
    assert_eq!(guest.ask(Method::PUT, &target, &json!({ "content": content })).await.0, 200);
    assert_eq!(guest.file(&workspace, "large.txt").await, (200, content.clone()));
    let (status, refused) = guest.ask(Method::PUT, &target, &json!({ "content": format!("{content}x") })).await;
    assert!(status == 413 && refused.to_string().contains("262144"), "{status} {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_reach_the_served_folder_are_found_by_its_tenant_alone_unless_they_are_shared() {
    let project = Project::of(&[
        (".openharness/agents/shell.md", "---\nmodel: workspace/main\ntools: {native: [Bash]}\n---\nWork.\n"),
        (".openharness/agents/lead.md", "---\nmodel: workspace/main\nsubagents: [helper]\n---\nAsk.\n"),
        (
            ".openharness/agents/helper.md",
            "---\nmodel: workspace/main\nmode: subagent\ntools: {native: [Read]}\n---\nRead.\n",
        ),
        (".openharness/agents/talker.md", "---\nmodel: workspace/main\ntools: {native: [TodoWrite]}\n---\nTalk.\n"),
        (".openharness/settings.yaml", "default_agent: shell\n"),
    ])
    .await;
    project.write("secret.txt", "of the folder\n");
    let dormouse = project.serve_with(&["--authorization", "keys"]);
    let guest = Guest::of(&dormouse);
    let stranger = Guest::with_key(&dormouse, &["--tenant", "elsewhere"]);
    let place = guest.workspace(&[]).await;
    let bound = Guest::with_key(&dormouse, &["--workspace", &place]);
    let sorted = |list: &Value| {
        let mut names: Vec<String> = names(list).into_iter().map(str::to_owned).collect();
        names.sort();
        names
    };
    let bash = [("Bash", json!({ "command": "cat secret.txt" }))];

    assert_eq!(sorted(&guest.got("/v1/personas").await), ["assistant", "lead", "shell", "talker"]);
    let task = guest.run(&guest.session(&place).await, None, &bash).await;
    assert_eq!((text(&task, "status"), text(&task, "persona_id")), ("COMPLETED", "persona_shell"), "{task}");
    assert!(project.results()[0].contains("of the folder"), "{:?}", project.results());
    let (status, refused) = guest.submit(&guest.session(&place).await, Some("persona_helper"), &[]).await;
    assert_eq!(status, 422, "at home it is said why: {refused}");

    let listed = async |asker: &Guest<'_>, target: &str| sorted(&asker.got(target).await);
    let card = async || {
        let card = guest.got("/v1/agent-card").await;
        card["persona_ids"].as_array().expect("ids").iter().map(Value::to_string).collect::<Vec<_>>()
    };
    let extended = async |asker: &Guest<'_>| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard" });
        let (status, answer) = asker.ask(Method::POST, "/a2a", &body).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["skills"].to_string().contains("shell")
    };
    assert!(!card().await.iter().any(|id| id.contains("shell") || id.contains("lead")), "{:?}", card().await);
    assert!(extended(&guest).await);
    for (asker, session) in [(&stranger, None), (&bound, Some(bound.session(&place).await))] {
        assert_eq!(listed(asker, "/v1/personas").await, ["assistant", "talker"]);
        let tools = asker.got("/v1/tools?limit=100").await.to_string();
        assert!(!tools.contains("tool_Bash") && !tools.contains("tool_Read"), "{tools}");
        let catalog = asker.got("/v1/x-catalog").await;
        let is_agent = |line: &&Value| ["agent", "subagent"].contains(&text(line, "kind"));
        let lines = catalog["data"].as_array().expect("lines").iter().filter(is_agent);
        assert_eq!(lines.map(|line| text(line, "name")).collect::<Vec<_>>(), ["assistant", "talker"], "{catalog}");
        assert!(!extended(asker).await);
        let session = match session {
            Some(session) => session,
            None => asker.session(&asker.workspace(&[]).await).await,
        };
        for persona in ["persona_shell", "persona_lead", "persona_helper"] {
            assert_eq!(asker.ask(Method::GET, &format!("/v1/personas/{persona}"), &Value::Null).await.0, 404);
            let (status, refused) = asker.submit(&session, Some(persona), &bash).await;
            assert_eq!(status, 404, "{persona}: {refused}");
        }
        let persona = json!({ "name": "mine", "version": "1", "entry_workflow": "shell", "description": "d",
            "autonomy_tier": "act_auto" });
        let (status, refused) = asker.ask(Method::POST, "/v1/personas", &persona).await;
        assert!(matches!(status, 400 | 403), "{status} {refused}");
        let task = asker.run(&session, Some("persona_talker"), &[]).await;
        assert_eq!(text(&task, "status"), "COMPLETED", "what reaches nothing is everybody's: {task}");
        let turn = json!({ "state": { "messages": [{ "role": "user", "content": "go" }] } });
        let (status, refused) = asker.ask(Method::POST, "/graphs/shell/turns", &turn).await;
        assert!(matches!(status, 403 | 404), "{status} {refused}");
    }

    project.write(".openharness/settings.yaml", "default_agent: shell\nshared: true\n");
    assert_eq!(listed(&stranger, "/v1/personas").await, ["assistant", "lead", "shell", "talker"]);
    let session = bound.session(&place).await;
    assert_eq!(text(&bound.run(&session, Some("persona_shell"), &bash).await, "status"), "COMPLETED");
    assert!(card().await.iter().any(|id| id.contains("shell")));
    for (settings, said) in [("shared: maybe\n", "shared"), ("shard: true\n", "did you mean `shared`")] {
        project.write(".openharness/settings.yaml", settings);
        assert!(project.check().contains(said), "{}", project.check());
        assert_eq!(listed(&stranger, "/v1/personas").await, ["assistant", "talker"], "{settings}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_folder_begin_no_turn_without_a_key_unless_the_server_is_told_to_ask_for_none() {
    let project = Project::of(&[]).await;
    let state = json!({ "state": { "messages": [{ "role": "user", "content": "go" }] } });
    let said = json!({ "role": "user", "content": "go" });
    let asked = async |dormouse: &Dormouse, target: &str, body: &Value| {
        let sent = dormouse_tests::client().post(dormouse.url(target)).json(body).send().await;
        sent.expect("an answer").status().as_u16()
    };
    let (turns, messages) = ("/graphs/assistant/turns", "/chat/assistant/sessions/s/messages");
    let dormouse = project.serve();
    for (target, body) in [(turns, &state), (messages, &said)] {
        assert_eq!(asked(&dormouse, target, body).await, 401, "{target}");
    }
    assert!(project.model.requests().is_empty());
    assert_eq!(Guest::of(&dormouse).ask(Method::POST, turns, &state).await.0, 200);
    drop(dormouse);
    let dormouse = project.serve_with(&["--authorization", "none"]);
    assert_eq!(asked(&dormouse, turns, &state).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_finds_the_agents_that_whoever_made_its_connector_finds() {
    let project = Project::of(&[
        (".openharness/agents/shell.md", "---\nmodel: workspace/main\ntools: {native: [Bash]}\n---\nWork.\n"),
        (".openharness/settings.yaml", "default_agent: shell\n"),
    ])
    .await;
    let dormouse = project.serve_in(&[("DORMOUSE_VAULT_default_HOOK", "the secret of the webhook")]);
    let guest = Guest::of(&dormouse);
    let place = guest.workspace(&[]).await;
    let vault = json!({ "provider": "env", "capabilities": ["webhooks:verify"], "workspace_id": place });
    let vault = guest.made("/v1/vaults", vault).await;
    let bound = Guest::with_key(&dormouse, &["--workspace", &place]);
    let connector = async |maker: &Guest<'_>, session: &str, persona: Option<&str>| {
        let body = json!({ "provider": "github", "workspace_id": place, "target_session_id": session,
            "target_persona_id": persona, "mapping": { "kind": "task", "text": "/text" },
            "auth": { "scheme": "github", "vault_id": vault, "secrets": ["HOOK"] } });
        maker.ask(Method::POST, "/v1/connectors", &body).await
    };
    assert_eq!(connector(&bound, &bound.session(&place).await, Some("persona_shell")).await.0, 404);
    for (maker, persona) in [(&guest, "persona_shell"), (&bound, "persona_assistant")] {
        let session = maker.session(&place).await;
        let (status, made) = connector(maker, &session, None).await;
        assert_eq!(status, 201, "{made}");
        let url = dormouse.url(text(&made["webhook"], "path"));
        assert_eq!(deliver(&url, "d1", "the secret of the webhook").await, 200);
        let tasks = guest.got(&format!("/v1/sessions/{session}/tasks")).await;
        let task = guest.settled(text(&tasks["data"][0], "id")).await;
        assert_eq!((text(&task, "status"), text(&task, "persona_id")), ("COMPLETED", persona), "{task}");
    }
}
