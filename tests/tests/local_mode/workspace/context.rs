//! Conversations that are made shorter, and the memory of a workspace, over the protocol.

use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use super::world::Project;
use crate::assistant::world::{Wire, eventually};

const DONE: [TaskStatus; 1] = [TaskStatus::Completed];
const HOOK: (&str, &str) = (
    ".openharness/hooks/watch.yaml",
    "name: watch\nevents: [before_context_compact, after_context_compact]\n\
     handler: {type: command, command: 'cat >> seen; echo {}'}\n",
);

fn last_request(project: &Project) -> String {
    project.model.requests().last().map(Value::to_string).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_fills_the_window_goes_on_with_a_summary() {
    let project = Project::of(&[HOOK, ("big.txt", &"words ".repeat(600))]).await;
    project.describe_model("  metadata: {context_window: 4000}\n");
    let worker = "---\ntools: {native: [Read]}\n---\nWork.\n";
    project.write(".openharness/agents/assistant.md", worker);
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let read = [("Read", json!({ "file_path": "big.txt" }))];
    let task = project.say(&dormouse, &read);
    let session = wire.task(&task, &DONE).await.session_id.to_string();
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let task = project.say_in(&dormouse, &session, &read);
        wire.task(&task, &DONE).await;
        kinds.extend(wire.events(&task).await.into_iter().map(|event| event.event.as_str().to_owned()));
    }
    assert!(last_request(&project).contains("<conversation_summary>"), "{}", last_request(&project));
    assert!(kinds.iter().any(|kind| kind == "vendor.dormouse.context_compacted"), "{kinds:?}");
    let seen = project.read("seen");
    assert!(seen.contains("before_context_compact") && seen.contains("after_context_compact"), "{seen}");
    let messages = wire.get(&format!("/v1/sessions/{session}/messages?limit=100")).await.to_string();
    assert!(!messages.contains("in short"), "the transcript stays as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_made_shorter_on_request() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[]);
    let session = wire.task(&task, &DONE).await.session_id.to_string();
    let next = project.say_in(&dormouse, &session, &[]);
    wire.task(&next, &DONE).await;
    let path = format!("/v1/sessions/{session}/tasks");
    let (status, compacts) = wire.post(&path, "compact-1", &json!({ "input": { "compact": true } })).await;
    assert_eq!(status, 202, "{compacts}");
    wire.task(compacts["id"].as_str().expect("an id"), &DONE).await;
    let before = project.model.requests().len();
    let next = project.say_in(&dormouse, &session, &[]);
    wire.task(&next, &DONE).await;
    assert_eq!(project.model.requests().len(), before + 1);
    assert!(last_request(&project).contains("what was said before, in short"), "{}", last_request(&project));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_told_the_memory_of_their_workspace_where_the_settings_say_so() {
    let memory = (".openharness/memory/MEMORY.md", "The tests take an hour.\n");
    for (settings, is_told) in [("engine: {workspace_memory: {enabled: true}}\n", true), ("{}\n", false)] {
        let project = Project::of(&[memory, (".openharness/settings.yaml", settings)]).await;
        let dormouse = project.serve();
        let task = project.say(&dormouse, &[]);
        Wire::of(&dormouse).task(&task, &DONE).await;
        assert_eq!(project.instructions().contains("The tests take an hour."), is_told, "{}", project.instructions());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_remembers_what_its_agent_noted_and_no_other_does() {
    let project = Project::of(&[(".openharness/settings.yaml", "engine: {session_memory: {enabled: true}}\n")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let remember = [("Remember", json!({ "name": "colour", "text": "Ada likes green." }))];
    let task = project.say(&dormouse, &remember);
    let session = wire.task(&task, &DONE).await.session_id.to_string();
    assert_eq!(project.results(), ["`colour` is remembered in this session"]);
    let told = |project: &Project| project.instructions().contains("<session_memory>\ncolour: Ada likes green.\n");
    assert!(told(&project), "in the next step of the run: {}", project.instructions());
    let compacts = json!({ "input": { "compact": true } });
    let (_, compacts) = wire.post(&format!("/v1/sessions/{session}/tasks"), "compact-1", &compacts).await;
    wire.task(compacts["id"].as_str().expect("an id"), &DONE).await;
    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    wire.task(&project.say_in(&dormouse, &session, &[]), &DONE).await;
    assert!(told(&project), "in a later run, of another process: {}", project.instructions());
    wire.task(&project.say(&dormouse, &[]), &DONE).await;
    assert!(!project.instructions().contains("session_memory"), "in no other session");
    let forget = [("Remember", json!({ "name": "colour", "text": "" }))];
    wire.task(&project.say_in(&dormouse, &session, &forget), &DONE).await;
    assert!(!project.instructions().contains("session_memory"), "{}", project.instructions());
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_told_where_they_work_where_the_prompts_say_so() {
    let prompts = (".openharness/prompts.yaml", "compose: {include_environment: true}\n");
    let project = Project::of(&[prompts, (".git/HEAD", "ref: refs/heads/main\n")]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[]);
    wire.task(&task, &DONE).await;
    let told = project.instructions();
    let (_, environment) = told.split_once("<environment>\n").unwrap_or_else(|| panic!("{told}"));
    let folder = project.path("").canonicalize().expect("a folder");
    for line in [format!("folder: {}", folder.display()), "git: branch main".to_owned()] {
        assert!(environment.lines().any(|told| told == line), "{line}: {environment}");
    }
    assert!(environment.starts_with("date: 2") && environment.contains(std::env::consts::OS), "{environment}");
    drop(dormouse);
    project.write(".openharness/settings.yaml", "{}\n");
    project.write(".openharness/prompts.yaml", "{}\n");
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[]);
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert!(!project.instructions().contains("<environment>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_workspace_stays_one() {
    let project = Project::of(&[(".openharness/settings.yaml", "kind: chat\n")]).await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[]);
    Wire::of(&dormouse).task(&task, &DONE).await;
    project.write(".openharness/settings.yaml", "kind: project\n");
    project.write(".openharness/agents/assistant.md", "---\ntools: {native: [Bash]}\n---\nWork.\n");
    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("Bash", json!({ "command": "touch ran" }))]);
    wire.task(&task, &DONE).await;
    assert_eq!(project.offered(), [""; 0], "it has no tools");
    assert!(!project.exists("ran"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_that_made_a_conversation_shorter_tells_what_that_cost() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let session = wire.task(&project.say(&dormouse, &[]), &DONE).await.session_id.to_string();
    wire.task(&project.say_in(&dormouse, &session, &[]), &DONE).await;
    let path = format!("/v1/sessions/{session}/tasks");
    let (_, compacts) = wire.post(&path, "compact-1", &json!({ "input": { "compact": true } })).await;
    let compacts = compacts["id"].as_str().expect("an id");
    wire.task(compacts, &DONE).await;
    let events = wire.events(compacts).await;
    let ended = events.iter().find(|event| event.event.as_str() == "vendor.dormouse.run_ended").expect("an end");
    assert!(ended.payload["usage"]["prompt_tokens"].as_u64() > Some(0), "{:?}", ended.payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_message_of_a_task_that_was_called_off_at_its_first_call_stays_in_the_conversation() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let session = wire.task(&project.say(&dormouse, &[]), &DONE).await.session_id.to_string();
    project.hold_answers(true);
    let path = format!("/v1/sessions/{session}/tasks");
    let say = async |key: &str, text: &str| {
        let parts = json!([{ "type": "text", "text": text, "visibility": "public" }]);
        let body = json!({ "persona_id": "persona_assistant", "input": { "role": "user", "parts": parts } });
        let (status, task) = wire.post(&path, key, &body).await;
        assert_eq!(status, 202, "{task}");
        task["id"].as_str().expect("an id").to_owned()
    };
    let asked = project.model.requests().len();
    let first = say("first", "the cat is grey").await;
    eventually("the model is asked", || project.model.requests().len() > asked).await;
    let waits = say("waits", "never mind").await;
    for task in [&waits, &first] {
        let (status, told) = wire.post(&format!("/v1/tasks/{task}/cancel"), task, &json!({})).await;
        assert_eq!(status, 200, "{told}");
    }
    project.hold_answers(false);
    let next = say("next", "which colour?").await;
    wire.task(&next, &DONE).await;
    let told = last_request(&project);
    let places = ["the cat is grey", "which colour?"].map(|text| told.matches(text).count());
    assert_eq!(places, [1, 1], "{told}");
    assert!(!told.contains("never mind"), "what was withdrawn before its turn is not told: {told}");
    wire.task(&say("last", "and the dog?").await, &DONE).await;
    assert_eq!(last_request(&project).matches("the cat is grey").count(), 1, "{}", last_request(&project));
}
