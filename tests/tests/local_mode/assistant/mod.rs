//! An agent in a folder as a person meets it: written by `dormouse new`, served by the real binary, asked over the
//! protocol and in the terminal, and killed at bad moments. Its model is scripted; its tool counts what it did.

mod bad_input;
mod bedrock;
mod live;
mod secrets;
mod servers;
mod slow;
mod taken_up;
mod telemetry;
mod terminal;
mod typed;
pub(crate) mod world;

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dormouse_local::ScriptedTurn;
use dormouse_protocol::EventKind;
use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};

use crate::process::{Dormouse, program, text};
use world::{Assistant, Wire, eventually};

const WAITING: [TaskStatus; 2] = [TaskStatus::AuthRequired, TaskStatus::InputRequired];
const DONE: [TaskStatus; 1] = [TaskStatus::Completed];

fn rooms(assistant: &Assistant) -> Vec<String> {
    assistant.office.bookings().iter().map(|(_, asked)| text(asked, "room").to_owned()).collect()
}

/// What the agent said last, in the state of its invocation as the command line shows it.
fn last_words(dormouse: &Dormouse, task: &str) -> String {
    let shown = dormouse.command(&["show", task, "--json"]).output().expect("it runs");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let messages = shown["state"]["messages"].as_array().cloned().unwrap_or_else(|| panic!("no messages in {shown}"));
    messages.last().expect("a message")["content"].as_str().expect("text").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_approved_on_the_command_line_runs_once_through_a_kill() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let personas = wire.get("/v1/personas").await;
    assert_eq!(personas["data"][0]["name"], "assistant", "{personas}");
    let task = assistant.send(&dormouse, "book blue");
    let waiting = wire.task(&task, &WAITING).await;
    assert_eq!(waiting.status, TaskStatus::AuthRequired);
    assert_eq!((rooms(&assistant).len(), assistant.model.requests().len()), (0, 1));

    let dormouse = dormouse.kill_and_restart();
    let pending = dormouse.command(&["pending"]).output().expect("it runs");
    let pending = String::from_utf8(pending.stdout).expect("text");
    let commands = ["approve", "deny"].map(|word| format!("dormouse {word} {task}"));
    for told in commands.iter().map(String::as_str).chain([r#"book {"room":"blue"}"#, " is denied"]) {
        assert!(pending.contains(told), "{told}: {pending}");
    }
    let approved = dormouse.command(&["approve", &task, "--follow"]).output().expect("it runs");
    assert!(approved.status.success(), "{approved:?}");
    let shown = String::from_utf8(approved.stdout).expect("text");
    assert!(shown.contains("· book completed") && shown.contains("COMPLETED"), "{shown}");
    for buried in ["receipt", "digest", "answer it with", "task.submitted"] {
        assert!(!shown.contains(buried), "{buried} is not what a person waits for: {shown}");
    }
    assert_eq!((rooms(&assistant), assistant.model.requests().len()), (vec!["blue".to_owned()], 2));
    assert!(last_words(&dormouse, &task).contains("\"booked\":\"blue\""), "{}", last_words(&dormouse, &task));
    let key = &assistant.office.bookings()[0].0;
    assert!(key.ends_with("/1/call-1"), "{key}");

    let kinds: Vec<_> = Wire::of(&dormouse).events(&task).await.into_iter().map(|event| event.event).collect();
    let position = |kind: EventKind| kinds.iter().position(|one| *one == kind);
    let told = [
        EventKind::ToolRequested,
        EventKind::ToolApprovalRequired,
        EventKind::TaskAuthRequired,
        EventKind::ToolApproved,
        EventKind::ToolCompleted,
        EventKind::TaskCompleted,
    ];
    let positions: Vec<_> = told.iter().map(|kind| position(kind.clone())).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?} of {kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_decided_one_by_one_over_the_protocol() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue and red and green");
    let wire = Wire::of(&dormouse);
    wire.task(&task, &WAITING).await;
    let request = wire.events(&task).await.into_iter().find(|event| event.event == EventKind::TaskAuthRequired);
    let request = request.expect("it asks").payload["request"].clone();
    assert_eq!(request["calls"]["call-2"]["arguments"], json!({ "room": "red" }), "{request}");
    let digest = text(&request["calls"]["call-2"], "digest").to_owned();

    let (status, refused) = wire.answer(&task, Some("call-1"), json!({ "decision": "perhaps" })).await;
    assert_eq!(status, 400, "{refused}");
    let edited = json!({ "decision": "approve", "arguments": { "room": "yellow" } });
    assert_eq!(wire.answer(&task, Some("call-1"), edited).await.0, 201);
    let denied = json!({ "decision": "deny", "reason": "it is being painted" });
    assert_eq!(wire.answer(&task, Some("call-3"), denied).await.0, 201);
    let dormouse = dormouse.interrupt_and_restart();
    let wire = Wire::of(&dormouse);
    let seen = json!({ "decision": "approve", "digest": digest });
    assert_eq!(wire.answer(&task, Some("call-2"), seen).await.0, 201);
    wire.task(&task, &DONE).await;
    assert_eq!(rooms(&assistant), ["yellow", "red"], "one was edited, and one was denied");
    let told = assistant.model.requests()[1]["messages"].to_string();
    assert!(told.contains("it is being painted"), "the model is told why: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_of_other_arguments_than_those_that_were_shown_is_refused() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    let wire = Wire::of(&dormouse);
    wire.task(&task, &WAITING).await;
    let other = json!({ "decision": "approve", "digest": "0".repeat(64) });
    let (status, refused) = wire.answer(&task, None, other).await;
    assert!(status == 400 && refused.to_string().contains("digest"), "{refused}");
    wire.task(&task, &WAITING).await;
    assert_eq!(rooms(&assistant), Vec::<String>::new());
    assert_eq!(wire.answer(&task, None, json!({ "decision": "approve" })).await.0, 201);
    wire.task(&task, &DONE).await;
    assert_eq!(rooms(&assistant), ["blue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_the_model_thinks_loses_nothing() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    assistant.thinks.store(60_000, Ordering::SeqCst);
    let task = assistant.send(&dormouse, "hello");
    assistant.asked(1).await;
    assistant.thinks.store(0, Ordering::SeqCst);
    let dormouse = dormouse.kill_and_restart();
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert_eq!(last_words(&dormouse, &task), "You said: hello");
    assert_eq!(assistant.model.requests().len(), 2, "the answer that was lost is asked for again, once");
}

/// For the clients of its task it has failed, and stays so; who lets it go on answers what it asks.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_aside_and_is_tried_again_is_answered_by_the_command_that_is_shown() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve_in(&[("DORMOUSE_LIMIT_ATTEMPTS", "1")]);
    assistant.thinks.store(60_000, Ordering::SeqCst);
    let task = assistant.send(&dormouse, "book blue");
    assistant.asked(1).await;
    assistant.thinks.store(0, Ordering::SeqCst);
    let dormouse = dormouse.kill_and_restart();
    Wire::of(&dormouse).task(&task, &[TaskStatus::Failed]).await;
    let retried = dormouse.command(&["retry", &task]).output().expect("it runs");
    assert!(retried.status.success(), "{retried:?}");
    let shown = || {
        let pending = dormouse.command(&["pending"]).output().expect("it runs");
        String::from_utf8_lossy(&pending.stdout).into_owned()
    };
    eventually("it asks", || shown().contains(&format!("dormouse approve {task}"))).await;
    let approved = dormouse.command(&["approve", &task]).output().expect("it runs");
    assert!(approved.status.success(), "{approved:?}");
    eventually("the office books", || rooms(&assistant) == ["blue"]).await;
    let again = dormouse.command(&["approve", &task]).output().expect("it runs");
    assert_eq!(again.status.code(), Some(1), "it asks nothing any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_the_tool_works_asks_a_person_if_it_happened() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    Wire::of(&dormouse).task(&task, &WAITING).await;
    let first = pause_of(&Wire::of(&dormouse), &task).await.to_string();
    assistant.office.tarry(60_000);
    // Whoever approves is cut off by the kill.
    let mut approving = dormouse.command(&["approve", &task]).stderr(Stdio::null()).spawn().expect("it starts");
    eventually("the office books", || rooms(&assistant).len() == 1).await;
    assistant.office.tarry(0);
    let dormouse = dormouse.kill_and_restart();
    approving.wait().expect("it ends");
    let wire = Wire::of(&dormouse);
    let asks = wire.task(&task, &[TaskStatus::InputRequired]).await;
    assert_eq!(asks.status, TaskStatus::InputRequired);
    assert_eq!(rooms(&assistant).len(), 1, "nobody repeats it unasked");
    let refused = |arguments: &[&str]| {
        let output = dormouse.command(arguments).stderr(Stdio::piped()).output().expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {complaint}");
        complaint
    };
    for word in ["approve", "deny"] {
        let complaint = refused(&[word, &task]);
        assert!(complaint.contains("`happened`, `repeat`, `skip`"), "{complaint}");
    }
    // Whoever answers what was asked before is told all that there is to say now, and nothing that means something else.
    let late = refused(&["approve", &task, "--pause", &first]);
    let second = pause_of(&wire, &task).await;
    for word in ["happened", "repeat", "skip"] {
        assert!(late.contains(&format!("--pause {second} '{{\"decision\":\"{word}\"}}'\n")), "{word}: {late}");
    }
    assert!(late.contains(r#"  book {"room":"blue"}"#) && !late.contains("dormouse approve"), "{late}");
    assert_eq!(rooms(&assistant).len(), 1, "neither a no nor a yes makes it again");
    let (status, taken) = wire.answer(&task, None, json!({ "decision": "happened", "result": "blue is ours" })).await;
    assert_eq!(status, 201, "{taken}");
    wire.task(&task, &DONE).await;
    assert_eq!((rooms(&assistant).len(), assistant.model.requests().len()), (1, 2));
    assert_eq!(last_words(&dormouse, &task), "The office says: blue is ours");
    let events = wire.events(&task).await;
    let decided = events.iter().find(|event| event.event.as_str() == "vendor.dormouse.tool_decided");
    assert_eq!(decided.expect("what a person said is recorded").payload["decision"], "happened");
}

/// A tool that answers 202 tells later what came of it, at an address that is for this one call.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_answers_later_lets_the_run_sleep_until_it_does() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", "default_agent: assistant\nmodels: {default: workspace/main}\n");
    assistant.office.defer();
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    eventually("the run sleeps", || {
        let pending = dormouse.command(&["pending"]).output().expect("it runs");
        String::from_utf8_lossy(&pending.stdout).contains(&task)
    })
    .await;
    let address = assistant.office.callbacks().remove(0);
    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    let post = async |address: &str, outcome: &Value| {
        let sent = dormouse_tests::client().post(address).json(outcome).send().await.expect("an answer");
        (sent.status().as_u16(), sent.json::<Value>().await.expect("JSON"))
    };
    let (genuine, token) = address.split_once("?token=").expect("a token");
    let outcome = json!({ "booked": "blue, at last", "told_at": address });
    let elsewhere = format!("{}2?token={token}", genuine.trim_end_matches(char::is_numeric));
    assert_eq!(post(&elsewhere, &outcome).await.0, 404, "another call");
    assert_eq!(post(genuine, &outcome).await.0, 401, "no token");
    let (status, told) = post(&address, &outcome).await;
    assert!(matches!(status, 200 | 202), "{status}: {told}");
    assert_eq!(told.get("state"), None, "whoever reports is told nothing of the run: {told}");
    wire.task(&task, &DONE).await;
    let words = last_words(&dormouse, &task);
    assert!(words.contains("blue, at last") && words.contains("?token=[secret]"), "{words}");
    assert!(!assistant.model.requests()[1].to_string().contains(token), "the model is not shown the token");
    assert_eq!(assistant.model.requests().len(), 2);
    let (status, again) = post(&address, &outcome).await;
    assert!(matches!(status, 200 | 202 | 410), "{status}: {again}");
    assert_eq!(assistant.model.requests().len(), 2, "it is heard once");
    let events = wire.events(&task).await;
    let ended: Vec<_> = events.iter().filter(|event| event.event.as_str() == "tool.completed").collect();
    assert_eq!(ended.len(), 1, "what came later is recorded as every outcome is");
    let ended = &ended[0].payload;
    assert!(ended["later"] == true && ended["tool"] == "book" && ended["output_digest"].is_string(), "{ended:?}");
}

/// The 202 of a tool that answers later is lost in a kill, and it tells what came of the call while a person is asked.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_tool_tells_of_a_call_in_doubt_is_the_outcome_of_that_call_alone() {
    let post = async |address: &str, outcome: &str| {
        let sent =
            dormouse_tests::client().post(address).json(&json!({ "booked": outcome })).send().await.expect("an answer");
        assert!(sent.status().is_success(), "{}", sent.status());
    };
    for (told, decision, second, last) in [
        (Some("blue, at first"), "happened", None, "blue, at first"),
        (None, "happened", None, "its output is not known"),
        (Some("blue, at first"), "repeat", Some("blue, at last"), "blue, at last"),
    ] {
        let assistant = Assistant::hired().await;
        assistant.write(".openharness/settings.yaml", "default_agent: assistant\nmodels: {default: workspace/main}\n");
        assistant.office.defer();
        assistant.office.tarry(60_000);
        let dormouse = assistant.serve();
        let task = assistant.send(&dormouse, "book blue");
        eventually("the office is asked", || assistant.office.callbacks().len() == 1).await;
        assistant.office.tarry(0);
        let dormouse = dormouse.kill_and_restart();
        let wire = Wire::of(&dormouse);
        wire.task(&task, &[TaskStatus::InputRequired]).await;
        if let Some(told) = told {
            post(&assistant.office.callbacks()[0], told).await;
        }
        let (status, taken) = wire.answer(&task, None, json!({ "decision": decision })).await;
        assert_eq!(status, 201, "{taken}");
        if let Some(second) = second {
            eventually("the office is asked again", || assistant.office.callbacks().len() == 2).await;
            post(&assistant.office.callbacks()[1], second).await;
        }
        wire.task(&task, &DONE).await;
        let words = last_words(&dormouse, &task);
        assert!(words.contains(last), "{decision} {told:?}: {words}");
        assert_eq!(assistant.model.requests().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_sleeps_goes_on_with_the_definitions_that_it_began_with() {
    let assistant = Assistant::hired().await;
    assistant.write("AGENTS.md", "Rules of the first day.\n");
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    Wire::of(&dormouse).task(&task, &WAITING).await;
    assistant.write("AGENTS.md", "Rules of the second day.\n");
    let later = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&later, &DONE).await;
    let told = |number: usize| assistant.model.requests()[number]["messages"][0]["content"].to_string();
    assert!(told(0).contains("first day") && told(1).contains("second day"), "{} {}", told(0), told(1));

    // Nor does a restart give it others; and while nobody can run, the last definitions that could stay.
    let dormouse = dormouse.kill_and_restart();
    assistant.write(".openharness/agents/assistant.md", "---\nmodel: nowhere\n---\n");
    let approved = dormouse.command(&["approve", &task, "--follow"]).output().expect("it runs");
    assert!(approved.status.success(), "{approved:?}");
    assert!(told(2).contains("first day"), "{}", told(2));
    let last = assistant.send(&dormouse, "still there?");
    Wire::of(&dormouse).task(&last, &DONE).await;
    assert!(told(3).contains("second day"), "{}", told(3));
}

/// Runs are killed in the midst of models and tools, again and again. A person looks whether a call happened where the
/// run asks. In the end every run has come to its end, and every room is booked once.
#[tokio::test(flavor = "multi_thread")]
async fn kills_at_any_moment_of_many_runs_lose_no_call_and_double_none() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", "default_agent: assistant\nmodels: {default: workspace/main}\n");
    assistant.thinks.store(120, Ordering::SeqCst);
    assistant.office.tarry(120);
    let mut dormouse = assistant.serve();
    let rounds = std::env::var("DORMOUSE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    let mut tasks: Vec<String> = Vec::new();
    for round in 0..rounds {
        for run in 0..6 {
            tasks.push(assistant.send(&dormouse, &format!("book {round}-{run}")));
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..60))).await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..200))).await;
        dormouse = dormouse.kill_and_restart();
    }
    let wire = Wire::of(&dormouse);
    let mut asked = 0;
    for task in &tasks {
        let mut seen = wire.task(task, &[TaskStatus::Completed, TaskStatus::InputRequired]).await;
        while seen.status == TaskStatus::InputRequired {
            asked += 1;
            let key = format!("{task}/1/call-1");
            let happened = assistant.office.bookings().iter().any(|(of, _)| *of == key);
            let decision = if happened { "happened" } else { "repeat" };
            // The same answer may be given again: what was taken before is what counts.
            wire.answer(task, None, json!({ "decision": decision, "result": "look in the book" })).await;
            seen = wire.task(task, &[TaskStatus::Completed, TaskStatus::InputRequired]).await;
        }
        let booked = assistant.office.bookings().iter().filter(|(of, _)| *of == format!("{task}/1/call-1")).count();
        assert_eq!(booked, 1, "{task}, after {asked} questions");
    }
    let mut rooms = rooms(&assistant);
    rooms.sort();
    let before = rooms.len();
    rooms.dedup();
    assert_eq!((rooms.len(), before), (tasks.len(), tasks.len()), "every room is booked, and none twice");
    for (number, task) in tasks.iter().enumerate() {
        let room = format!("book {}-{}", number / 6, number % 6);
        let of_it = |request: &Value| request["messages"].to_string().contains(&format!("\"{room}\""));
        let asked = assistant.model.requests().into_iter().filter(of_it).count();
        assert!((2..=2 + rounds).contains(&asked), "{task}: a kill cost more than the call that it cut: {asked}");
    }
}

/// A model that books these rooms, one after the other.
fn books(assistant: &Assistant, rooms: &[&str]) {
    let rooms: Vec<String> = rooms.iter().map(|&room| room.to_owned()).collect();
    assistant.answers(move |request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let booked = messages.iter().filter(|message| message["role"] == "tool").count();
        match rooms.get(booked) {
            Some(room) => ScriptedTurn::calling("book", &json!({ "room": room })),
            None => ScriptedTurn::saying("all is booked"),
        }
    });
}

/// The number of the pause in which `task` asks something now.
async fn pause_of(wire: &Wire<'_>, task: &str) -> u64 {
    let pause = wire.get(&format!("/v1/x-pauses/{task}")).await;
    pause["generation"].as_u64().unwrap_or_else(|| panic!("no number in {pause}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_what_was_shown_is_none_to_what_is_asked_by_now() {
    let assistant = Assistant::hired().await;
    books(&assistant, &["blue", "red"]);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book");
    let wire = Wire::of(&dormouse);
    wire.task(&task, &WAITING).await;
    let first = pause_of(&wire, &task).await.to_string();
    let pending = dormouse.command(&["pending"]).output().expect("it runs");
    let pending = String::from_utf8(pending.stdout).expect("text");
    assert!(pending.contains(&format!("--pause {first}\n")), "{pending}");
    let approve = |pause: &[&str]| {
        let mut command = dormouse.command(&[&["approve", &task], pause].concat());
        let output = command.stderr(std::process::Stdio::piped()).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(approve(&["--pause", &first]).0, Some(0));
    eventually("the first room is booked", || rooms(&assistant).len() == 1).await;
    wire.task(&task, &WAITING).await;
    let second = pause_of(&wire, &task).await;
    let request = |pause: &str| format!("permission_request_{}.{pause}", task.trim_start_matches("task_"));
    let respond = format!("/v1/permission-requests/{}/respond", request(&first));
    let (status, late) = wire.post(&respond, "late", &json!({ "approved": true })).await;
    let open = request(&second.to_string());
    assert_eq!((status, &late["error"]["details"]["open_request"]), (409, &json!(open)), "{late}");
    let waiting = wire.get(&format!("/v1/tasks/{task}/permission-requests?status=pending")).await;
    assert_eq!((&waiting["data"][0]["id"], &waiting["data"][1]), (&json!(open), &Value::Null), "{waiting}");
    let (code, _, complaint) = approve(&["--pause", &first]);
    assert_eq!(code, Some(1), "{complaint}");
    let command = format!("--pause {second}");
    for told in ["May `assistant` call `book`?", r#"book {"room":"red"}"#, &command] {
        assert!(complaint.contains(told), "{told}: {complaint}");
    }
    assert_eq!(rooms(&assistant), ["blue"], "nobody has seen the second question");
    let (code, printed, _) = approve(&[]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(r#"book {"room":"red"}"#), "what is answered is shown: {printed}");
    wire.task(&task, &DONE).await;
    assert_eq!(rooms(&assistant), ["blue", "red"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_do_not_fit_are_asked_about_again_by_a_new_request() {
    let assistant = Assistant::hired().await;
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    let wire = Wire::of(&dormouse);
    let path = format!("/v1/tasks/{task}/permission-requests?status=pending");
    let respond = |request: &Value| format!("/v1/permission-requests/{}/respond", text(request, "id"));
    let edited = |room: Value| json!({ "approved": true, "answer": { "arguments": { "room": room } } });
    wire.task(&task, &WAITING).await;
    let first = wire.get(&path).await["data"][0].clone();
    let (status, taken) = wire.post(&respond(&first), "unfit", &edited(json!(7))).await;
    assert_eq!(status, 200, "{taken}");
    assert!(text(&taken["response"], "note").contains("a new request asks again"), "{taken}");
    wire.task(&task, &WAITING).await;
    let second = wire.get(&path).await["data"][0].clone();
    assert_ne!(first["id"], second["id"]);
    assert!(second["request"]["calls"]["call-1"]["unfit"].is_string(), "{second}");
    assert_eq!(rooms(&assistant), Vec::<String>::new());
    let (status, taken) = wire.post(&respond(&second), "fit", &edited(json!("green"))).await;
    assert_eq!(status, 200, "{taken}");
    wire.task(&task, &DONE).await;
    assert_eq!(rooms(&assistant), ["green"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_long_can_be_read_whole_before_they_are_approved() {
    let assistant = Assistant::hired().await;
    let long = "x".repeat(9_000);
    books(&assistant, &[&long]);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book");
    let wire = Wire::of(&dormouse);
    wire.task(&task, &WAITING).await;
    let pause = wire.get(&format!("/v1/x-pauses/{task}")).await;
    let call = &pause["request"]["calls"]["call-1"];
    assert_eq!(call["arguments"]["cut"], true, "{call}");
    assert_eq!(call["whole"], format!("/v1/x-pauses/{task}"));
    assert_eq!(pause["arguments"], json!({ "call-1": { "room": long } }));
    let approved = dormouse.command(&["approve", &task]).output().expect("it runs");
    assert!(String::from_utf8(approved.stdout).expect("text").contains(&long), "it is shown");
    wire.task(&task, &DONE).await;
    assert_eq!(rooms(&assistant), [long.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_where_it_can_be_mended() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/agents/assistant.md", "---\nmodel: nowhere\nmode: prmary\n---\nYou help.\n");
    let checked = world::command(&["workspace", "check", &assistant.folder()]);
    assert_eq!(checked.status.code(), Some(3), "{checked:?}");
    let told = String::from_utf8(checked.stdout).expect("text");
    assert!(told.contains(".openharness/agents/assistant.md:"), "{told}");
    let refused = program().args(["dev", "--workspace", &assistant.folder(), "--port", "0"]).output().expect("it runs");
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8(refused.stderr).expect("text");
    assert!(told.contains("no agent of") && told.contains("workspace check"), "{told}");
}
