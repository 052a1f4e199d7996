//! Work that kills its process, through real processes: it is tried as often as it may be, put aside whole, told to its
//! client, named by the doctor, and goes on once it is mended. Everything else goes on meanwhile.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long to wait for something that must happen. Nothing is proved by it being short.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many workers may die of one invocation.
const ATTEMPTS: u32 = 3;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poisonous"));
    command.env("DORMOUSE_LIMIT_ATTEMPTS", ATTEMPTS.to_string());
    command
}

/// A process that serves the poisonous agent. Dropping it kills it.
struct Process {
    child: Child,
    port: u16,
    key: String,
}

impl Process {
    /// Starts it on `data` and `port`; `None` when it dies before it is ready.
    fn start(data: &Path, port: u16, mended: bool) -> Option<Self> {
        let mut command = program();
        command.args(["dev", "--no-tour", "--port", &port.to_string(), "--data"]).arg(data);
        if mended {
            command.env("POISON_IS_MENDED", "yes");
        }
        let log = File::options().create(true).append(true).open(log_of(data)).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let printed = lines(&mut child);
        let mut started = Self { child, port, key: String::new() };
        started.port = awaited(&printed, "dormouse is ready at http://127.0.0.1:")?.parse().unwrap();
        started.key = awaited(&printed, "signal key: ")?;
        Some(started)
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Posts `body`; `None` when nobody is there to answer.
    async fn post(&self, url: &str, body: &Value) -> Option<(u16, Value)> {
        let client = dormouse_tests::client_within(PATIENCE);
        let response = client.post(url).bearer_auth(&self.key).json(body).send().await.ok()?;
        Some((response.status().as_u16(), response.json().await.ok()?))
    }

    async fn get(&self, url: &str) -> Option<Value> {
        let response = dormouse_tests::client().get(url).bearer_auth(&self.key).send().await.ok()?;
        response.json().await.ok()
    }

    /// Begins a turn of `graph`, which sleeps then.
    async fn asleep(&self, graph: &str, state: Value) -> Value {
        let turn = self.post(&self.url(&format!("/graphs/{graph}/turns")), &json!({ "state": state })).await;
        let (status, begun) = turn.unwrap();
        assert_eq!((status, &begun["status"]), (202, &json!("suspended")), "{begun}");
        begun
    }

    fn has_died(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has died, of itself.
    fn dies(&mut self) {
        wait(|| self.has_died());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have died.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(mut until: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !until() {
        assert!(begun.elapsed() < PATIENCE, "it never happened");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn log_of(data: &Path) -> PathBuf {
    data.with_extension("log")
}

/// What it prints, line by line, until it ends.
fn lines(child: &mut Child) -> Receiver<String> {
    let (said, heard) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.send(line)));
    heard
}

/// The rest of the next line that begins with `start`; `None` when it ends before.
fn awaited(printed: &Receiver<String>, start: &str) -> Option<String> {
    loop {
        let line = match printed.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("it neither prints {start:?} nor dies"),
        };
        if let Some(rest) = line.strip_prefix(start) {
            return Some(rest.to_owned());
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text at `{key}` in {value}"))
}

/// What the command line says of what is in `data`.
fn asked(data: &Path, arguments: &[&str]) -> Output {
    program().args(arguments).arg("--data").arg(data).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kills_its_process_is_put_aside_and_goes_on_once_it_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut process = Process::start(&data, 0, false).unwrap();
    let port = process.port;
    let poison = process.asleep("poison", json!({})).await;
    let expense = json!({"employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard"});
    let first = process.asleep("expense-approval", expense.clone()).await;
    let last = process.asleep("expense-approval", expense).await;
    let id = text(&poison, "invocation_id");
    let approval = json!({"decision": "approved", "decided_by": "Grace"});

    // Whoever brings the answer is the first to die of it.
    let answered = process.post(text(&poison, "callback_url"), &json!({ "answer": "yes" })).await;
    assert_eq!(answered, None);
    process.dies();
    let (mut deaths, mut others_go_on) = (1, false);

    // It is taken over again and again, until that is enough: then nobody dies any more.
    let (mut process, aside) = loop {
        let Some(mut process) = Process::start(&data, port, false) else {
            deaths += 1;
            continue;
        };
        if !others_go_on {
            // A busy machine may take the poison before the answer: then the next process gets that.
            let Some((status, done)) = process.post(text(&first, "callback_url"), &approval).await else {
                process.dies();
                deaths += 1;
                continue;
            };
            assert_eq!((status, &done["status"]), (200, &json!("completed")), "others go on meanwhile: {done}");
            others_go_on = true;
        }
        let begun = Instant::now();
        let aside = loop {
            let seen = process.get(text(&poison, "status_url")).await;
            match seen.filter(|seen| seen.get("error").is_some()) {
                Some(seen) => break Some(seen),
                None if process.has_died() => break None,
                None => {}
            }
            assert!(begun.elapsed() < PATIENCE, "it neither dies nor is put aside");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        match aside {
            Some(aside) => break (process, aside),
            None => deaths += 1,
        }
        // A death while an answer of the others was under way, too, may not have counted.
        assert!(deaths <= 2 * ATTEMPTS, "it is tried no more than {ATTEMPTS} times");
    };
    assert!(deaths >= ATTEMPTS && others_go_on, "{deaths} deaths");
    assert_eq!(aside["error"]["category"], "attempts_exhausted", "its client is told: {aside}");
    assert!(text(&aside["error"], "message").contains(&format!("retry {id}")), "{aside}");
    let (status, done) = process.post(text(&last, "callback_url"), &approval).await.unwrap();
    assert_eq!((status, &done["status"]), (200, &json!("completed")), "others go on: {done}");

    let diagnosis = asked(&data, &["doctor"]);
    assert!(said(&diagnosis).contains(id), "the doctor names it: {diagnosis:?}");
    assert_eq!(diagnosis.status.code(), Some(3), "{diagnosis:?}");
    assert!(!process.has_died());
    drop(process);

    let mended = Process::start(&data, port, true).unwrap();
    let retried = asked(&data, &["retry", id]);
    assert!(retried.status.success(), "{retried:?}");
    let begun = Instant::now();
    let done = loop {
        let seen = mended.get(text(&poison, "status_url")).await.unwrap();
        if seen["status"] == "completed" {
            break seen;
        }
        assert!(begun.elapsed() < PATIENCE, "it never completed: {seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(done["state"], json!({"answer": "yes", "digested": true}), "with the answer that counted");
    let diagnosis = asked(&data, &["doctor"]);
    assert!(!said(&diagnosis).contains(id), "{diagnosis:?}");
}
