//! Conversations in the terminal.

use std::io::{Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use dormouse_local::ScriptedTurn;
use serde_json::Value;

use super::world::{self, Assistant};
use super::{books, rooms};
use crate::process::{PATIENCE, program, text};

/// A terminal with `dormouse chat` in it.
pub(super) struct Terminal {
    pub(super) child: std::process::Child,
    pub(super) input: ChildStdin,
    /// What it shows, as it comes.
    pub(super) pieces: Receiver<Vec<u8>>,
}

impl Terminal {
    pub(super) fn open(assistant: &Assistant, arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(["chat", &assistant.folder()]).args(arguments);
        Self::of(command)
    }

    pub(super) fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, mut output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (send, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // A test that has failed hears no more of it.
            while let Ok(length @ 1..) = output.read(&mut piece)
                && send.send(piece[..length].to_vec()).is_ok()
            {}
        });
        Self { child, input, pieces }
    }

    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    /// What it shows until all of `awaited` are shown, in whichever order.
    pub(super) fn shows(&mut self, awaited: &[&str]) -> String {
        let mut shown = Vec::new();
        while !awaited.iter().all(|text| String::from_utf8_lossy(&shown).contains(text)) {
            match self.pieces.recv_timeout(PATIENCE) {
                Ok(piece) => shown.extend(piece),
                Err(error) => {
                    let what = if error == RecvTimeoutError::Timeout { "shows nothing more" } else { "ended" };
                    panic!("it {what}, without one of {awaited:?}: {}", String::from_utf8_lossy(&shown));
                }
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    }

    pub(super) fn leave(self) {
        assert_eq!(self.ends(), Some(0));
    }

    /// The status with which it ends where nothing more is said.
    pub(super) fn ends(mut self) -> Option<i32> {
        drop(self.input);
        shown_to_the_end(&self.pieces);
        self.child.wait().expect("it ends").code()
    }
}

/// Takes all that a terminal shows from it, until it has ended.
pub(super) fn shown_to_the_end(pieces: &Receiver<Vec<u8>>) {
    loop {
        match pieces.recv_timeout(PATIENCE) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => panic!("it shows nothing more, and does not end"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_approves_what_it_showed_and_asks_again_after_a_slip() {
    let assistant = Assistant::hired().await;
    let long = "x".repeat(9_000);
    books(&assistant, &["blue", "red", &long]);
    let data = format!("{}/.openharness/data/dormouse", assistant.folder());
    let beside = |arguments: &[&str]| {
        let output = world::command(&[arguments, &["--data", &data]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("book");
        terminal.shows(&[r#"{"room":"blue"}"#, "[s]top the run"]);
        let asked = || {
            let listed: Value = serde_json::from_str(&beside(&["pending", "--json"])).expect("JSON");
            listed["pending"][0].clone()
        };
        let first = asked();
        beside(&["approve", text(&first, "invocation_id")]);
        let began = Instant::now();
        while asked().is_null() || asked()["answer_with"] == first["answer_with"] {
            assert!(began.elapsed() < PATIENCE, "it asks nothing else");
            std::thread::sleep(Duration::from_millis(50));
        }
        terminal.say("y");
        terminal.shows(&["something else by now", r#"{"room":"red"}"#, "[s]top the run"]);
        assert_eq!(rooms(&assistant), ["blue"], "the yes was to another question");
        terminal.say(r#"{"arguments": "x"}"#);
        terminal.shows(&["invalid", "[s]top the run"]);
        terminal.say(&format!("n {}", "y".repeat(17 * 1024)));
        terminal.shows(&["invalid", "[s]top the run"]);
        terminal.say("n");
        terminal.shows(&[&long, "[s]top the run"]);
        terminal.say("y");
        terminal.shows(&["all is booked", "> "]);
        terminal.leave();
    });
    assert_eq!(rooms(&assistant), ["blue", long.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_in_the_terminal_is_kept() {
    let assistant = Assistant::hired().await;
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        let second = world::command(&["chat", &assistant.folder()]);
        let told = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{told}");
        assert!(told.contains("error: process ") && told.contains("has this workspace already"), "{told}");
        terminal.say("hello");
        terminal.shows(&["You said: hello"]);
        terminal.say("book blue");
        let asked = terminal.shows(&["[s]top the run"]);
        assert_eq!(asked.matches("May `assistant` call `book`?").count(), 1, "{asked}");
        assert!(asked.contains(r#"{"room":"blue"}"#), "{asked}");
        terminal.say("y");
        let said = terminal.shows(&["book completed", "The office says:"]);
        assert!(said.find("book completed") < said.find("The office says:"), "one after the other: {said}");
        terminal.leave();

        let mut again = Terminal::open(&assistant, &[]);
        again.shows(&["> "]);
        again.say("and now?");
        again.shows(&["You said: and now?"]);
        again.leave();
    });
    let last = assistant.model.requests().pop().expect("a request");
    let messages = last["messages"].to_string();
    assert!(messages.contains("hello") && messages.contains("The office says"), "it remembers: {messages}");
    assert_eq!(rooms(&assistant), ["blue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_tells_why_a_call_failed_keeps_its_commands_to_itself_and_ends_as_its_runs_did() {
    let assistant = Assistant::hired().await;
    assistant.write(".openharness/settings.yaml", "default_agent: assistant\nmodels: {default: workspace/main}\n");
    assistant.write(
        ".openharness/tools/settings.yaml",
        "book:\n  http:\n    method: POST\n    url: http://127.0.0.1:9/book\n    description: Books a room.\n    \
         input_schema: {type: object, properties: {room: {type: string}}, required: [room]}\n",
    );
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("/nwe");
        terminal.shows(&["there is no /nwe", "/new begins a new conversation", "> "]);
        terminal.say("book blue");
        let said = terminal.shows(&["book failed", "\n  book: ", "The office says:"]);
        assert!(said.find("\n  book: ") < said.find("The office says:"), "the reason stands before the answer: {said}");
        terminal.leave();
    });
    assert_eq!(assistant.model.requests().len(), 2, "the model heard of the room alone");
    assistant.answers(|_| ScriptedTurn::failing(401, "no such key"));
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("hello");
        terminal.shows(&["failed: "]);
        assert_eq!(terminal.ends(), Some(5));
    });
}
