use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dormouse_local::{ScriptedModel, ScriptedTurn};
use dormouse_protocol::resource::TaskStatus;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::assistant::world::{Wire, command, eventually};
use crate::process::{Dormouse, text};

const MODEL: &str = "scripted-1";

/// What every workspace has, unless a test says otherwise.
pub(crate) const SOUND: [(&str, &str); 2] =
    [("AGENTS.md", "Project rules.\n"), (".openharness/agents/assistant.md", "---\ndescription: Works\n---\nWork.\n")];

/// Where commands wait that read a line of it, which needs no process: tests of fork bombs leave none at times.
pub(crate) struct Gate(fs::File);

impl Gate {
    /// Lets one command go on.
    pub(crate) fn open(&mut self) {
        self.0.write_all(b"\n").expect("the pipe has room");
    }
}

/// A workspace whose model calls the tools that each message names, one after the other.
pub(crate) struct Project {
    place: TempDir,
    /// True as long as the model answers nobody.
    holds: Arc<AtomicBool>,
    pub(crate) model: ScriptedModel,
}

impl Project {
    /// The sound workspace with `files`.
    pub(crate) async fn of(files: &[(&str, &str)]) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let holds = Arc::new(AtomicBool::default());
        let held = holds.clone();
        let respond = move |request: &Value| match held.load(Ordering::SeqCst) {
            true => played(request).after(Duration::from_secs(600)),
            false => played(request),
        };
        let model = ScriptedModel::start(MODEL, Arc::new(respond)).await.expect("a model");
        let project = Self { place, holds, model };
        let url = project.model.base_url();
        let models = format!("main:\n  provider: openai-compatible\n  name: {MODEL}\n  url: {url}\n  key: none\n");
        project.write(".openharness/models/models.yaml", &models);
        SOUND.iter().chain(files).for_each(|(path, text)| project.write(path, text));
        project
    }

    /// From now on the model answers nobody, or everybody again who asks then.
    pub(crate) fn hold_answers(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.place.path().join("project").join(path)
    }

    pub(crate) fn folder(&self) -> String {
        self.path("").display().to_string()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn make_runnable(&self, path: &str) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(0o755)).expect("rights");
    }

    /// Makes a named pipe at which commands wait.
    pub(crate) fn gate(&self, path: &str) -> Gate {
        let path = self.path(path);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        // With both ends open neither side waits for the other, and what is written is kept.
        Gate(fs::File::options().read(true).write(true).open(path).expect("a pipe"))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect("a text")
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    pub(crate) async fn eventually_exists(&self, path: &str) {
        eventually(path, || self.exists(path)).await;
    }

    /// Makes `text` a part of the declaration of the model.
    pub(crate) fn describe_model(&self, text: &str) {
        let models = self.read(".openharness/models/models.yaml");
        self.write(".openharness/models/models.yaml", &format!("{models}{text}"));
    }

    /// `dormouse dev --workspace`.
    pub(crate) fn serve(&self) -> Dormouse {
        self.serve_with(&[])
    }

    /// Serves it with `arguments` more.
    pub(crate) fn serve_with(&self, arguments: &[&str]) -> Dormouse {
        let folder = self.folder();
        Dormouse::start_with(self.place.path(), &[&["--workspace", &folder, "--no-tour"], arguments].concat())
    }

    /// Serves it by the program at `binary`.
    pub(crate) fn serve_by(&self, binary: &str) -> Dormouse {
        Dormouse::start_by(binary, self.place.path(), &["--workspace", &self.folder(), "--no-tour"])
    }

    /// Serves it with variables of the environment.
    pub(crate) fn serve_in(&self, environment: &[(&'static str, &'static str)]) -> Dormouse {
        Dormouse::start_in(self.place.path(), &["--workspace", &self.folder(), "--no-tour"], environment)
    }

    /// Sends a message for which the model makes `calls`, and gives the id of the task.
    pub(crate) fn say(&self, dormouse: &Dormouse, calls: &[(&str, Value)]) -> String {
        self.sent(dormouse, &[], calls)
    }

    /// The same in a session.
    pub(crate) fn say_in(&self, dormouse: &Dormouse, session: &str, calls: &[(&str, Value)]) -> String {
        self.sent(dormouse, &["--session", session], calls)
    }

    fn sent(&self, dormouse: &Dormouse, arguments: &[&str], calls: &[(&str, Value)]) -> String {
        let said = json!(calls.iter().map(|(name, arguments)| json!([name, arguments])).collect::<Vec<_>>());
        let said = format!("script {said}");
        let all = [&["send", "--persona", "assistant", "--json"], arguments, &[&said]].concat();
        let sent = dormouse.command(&all).output().expect("it runs");
        assert!(sent.status.success(), "{sent:?}");
        text(&serde_json::from_slice(&sent.stdout).expect("a task"), "id").to_owned()
    }

    /// Whether this machine gives commands namespaces of their own, which the server tells in its log where it does not: no
    /// container has them that was not given the right to.
    pub(crate) async fn confines(&self, dormouse: &Dormouse) -> bool {
        let task = self.say(dormouse, &[("Bash", json!({ "command": "true" }))]);
        Wire::of(dormouse).task(&task, &[TaskStatus::Completed]).await;
        let is_confined = !dormouse.logged().contains("this machine gives commands of agents no");
        if !is_confined {
            // Without an error stream there is no reader.
            let _ = writeln!(std::io::stderr(), "ignored: this machine gives commands no namespaces");
        }
        is_confined
    }

    /// Results of the calls of the last message, as the model was shown them last.
    pub(crate) fn results(&self) -> Vec<String> {
        let request = self.model.requests().pop().expect("a request");
        since_last_message(&request)
            .filter(|message| message["role"] == "tool")
            .map(|message| text(message, "content").to_owned())
            .collect()
    }

    /// Names of the tools that the model was offered last.
    pub(crate) fn offered(&self) -> Vec<String> {
        let request = self.model.requests().pop().expect("a request");
        let tools = request["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| text(&tool["function"], "name").to_owned()).collect()
    }

    /// The whole of what the model was told first in its last request.
    pub(crate) fn instructions(&self) -> String {
        let request = self.model.requests().pop().expect("a request");
        text(&request["messages"][0], "content").to_owned()
    }

    pub(crate) fn check(&self) -> String {
        String::from_utf8(command(&["workspace", "check", &self.folder()]).stdout).expect("text")
    }
}

fn since_last_message(request: &Value) -> impl Iterator<Item = &Value> {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Images of results are a message of the user as well.
    let is_said = |message: &Value| message["role"] == "user" && message["content"].is_string();
    let last = messages.iter().rposition(is_said).unwrap_or_default();
    messages[last..].iter()
}

/// Makes the next call of the script in the last message, or says that it is done.
fn played(request: &Value) -> ScriptedTurn {
    if request["messages"][0]["content"].as_str().is_some_and(|text| text.starts_with("You write the summary")) {
        return ScriptedTurn::saying("what was said before, in short");
    }
    let said =
        since_last_message(request).next().map(|message| text(message, "content").to_owned()).unwrap_or_default();
    let script = said.split_once("script ").map(|(_, script)| script).unwrap_or("[]");
    let script: Vec<(String, Value)> = serde_json::from_str(script).unwrap_or_default();
    let made = since_last_message(request).filter(|message| message["role"] == "tool").count();
    match script.get(made) {
        Some((name, arguments)) => ScriptedTurn::calling(name, arguments),
        None => ScriptedTurn::saying("done"),
    }
}
