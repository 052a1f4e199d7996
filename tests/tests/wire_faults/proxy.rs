//! The fault proxy (microburst) and the emulator of AWS (ministack), as processes of their own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};

/// How long to wait for something that must happen. Nothing is proved by it being short.
const PATIENCE: Duration = Duration::from_secs(120);
/// What answers a request without forwarding it has one of these in its description, in the proxy's own words.
const KEPT: [&str; 4] = ["error:", "reset", "timeout", "cut_upload"];

/// A program that answers HTTP on a port of its own. Dropping it ends it.
struct Process {
    child: Child,
    url: String,
    client: Client,
}

impl Process {
    /// Starts `command`, made for a free port, and waits until `health` is answered.
    async fn start(command: impl Fn(u16) -> Command, health: &str) -> Self {
        let began = Instant::now();
        let mut process = Self::on_a_free_port(&command);
        loop {
            let is_answered = process.client.get(format!("{}{health}", process.url)).send().await.is_ok();
            let has_ended = process.child.try_wait().expect("it can be asked").is_some();
            if is_answered && !has_ended {
                return process;
            }
            assert!(began.elapsed() < PATIENCE, "it never answers");
            tokio::time::sleep(Duration::from_millis(50)).await;
            if has_ended {
                // Another program may have been given the port meanwhile.
                process = Self::on_a_free_port(&command);
            }
        }
    }

    fn on_a_free_port(command: impl Fn(u16) -> Command) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let child = command(port).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let client = dormouse_tests::client_within(PATIENCE);
        Self { child: child.expect("the program starts"), url: format!("http://127.0.0.1:{port}"), client }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The DynamoDB of the emulator of AWS.
pub(crate) struct Emulator(Process);

impl Emulator {
    pub(crate) async fn start(program: &Path, folder: &Path) -> Self {
        let command = |port: u16| {
            let mut command = Command::new(program);
            command.current_dir(folder).env("TMPDIR", folder).env("BIND_HOST", "127.0.0.1");
            command.env("GATEWAY_PORT", port.to_string()).env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
            command
        };
        Self(Process::start(command, "/_ministack/health").await)
    }

    pub(crate) fn endpoint(&self) -> String {
        self.0.url.clone()
    }
}

/// A proxy that breaks requests by its rules.
pub(crate) struct Proxy(Process);

impl Proxy {
    /// Starts `program` in front of `upstream`.
    pub(crate) async fn before(upstream: &str, program: &Path) -> Self {
        let command = |port: u16| {
            let mut command = Command::new(program);
            command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--upstream", upstream]);
            command
        };
        let proxy = Self(Process::start(command, "/_microburst/health").await);
        // The first request of a service takes seconds, in which the proxy reads what it knows of it.
        let warm = proxy.0.client.post(&proxy.0.url).header("x-amz-target", "DynamoDB_20120810.ListTables");
        let scope = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host";
        let warm = warm.header("authorization", format!("{scope}, Signature=0")).body("{}").send().await;
        warm.expect("it forwards");
        proxy
    }

    pub(crate) fn endpoint(&self) -> String {
        self.0.url.clone()
    }

    /// From now on requests meet `rules`, and no others. The first rule that matches counts.
    pub(crate) async fn set(&self, rules: &[Value]) {
        let answer = self.0.client.post(self.control("rules")).json(rules).send().await.expect("an answer");
        let taken: Vec<Value> = answer.json().await.expect("the rules");
        assert_eq!(taken.len(), rules.len(), "the proxy does not take {rules:?}");
    }

    /// How often each rule has struck.
    pub(crate) async fn struck(&self) -> Vec<u64> {
        let rules = self.get("rules").await;
        let rules = rules.as_array().expect("a list");
        rules.iter().map(|rule| rule["fired_count"].as_u64().expect("a number")).collect()
    }

    /// Waits until every request that was forwarded has reached the store and was answered, whoever still waits for it.
    pub(crate) async fn settle(&self) {
        let began = Instant::now();
        loop {
            let stats = self.get("stats").await;
            let kept = stats["by_rule"].as_array().into_iter().flatten().filter(|rule| {
                let action = rule["describe"].as_str().unwrap_or_default();
                KEPT.iter().any(|kept| action.contains(kept))
            });
            let kept: u64 = kept.filter_map(|rule| rule["fired"].as_u64()).sum();
            let answered = stats["upstream_latency_ms"]["n"].as_u64().unwrap_or_default();
            if stats["requests"]["total"] == json!(kept + answered) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "requests never end: {stats}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn get(&self, what: &str) -> Value {
        let answer = self.0.client.get(self.control(what)).send().await.expect("an answer");
        answer.json().await.expect("JSON")
    }

    fn control(&self, what: &str) -> String {
        format!("{}/_microburst/{what}", self.0.url)
    }
}
