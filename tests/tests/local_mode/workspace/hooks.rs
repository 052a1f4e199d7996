//! Hooks over the protocol: what they refuse, change, stop, and what their failures mean.

use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use super::world::Project;
use super::{DONE, WAITING, WORKER};
use crate::assistant::world::Wire;
use crate::process::Dormouse;

const HOOK: &str = ".openharness/hooks/10-guard.yaml";

/// A workspace with one hook, which is the file `text`.
async fn guarded(text: &str) -> Project {
    let project = Project::of(&[WORKER, ("a.txt", "one")]).await;
    project.write(HOOK, text);
    project
}

/// What the records of the task say of hooks: event and status.
async fn hook_runs(wire: &Wire<'_>, task: &str) -> Vec<(String, String)> {
    let events = wire.events(task).await;
    let runs = events
        .into_iter()
        .map(|event| json!(event))
        .filter(|event| event["event"].as_str().is_some_and(|kind| kind.contains("hook_run")));
    let field = |event: &Value, name: &str| find(event, name).unwrap_or_default();
    runs.map(|event| (field(&event["payload"], "event"), field(&event["payload"], "status"))).collect()
}

fn find(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

async fn done(project: &Project, dormouse: &Dormouse, calls: &[(&str, Value)]) -> String {
    let task = project.say(dormouse, calls);
    Wire::of(dormouse).task(&task, &DONE).await;
    task
}

fn touch(name: &str) -> [(&'static str, Value); 1] {
    [("Bash", json!({ "command": format!("touch {name}") }))]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_refuses_a_call_and_the_run_goes_on() {
    let project = guarded(
        "name: guard\nevents: [before_tool_dispatch]\nmatcher: ^Bash$\nhandler:\n  type: command\n  \
         command: 'cat > envelope.json; grep -q forbidden envelope.json && { echo not that >&2; exit 2; } || exit 0'\n",
    )
    .await;
    let dormouse = project.serve();
    let task = done(&project, &dormouse, &touch("forbidden")).await;
    assert!(project.results()[0].contains("hook `guard` refused it: not that"), "{:?}", project.results());
    assert!(!project.exists("forbidden"));
    let runs = hook_runs(&Wire::of(&dormouse), &task).await;
    assert_eq!(runs, [("before_tool_dispatch".to_owned(), "blocked".to_owned())]);
    let envelope: Value = serde_json::from_str(&project.read("envelope.json")).expect("JSON");
    let told = Wire::of(&dormouse).get(&format!("/v1/tasks/{task}")).await;
    let ids = ["workspace_id", "session_id"].map(|id| &envelope[id]);
    assert_eq!(ids, [&told["workspace_id"], &told["session_id"]]);
    let session = told["session_id"].as_str().expect("an id");
    let messages = Wire::of(&dormouse).get(&format!("/v1/sessions/{session}/messages")).await;
    let mut parts = messages["data"]
        .as_array()
        .expect("messages")
        .iter()
        .flat_map(|message| message["parts"].as_array().expect("parts"));
    let result = parts.find(|part| part["type"] == "tool_result").expect("a result");
    assert_eq!(result["status"], "error", "a call that was refused has failed: {result}");
    assert_eq!(
        (&envelope["hook_event_name"], &envelope["tool_name"]),
        (&json!("before_tool_dispatch"), &json!("Bash"))
    );
    assert_eq!(
        (&envelope["agent_name"], &envelope["tool_input"]["command"]),
        (&json!("assistant"), &json!("touch forbidden"))
    );
    let folder = project.path("").canonicalize().expect("a folder");
    assert_eq!(envelope["cwd"], folder.display().to_string());
    assert!(envelope["run_id"].is_string() && envelope["session_id"].is_string(), "{envelope}");
    done(&project, &dormouse, &touch("allowed")).await;
    assert!(project.exists("allowed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_ends_the_run_before_its_model_is_asked() {
    let stop = r#"{"continue": false, "stopReason": "closed today"}"#;
    let project = guarded(&format!(
        "name: gate\nevents: [before_model_call]\nhandler: {{type: command, command: 'echo ''{stop}'''}}\n"
    ))
    .await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[]);
    let ended = Wire::of(&dormouse).task(&task, &[TaskStatus::Failed]).await;
    assert_eq!(ended.failure.map(|failure| failure.code).as_deref(), Some("hook"));
    assert_eq!(project.model.requests().len(), 0, "the model was not asked");
    let runs = hook_runs(&Wire::of(&dormouse), &task).await;
    assert!(runs.contains(&("before_model_call".to_owned(), "stopped".to_owned())), "{runs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_ends_the_run_at_a_call_leaves_a_record_of_the_call() {
    let stop = r#"{"continue": false, "stopReason": "closed today"}"#;
    let project = guarded(&format!(
        "name: gate\nevents: [before_tool_dispatch]\nhandler: {{type: command, command: 'echo ''{stop}'''}}\n"
    ))
    .await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &touch("ran"));
    Wire::of(&dormouse).task(&task, &[TaskStatus::Failed]).await;
    assert!(!project.exists("ran"));
    let events = Wire::of(&dormouse).events(&task).await;
    let of = |kind: &str| {
        let found = events.iter().find(|event| event.event.as_str() == kind);
        &found.unwrap_or_else(|| panic!("{kind}")).payload
    };
    let failed = of("tool.failed");
    assert_eq!((&failed["made"], &failed["source"]), (&json!(false), &json!("native")), "{failed:?}");
    assert!(failed["message"].as_str().is_some_and(|message| message.contains("closed today")), "{failed:?}");
    assert!(of("vendor.dormouse.hook_run")["output_digest"].is_string(), "what a hook answered has a digest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_is_for_a_model_by_its_name_here_or_at_its_provider_and_knows_what_began_the_run() {
    let project = Project::of(&[WORKER]).await;
    for (name, matcher) in [("here", "^workspace/main$"), ("there", "^scripted-1$"), ("none", "^other$")] {
        let text = format!(
            "events: [before_model_call]\nmatcher: {matcher}\nhandler: {{type: command, command: 'echo {name} >> asked'}}\n"
        );
        project.write(&format!(".openharness/hooks/{name}.yaml"), &text);
    }
    project.write(
        ".openharness/hooks/z.yaml",
        "events: [run_completed]\nmatcher: ^system$\nhandler: {type: command, command: 'echo z >> ended'}\n",
    );
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let task = project.say(&dormouse, &[]);
    let session = wire.task(&task, &DONE).await.session_id.to_string();
    assert_eq!(project.read("asked"), "here\nthere\n");
    assert!(!project.exists("ended"), "a message began it");
    let path = format!("/v1/sessions/{session}/tasks");
    let (status, compacts) = wire.post(&path, "compact-1", &json!({ "input": { "compact": true } })).await;
    assert_eq!(status, 202, "{compacts}");
    wire.task(compacts["id"].as_str().expect("an id"), &DONE).await;
    assert_eq!(project.read("ended"), "z\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_changes_only_what_it_may() {
    let patched = r#"{"hookSpecificOutput": {"patch": {"tool_input": {"command": "touch patched"}}}}"#;
    let hook = |capabilities: &str| {
        format!(
            "name: patch\nevents: [before_tool_dispatch]\nhandler: {{type: command, command: 'echo ''{patched}'''}}\ncapabilities: {capabilities}\n"
        )
    };
    let project = guarded(&hook("[rewrite_tool_response]")).await;
    let dormouse = project.serve();
    let task = done(&project, &dormouse, &touch("asked")).await;
    assert!(project.exists("asked") && !project.exists("patched"), "without the right nothing changes");
    assert_eq!(hook_runs(&Wire::of(&dormouse), &task).await[0].1, "patch_refused");
    drop(dormouse);
    for (patch, status) in [
        (r#"{"tool_input": {"command": "touch same"}}"#, "passed"),
        (r#"{"tool_output": "x"}"#, "patch_refused"),
        (r#"{"tool_input": "touch patched"}"#, "patch_refused"),
    ] {
        let answer = format!(r#"{{"hookSpecificOutput": {{"patch": {patch}}}}}"#);
        project.write(HOOK, &hook("[rewrite_tool_request]").replace(patched, &answer));
        let dormouse = project.serve();
        let task = done(&project, &dormouse, &touch("same")).await;
        assert_eq!(hook_runs(&Wire::of(&dormouse), &task).await[0].1, status, "{patch}");
        assert!(project.exists("same") && !project.exists("patched"), "{patch}");
    }
    project.write(HOOK, &hook("[rewrite_tool_request]"));
    let dormouse = project.serve();
    done(&project, &dormouse, &touch("asked-again")).await;
    assert!(
        project.exists("patched") && !project.exists("asked-again"),
        "with it, what runs is what the hook made of it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_changed_withheld_and_explained() {
    let answer = r#"{"systemMessage": "mind the gap", "hookSpecificOutput": {"patch": {"tool_output": "changed"}}}"#;
    let project = guarded(&format!(
        "name: after\nevents: [after_tool_dispatch]\nhandler: {{type: command, command: 'echo ''{answer}'''}}\ncapabilities: [rewrite_tool_response]\n"
    ))
    .await;
    project.write(
        ".openharness/hooks/20-hide.yaml",
        "name: hide\nevents: [after_tool_dispatch]\nmatcher: Grep\nhandler: {type: command, command: 'echo ''{\"suppressOutput\": true}'''}\ncapabilities: [suppress_output]\n",
    );
    let dormouse = project.serve();
    project.write("large.txt", &format!("{}\n", "a secret ".repeat(10)).repeat(1500));
    let calls = [
        ("Read", json!({ "file_path": "a.txt" })),
        ("Grep", json!({ "pattern": "one" })),
        ("Bash", json!({ "command": "cat large.txt" })),
    ];
    let task = done(&project, &dormouse, &calls).await;
    let results = project.results();
    assert!(results[0].starts_with("changed\n<hook_context>\nmind the gap"), "{results:?}");
    assert!(results[1].starts_with("(the output is withheld by a hook)"), "{results:?}");
    assert!(results[2].starts_with("changed\n"), "{results:?}");
    let artifacts = Wire::of(&dormouse).get(&format!("/v1/artifacts?task_id={task}")).await;
    assert_eq!(artifacts["data"], json!([]), "what a hook withholds is nowhere else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_hangs_fails_or_talks_nonsense_is_passed_over_unless_it_is_closed() {
    let project = Project::of(&[WORKER]).await;
    // What is to answer has the time for that on a busy machine as well.
    let hook = |name: &str, command: &str, on_error: &str| {
        let seconds = if name == "1-hangs" { 1 } else { 60 };
        let text = format!(
            "name: {name}\nevents: [before_tool_dispatch]\nhandler: {{type: command, command: \"{command}\", timeout_seconds: {seconds}}}\non_error: {on_error}\n"
        );
        project.write(&format!(".openharness/hooks/{name}.yaml"), &text);
    };
    hook("1-hangs", "trap '' TERM; sleep 60", "open");
    project.write("noisy.sh", "head -c 100000 /dev/zero | tr '\\0' e >&2\nexit 7\n");
    hook("2-fails", "sh noisy.sh", "open");
    hook("3-nonsense", "echo nonsense", "open");
    let dormouse = project.serve();
    let task = done(&project, &dormouse, &touch("ran")).await;
    assert!(project.exists("ran"));
    let statuses: Vec<String> = hook_runs(&Wire::of(&dormouse), &task).await.into_iter().map(|run| run.1).collect();
    assert_eq!(statuses, ["failed", "failed", "failed"], "they are recorded all the same");
    drop(dormouse);
    hook("3-nonsense", "echo nonsense", "closed");
    let dormouse = project.serve();
    done(&project, &dormouse, &touch("again")).await;
    assert!(!project.exists("again") && project.results()[0].contains("is no JSON object"), "{:?}", project.results());
    drop(dormouse);
    // Whoever writes that means to block.
    project.write("deny.sh", "echo '{\"decision\": \"deny\"}'\n");
    hook("3-nonsense", "sh deny.sh", "closed");
    let dormouse = project.serve();
    done(&project, &dormouse, &touch("third")).await;
    assert!(!project.exists("third") && project.results()[0].contains("its `decision` is"), "{:?}", project.results());
    drop(dormouse);
    hook("3-nonsense", "cat answer.json", "closed");
    let dormouse = project.serve();
    for (answer, told) in [
        (json!({ "suppressOutput": "true" }), "its `suppressOutput` is"),
        (json!({ "systemMessage": 5 }), "its `systemMessage` is"),
        (json!({ "hookSpecificOutput": "x" }), "its `hookSpecificOutput` is"),
        (json!({ "hookSpecificOutput": { "additionalContext": 7 } }), "its `additionalContext` is"),
        (json!({ "patch": {} }), "`patch`, which belongs into `hookSpecificOutput`"),
    ] {
        project.write("answer.json", &answer.to_string());
        done(&project, &dormouse, &touch("fourth")).await;
        assert!(!project.exists("fourth") && project.results()[0].contains(told), "{:?}", project.results());
    }
    project.write("answer.json", &json!({ "suppressOutput": null, "systemMessage": "fine" }).to_string());
    done(&project, &dormouse, &touch("fourth")).await;
    assert!(project.exists("fourth"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_refused_judges_nothing() {
    let project = guarded(
        "name: judge\nevents: [before_tool_dispatch]\nhandler: {type: agent, agent: judge, task: Judge}\non_error: closed\n",
    )
    .await;
    for refused in ["---\nmode: subagent\nmodle: x\n---\nJudge.\n", "---\nmode: subagent\n---\n"] {
        project.write(".openharness/agents/judge.md", refused);
        let told = project.check();
        assert!(told.contains("its agent `judge` is disabled: mend that first: the hook fails each time"), "{told}");
        let dormouse = project.serve();
        done(&project, &dormouse, &touch("ran")).await;
        assert!(!project.exists("ran"), "{:?}", project.results());
        assert!(project.results()[0].contains("cannot be handled here"), "{:?}", project.results());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_from_elsewhere_is_guarded_and_recorded_like_a_native_one_and_each_model_call_has_its_hooks() {
    let project = Project::of(&[
        (".openharness/tools/settings.yaml", "far:\n  http: {method: POST, url: 'http://127.0.0.1:9/'}\n"),
        (
            HOOK,
            "name: guard\nevents: [before_tool_dispatch]\nmatcher: far\nhandler: {type: command, command: 'echo not there >&2; exit 2'}\n",
        ),
        (
            ".openharness/hooks/20-count.yaml",
            "name: count\nevents: [before_model_call, after_model_call]\nhandler: {type: command, command: 'echo x >> counted'}\n",
        ),
    ])
    .await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let first = done(&project, &dormouse, &[]).await;
    let tool = project.offered().pop().expect("the tool is offered");
    assert_eq!(project.read("counted"), "x\nx\n", "before and after the one call of the model");
    let task = done(&project, &dormouse, &[(&tool, json!({}))]).await;
    assert!(project.results()[0].contains("hook `guard` refused it: not there"), "{:?}", project.results());
    assert_eq!(project.read("counted").lines().count(), 6, "before and after each call of the model");
    assert!(hook_runs(&wire, &task).await.contains(&("before_tool_dispatch".to_owned(), "blocked".to_owned())));
    let refused: Vec<Value> = wire.events(&task).await.into_iter().map(|event| json!(event)).collect();
    let refused = refused.iter().find(|event| event["event"] == "tool.failed").expect("a refused call is recorded");
    assert_eq!((&refused["payload"]["made"], &refused["payload"]["tool"]), (&json!(false), &json!(tool)), "{refused}");
    assert!(!hook_runs(&wire, &first).await.iter().any(|run| run.0 == "before_tool_dispatch"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_in_the_order_of_their_files_and_a_model_may_be_asked() {
    let project = Project::of(&[WORKER]).await;
    for name in ["30-c", "10-a", "20-b"] {
        let text = format!("events: [run_completed]\nhandler: {{type: command, command: 'echo {name} >> order'}}\n");
        project.write(&format!(".openharness/hooks/{name}.yaml"), &text);
    }
    project.write(
        ".openharness/hooks/40-ask.yaml",
        "name: ask\nevents: [before_tool_dispatch]\nhandler: {type: prompt, prompt: Is this fine?}\non_error: closed\n",
    );
    let dormouse = project.serve();
    let task = done(&project, &dormouse, &touch("ran")).await;
    assert_eq!(project.read("order"), "10-a\n20-b\n30-c\n");
    let asked =
        project.model.requests().into_iter().filter(|request| request.to_string().contains("Is this fine?")).count();
    assert_eq!(asked, 1, "the model was asked");
    assert!(!project.exists("ran"), "what it said is no JSON object, and the hook is closed");
    assert!(
        hook_runs(&Wire::of(&dormouse), &task)
            .await
            .contains(&("before_tool_dispatch".to_owned(), "failed".to_owned()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_cannot_be_read_makes_every_call_wait_for_a_person() {
    let project =
        guarded("name: guard\nevents: [before_tool_dispach]\nhandler: {type: command, command: exit 2}\n").await;
    let told = project.check();
    assert!(told.contains("`events` has no `before_tool_dispach`: did you mean `before_tool_dispatch`?"), "{told}");
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[("Read", json!({ "file_path": "a.txt" }))]);
    let waiting = Wire::of(&dormouse).task(&task, &WAITING).await;
    assert_eq!(waiting.status, TaskStatus::AuthRequired);
}
