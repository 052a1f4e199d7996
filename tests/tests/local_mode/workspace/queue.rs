//! Tasks of one session run one after the other, and those of other sessions beside them.

use dormouse_protocol::resource::TaskStatus;
use serde_json::json;

use super::world::Project;
use crate::assistant::world::Wire;

const DONE: [TaskStatus; 1] = [TaskStatus::Completed];
const WORKER: (&str, &str) = (".openharness/agents/assistant.md", "---\ntools: {native: [Bash]}\n---\nWork.\n");

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_session_wait_for_each_other_in_order_and_one_that_is_canceled_is_passed_over() {
    let project = Project::of(&[WORKER]).await;
    let dormouse = project.serve();
    let wire = Wire::of(&dormouse);
    let first = project.say(&dormouse, &[]);
    let session = wire.task(&first, &DONE).await.session_id.to_string();
    let bash = |name: &str, seconds: u32| {
        let command = format!("echo begin-{name} >> log; sleep {seconds}; echo end-{name} >> log");
        [("Bash", json!({ "command": command }))]
    };
    let one = project.say_in(&dormouse, &session, &bash("one", 3));
    project.eventually_exists("log").await;
    let two = project.say_in(&dormouse, &session, &bash("two", 0));
    let three = project.say_in(&dormouse, &session, &bash("three", 0));
    let four = project.say_in(&dormouse, &session, &bash("four", 0));
    let other = project.say(&dormouse, &bash("other", 0));
    let works = [TaskStatus::Working];
    wire.task(&one, &works).await;
    for queued in [&two, &three, &four] {
        wire.task(queued, &[TaskStatus::Submitted]).await;
    }
    wire.task(&other, &DONE).await;
    let (status, _) = wire.post(&format!("/v1/tasks/{two}/cancel"), "cancel-two", &json!({})).await;
    assert_eq!(status, 200);
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
