//! More than can be done at once: nothing is lost or done twice, and whoever is refused is told when to come again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::folder;
use crate::process::Dormouse;

const SESSIONS: usize = 3;
/// Messages of a session that are sent at once.
const MESSAGES: usize = 40;

/// Sends a message until it is taken. What it was told to wait, in seconds, each time it was refused.
async fn say(dormouse: &Dormouse, session: usize, number: usize) -> Vec<u64> {
    let url = dormouse.url(&format!("/chat/chat/sessions/crowd-{session}/messages"));
    let message = json!({ "role": "user", "content": format!("message {number}.") });
    let mut waits = Vec::new();
    loop {
        let response = dormouse.post(&url, &message).await.expect("an answer");
        let status = response.status().as_u16();
        let wait = response.headers().get("retry-after").map(|value| value.to_str().expect("digits").to_owned());
        let answer: Value = response.json().await.expect("JSON");
        if status == 200 {
            return waits;
        }
        let error = answer.get("error").expect("an error");
        assert!(matches!(status, 429 | 503), "{status}: {answer}");
        assert!(error["category"] == "session_busy" || error["category"] == "overloaded", "{answer}");
        let wait: u64 = wait.expect("when to come again").parse().expect("seconds");
        assert!((1..=60).contains(&wait));
        tokio::time::sleep(Duration::from_secs(wait)).await;
        waits.push(wait);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_served_once_each_and_told_when_to_come_again() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let (mut sent, mut waits) = (0, Vec::new());
    // On a busy machine the crowd may come one after the other.
    while waits.is_empty() {
        assert!(sent < 10 * MESSAGES, "more wait in a session than its line takes");
        let messages = (0..SESSIONS * MESSAGES).map(|one| say(&dormouse, one % SESSIONS, sent + one / SESSIONS));
        waits = join_all(messages).await.concat();
        sent += MESSAGES;
    }
    assert!(waits.iter().any(|wait| *wait != 5), "five seconds are said where nobody knows: {waits:?}");
    for session in 0..SESSIONS {
        let url = dormouse.url(&format!("/chat/chat/sessions/crowd-{session}/messages"));
        let last =
            dormouse.post(&url, &json!({ "role": "user", "content": "the last one." })).await.expect("an answer");
        let last: Value = last.json().await.expect("JSON");
        let said = last["final_state"]["messages"].as_array().expect("a history");
        let mut times = BTreeMap::new();
        for message in said.iter().filter(|message| message["role"] == "user") {
            *times.entry(message["content"].as_str().expect("text")).or_insert(0) += 1;
        }
        assert_eq!(times.len(), sent + 1, "nothing is lost");
        assert!(times.values().all(|times| *times == 1), "nothing is said twice: {times:?}");
    }
}
