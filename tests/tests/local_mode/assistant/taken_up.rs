//! What a terminal was left with is taken up by the next one.

use std::process::Command;
use std::sync::atomic::Ordering;

use dormouse_local::ScriptedTurn;

use super::rooms;
use super::terminal::{Terminal, shown_to_the_end};
use super::world::{Assistant, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_terminal_had_begun_is_followed_by_the_next_one() {
    let assistant = Assistant::hired().await;
    assistant.thinks.store(2000, Ordering::SeqCst);
    let mut terminal = tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("book blue");
        terminal
    });
    assistant.asked(1).await;
    terminal.child.kill().expect("it runs");
    terminal.child.wait().expect("it ends");
    tokio::task::block_in_place(|| {
        let mut again = Terminal::open(&assistant, &[]);
        let asked = again.shows(&["May `assistant` call `book`?", "[s]top the run"]);
        assert!(!asked.contains("\n> "), "nothing else can be said before: {asked}");
        assistant.thinks.store(0, Ordering::SeqCst);
        again.say("y");
        let said = again.shows(&["book completed", "The office says:"]);
        assert!(said.find("book completed") < said.find("The office says:"), "one after the other: {said}");
        again.leave();
    });
    assert_eq!(rooms(&assistant), ["blue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_it_behind_a_closed_terminal_is_shown_by_the_next_one() {
    // On a busy machine an answer may come before the terminal is closed, or after the time that it has for its end.
    for _ in 0..5 {
        if is_closed_in_the_midst().await {
            return;
        }
    }
    panic!("no answer came while a terminal ended");
}

/// True if an answer came while a terminal ended: then the next one has shown it.
async fn is_closed_in_the_midst() -> bool {
    let assistant = Assistant::hired().await;
    let mut terminal = tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("book blue");
        terminal.shows(&["[s]top the run"]);
        // It is closed in the midst of that, and has the time to end the run.
        assistant.thinks.store(1000, Ordering::SeqCst);
        terminal.say("y");
        terminal
    });
    eventually("the room is booked", || !rooms(&assistant).is_empty()).await;
    let is_in_the_midst = tokio::task::block_in_place(|| {
        let closed = Command::new("kill").args(["-TERM", &terminal.child.id().to_string()]).status();
        assert!(closed.expect("kill runs").success());
        // What it shows until then has to be taken from it.
        shown_to_the_end(&terminal.pieces);
        assert!(terminal.child.wait().expect("it ends").success());

        assistant.thinks.store(0, Ordering::SeqCst);
        let mut again = Terminal::open(&assistant, &[]);
        let told = again.shows(&["\n> "]);
        assert!(!told.contains("May `assistant` call"), "that was answered: {told}");
        again.leave();
        if !told.contains("while this conversation was closed") {
            return false;
        }
        assert!(told.contains("book completed") && told.contains("The office says:"), "{told}");

        let mut third = Terminal::open(&assistant, &[]);
        let told = third.shows(&["\n> "]);
        assert!(!told.contains("The office says:"), "it was shown: {told}");
        third.leave();
        true
    });
    assert_eq!(rooms(&assistant), ["blue"]);
    is_in_the_midst
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_decided_is_not_asked_about_again() {
    let assistant = Assistant::hired().await;
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("book blue and red");
        terminal.shows(&[r#"{"room":"blue"}"#, "[s]top the run"]);
        terminal.say("y");
        terminal.shows(&[r#"{"room":"red"}"#, "[s]top the run"]);
        terminal.child.kill().expect("it runs");
        terminal.child.wait().expect("it ends");

        let mut again = Terminal::open(&assistant, &[]);
        let asked = again.shows(&[r#"{"room":"red"}"#, "[s]top the run"]);
        assert!(!asked.contains(r#"{"room":"blue"}"#), "{asked}");
        again.say("n");
        again.shows(&["book denied", "The office says:"]);
        again.leave();
    });
    assert_eq!(rooms(&assistant), ["blue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ends_the_run_is_not_asked_about_its_other_calls() {
    let assistant = Assistant::hired().await;
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("book blue and red");
        terminal.shows(&[r#"{"room":"blue"}"#, "[s]top the run"]);
        terminal.say("s");
        let told = terminal.shows(&["failed: a person denied a call and ended the run"]);
        assert!(!told.contains("[s]top the run"), "nothing more is asked: {told}");
        assert_eq!(terminal.ends(), Some(5));
    });
    assert!(rooms(&assistant).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_that_was_asked_asks_is_asked_in_the_terminal_and_in_the_next_one() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", "default_agent: assistant\nmodels: {default: workspace/main}\n");
    let lead = "---\nsubagents: [clerk]\ntools: {external: []}\n---\nYou lead.\n";
    assistant.write(".openharness/agents/assistant.md", lead);
    let clerk = "---\nmode: subagent\npolicy: {approval: {external: [book]}}\n---\nYou are a clerk.\n";
    assistant.write(".openharness/agents/clerk.md", clerk);
    assistant.answers(|request| {
        let messages = request["messages"].as_array().cloned().unwrap_or_default();
        let is_clerk = messages[0].to_string().contains("You are a clerk.");
        let is_done = messages.last().is_some_and(|last| last["role"] == "tool");
        match (is_clerk, is_done) {
            (true, false) => ScriptedTurn::saying("").and_calling("book", r#"{"room":"blue"}"#),
            (false, false) => ScriptedTurn::saying("").and_calling("SubAgent", r#"{"prompt":"Book the blue room."}"#),
            (true, true) => ScriptedTurn::saying("It is booked."),
            (false, true) => ScriptedTurn::saying("The clerk has done it."),
        }
    });
    tokio::task::block_in_place(|| {
        let question = ["May `clerk` call `book`?", r#"{"room":"blue"}"#, "[s]top the run"];
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("I need the blue room.");
        let asked = terminal.shows(&question);
        assert!(!asked.contains("callback"), "nobody reports an agent's answer: {asked}");
        terminal.child.kill().expect("it runs");
        terminal.child.wait().expect("it ends");

        let mut again = Terminal::open(&assistant, &[]);
        again.shows(&question);
        again.say("y");
        let told = again.shows(&["The clerk has done it."]);
        assert!(!told.contains("It is booked."), "the clerk said that to the assistant: {told}");
        again.leave();
    });
    assert_eq!(rooms(&assistant), ["blue"]);
}
