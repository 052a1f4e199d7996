//! What goes wrong in a run, over the real binary: who is told, and that no call is repeated that must not be.
//!
//! | goes wrong | who is told | calls of the model |
//! |---|---|---|
//! | key, model, request refused; an answer that is no JSON | whoever looks at the task: it fails with the provider's category | 1 |
//! | 429 (with `retry-after` or without), 5xx, an answer that breaks off, a stream with an event that is no JSON | nobody: it is asked again | until it answers |
//! | a call with arguments that are no JSON or break the schema, an unknown tool, a name in another case | the model | 1 |
//! | 2 MB of a tool's output | the model: what is shown is cut, the whole is kept | 1 |
//! | a server of tools that is down | whoever follows the task (`vendor.dormouse.tools_missing`), and the log; the agent works without | 1 |
//! | a mistake in a file | whoever checks the workspace: file and line; the other agents run | 0 |

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse_local::{ScriptedFault, ScriptedTurn};
use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use super::world::{Assistant, Wire, command};
use super::{DONE, last_words};

const FAILED: [TaskStatus; 1] = [TaskStatus::Failed];
pub(super) const UNASKED: &str = "default_agent: assistant\nmodels: {default: workspace/main}\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_refuses_for_good_fails_the_task_after_one_call() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let cases = [
        ("provider_authentication", ScriptedTurn::failing(401, "the key is wrong")),
        ("provider_authentication", ScriptedTurn::failing(403, "not for you")),
        ("provider_invalid_model", ScriptedTurn::failing(404, "The model `main` does not exist")),
        ("provider_invalid_request", ScriptedTurn::failing(400, "no")),
        ("provider_invalid_response", ScriptedTurn::raw("{\"choices\": 7}")),
        ("provider_invalid_response", ScriptedTurn::raw("<html>a proxy</html>")),
    ];
    for (category, turn) in cases {
        let told = format!("{category}: {turn:?}");
        let before = assistant.model.requests().len();
        assistant.answers(move |_| turn.clone());
        let task = assistant.send(&dormouse, "hello");
        wire.task(&task, &FAILED).await;
        let seen = wire.get(&format!("/v1/tasks/{task}")).await;
        assert_eq!(seen["failure"]["code"], category, "{told}: {seen}");
        assert_ne!(seen["failure"]["message"], "", "{told}");
        assert!(!seen.to_string().contains("the key of a model"), "{told}: no key is shown");
        assert_eq!(assistant.model.requests().len() - before, 1, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_short_of_an_answer_is_shown_as_failed_with_the_reason() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", UNASKED);
    assistant.write(".openharness/agents/assistant.md", "---\npolicy: {max_steps: 1}\n---\nYou help.\n");
    assistant.answers(|_| ScriptedTurn::calling("book", &json!({ "room": "blue" })));
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    let wire = Wire::of(&dormouse);
    wire.task(&task, &FAILED).await;
    let seen = wire.get(&format!("/v1/tasks/{task}")).await;
    assert_eq!(seen["failure"]["code"], "max_steps", "{seen}");
    let shown = dormouse.command(&["show", &task, "--json"]).output().expect("it runs");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!((&shown["status"], &shown["failure"]["category"]), (&json!("failed"), &json!("max_steps")), "{shown}");
    assert_eq!(shown["failure"]["message"], seen["failure"]["message"], "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_asked_again_until_it_answers() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let cut = |fault| ScriptedTurn::saying("half of it").with_fault(fault);
    let cases = [
        (ScriptedTurn::failing(429, "slow down"), 1),
        (ScriptedTurn::failing(429, "slow down").retry_after(1), 1),
        (ScriptedTurn::failing(500, "oops"), 2),
        (ScriptedTurn::failing(503, "away"), 1),
        (ScriptedTurn::raw("{\"choices\": ["), 1),
        // Answers are streamed: before anything of it came, in the midst of its text, and in that of a call.
        (cut(ScriptedFault::HangUp { after: 0 }), 1),
        (cut(ScriptedFault::HangUp { after: 2 }), 2),
        // One of its events is no JSON.
        (cut(ScriptedFault::Garbage { after: 1 }), 1),
        (ScriptedTurn::calling("book", &json!({ "room": "blue" })).with_fault(ScriptedFault::HangUp { after: 2 }), 1),
    ];
    for (turn, times) in cases {
        let told = format!("{turn:?}");
        let before = assistant.model.requests().len();
        let seen = AtomicUsize::new(0);
        assistant.answers(move |_| match seen.fetch_add(1, Ordering::SeqCst) < times {
            true => turn.clone(),
            false => ScriptedTurn::saying("here I am"),
        });
        let task = assistant.send(&dormouse, "hello");
        wire.task(&task, &DONE).await;
        assert_eq!(last_words(&dormouse, &task), "here I am", "{told}");
        let asked = &assistant.model.requests()[before..];
        assert_eq!(asked.len(), times + 1, "{told}");
        assert!(asked.iter().all(|request| request["stream"] == true), "{told}");
    }
    assert_eq!(assistant.office.bookings().len(), 0, "half a call is none");
}

/// The results that the model was shown, of its last request.
pub(super) fn results(assistant: &Assistant) -> Vec<String> {
    let last = assistant.model.requests().pop().expect("a request");
    let messages = last["messages"].as_array().cloned().unwrap_or_default();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_of_the_model_go_back_to_it_and_run_nothing() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", UNASKED);
    assistant.answers(|request: &Value| match request["messages"].to_string().contains("\"tool\"") {
        true => ScriptedTurn::saying("I see"),
        false => ScriptedTurn::saying("")
            .and_calling("book", "{\"room\": ")
            .and_calling("book", "{}")
            .and_calling("book", "{\"room\": 7}")
            .and_calling("fly", "{}")
            .and_calling("Book", "{\"room\": \"blue\"}"),
    });
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    let told = results(&assistant);
    let awaited =
        ["no JSON object", "do not fit the schema", "do not fit the schema", "no tool `fly`", "did you mean `book`"];
    assert_eq!(told.len(), awaited.len(), "{told:?}");
    for (told, awaited) in told.iter().zip(awaited) {
        assert!(told.contains(awaited), "{awaited}: {told}");
    }
    assert_eq!((assistant.office.bookings().len(), assistant.model.requests().len()), (0, 2));
    assert_eq!(last_words(&dormouse, &task), "I see");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_output_is_cut_and_a_server_that_is_down_is_done_without() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", UNASKED);
    let tools = format!(
        "look:\n  http:\n    method: GET\n    url: {}/large\n    description: Looks at everything.\n    input_schema: \
         {{type: object}}\ndocs:\n  url: http://127.0.0.1:9/mcp\n",
        assistant.office.url
    );
    assistant.write(".openharness/tools/settings.yaml", &tools);
    assistant.answers(|request: &Value| match request["messages"].to_string().contains("\"tool\"") {
        true => ScriptedTurn::saying("I see"),
        false => ScriptedTurn::calling("look", &json!({})),
    });
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    let told = results(&assistant).remove(0);
    assert!(told.len() < 40_000 && told.contains("bytes are shown"), "{} bytes", told.len());
    let offered = assistant.model.requests()[0]["tools"].to_string();
    assert!(offered.contains("look"), "what can be called is offered: {offered}");
    let events = Wire::of(&dormouse).events(&task).await;
    let missing: Vec<_> =
        events.iter().filter(|event| event.event.as_str() == "vendor.dormouse.tools_missing").collect();
    assert_eq!(missing.len(), 1, "it is told once");
    let told = Value::Object(missing[0].payload.clone()).to_string();
    assert!(told.contains("docs") && told.contains("no connection"), "{told}");
    assert_eq!(assistant.model.requests().len(), 2);

    // The whole is an artifact.
    let wire = Wire::of(&dormouse);
    let listed = wire.get(&format!("/v1/artifacts?task_id={task}")).await;
    let artifact = &listed["data"][0];
    let whole = "all that there is ".repeat(2 << 20 >> 4);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(
        (&artifact["metadata"]["tool"], &artifact["metadata"]["bytes"], &artifact["metadata"]["kept_bytes"]),
        (&json!("look"), &json!(whole.len()), &Value::Null),
        "{artifact}"
    );
    let id = artifact["id"].as_str().expect("an id");
    let (status, content) = wire.content(&format!("/v1/artifacts/{id}/content")).await;
    assert!(status == 200 && content == whole, "{status}, {} of {} bytes", content.len(), whole.len());
    let created = events.iter().find(|event| event.event.as_str() == "artifact.created").expect("it is told");
    assert_eq!(created.resource.id, id);
}

/// It disables itself, and the agents go on without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_takes_no_other_along_while_it_is_served() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", UNASKED);
    assistant.write("AGENTS.md", &"x".repeat(5_000_000));
    fs::create_dir_all(PathBuf::from(assistant.folder()).join(".openharness/skills/draw")).expect("a folder");
    assistant.write(".openharness/skills/draw/SKILL.md", "---\ndescription: Draws.\n---\nDraw it.\n");
    assistant.write(".openharness/skills/draw/picture", &"y".repeat(300_000));
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    let request = &assistant.model.requests()[0];
    assert!(!request["messages"].to_string().contains("xxxx"));
    assert!(request["tools"].to_string().contains("draw: Draws."), "the skill is there: {}", request["tools"]);
}

#[test]
fn mistakes_in_files_are_told_with_file_and_line_and_disable_only_what_they_are_in() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("helper").display().to_string();
    assert!(command(&["new", &folder, "--template", "assistant"]).status.success());
    let path = |name: &str| PathBuf::from(&folder).join(name);
    let check = || {
        let checked = command(&["workspace", "check", &folder]);
        (checked.status.code(), String::from_utf8(checked.stdout).expect("text"))
    };
    assert_eq!(check().0, Some(0));

    let bad = path(".openharness/agents/bad.md");
    fs::write(&bad, "---\nmodel: [\n---\nHi\n").expect("a file");
    let (status, told) = check();
    assert_eq!(status, Some(3), "{told}");
    assert!(told.contains(".openharness/agents/bad.md:2: error") && told.contains("1 of 2 agents can run"), "{told}");
    fs::remove_file(&bad).expect("it goes");

    let again = path(".openharness/models/again.yaml");
    fs::copy(path(".openharness/models/models.yaml"), &again).expect("a file");
    let (status, told) = check();
    assert_eq!(status, Some(3), "{told}");
    assert!(told.contains(".openharness/models/models.yaml:2: error"), "{told}");
    assert!(told.contains("model `main` is declared in .openharness/models/again.yaml already"), "{told}");
    fs::remove_file(&again).expect("it goes");

    // What leads to itself is walked once.
    for (link, to) in [(".openharness/agents/loop", ".."), (".openharness/skills", "skills"), ("loop", ".")] {
        std::os::unix::fs::symlink(to, path(link)).expect("a link");
    }
    let (status, told) = check();
    assert_eq!(status, Some(3), "{told}");
    assert!(told.contains(".openharness/skills: error"), "a link to itself is no folder: {told}");
    assert!(!told.contains("loop"), "{told}");
    fs::remove_file(path(".openharness/skills")).expect("it goes");
    assert_eq!(check().0, Some(0), "{}", check().1);

    fs::write(path("AGENTS.md"), "x".repeat(5_000_000)).expect("a file");
    let (status, told) = check();
    assert_eq!(status, Some(3), "{told}");
    assert!(told.contains("AGENTS.md: error: the file has 5000000 bytes"), "{told}");
}
