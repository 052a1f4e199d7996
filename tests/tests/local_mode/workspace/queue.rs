//! Tasks of one session run one after the other, and those of other sessions beside them.

use dormouse_protocol::EventKind;
use dormouse_protocol::resource::TaskStatus;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::Project;
use crate::assistant::world::Wire;
use crate::process::text;

const DONE: [TaskStatus; 1] = [TaskStatus::Completed];
const WORKER: (&str, &str) = (".openharness/agents/assistant.md", "---\ntools: {native: [Bash]}\n---\nWork.\n");

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_session_wait_for_each_other_in_order_and_one_that_is_canceled_is_passed_over() {
    let project = Project::of(&[WORKER]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let first = project.say(&dormouse, &[]);
    let session = wire.task(&first, &DONE).await.session_id.to_string();
    let bash = |name: &str, work: &str| {
        let command = format!("echo begin-{name} >> log; {work}; echo end-{name} >> log");
        [("Bash", json!({ "command": command }))]
    };
    let mut go = project.gate("go");
    let one = project.say_in(&dormouse, &session, &bash("one", "read -r line < go"));
    project.eventually_exists("log").await;
    let two = project.say_in(&dormouse, &session, &bash("two", "true"));
    let three = project.say_in(&dormouse, &session, &bash("three", "true"));
    let four = project.say_in(&dormouse, &session, &bash("four", "true"));
    let other = project.say(&dormouse, &bash("other", "true"));
    let works = [TaskStatus::Working];
    wire.task(&one, &works).await;
    for queued in [&two, &three, &four] {
        wire.task(queued, &[TaskStatus::Submitted]).await;
    }
    wire.task(&other, &DONE).await;
    let (status, _) = wire.post(&format!("/v1/tasks/{two}/cancel"), "cancel-two", &json!({})).await;
    assert_eq!(status, 200);
    go.open();
    for task in [&one, &three, &four] {
        wire.task(task, &DONE).await;
    }
    wire.task(&two, &[TaskStatus::Canceled]).await;
    let log = project.read("log");
    let of_session: Vec<&str> = log.lines().filter(|line| !line.ends_with("other")).collect();
    let expected = ["begin-one", "end-one", "begin-three", "end-three", "begin-four", "end-four"];
    assert_eq!(of_session, expected, "one after the other, in order");
    let position = |line: &str| log.lines().position(|one| one == line);
    assert!(position("end-other") < position("end-one"), "another session does not wait: {log}");
}

const NOTE: (&str, &str) = (
    ".openharness/actions/note/ACTION.yaml",
    "name: note\ndescription: Notes a line.\nentry: {command: ./note.sh}\nexpose: {to_llm: false, callable_by_user: false}\n\
     input_schema: {type: object, properties: {line: {type: string}}, required: [line]}\n",
);
const NOTE_SCRIPT: (&str, &str) = (
    ".openharness/actions/note/note.sh",
    "#!/bin/sh\nread -r input\necho \"noted $input\" >> ../../../log\necho \"noted $input\"\ncase $input in *bad*) exit 3;; esac\n",
);

fn line(name: &str) -> [(&'static str, Value); 1] {
    [("Bash", json!({ "command": format!("echo {name} >> log") }))]
}

fn queued(queue: &Value) -> Vec<&str> {
    queue["data"].as_array().expect("a list").iter().map(|task| text(task, "id")).collect()
}

/// Begins a run that works till it is canceled, in `session`.
async fn occupied(project: &Project, wire: &Wire<'_>, dormouse: &crate::process::Dormouse, session: &str) -> String {
    let calls = [("Bash", json!({ "command": "echo occupied >> busy; sleep 300" }))];
    let before = if project.exists("busy") { project.read("busy").lines().count() } else { 0 };
    let task = project.say_in(dormouse, session, &calls);
    wire.task(&task, &[TaskStatus::Working]).await;
    crate::assistant::world::eventually("it works", || {
        project.exists("busy") && project.read("busy").lines().count() > before
    })
    .await;
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_seen_put_in_order_interrupted_and_emptied_and_actions_stand_in_it() {
    let project = Project::of(&[WORKER, NOTE, NOTE_SCRIPT]).await;
    project.make_runnable(".openharness/actions/note/note.sh");
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let first = project.say(&dormouse, &[]);
    let session = wire.task(&first, &DONE).await.session_id.to_string();
    let path = format!("/v1/sessions/{session}/queue");
    let run = async |line: &str, key: &str| {
        let body = json!({ "persona_id": "persona_assistant",
            "input": { "action": { "name": "note", "input": { "line": line } } } });
        wire.post(&format!("/v1/sessions/{session}/tasks"), key, &body).await
    };

    let one = occupied(&project, &wire, &dormouse, &session).await;
    let [b, c, d] = ["b", "c", "d"].map(|name| project.say_in(&dormouse, &session, &line(name)));
    let (status, action) = run("by action", "action").await;
    assert_eq!(status, 202, "{action}");
    let a = text(&action, "id");
    let queue = wire.get(&path).await;
    assert_eq!((queued(&queue), &queue["working"]), (vec![b.as_str(), &c, &d, a], &json!([one])), "{queue}");
    assert!(queue["data"].as_array().expect("a list").iter().all(|task| task["status"] == "SUBMITTED"), "{queue}");
    let doctor = |arguments: &[&str]| {
        let seen = dormouse.command(&[&["doctor", "--json"], arguments].concat()).output().expect("it runs");
        let told: Value = serde_json::from_slice(&seen.stdout).expect("JSON");
        (seen.status.code(), told)
    };
    let (code, seen) = doctor(&[]);
    assert_eq!((code, &seen["in_trouble"]), (Some(0), &json!(0)), "a queued task is in no trouble: {seen}");
    for task in [b.as_str(), a] {
        // Its worker looks at it once, and lets it wait.
        crate::assistant::world::eventually("the doctor says behind what it waits", || {
            let (code, seen) = doctor(&[task]);
            let first = &seen["remarks"][0];
            code == Some(0) && first["finding"] == "queued" && text(first, "sentence").contains(one.as_str())
        })
        .await;
    }

    let put = async |order: Value, key: &str| wire.send((Method::PUT, &path), key, &json!({ "task_ids": order })).await;
    let (status, refusal) = put(json!([a, b]), "wrong").await;
    assert_eq!((status, &refusal["error"]["details"]["queue"]), (409, &json!([b, c, d, a])), "{refusal}");
    let (status, answer) = put(json!([a, d, c, b]), "right").await;
    assert_eq!((status, queued(&answer)), (200, vec![a, &d, &c, &b]), "{answer}");
    let part = json!({ "type": "text", "text": "this one first", "visibility": "public" });
    let interrupt = json!({ "kind": "interrupt", "message": { "role": "user", "parts": [part] } });
    let (status, said) = wire.post(&format!("/v1/tasks/{b}/messages"), "guide", &interrupt).await;
    assert_eq!(status, 201, "{said}");
    wire.post(&format!("/v1/tasks/{c}/cancel"), "cancel-c", &json!({})).await;
    assert_eq!(queued(&wire.get(&path).await), [b.as_str(), a, &d]);

    wire.post(&format!("/v1/tasks/{one}/cancel"), "cancel-one", &json!({})).await;
    for task in [&b, a, &d] {
        wire.task(task, &DONE).await;
    }
    assert_eq!(project.read("log"), "b\nnoted {\"line\":\"by action\"}\nd\n");
    let told = wire.events(a).await;
    assert!(told.iter().any(|event| event.event == EventKind::from("tool.completed")), "{told:#?}");
    let ended = told.iter().find(|event| event.event == EventKind::from("vendor.dormouse.run_ended"));
    assert_eq!(ended.expect("an end").payload["steps"], 0, "no model was asked");
    let task = wire.get(&format!("/v1/tasks/{a}")).await;
    let outcome = wire.get(&format!("/v1/outcomes/{}", text(&task, "outcome_id"))).await;
    assert_eq!(outcome["summary"], "noted {\"line\":\"by action\"}", "{outcome}");
    assert_eq!(wire.get(&path).await["data"], json!([]));

    let two = occupied(&project, &wire, &dormouse, &session).await;
    let [e, f] = ["e", "f"].map(|name| project.say_in(&dormouse, &session, &line(name)));
    let emptied = wire.send((Method::DELETE, &path), "empty", &json!({})).await;
    assert_eq!((emptied.0, queued(&emptied.1)), (200, vec![e.as_str(), &f]), "{emptied:?}");
    assert_eq!(wire.send((Method::DELETE, &path), "empty", &json!({})).await, emptied, "again");
    for task in [&e, &f] {
        wire.task(task, &[TaskStatus::Canceled]).await;
    }
    wire.post(&format!("/v1/tasks/{two}/cancel"), "cancel-two", &json!({})).await;

    let failed = run("bad", "bad").await.1;
    wire.task(text(&failed, "id"), &[TaskStatus::Failed]).await;
    let failed = wire.get(&format!("/v1/tasks/{}", text(&failed, "id"))).await;
    assert_eq!(failed["failure"]["code"], "action_failed", "{failed}");
    let said = failed["failure"]["message"].as_str().expect("a message");
    assert!(said.starts_with("the action `note`: "), "{said}");
    assert!(!project.read("log").contains("\ne\n"), "what was taken out of the queue did not run");
    for (action, expected) in [
        (json!({ "name": "note", "input": { "line": 7 } }), "is not of type"),
        (json!({ "name": "notes", "input": {} }), "did you mean `note`"),
        (json!({ "name": "note", "input": { "line": "x" }, "by_hand": true }), "callable_by_user"),
        (json!({ "name": "note", "input": { "line": "x" }, "progress": "done" }), "`action` has a `name`"),
        (json!({ "name": "note", "input": { "line": "x" }, "bi_hand": true }), "bi_hand"),
    ] {
        let body = json!({ "persona_id": "persona_assistant", "input": { "action": action } });
        let (status, refusal) = wire.post(&format!("/v1/sessions/{session}/tasks"), expected, &body).await;
        assert_eq!(status, 400, "{refusal}");
        assert!(refusal.to_string().contains(expected), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_run_by_an_agent_the_actions_that_it_may_use_and_its_policy_asks() {
    let agents = [
        (".openharness/agents/none.md", "---\ntools: {actions: []}\n---\nWork.\n"),
        (".openharness/agents/forbidden.md", "---\ndisallowed: {actions: ['*']}\n---\nWork.\n"),
        (".openharness/agents/careful.md", "---\npolicy: {approval: {actions: [note]}}\n---\nWork.\n"),
    ];
    let project = Project::of(&[&[WORKER, NOTE, NOTE_SCRIPT][..], &agents].concat()).await;
    project.make_runnable(".openharness/actions/note/note.sh");
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let session = wire.task(&project.say(&dormouse, &[]), &DONE).await.session_id;
    let run = async |agent: &str| {
        let input = json!({ "action": { "name": "note", "input": { "line": agent } } });
        let body = json!({ "persona_id": format!("persona_{agent}"), "input": input });
        wire.post(&format!("/v1/sessions/{session}/tasks"), agent, &body).await
    };
    for (agent, field) in [("none", "`tools.actions`"), ("forbidden", "`disallowed`")] {
        let (status, refusal) = run(agent).await;
        assert_eq!(status, 400, "{refusal}");
        assert!(refusal.to_string().contains(field) && refusal.to_string().contains(agent), "{refusal}");
    }
    let (status, asked) = run("careful").await;
    assert_eq!(status, 202, "{asked}");
    wire.task(text(&asked, "id"), &[TaskStatus::AuthRequired]).await;
    assert!(!project.exists("log"), "nothing ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_workspace_runs_no_action() {
    let settings = (".openharness/settings.yaml", "kind: chat\n");
    let project = Project::of(&[WORKER, NOTE, NOTE_SCRIPT, settings]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let first = project.say(&dormouse, &[]);
    let session = wire.task(&first, &DONE).await.session_id;
    let input = json!({ "action": { "name": "note", "input": { "line": "x" } } });
    let body = json!({ "persona_id": "persona_assistant", "input": input });
    let (status, refusal) = wire.post(&format!("/v1/sessions/{session}/tasks"), "run", &body).await;
    assert_eq!(status, 400, "{refusal}");
    assert!(refusal.to_string().contains("actions_not_supported"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_works_hears_an_interruption_also_where_the_server_is_killed_before_it_does() {
    let project = Project::of(&[WORKER]).await;
    let mut dormouse = project.serve();
    for (name, kills) in [("one", false), ("two", true)] {
        let mut go = project.gate(&format!("go-{name}"));
        let command = format!(": > begun-{name}; read -r line < go-{name}");
        let task = project.say(&dormouse, &[("Bash", json!({ "command": command }))]);
        project.eventually_exists(&format!("begun-{name}")).await;
        let words = format!("look at the other one, {name}");
        let message = json!({ "role": "user", "parts": [{ "type": "text", "text": words, "visibility": "public" }] });
        let interrupt = json!({ "kind": "interrupt", "message": message });
        let path = format!("/v1/tasks/{task}/messages");
        assert_eq!(Wire::of(&dormouse).post(&path, name, &interrupt).await.0, 201);
        if kills {
            dormouse = dormouse.kill_and_restart();
            // Nobody knows whether the command ran.
            Wire::of(&dormouse).task(&task, &[TaskStatus::InputRequired]).await;
            let parts = json!([{ "type": "text", "text": "skip", "visibility": "public" }]);
            let answer = json!({ "kind": "input", "message": { "role": "user", "parts": parts } });
            assert_eq!(Wire::of(&dormouse).post(&path, "skip", &answer).await.0, 201);
        }
        go.open();
        let session = Wire::of(&dormouse).task(&task, &DONE).await.session_id.to_string();
        let told = || {
            let request = project.model.requests().pop().expect("a request");
            let messages = request["messages"].as_array().expect("messages").clone();
            messages.into_iter().filter(|message| message["role"] == "user").collect::<Vec<_>>()
        };
        assert_eq!(told().last().expect("a message")["content"], words, "it is in the next request of the run");
        let next = project.say_in(&dormouse, &session, &[]);
        Wire::of(&dormouse).task(&next, &DONE).await;
        assert_eq!(
            told().iter().filter(|message| message["content"] == *words).count(),
            1,
            "and in no other one twice"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_which_a_killed_server_had_begun_a_turn_is_free_for_the_next_one() {
    let project = Project::of(&[]).await;
    let dormouse = project.serve().with_the_api_key();
    let url = dormouse.url("/graphs/assistant/turns");
    let turn = json!({ "session_id": "s", "state": { "messages": [{ "role": "user", "content": "go" }] } });
    project.hold_answers(true);
    let dies = async {
        crate::assistant::world::eventually("the model is asked", || !project.model.requests().is_empty()).await;
        dormouse.strike();
    };
    let (answer, ()) = tokio::join!(dormouse.post(&url, &turn), dies);
    assert!(answer.is_err(), "{answer:?}");
    project.hold_answers(false);
    let dormouse = dormouse.kill_and_restart().with_the_api_key();
    // Its request would wait for the lease of the one that died, which lasts 15 minutes.
    assert_eq!(dormouse.turn("assistant", &turn).await["status"], "completed");
}
