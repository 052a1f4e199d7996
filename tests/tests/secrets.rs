//! The functions themselves with their secrets in Parameter Store: what they ask for at the start, and what they say when
//! they do not get it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use dormouse_api::keys::{CHANCE, KeyToken};
use dormouse_aws::ensure_table;
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_tests::lambda::{self, Lambda, RuntimeApi, http_event};
use dormouse_tests::open_door;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// How long to wait for something that must happen. Nothing is proved by it being short.
const PATIENCE: Duration = Duration::from_secs(120);
const CALLBACK_SECRET: &str = "kept-kept-kept-kept-kept-kept-kept-kept";
const SIGNAL_KEY: &str = "kept-sesame-kept-sesame";
const CALLBACK_NAME: &str = "/dormouse/dev/callback-secret";
const SIGNAL_NAME: &str = "/dormouse/dev/signal-key";
/// Accepted beside them where they exist.
const CALLBACK_SECOND: &str = "/dormouse/dev/callback-secret-second";
const SIGNAL_SECOND: &str = "/dormouse/dev/signal-key-second";

/// A Parameter Store that remembers what it was asked.
#[derive(Clone, Default)]
struct Store {
    parameters: Arc<Mutex<Vec<Value>>>,
    asked: Arc<Mutex<Vec<Value>>>,
    /// What is answered first, as a status and a body.
    first: Arc<Mutex<VecDeque<(u16, String)>>>,
}

impl Store {
    fn with(parameters: &[(&str, &str, &str)]) -> Self {
        let store = Self::default();
        let made = parameters.iter().map(|(name, kind, value)| json!({ "Name": name, "Type": kind, "Value": value }));
        store.parameters.lock().expect("a lock").extend(made);
        store
    }

    fn complete() -> Self {
        // As who writes a parameter from a file leaves it.
        let line = format!("{CALLBACK_SECRET}\n");
        Self::with(&[(CALLBACK_NAME, "SecureString", &line), (SIGNAL_NAME, "SecureString", SIGNAL_KEY)])
    }

    /// The next `times` requests are answered with this.
    fn answering(self, times: usize, status: u16, body: &str) -> Self {
        self.first.lock().expect("a lock").extend(vec![(status, body.to_owned()); times]);
        self
    }

    async fn open(&self) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let routes = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        address
    }

    /// Each request: what it asked for, and of which service it was signed.
    fn asked(&self) -> Vec<Value> {
        self.asked.lock().expect("a lock").clone()
    }
}

async fn answer(State(store): State<Store>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let signed = header("authorization").contains("/us-east-1/ssm/aws4_request, SignedHeaders=");
    let asked = json!({ "is": header("x-amz-target"), "names": body["Names"], "plain": body["WithDecryption"], "signed": signed });
    store.asked.lock().expect("a lock").push(asked);
    if let Some((status, body)) = store.first.lock().expect("a lock").pop_front() {
        return (StatusCode::from_u16(status).expect("a status"), body).into_response();
    }
    let parameters = store.parameters.lock().expect("a lock");
    let names: Vec<&Value> = body["Names"].as_array().expect("names").iter().collect();
    let found: Vec<&Value> = parameters.iter().filter(|parameter| names.contains(&&parameter["Name"])).collect();
    let missing = names.iter().filter(|name| found.iter().all(|found| found["Name"] != ***name));
    Json(json!({ "InvalidParameters": missing.collect::<Vec<_>>(), "Parameters": found })).into_response()
}

/// The function `name` with its secrets in `parameters`, and everything else at `endpoint`.
fn function(api: &RuntimeApi, name: &str, endpoint: &str, parameters: &str) -> Command {
    let mut command = api.function(&lambda::function_binary(name), endpoint);
    command.env_remove("DORMOUSE_CALLBACK_SECRET").env_remove("DORMOUSE_SIGNAL_KEY");
    command.env("DORMOUSE_SECRETS", "/dormouse/dev").env("AWS_ENDPOINT_URL_SSM", parameters);
    command
}

async fn start(name: &str, endpoint: &str, parameters: &str) -> Lambda {
    let api = RuntimeApi::start(Duration::from_secs(30)).await;
    let command = function(&api, name, endpoint, parameters);
    Lambda::spawn(api, command)
}

/// The line that the function `name` ends with.
async fn refusal(name: &str, store: &Store) -> String {
    let api = RuntimeApi::start(Duration::from_secs(1)).await;
    let mut command = function(&api, name, "http://127.0.0.1:9", &store.open().await);
    let began = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    while child.try_wait().expect("it can be asked").is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().expect("it can be killed");
            panic!("{name} runs, and should have refused to");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let output = child.wait_with_output().expect("it ended");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).expect("text") + &String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let [line] = lines[..] else { panic!("{text}") };
    for secret in ["kept-kept", "kept-sesame"] {
        assert!(!line.contains(secret), "{line}");
    }
    line.to_owned()
}

async fn table() -> (EmbeddedDynamoDb, String) {
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&store.client(), "dormouse").await.expect("the table is made");
    let endpoint = open_door(&store).await;
    (store, endpoint)
}

fn request(names: &[&str]) -> Value {
    json!({ "is": "AmazonSSM.GetParameters", "names": names, "plain": true, "signed": true })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_function_asks_once_for_what_it_needs() {
    lambda::build_functions().await;
    let (_table, endpoint) = table().await;
    let stores = [(); 4].map(|()| Store::complete());
    let [of_inbound, of_signal, of_stream, of_wakeup] = &stores;

    let inbound = start("dormouse-inbound", &endpoint, &of_inbound.open().await).await;
    let message = json!({ "role": "user", "content": "please get an approval" });
    let waits = body(&inbound.http("/chat/chat/sessions/s1/messages", "", &message).await);
    let other = body(&inbound.http("/chat/chat/sessions/s2/messages", "", &message).await);
    let signal = start("dormouse-signal", &endpoint, &of_signal.open().await).await;
    let (path, query) = waits["callback_url"].as_str().and_then(|url| url.split_once('?')).expect("a token");
    let done = signal.http(path, query, &json!({ "allowed": true })).await;
    assert_eq!(body(&done)["status"], "completed", "what inbound signed signal reads: {done}");

    let id = other["invocation_id"].as_str().expect("an id");
    let mut sent = http_event("POST", &format!("/signals/chat-{id}"), "", &json!({ "allowed": true }));
    assert_eq!(signal.invoke(sent.clone()).await.expect("an answer")["statusCode"], 401);
    sent["headers"]["authorization"] = format!("Bearer {SIGNAL_KEY}").into();
    let refused = inbound.invoke(sent.clone()).await.expect("an answer");
    assert_eq!(refused["statusCode"], 401, "whoever takes no signals knows no key: {refused}");
    let done = signal.invoke(sent).await.expect("an answer");
    assert_eq!(body(&done)["status"], "completed", "{done}");

    let stream = start("dormouse-stream", &endpoint, &of_stream.open().await).await;
    let mut asked = http_event("GET", "/v1/tasks/task_1/stream", "", &Value::Null);
    asked["headers"]["harn-agents-protocol-version"] = PROTOCOL_VERSION.into();
    asked["headers"]["authorization"] = format!("Bearer {}", KeyToken::generate([7; CHANCE]).reveal()).into();
    assert_eq!(stream.invoke(asked).await.expect("an answer")["statusCode"], 401);
    let wakeup = start("dormouse-wakeup", &endpoint, &of_wakeup.open().await).await;
    assert_eq!(wakeup.invoke(json!({ "dormouse_sweep": "due" })).await.expect("swept")["examined"], 0);

    assert_eq!(of_inbound.asked(), [request(&[CALLBACK_NAME, CALLBACK_SECOND])]);
    assert_eq!(of_signal.asked(), [request(&[CALLBACK_NAME, CALLBACK_SECOND, SIGNAL_NAME, SIGNAL_SECOND])]);
    assert_eq!(of_stream.asked(), [] as [Value; 0], "it signs nothing");
    // It is told a path where it serves workspaces: their tools are given addresses that it signs.
    assert_eq!(of_wakeup.asked(), [request(&[CALLBACK_NAME, CALLBACK_SECOND])]);
}

/// While both secrets are replaced there are processes that know the new ones as second ones only, and processes that
/// know the old ones as second ones only. What either gives out the other takes.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_replaced_and_no_address_is_lost() {
    lambda::build_functions().await;
    let (_table, endpoint) = table().await;
    let secure = |name, value| (name, "SecureString", value);
    let new_secret = "new-new-new-new-new-new-new-new-new-new";
    let new_key = "new-sesame-new-sesame";
    let before = Store::with(&[
        secure(CALLBACK_NAME, CALLBACK_SECRET),
        secure(CALLBACK_SECOND, new_secret),
        secure(SIGNAL_NAME, SIGNAL_KEY),
        secure(SIGNAL_SECOND, new_key),
    ]);
    let after = Store::with(&[
        secure(CALLBACK_NAME, new_secret),
        secure(CALLBACK_SECOND, CALLBACK_SECRET),
        secure(SIGNAL_NAME, new_key),
        secure(SIGNAL_SECOND, SIGNAL_KEY),
    ]);
    let only_new = Store::with(&[secure(CALLBACK_NAME, new_secret), secure(SIGNAL_NAME, new_key)]);
    let inbound = start("dormouse-inbound", &endpoint, &before.open().await).await;
    let inbound_after = start("dormouse-inbound", &endpoint, &after.open().await).await;
    let signal = start("dormouse-signal", &endpoint, &before.open().await).await;
    let signal_after = start("dormouse-signal", &endpoint, &after.open().await).await;
    let signal_at_last = start("dormouse-signal", &endpoint, &only_new.open().await).await;
    let message = json!({ "role": "user", "content": "please get an approval" });
    let pause = async |inbound: &Lambda, session: &str| {
        let waits = body(&inbound.http(&format!("/chat/chat/sessions/{session}/messages"), "", &message).await);
        let address = waits["callback_url"].as_str().and_then(|url| url.split_once('?')).expect("a token");
        (address.0.to_owned(), address.1.to_owned())
    };
    for (giver, taker, session) in [(&inbound, &signal_after, "s1"), (&inbound_after, &signal, "s2")] {
        let (path, query) = pause(giver, session).await;
        let done = taker.http(&path, &query, &json!({ "allowed": true })).await;
        assert_eq!(body(&done)["status"], "completed", "{session}: {done}");
    }
    for (giver, session, status) in [(&inbound, "s3", 404), (&inbound_after, "s4", 200)] {
        let (path, query) = pause(giver, session).await;
        let done = signal_at_last.http(&path, &query, &json!({ "allowed": true })).await;
        assert_eq!(done["statusCode"], status, "a secret ends with its parameter: {session}: {done}");
    }
    let mut sent = http_event("POST", "/signals/nobody-waits", "", &json!({}));
    for (signal, key, status) in [
        (&signal, SIGNAL_KEY, 202),
        (&signal, new_key, 202),
        (&signal_after, SIGNAL_KEY, 202),
        (&signal_at_last, SIGNAL_KEY, 401),
        (&signal_at_last, new_key, 202),
    ] {
        sent["headers"]["authorization"] = format!("Bearer {key}").into();
        assert_eq!(signal.invoke(sent.clone()).await.expect("an answer")["statusCode"], status, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_had_is_named_with_what_to_do() {
    lambda::build_functions().await;
    let whole = "SecureString";
    let missing = Store::with(&[(CALLBACK_NAME, whole, CALLBACK_SECRET)]);
    let plain = Store::with(&[(CALLBACK_NAME, whole, CALLBACK_SECRET), (SIGNAL_NAME, "String", SIGNAL_KEY)]);
    let short = Store::with(&[(CALLBACK_NAME, whole, "kept-kept"), (SIGNAL_NAME, whole, SIGNAL_KEY)]);
    let denied = "User: f is not authorized to perform: ssm:GetParameters on resource: p";
    let denied = json!({ "__type": "AccessDeniedException", "Message": denied }).to_string();
    let unread = json!({ "Parameters": [{ "Name": CALLBACK_NAME, "Value": [CALLBACK_SECRET] }] }).to_string();
    let refused = json!({ "__type": "InvalidKeyId", "message": "no such key" }).to_string();
    let all = [CALLBACK_NAME, CALLBACK_SECOND, SIGNAL_NAME, SIGNAL_SECOND].join(", ");
    let both = format!("ssm:GetParameters on {all}: ");
    for (store, told) in [
        (missing, [format!("there is no parameter {SIGNAL_NAME}"), "infra/deploy.sh makes".to_owned()]),
        (plain, [format!("the parameter {SIGNAL_NAME} is not encrypted"), "make it a SecureString".to_owned()]),
        (short, [format!("the parameter {CALLBACK_NAME} needs"), "at least 32 bytes".to_owned()]),
        (
            Store::complete().answering(99, 400, &denied),
            ["the role of the function must be allowed".to_owned(), format!("{both}AccessDeniedException: User: f")],
        ),
        (
            Store::complete().answering(99, 200, &unread),
            ["Parameter Store does not answer in time".to_owned(), format!("{both}an answer that cannot be read")],
        ),
        (
            Store::complete().answering(99, 400, &refused),
            ["Parameter Store refuses".to_owned(), format!("{both}InvalidKeyId: no such key")],
        ),
    ] {
        let line = refusal("dormouse-signal", &store).await;
        for told in told {
            assert!(line.contains(&told), "{told}: {line}");
        }
        assert_eq!(store.asked().len(), 1, "what will not change is not asked again: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_parameter_store_is_asked_again_for_as_long_as_a_function_may_take_to_begin() {
    lambda::build_functions().await;
    let (_table, endpoint) = table().await;
    let busy = json!({ "__type": "ThrottlingException", "message": "Rate exceeded" }).to_string();
    let store = Store::complete().answering(3, 400, &busy);
    let signal = start("dormouse-signal", &endpoint, &store.open().await).await;
    let mut sent = http_event("POST", "/signals/nobody-waits", "", &json!({}));
    sent["headers"]["authorization"] = format!("Bearer {SIGNAL_KEY}").into();
    assert_eq!(body(&signal.invoke(sent).await.expect("an answer"))["status"], "buffered");
    assert_eq!(store.asked().len(), 4);

    let store = Store::complete().answering(99, 400, &busy);
    let line = refusal("dormouse-signal", &store).await;
    for told in [SIGNAL_NAME, "ThrottlingException: Rate exceeded", "high-throughput-enabled", "asks again"] {
        assert!(line.contains(told), "{told}: {line}");
    }
    let attempts = store.asked().len();
    assert!((2..=10).contains(&attempts), "it asks again, and not for ever: {attempts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_counts_before_a_parameter_and_the_log_says_so() {
    lambda::build_functions().await;
    let (_table, endpoint) = table().await;
    let store = Store::complete();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let (signal, key) = logging(&endpoint, &store, &log, |command| {
        command.env("DORMOUSE_SIGNAL_KEY", "the-key-of-the-environment").env("DORMOUSE_LOG", "warn");
        "the-key-of-the-environment"
    })
    .await;
    let mut sent = http_event("POST", "/signals/nobody-waits", "", &json!({}));
    for (key, status) in [(SIGNAL_KEY, 401), (key, 202)] {
        sent["headers"]["authorization"] = format!("Bearer {key}").into();
        assert_eq!(signal.invoke(sent.clone()).await.expect("an answer")["statusCode"], status, "{key}");
    }
    assert_eq!(store.asked(), [request(&[CALLBACK_NAME, CALLBACK_SECOND])], "what counts not is not asked for");
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains(r#""variable":"DORMOUSE_SIGNAL_KEY""#) && log.contains("DORMOUSE_SECRETS"), "{log}");
    assert!(!log.contains("the-key-of-the-environment"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_is_so_detailed_that_it_tells_secrets() {
    lambda::build_functions().await;
    let (_table, endpoint) = table().await;
    let store = Store::complete();
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let (signal, ()) = logging(&endpoint, &store, &log, |command| {
        command.env("DORMOUSE_LOG", "trace");
    })
    .await;
    let sent = http_event("POST", "/signals/nobody-waits", "", &json!({}));
    assert_eq!(signal.invoke(sent).await.expect("an answer")["statusCode"], 401);
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.contains("GetParameters"), "the request is in the log");
    for secret in [CALLBACK_SECRET, SIGNAL_KEY] {
        assert!(!log.contains(secret), "{secret}");
    }
}

/// The function `signal` with its output in the file `log` and what `set` does to it, and gives.
async fn logging<T>(endpoint: &str, store: &Store, log: &PathBuf, set: impl FnOnce(&mut Command) -> T) -> (Lambda, T) {
    let api = RuntimeApi::start(Duration::from_secs(30)).await;
    let mut command = function(&api, "dormouse-signal", endpoint, &store.open().await);
    command.stdout(Stdio::from(std::fs::File::create(log).expect("a file")));
    let given = set(&mut command);
    (Lambda::spawn(api, command), given)
}

fn body(answer: &Value) -> Value {
    serde_json::from_str(answer["body"].as_str().expect("a body")).expect("JSON")
}
