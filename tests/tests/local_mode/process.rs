//! The real `dormouse` binary, started, killed and started again.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use serde_json::{Value, json};

/// How long to wait for something that must happen. Nothing is proved by it being short.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What comes of `seen`, which must come: a test that would wait for ever says what for.
pub(crate) async fn in_time<T>(what: &str, seen: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| panic!("it never came to this: {what}"))
}

/// What a program prints, line by line: one that prints nothing more fails its test, which would wait for ever.
#[derive(Debug)]
pub(crate) struct PrintedLines(Receiver<String>);

impl PrintedLines {
    pub(crate) fn of(output: ChildStdout) -> Self {
        let (say, told) = mpsc::channel();
        let lines = BufReader::new(output).lines();
        // A test that has heard enough hears no more of it.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        Self(told)
    }
}

impl Iterator for PrintedLines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it prints nothing more, and does not end"),
        }
    }
}

/// The secret of a vault, with which a provider signs its webhooks.
pub(crate) const HOOK: &[u8] = b"It's a Secret to Everybody";

/// The binary: what `DORMOUSE_BIN` names, or else what cargo builds now, in the folder and profile of this test.
///
/// Cargo tells a test only of the binaries of its own package. As a part of the workspace its dependencies have the
/// features that they have here already, so that little is compiled.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("DORMOUSE_BIN").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--bin", "dormouse", "--message-format=json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().expect("cargo runs");
    assert!(built.status.success(), "cargo cannot build the binary");
    let messages = String::from_utf8(built.stdout).expect("cargo speaks UTF-8");
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut binaries = messages.filter(|message| message["target"]["name"] == "dormouse");
    let path = binaries.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.expect("cargo names the binary")
}

/// The server. Its turns have more time than a busy machine makes of any of them: what a killed one held is free at the next
/// start, however long its leases were.
fn command(binary: &Path, data: &Path, port: u16, arguments: &[String]) -> Command {
    let mut command = program_of(binary);
    command.args(["dev", "--lease", "600", "--port", &port.to_string(), "--data"]).arg(data).args(arguments);
    command
}

/// The command line, without arguments, in an environment with the key of a model.
pub(crate) fn program() -> Command {
    program_of(binary())
}

/// The same of the program at `binary`.
pub(crate) fn program_of(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    dormouse_tests::past_proxies(&mut command);
    // What whoever runs the tests has set is for other servers.
    for (name, _) in std::env::vars_os() {
        if ["DORMOUSE_", "OTEL_", "RUST_LOG"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            command.env_remove(name);
        }
    }
    command.env("ASSISTANT_KEY", "the key of a model");
    command.env("DORMOUSE_VAULT_default_OPENAI", String::from_utf8_lossy(HOOK).into_owned());
    command
}

/// Runs it to its end, which must come by itself.
pub(crate) fn run_to_end(data: &Path, port: u16) -> Output {
    command(binary(), data, port, &[]).output().expect("it runs")
}

/// A running `dormouse dev`. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Dormouse {
    child: Child,
    binary: PathBuf,
    data: PathBuf,
    port: u16,
    /// What it is started with besides folder and port, each time.
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    key: String,
    printed: Arc<Mutex<String>>,
    client: Client,
}

impl Dormouse {
    /// Starts it in `folder`, on a port that is free.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    /// Starts it with `arguments` more.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_in(folder, arguments, &[])
    }

    /// Starts it with `arguments` and `environment` more.
    pub(crate) fn start_in(folder: &Path, arguments: &[&str], environment: &[(&'static str, &'static str)]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self::start_on((binary(), 0), folder.join("data"), arguments, environment.to_vec())
    }

    /// Starts the program at `binary` with `arguments`.
    pub(crate) fn start_by(binary: &str, folder: &Path, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self::start_on((Path::new(binary), 0), folder.join("data"), arguments, Vec::new())
    }

    fn start_on(
        (binary, port): (&Path, u16),
        data: PathBuf,
        arguments: Vec<String>,
        environment: Vec<(&'static str, &'static str)>,
    ) -> Self {
        let log = log_of(&data);
        let log = File::options().create(true).append(true).open(log).expect("a log file");
        let mut child = command(binary, &data, port, &arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let printed = Arc::new(Mutex::new(String::new()));
        collect(&mut child, printed.clone());
        let client = dormouse_tests::client_within(PATIENCE);
        let binary = binary.to_owned();
        let mut started =
            Self { child, binary, data, port, arguments, environment, key: String::new(), printed, client };
        let address = started.awaited_line("dormouse is ready at http://127.0.0.1:");
        started.port = address.parse().expect("a port");
        started.key = started.awaited_line("signal key: ");
        started
    }

    /// Kills it as hard as can be and starts it again on the same folder and port.
    pub(crate) fn kill_and_restart(mut self) -> Self {
        self.kill();
        self.again()
    }

    /// Asks it to end and starts it again on the same folder and port.
    pub(crate) fn interrupt_and_restart(mut self) -> Self {
        assert!(self.interrupt(), "it ends well when it is asked to");
        self.again()
    }

    fn again(&self) -> Self {
        Self::start_on((&self.binary, self.port), self.data.clone(), self.arguments.clone(), self.environment.clone())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Kills it while others are talking to it.
    pub(crate) fn strike(&self) {
        let killed = Command::new("kill").args(["-KILL", &self.child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// Asks it to end, as Ctrl-C does, and waits until it has. Gives whether it ended well.
    pub(crate) fn interrupt(&mut self) -> bool {
        let asked = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(asked.expect("kill runs").success());
        self.ended()
    }

    /// Waits until it has ended by itself. Gives whether it ended well.
    pub(crate) fn ended(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                return status.success();
            }
            assert!(begun.elapsed() < PATIENCE, "it never ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Closes its terminal, so to speak, and waits until it has ended. Gives whether it ended well.
    pub(crate) fn hang_up(&mut self) -> bool {
        let asked = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status();
        assert!(asked.expect("kill runs").success());
        self.ended()
    }

    /// What it has logged.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(log_of(&self.data)).expect("a log")
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The command line, asked about this process.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.args(arguments).arg("--data").arg(&self.data).stderr(Stdio::inherit());
        command
    }

    /// The development key that it printed.
    pub(crate) fn api_key(&self) -> String {
        self.awaited_line("api key: ")
    }

    /// Everything that it printed for a person, up to the last line of the tour.
    pub(crate) fn tour(&self) -> String {
        self.awaited_line("All routes: ");
        self.printed.lock().expect("a lock").clone()
    }

    /// The rest of the line that begins with `start`, once it is printed.
    fn awaited_line(&self, start: &str) -> String {
        let begun = Instant::now();
        loop {
            let printed = self.printed.lock().expect("a lock").clone();
            let whole_lines = printed.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            if let Some(rest) = whole_lines.filter_map(|line| line.strip_prefix(start)).next() {
                return rest.to_owned();
            }
            assert!(begun.elapsed() < PATIENCE, "it never printed `{start}`");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) async fn post(&self, url: &str, body: &Value) -> reqwest::Result<Response> {
        self.client.post(url).bearer_auth(&self.key).json(body).send().await
    }

    /// The same process, asked by whoever has its API key instead of its signal key.
    pub(crate) fn with_the_api_key(mut self) -> Self {
        self.key = self.api_key();
        self
    }

    /// Posts `body` and gives status and answer.
    pub(crate) async fn answer(&self, url: &str, body: &Value) -> (u16, Value) {
        let response = self.post(url, body).await.expect("an answer");
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    pub(crate) async fn get(&self, url: &str) -> Value {
        let response = self.client.get(url).bearer_auth(&self.key).send().await.expect("an answer");
        response.json().await.expect("JSON")
    }

    /// Begins a turn of `graph`, which must be accepted.
    pub(crate) async fn turn(&self, graph: &str, turn: &Value) -> Value {
        let (status, answer) = self.answer(&self.url(&format!("/graphs/{graph}/turns")), turn).await;
        assert!(matches!(status, 200 | 202), "{status}: {answer}");
        answer
    }

    pub(crate) async fn publish(&self, source: &str, detail_type: &str, detail: &Value) -> Value {
        let event = json!({"source": source, "detail-type": detail_type, "detail": detail});
        let (status, answer) = self.answer(&self.url("/_local/events"), &event).await;
        assert_eq!(status, 202, "{answer}");
        answer
    }

    /// What was published with `detail_type` since the process started.
    pub(crate) async fn published(&self, detail_type: &str) -> Vec<Value> {
        let listed = self.get(&self.url("/_local/events")).await;
        let events = listed["events"].as_array().cloned().expect("a list");
        events.into_iter().filter(|event| event["detail-type"] == detail_type).collect()
    }

    /// The invocation that `begun` tells of, once it is completed.
    pub(crate) async fn completed(&self, begun: &Value) -> Value {
        let started = Instant::now();
        loop {
            let seen = self.get(text(begun, "status_url")).await;
            if seen["status"] == "completed" {
                return seen;
            }
            assert!(seen["status"] == "suspended" && started.elapsed() < PATIENCE, "it never completed: {seen}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Dormouse {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(log_of(&self.data)).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "--- log of the process\n{log}");
        }
    }
}

fn log_of(data: &Path) -> PathBuf {
    data.with_extension("log")
}

fn collect(child: &mut Child, printed: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    std::thread::spawn(move || {
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            printed.lock().expect("a lock").push_str(&line);
            line.clear();
        }
    });
}

/// The text at `key` of `value`.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text at `{key}` in {value}"))
}
