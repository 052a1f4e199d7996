//! Whoever works in workspaces over the protocol, with a key.

use std::time::Duration;

use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::request::VERSION_HEADER;
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::process::{Dormouse, in_time, text};

/// Somebody with a key.
pub(super) struct Guest<'d> {
    dormouse: &'d Dormouse,
    client: Client,
    key: String,
}

impl<'d> Guest<'d> {
    pub(super) fn of(dormouse: &'d Dormouse) -> Self {
        Self { dormouse, client: dormouse_tests::client(), key: dormouse.api_key() }
    }

    /// Somebody with a key that `arguments` make.
    pub(super) fn with_key(dormouse: &'d Dormouse, arguments: &[&str]) -> Self {
        let create = ["keys", "create", "--never-expires", "--json", "--actor", "guest", "--all-scopes"];
        let made = dormouse.command(&[&create[..], arguments].concat()).output().expect("it runs");
        let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|error| panic!("{error}: {made:?}"));
        Self { key: text(&made, "key").to_owned(), ..Self::of(dormouse) }
    }

    pub(super) async fn ask(&self, method: Method, target: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method.clone(), self.dormouse.url(target)).bearer_auth(&self.key);
        let request = request.header(VERSION_HEADER, PROTOCOL_VERSION);
        let request = if method == Method::GET { request } else { request.json(body) };
        let response = request.send().await.expect("an answer");
        (response.status().as_u16(), response.json().await.unwrap_or_default())
    }

    pub(super) async fn got(&self, target: &str) -> Value {
        let (status, got) = self.ask(Method::GET, target, &Value::Null).await;
        assert_eq!(status, 200, "GET {target}: {got}");
        got
    }

    pub(super) async fn made(&self, target: &str, body: Value) -> String {
        let (status, made) = self.ask(Method::POST, target, &body).await;
        assert!((200..300).contains(&status), "POST {target}: {status} {made}");
        text(&made, "id").to_owned()
    }

    /// A workspace with `files`.
    pub(super) async fn workspace(&self, files: &[(&str, &str)]) -> String {
        let files: serde_json::Map<String, Value> =
            files.iter().map(|(path, text)| ((*path).to_owned(), json!(text))).collect();
        self.made("/v1/workspaces", json!({ "name": "desk", "root": "/", "files": files })).await
    }

    pub(super) async fn session(&self, workspace: &str) -> String {
        self.made("/v1/sessions", json!({ "workspace_id": workspace })).await
    }

    /// Submits a message for which the model makes `calls`; the status and the body of the answer.
    pub(super) async fn submit(&self, session: &str, persona: Option<&str>, calls: &[(&str, Value)]) -> (u16, Value) {
        let said = json!(calls.iter().map(|(name, arguments)| json!([name, arguments])).collect::<Vec<_>>());
        let parts = json!([{ "type": "text", "text": format!("script {said}"), "visibility": "public" }]);
        let input = json!({ "role": "user", "parts": parts });
        let mut body = json!({ "session_id": session, "input": input });
        if let Some(persona) = persona {
            body["persona_id"] = json!(persona);
        }
        self.ask(Method::POST, "/v1/tasks", &body).await
    }

    /// The task that does so, once it has ended well or waits.
    pub(super) async fn run(&self, session: &str, persona: Option<&str>, calls: &[(&str, Value)]) -> Value {
        let (status, task) = self.submit(session, persona, calls).await;
        assert_eq!(status, 202, "{task}");
        self.settled(text(&task, "id")).await
    }

    pub(super) async fn settled(&self, task: &str) -> Value {
        let settled = async {
            loop {
                let seen = self.got(&format!("/v1/tasks/{task}")).await;
                if !["SUBMITTED", "WORKING"].contains(&text(&seen, "status")) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        in_time("the task has ended or waits", settled).await
    }

    pub(super) async fn file(&self, workspace: &str, path: &str) -> (u16, String) {
        let target = format!("/v1/workspaces/{workspace}/files?path={path}");
        let (status, file) = self.ask(Method::GET, &target, &Value::Null).await;
        (status, file["content"].as_str().unwrap_or_default().to_owned())
    }

    pub(super) async fn write(&self, workspace: &str, path: &str, content: &str) {
        let target = format!("/v1/workspaces/{workspace}/files?path={path}");
        let (status, written) = self.ask(Method::PUT, &target, &json!({ "content": content })).await;
        assert_eq!(status, 200, "{written}");
    }

    /// Why `kind` called `name` is disabled in the catalog of `workspace`.
    pub(super) async fn reasons(&self, workspace: &str, kind: &str, name: &str) -> String {
        let catalog = self.got(&format!("/v1/x-catalog?workspace_id={workspace}")).await;
        let lines = catalog["data"].as_array().cloned().unwrap_or_default();
        let line = lines.iter().find(|line| line["kind"] == kind && line["name"] == name);
        let line = line.unwrap_or_else(|| panic!("{kind} {name} is not in {catalog}"));
        assert_eq!(line["enabled"], false, "{line}");
        line["reasons"].to_string()
    }
}
