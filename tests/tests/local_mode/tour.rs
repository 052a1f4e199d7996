//! The guided tour, pasted into a shell line by line.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::folder;
use crate::process::{Dormouse, PATIENCE, PrintedLines};

const END: &str = "--- end of the answer";

/// A terminal in which somebody pastes lines.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: PrintedLines,
    /// What was pasted last.
    pasted: String,
}

impl Shell {
    fn open() -> Self {
        let mut shell = Command::new("sh");
        dormouse_tests::past_proxies(&mut shell);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a shell");
        let input = child.stdin.take().expect("a pipe");
        let output = child.stdout.take().expect("a pipe");
        Self { child, input, output: PrintedLines::of(output), pasted: String::new() }
    }

    /// Pastes `command` and gives what it prints.
    fn paste(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}\necho; echo '{END}'").expect("the shell listens");
        command.clone_into(&mut self.pasted);
        let mut printed = String::new();
        loop {
            let line = self.output.next().expect("the shell goes on");
            if line.trim_end() == END {
                return printed.trim().to_owned();
            }
            printed.push_str(&line);
            printed.push('\n');
        }
    }

    /// Pastes the last command once more.
    fn paste_again(&mut self) -> String {
        let pasted = std::mem::take(&mut self.pasted);
        self.paste(&pasted)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It ends by itself when its input does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The commands of the tour: its indented lines.
fn commands(tour: &str) -> Vec<String> {
    tour.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

fn has(answer: &str, parts: &[&str]) {
    for part in parts {
        assert!(answer.contains(part), "`{part}` is not in the answer: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_the_tour_does_what_it_says() {
    let folder = folder();
    let dormouse = Dormouse::start(folder.path());
    let tour = dormouse.tour();
    let mut commands = commands(&tour).into_iter();
    let mut shell = Shell::open();
    let mut next = |shell: &mut Shell| shell.paste(&commands.next().expect("another command"));
    for _ in 0..5 {
        assert_eq!(next(&mut shell), "");
    }

    has(&next(&mut shell), &[r#""status":"suspended""#, r#""callback_url":"http://"#]);
    assert_eq!(next(&mut shell), "");
    has(&next(&mut shell), &[r#""status":"suspended""#]);
    assert_eq!(dormouse.get(&dormouse.url("/health")).await["status"], "ok", "there is an open connection");
    let dormouse = dormouse.interrupt_and_restart();
    has(&next(&mut shell), &[r#""status":"completed""#, r#""repeated":false"#]);
    has(&next(&mut shell), &[r#""status":"completed""#, r#""repeated":true"#]);
    has(&next(&mut shell), &[r#""status":"completed""#, r#""decided_by":"Grace""#]);

    has(&next(&mut shell), &[r#""status":"suspended""#]);
    // What the line shows after its pause depends on the machine; the reminder itself is proved elsewhere.
    has(&next(&mut shell), &[r#""status":"#]);

    has(&next(&mut shell), &[r#""status":"suspended""#, r#""job_id":"export-"#]);
    assert_eq!(next(&mut shell), "");
    has(&next(&mut shell), &[r#""Export Requested""#, r#""dataset":"orders""#]);
    has(&next(&mut shell), &[r#""delivery":"pending""#]);
    has(&next(&mut shell), &[r#""status":"#]);

    has(&next(&mut shell), &[r#""role":"assistant""#, "scripted model"]);
    has(&next(&mut shell), &[r#""status":"suspended""#, r#""missing":["ada","grace","linus"]"#]);
    has(&next(&mut shell), &[r#""accepted":"ada""#, r#""missing":["grace","linus"]"#]);
    has(&next(&mut shell), &[r#""status":"completed""#, r#""resolution":"signalled""#]);
    has(&next(&mut shell), &[r#""status":"completed""#, "approved by ada and linus"]);

    for _ in 0..3 {
        assert_eq!(next(&mut shell), "");
    }
    // What comes until curl leaves, and how far the task is by then, depends on the machine, too.
    let began = Instant::now();
    let mut told = next(&mut shell);
    while !told.contains("event: task.started\n") {
        assert!(began.elapsed() < PATIENCE, "the task does not begin: {told}");
        told = shell.paste_again();
    }
    has(&told, &["event: task.submitted\n"]);
    while !shell.paste(r#"api "/v1/tasks/$T""#).contains("AUTH_REQUIRED") {
        assert!(began.elapsed() < PATIENCE, "the task does not wait");
    }
    has(&next(&mut shell), &[r#""object":"message""#, r#""text":"yes""#]);
    has(&next(&mut shell), &[r#""object":"task""#, r#""persona_id":"persona_expense-approval""#]);
    has(&next(&mut shell), &[r#""status":"suspended""#, "May `clerk` call `order`?"]);
    has(&next(&mut shell), &[r#""status":"completed""#, r#""repeated":false"#]);
    has(&next(&mut shell), &["This is a script", "Order notebooks, please.", r#""reason":"completed""#]);
    assert!(tour.contains("Its model is a script."), "{tour}");
    assert!(commands.next().is_none(), "every command was pasted");
    drop(dormouse);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_of_the_tour_is_asked_past_a_proxy() {
    let folder = folder();
    // Nobody listens there, and no host is left out.
    let nowhere = [("HTTP_PROXY", "http://127.0.0.1:9"), ("NO_PROXY", ""), ("no_proxy", "")];
    let dormouse = Dormouse::start_in(folder.path(), &[], &nowhere);
    let order = json!({ "state": { "messages": [{ "role": "user", "content": "Order notebooks, please." }] } });
    let asked = dormouse.turn("clerk", &order).await;
    assert_eq!(asked["waiting_for"]["metadata"]["description"], "May `clerk` call `order`?", "{asked}");
}
