//! Agents of a folder that call agents, over the protocol.

use dormouse_protocol::resource::{Session, Task, TaskStatus};
use serde_json::{Value, json};

use super::world::Project;
use crate::assistant::world::{Wire, eventually};

const LEAD: (&str, &str) =
    (".openharness/agents/assistant.md", "---\nsubagents: [scout]\nswitch: [poet]\n---\nYou lead.\n");
const SCOUT: (&str, &str) = (
    ".openharness/agents/scout.md",
    "---\nmode: subagent\ndescription: Looks around\ntools: {native: [Bash, Glob]}\n\
     policy: {approval: {native: [Bash]}}\n---\nYou scout.\n",
);
const POET: (&str, &str) = (".openharness/agents/poet.md", "---\nsystem_reminder: In verse.\n---\nYou are a poet.\n");

/// A message with which an agent is asked to make `calls`.
fn script(calls: Value) -> String {
    format!("script {calls}")
}

async fn child_of(wire: &Wire<'_>, task: &str) -> Task {
    let listed = wire.get("/v1/tasks").await;
    let tasks: Vec<Task> = serde_json::from_value(listed["data"].clone()).expect("tasks");
    tasks.into_iter().find(|one| one.parent_task_id.as_ref().is_some_and(|id| id.as_str() == task)).expect("a child")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_asked_works_in_a_task_and_a_session_of_its_own() {
    let project = Project::of(&[LEAD, SCOUT, POET, ("north.txt", "ice")]).await;
    assert!(!project.check().contains("no effect"), "{}", project.check());
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let prompt = script(json!([["Glob", { "pattern": "*.txt" }]]));
    let task = project.say(&dormouse, &[("SubAgent", json!({ "prompt": prompt }))]);
    let lead = wire.task(&task, &[TaskStatus::Completed]).await;
    assert!(project.results()[0].starts_with("done\n[task_id: "), "{:?}", project.results());
    let child = child_of(&wire, &task).await;
    assert_eq!(child.status, TaskStatus::Completed);
    let session = wire.get(&format!("/v1/sessions/{}", child.session_id)).await;
    let session: Session = serde_json::from_value(session).expect("a session");
    assert_eq!(session.parent_session_id.as_ref(), Some(&lead.session_id));
    let events = wire.events(child.envelope.id.as_str()).await;
    let kinds: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
    for kind in ["task.submitted", "tool.completed", "task.completed"] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    let personas = wire.get("/v1/personas").await.to_string();
    let is_there = |name: &str| personas.contains(&format!("\"persona_{name}\""));
    assert!(is_there("poet") && !is_there("scout"), "people do not address it: {personas}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_agent_works_in_the_place_of_the_default_one_that_cannot() {
    let careful = "---\ndescripton: careful\npolicy: {approval: manual}\n---\nBe careful.\n";
    let project = Project::of(&[
        POET,
        (".openharness/agents/careful.md", careful),
        (".openharness/settings.yaml", "default_agent: careful\n"),
    ])
    .await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let refused = async |told: &str| {
        let input = json!({ "role": "user", "parts": [{ "type": "text", "text": "go" }] });
        let (_, workspace) =
            wire.post("/v1/workspaces", &format!("workspace {told}"), &json!({ "name": "w", "root": "/" })).await;
        let (_, session) =
            wire.post("/v1/sessions", &format!("session {told}"), &json!({ "workspace_id": workspace["id"] })).await;
        let tasks = format!("/v1/sessions/{}/tasks", session["id"].as_str().expect("an id"));
        let (status, refusal) = wire.post(&tasks, &format!("default {told}"), &json!({ "input": input })).await;
        let said = refusal.to_string();
        assert!(status == 422 && said.contains(told) && !said.contains("?."), "{status}: {refusal}");
        let (status, task) =
            wire.post(&tasks, &format!("poet {told}"), &json!({ "input": input, "persona_id": "persona_poet" })).await;
        assert_eq!(status, 202, "who is named works: {task}");
    };
    refused("did you mean `description`?").await;
    let chat = crate::assistant::world::command(&["chat", &project.folder()]);
    let told = String::from_utf8_lossy(&chat.stderr);
    assert!(!chat.status.success() && told.contains("there is no agent `careful` that can run"), "{told}");
    std::fs::remove_file(project.path(".openharness/agents/careful.md")).expect("it was there");
    refused("there is no agent of that name").await;
    assert!(project.model.requests().iter().all(|request| request.to_string().contains("You are a poet.")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_only_agent_is_broken_starts_again_for_what_sleeps() {
    let path = ".openharness/agents/assistant.md";
    let matter = "---\ntools: {native: [Bash]}\npolicy: {approval: {native: [Bash]}}\n---\nWork.\n";
    let project = Project::of(&[(path, matter)]).await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[("Bash", json!({ "command": "touch ran" }))]);
    Wire::of(&dormouse).task(&task, &[TaskStatus::AuthRequired]).await;
    drop(dormouse);
    project.write(path, "---\nmodel: [\n---\n");
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let (status, answered) = wire.answer(&task, None, json!({ "decision": "approve" })).await;
    assert!(status < 300, "{status}: {answered}");
    wire.task(&task, &[TaskStatus::Completed]).await;
    assert!(project.exists("ran"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_breaks_before_the_first_run_leaves_the_definitions_of_the_start() {
    let path = ".openharness/agents/assistant.md";
    let project = Project::of(&[]).await;
    let dormouse = project.serve();
    project.write(path, "---\nmodel: [\n---\n");
    let task = project.say(&dormouse, &[]);
    Wire::of(&dormouse).task(&task, &[TaskStatus::Completed]).await;
    assert!(project.instructions().contains("Work."), "{}", project.instructions());
    project.write(path, "---\nmodel: workspace/main\n---\nWork well.\n");
    let task = project.say(&dormouse, &[]);
    Wire::of(&dormouse).task(&task, &[TaskStatus::Completed]).await;
    assert!(project.instructions().contains("Work well."), "{}", project.instructions());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_an_agent_that_was_asked_and_sleeps() {
    let project = Project::of(&[LEAD, SCOUT, POET]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let prompt = script(json!([["Bash", { "command": "touch ran" }]]));
    let task = project.say(&dormouse, &[("SubAgent", json!({ "prompt": prompt }))]);
    wire.task(&task, &[TaskStatus::InputRequired]).await;
    let child = child_of(&wire, &task).await.envelope.id.to_string();
    wire.task(&child, &[TaskStatus::AuthRequired]).await;
    let (status, _) = wire.post(&format!("/v1/tasks/{task}/cancel"), "c-1", &json!({ "reason": "enough" })).await;
    assert_eq!(status, 200);
    wire.task(&child, &[TaskStatus::Canceled]).await;
    assert!(!project.exists("ran"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_that_was_asked_needs_a_person_for_is_answered_at_its_own_task() {
    let project = Project::of(&[LEAD, SCOUT, POET]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let prompt = script(json!([["Bash", { "command": "touch ran" }]]));
    let background = json!({ "prompt": prompt, "run_in_background": true });
    let task = project.say(&dormouse, &[("SubAgent", background)]);
    wire.task(&task, &[TaskStatus::InputRequired]).await;
    let child = child_of(&wire, &task).await.envelope.id.to_string();
    wire.task(&child, &[TaskStatus::AuthRequired]).await;
    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    wire.answer(&child, None, json!({ "decision": "approve" })).await;
    wire.task(&task, &[TaskStatus::Completed]).await;
    assert!(project.exists("ran"));
    eventually("the parent is told", || {
        project.model.requests().last().is_some_and(|request| request.to_string().contains("<agent_result"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_handed_over_with_a_reminder_and_the_next_message_begins_anew() {
    let project = Project::of(&[LEAD, SCOUT, POET]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[("AgentSwitch", json!({ "to": "poet" }))]);
    let session = wire.task(&task, &[TaskStatus::Completed]).await.session_id.to_string();
    assert!(project.instructions().starts_with("You are a poet."), "{}", project.instructions());
    let last = project.model.requests().pop().expect("a request");
    assert!(last.to_string().contains("<system_reminder>\\nIn verse.\\n</system_reminder>"), "{last}");
    let next = project.say_in(&dormouse, &session, &[]);
    wire.task(&next, &[TaskStatus::Completed]).await;
    assert!(project.instructions().starts_with("You lead."), "{}", project.instructions());
    let last = project.model.requests().pop().expect("a request");
    assert!(!last.to_string().contains("system_reminder"), "{last}");
}
