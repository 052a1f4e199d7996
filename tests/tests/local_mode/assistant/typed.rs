//! Lines that a person edits in a terminal, which `script` makes.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use dormouse_local::ScriptedTurn;

use super::rooms;
use super::terminal::Terminal;
use super::world::{Assistant, eventually};
use crate::process::{program, text};

const UP: &str = "\u{1b}[A";
const LEFT: &str = "\u{1b}[D";
const CTRL_A: &str = "\u{1}";
const CTRL_C: &str = "\u{3}";
const CTRL_E: &str = "\u{5}";
const CTRL_U: &str = "\u{15}";
const CTRL_W: &str = "\u{17}";
const CTRL_Z: &str = "\u{1a}";

impl Terminal {
    /// A terminal that is none of pipes, with `dormouse chat` in it. A test that fails closes it with something typed in it, which
    /// ends no input.
    fn typed(assistant: &Assistant) -> Self {
        let chat = program();
        let mut command = Command::new("timeout");
        for (name, value) in chat.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("CHAT", chat.get_program()).env("FOLDER", assistant.folder());
        command.env("SHELL", "/bin/sh").env("TERM", "xterm").env_remove("NO_COLOR");
        command.args(["300", "script", "-q", "-e", "-c", "exec \"$CHAT\" chat \"$FOLDER\"", "/dev/null"]);
        Self::of(command)
    }

    /// Presses `keys`, and no Enter behind them.
    fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).and_then(|()| self.input.flush()).expect("it listens");
    }

    /// The status with which it ends by Ctrl-C, of which the first may come in the midst of an answer.
    fn interrupted(mut self) -> Option<i32> {
        loop {
            // Where it has ended nobody listens.
            let _ = self.input.write_all(CTRL_C.as_bytes()).and_then(|()| self.input.flush());
            loop {
                match self.pieces.recv_timeout(Duration::from_millis(300)) {
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return self.child.wait().expect("it ends").code(),
                }
            }
        }
    }
}

/// What the model was told last.
fn told(assistant: &Assistant) -> String {
    let request = assistant.model.requests().pop().expect("a request");
    let messages = request["messages"].as_array().expect("messages");
    text(messages.last().expect("a message"), "content").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_is_edited_and_those_before_it_are_had_again() {
    let assistant = Assistant::hired().await;
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::typed(&assistant);
        terminal.shows(&["> "]);
        terminal.press(&format!("ello{CTRL_A}h{CTRL_E} yu{LEFT}o\r"));
        terminal.shows(&["You said: hello you"]);
        terminal.press(&format!("never this{CTRL_U}and that{CTRL_W}東{LEFT}this \r"));
        terminal.shows(&["You said: and this 東"]);
        terminal.press(&format!("begun{UP}{UP}!\r"));
        terminal.shows(&["You said: hello you!"]);
        terminal.leave();
    });
    assert_eq!(assistant.model.requests().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paste_is_one_message_and_a_long_line_is_whole() {
    let assistant = Assistant::hired().await;
    let long = "w".repeat(9_000);
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::typed(&assistant);
        terminal.shows(&["> "]);
        terminal.press("\u{1b}[200~one\rtwo\r\nthree\u{1b}[201~");
        terminal.shows(&["three"]);
        assert_eq!(assistant.model.requests().len(), 0, "Enter sends it");
        terminal.press("\r");
        terminal.shows(&["You said: one"]);
        assert_eq!(told(&assistant), "one\ntwo\nthree");
        terminal.press(&format!("{long}end\r"));
        terminal.shows(&["You said: w", "end"]);
        assert_eq!(told(&assistant), format!("{long}end"));
        terminal.leave();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_while_an_answer_comes_stays_and_ctrl_c_stops_the_answer_alone() {
    let assistant = Assistant::hired().await;
    let words: Vec<String> = (0..600).map(|number| format!("word{number}")).collect();
    let words = words.join(" ");
    assistant.answers(move |request| match request.to_string().contains("the next one") {
        true => ScriptedTurn::saying("that is the next"),
        false => ScriptedTurn::saying(words.clone()).paced(Duration::from_millis(100)),
    });
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::typed(&assistant);
        terminal.shows(&["> "]);
        terminal.press("go on\r");
        terminal.shows(&["word3 "]);
        terminal.press("the nxt one");
        terminal.shows(&["the nxt one"]);
        terminal.press(&LEFT.repeat(6));
        terminal.shows(&["word20 "]);
        terminal.press("e");
        terminal.press(CTRL_C);
        terminal.shows(&["stopped", "> the next one"]);
        terminal.press("\r");
        terminal.shows(&["that is the next"]);
        terminal.leave();
    });
    assert_eq!(told(&assistant), "the next one");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_drops_a_line_and_ends_where_there_is_none() {
    let assistant = Assistant::hired().await;
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::typed(&assistant);
        terminal.shows(&["> "]);
        terminal.press("never mind");
        terminal.shows(&["> never mind"]);
        terminal.press(CTRL_C);
        terminal.shows(&["> never mind^C"]);
        terminal.press("hello\r");
        terminal.shows(&["You said: hello"]);
        assert_eq!(terminal.interrupted(), Some(0));
    });
    assert_eq!(assistant.model.requests().len(), 1);
}

/// Here as in `ssh -t` and in a container no shell could let it go on.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_stops_no_conversation_that_nobody_could_let_go_on() {
    let assistant = Assistant::hired().await;
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::typed(&assistant);
        terminal.shows(&["> "]);
        terminal.press(&format!("hel{CTRL_Z}"));
        terminal.shows(&["> hel"]);
        terminal.press("lo\r");
        terminal.shows(&["You said: hello"]);
        terminal.leave();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_by_nothing_that_was_begun_before_it_and_answers_are_no_messages() {
    let assistant = Assistant::hired().await;
    assistant.thinks.store(3_000, Ordering::SeqCst);
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::typed(&assistant);
        terminal.shows(&["> "]);
        terminal.press("book blue\r");
        terminal.press("y");
        terminal.shows(&["[s]top the run"]);
        assistant.thinks.store(0, Ordering::SeqCst);
        terminal.press("\r");
        terminal.shows(&["nothing was said", "[s]top the run"]);
        assert_eq!(rooms(&assistant), [] as [&str; 0], "the y was none to what nobody had seen");
        terminal.press(&format!("{UP}n too dear\r"));
        terminal.shows(&["book denied", "The office says:", "> y"]);
        terminal.press(&format!("{CTRL_U}{UP}{UP}\r"));
        terminal.shows(&["[s]top the run"]);
        terminal.press("y\r");
        terminal.shows(&["book completed"]);
        terminal.leave();
    });
    eventually("it is booked", || rooms(&assistant) == ["blue"]).await;
}
