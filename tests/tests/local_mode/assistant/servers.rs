//! MCP servers that are slow, lie about what they offer, or change it, over the real binary.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, http::header};
use dormouse_local::ScriptedTurn;
use dormouse_protocol::resource::TaskStatus;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::DONE;
use super::bad_input::{UNASKED, results};
use super::terminal::Terminal;
use super::world::{Assistant, Wire, command};

/// A server of tools that speaks the protocol by hand, so that it can break it.
struct Servant {
    url: String,
    state: Arc<Seen>,
    serving: JoinHandle<std::io::Result<()>>,
}

#[derive(Default)]
struct Seen {
    /// Methods, with the tool of a call.
    asked: Mutex<Vec<String>>,
    has_changed: AtomicBool,
    /// Does not answer the greeting.
    is_mute: AtomicBool,
    /// What was answered to its questions in the midst of calls.
    answers: Mutex<Vec<Value>>,
    answered: tokio::sync::Notify,
}

impl Servant {
    async fn hired() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let state = Arc::<Seen>::default();
        let routes = Router::new().route("/mcp", post(serve)).with_state(state.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, state, serving }
    }

    fn asked(&self, what: &str) -> usize {
        self.state.asked.lock().expect("a lock").iter().filter(|asked| *asked == what).count()
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(State(seen): State<Arc<Seen>>, Json(message): Json<Value>) -> Response {
    let method = message["method"].as_str().unwrap_or_default();
    let tool = message["params"]["name"].as_str().unwrap_or_default();
    if message["id"] == QUESTION {
        seen.answers.lock().expect("a lock").push(message["result"].clone());
        seen.answered.notify_one();
        return StatusCode::ACCEPTED.into_response();
    }
    let what = if method == "tools/call" { format!("call {tool}") } else { method.to_owned() };
    seen.asked.lock().expect("a lock").push(what);
    let answer = match (method, tool) {
        ("initialize", _) if seen.is_mute.load(Ordering::SeqCst) => std::future::pending().await,
        ("initialize", _) => json!({ "result": { "protocolVersion": "2025-06-18",
            "capabilities": { "tools": { "listChanged": true } }, "serverInfo": { "name": "servant", "version": "1" } } }),
        ("tools/list", _) => json!({ "result": { "tools": tools(seen.has_changed.load(Ordering::SeqCst)) } }),
        ("tools/call", "paint" | "sketch") => return asked(seen, &message),
        ("tools/call", "change") => return changed(&seen, &message["id"]),
        ("tools/call", "slow" | "slow_lookup") => std::future::pending().await,
        // It promised a number.
        ("tools/call", "count") => json!({ "result": { "content": [{ "type": "text", "text": "many" }],
            "structuredContent": { "n": "many" } } }),
        ("tools/call", "strict") => json!({ "error": { "code": -32602, "message": "`room` has to be a colour" } }),
        ("tools/call", "garbage") => json!({ "result": { "content": 7 } }),
        ("tools/call", "grown") => json!({ "result": { "content": [{ "type": "text", "text": "I am new" }] } }),
        _ if message.get("id").is_some_and(|id| !id.is_null()) => {
            json!({ "error": { "code": -32601, "message": "what?" } })
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let mut answer = answer;
    answer["jsonrpc"] = "2.0".into();
    answer["id"] = message["id"].clone();
    Json(answer).into_response()
}

/// The list changes in the midst of the call: the server says so before it answers.
fn changed(seen: &Seen, id: &Value) -> Response {
    seen.has_changed.store(true, Ordering::SeqCst);
    let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let answer =
        json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "it is done" }] } });
    let events = format!("data: {news}\n\ndata: {answer}\n\n");
    ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
}

/// Id of a question in the midst of a call.
const QUESTION: &str = "which-colour";

/// It tells how far it is, asks in the midst of the call, and says what it was told.
fn asked(seen: Arc<Seen>, call: &Value) -> Response {
    let id = call["id"].clone();
    let far = json!({ "progressToken": call["params"]["_meta"]["progressToken"], "progress": 1, "total": 2, "message": "mixing" });
    let far = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": far });
    let far = stream::once(async move { Event::default().json_data(far) });
    let params = json!({ "message": "Which colour?", "requestedSchema": { "type": "object",
        "properties": { "colour": { "type": "string" } }, "required": ["colour"] } });
    let question = json!({ "jsonrpc": "2.0", "id": QUESTION, "method": "elicitation/create", "params": params });
    let question = stream::once(async move { Event::default().json_data(question) });
    let answer = stream::once(async move {
        seen.answered.notified().await;
        let told = seen.answers.lock().expect("a lock").last().map(Value::to_string).unwrap_or_default();
        Event::default().json_data(
            json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": told }] } }),
        )
    });
    Sse::new(far.chain(question).chain(answer)).into_response()
}

fn tools(has_changed: bool) -> Value {
    let object = json!({ "type": "object" });
    let look = json!({ "readOnlyHint": true });
    let safe = |name: &str| json!({ "name": name, "inputSchema": object, "annotations": look });
    let mut tools = vec![
        safe("change"),
        safe("slow_lookup"),
        json!({ "name": "slow", "inputSchema": object }),
        json!({ "name": "paint", "inputSchema": object }),
        safe("sketch"),
        json!({ "name": "count", "inputSchema": object, "annotations": look, "outputSchema":
            { "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] } }),
        safe("strict"),
        safe("garbage"),
        json!({ "name": "list_of_lies", "inputSchema": { "type": "array" } }),
        json!({ "name": "no_schema", "inputSchema": { "type": "object", "properties": { "a": { "type": 7 } } } }),
    ];
    if has_changed {
        tools.remove(0);
        tools.push(safe("grown"));
    }
    Value::Array(tools)
}

impl Assistant {
    /// It has the tools of `servant`, which has as much time for each request as a busy machine may need.
    fn is_served_by(&self, servant: &Servant) {
        self.is_served_within(60, servant);
    }

    /// It has the tools of `servant`, which has so many seconds for each request.
    fn is_served_within(&self, seconds: u64, servant: &Servant) {
        self.write(".openharness/settings.yaml", UNASKED);
        let tools = format!("servant:\n  url: {}\n  timeout: {}\n", servant.url, seconds * 1000);
        self.write(".openharness/tools/settings.yaml", &tools);
    }

    /// Its model makes these calls, one after the other, and then says what it was told last.
    fn calls(&self, calls: &'static [&'static str]) {
        self.answers(move |request: &Value| {
            let messages = request["messages"].as_array().cloned().unwrap_or_default();
            let made = messages.iter().filter(|message| message["role"] == "tool").count();
            calls
                .get(made)
                .map_or_else(|| ScriptedTurn::saying("I see"), |tool| ScriptedTurn::calling(*tool, &json!({})))
        });
    }

    /// The names of the tools that the model was offered with its request `number`.
    fn offered(&self, number: usize) -> Vec<String> {
        let tools = self.model.requests()[number]["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_changes_in_a_run_counts_from_the_next_step_on() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    assistant.is_served_by(&servant);
    assistant.calls(&["change", "change", "grown"]);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    let told = results(&assistant);
    assert_eq!(told[0], "it is done");
    assert!(told[1].contains("no tool `change`"), "{told:?}");
    assert_eq!(told[2], "I am new");
    assert!(assistant.offered(0).contains(&"change".to_owned()) && !assistant.offered(0).contains(&"grown".to_owned()));
    assert!(assistant.offered(1).contains(&"grown".to_owned()) && !assistant.offered(1).contains(&"change".to_owned()));
    assert_eq!((servant.asked("call change"), servant.asked("call grown")), (1, 1), "no call is repeated");
    assert_eq!(servant.asked("tools/list"), 2, "once, and once more when it had changed");
    assert_eq!(assistant.model.requests().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_is_told_whether_models_and_servers_are_there() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    assistant.is_served_by(&servant);
    let check = |more: &[&str]| {
        let folder = assistant.folder();
        let told = command(&[&["workspace", "check", &folder, "--online"], more].concat());
        (told.status.code(), String::from_utf8(told.stdout).expect("text"))
    };
    let (status, told) = check(&[]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("model `workspace/main`: answers\n") && told.contains("nothing is wrong"), "{told}");
    assert!(told.contains("`: offers change, ") && told.contains("; `list_of_lies` is left out: "), "{told}");
    assert_eq!(
        (assistant.model.requests().len(), servant.asked("tools/call")),
        (0, 0),
        "nothing is generated or called"
    );

    let slip = format!("{UNASKED}policy: {{approval: {{external: [chnage, change]}}}}\n");
    assistant.write(".openharness/settings.yaml", &slip);
    let (status, told) = check(&[]);
    let warning = "settings.yaml:3: warning: `approval` asks for nothing with `chnage`, which no server offers: did you mean \
                   `change`?";
    assert!(status == Some(0) && told.contains(warning) && told.contains("; 1 to look at above"), "{told}");
    assistant.write(".openharness/settings.yaml", UNASKED);

    assistant.write(
        ".openharness/models/models.yaml",
        &format!("main:\n  provider: openai-compatible\n  name: other\n  url: {}\n", assistant.model.base_url()),
    );
    assistant.write(".openharness/tools/settings.yaml", "gone: {url: http://127.0.0.1:9/mcp}\n");
    let (status, told) = check(&[]);
    assert_eq!(status, Some(3), "{told}");
    assert!(told.contains("model `workspace/main`: error: the provider has no model `other`"), "{told}");
    assert!(told.contains("tool server `gone`: error: ") && told.contains("; 2 of what was asked"), "{told}");
    let (status, told) = check(&["--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let fine: Vec<_> = told["online"].as_array().expect("a list").iter().map(|one| &one["ok"]).collect();
    assert_eq!((status, &told["ok"], fine), (Some(3), &json!(false), vec![&json!(false); 2]), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_promises_and_does_not_keep_is_told_to_the_model() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    assistant.is_served_by(&servant);
    assistant.calls(&["count", "strict", "garbage", "list_of_lies"]);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    let told = results(&assistant);
    assert!(told[0].starts_with("many") && told[0].contains("[Note:") && told[0].contains("outputSchema"), "{told:?}");
    assert!(told[1].starts_with("error:") && told[1].contains("has to be a colour"), "{told:?}");
    assert!(told[2].starts_with("error:") && told[2].contains("servant"), "{told:?}");
    assert!(told[3].contains("no tool `list_of_lies`"), "{told:?}");
    for lie in ["list_of_lies", "no_schema"] {
        assert!(!assistant.offered(0).contains(&lie.to_owned()), "{lie} cannot be called, and is not offered");
    }
    for tool in ["count", "strict", "garbage"] {
        assert_eq!(servant.asked(&format!("call {tool}")), 1, "{tool}");
    }
    assert_eq!(assistant.model.requests().len(), 5);
}

/// A call that may have had an effect is a question for a person; one that only looked is an error for the model.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_is_given_up_once_and_nobody_repeats_its_call() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    assistant.is_served_within(2, &servant);
    assistant.calls(&["slow_lookup", "slow"]);
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let task = assistant.send(&dormouse, "hello");
    wire.task(&task, &[TaskStatus::InputRequired]).await;
    let told = results(&assistant);
    assert!(told[0].starts_with("error:") && told[0].contains("within 2 s"), "{told:?}");
    let pending = dormouse.command(&["pending"]).output().expect("it runs");
    let asked = String::from_utf8_lossy(&pending.stdout);
    assert!(asked.contains("Did `slow` happen?"), "{asked}");
    let (status, answer) = wire.answer(&task, None, json!({ "decision": "skip" })).await;
    assert!(matches!(status, 200..=202), "{status}: {answer}");
    wire.task(&task, &DONE).await;
    assert_eq!((servant.asked("call slow_lookup"), servant.asked("call slow")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_say_hello_holds_up_one_step_alone() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    servant.state.is_mute.store(true, Ordering::SeqCst);
    assistant.is_served_within(1, &servant);
    assistant.calls(&["slow_lookup", "slow_lookup"]);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert!(results(&assistant).iter().all(|told| told.contains("no tool `slow_lookup`")));
    assert_eq!(servant.asked("initialize"), 1, "the next steps go on without it");
    assert_eq!(assistant.model.requests().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sits_at_the_terminal_is_asked_what_a_server_asks_in_the_midst_of_a_call() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    assistant.is_served_by(&servant);
    assistant.calls(&["paint", "paint"]);
    tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("paint it");
        let shown = terminal.shows(&["to decline > "]);
        assert!(shown.contains("· servant: 1 of 2, mixing\n"), "{shown}");
        assert!(shown.contains("servant asks: Which colour?") && shown.contains("  colour: text, needed\n"), "{shown}");
        terminal.say("blue");
        terminal.shows(&["that is no answer to it", "to decline > "]);
        terminal.say("{\"colour\": \"blue\"}");
        terminal.shows(&["paint completed", "servant asks: Which colour?", "to decline > "]);
        terminal.say("");
        terminal.shows(&["I see", "> "]);
        terminal.leave();
    });
    let answers = servant.state.answers.lock().expect("a lock").clone();
    assert_eq!(
        answers,
        [json!({ "action": "accept", "content": { "colour": "blue" } }), json!({ "action": "decline" })]
    );
    assert!(results(&assistant)[0].contains("blue"), "{:?}", results(&assistant));
    assert_eq!(servant.asked("call paint"), 2, "no call is repeated");
}

/// Nobody sits there while a call is made: what is asked is shown with its fields, and no command that is pasted consents.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_asks_is_shown_with_its_fields_and_declined_or_filled_in() {
    let assistant = Assistant::hired().await;
    let servant = Servant::hired().await;
    assistant.is_served_by(&servant);
    assistant.calls(&["sketch"]);
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let task = assistant.send(&dormouse, "sketch it");
    wire.task(&task, &[TaskStatus::InputRequired]).await;
    let pending = dormouse.command(&["pending", "--json"]).output().expect("it runs");
    let listed: Value = serde_json::from_slice(&pending.stdout).expect("JSON");
    let row = &listed["pending"][0];
    assert_eq!(row["calls"], json!(["sketch of servant asks for:", "  colour: text, needed"]), "{row}");
    assert_eq!(row["then"], "is declined");
    let ends = |name: &str, payload: &str| row[name].as_str().is_some_and(|command| command.ends_with(payload));
    assert!(ends("answer_with", r#"'{"decision":"decline"}'"#), "{row}");
    let template = r#"{"decision":"answer","content":{"colour":<"text">}}"#;
    assert!(ends("fill_in", &format!("'{template}'")) && row["or_with"] == json!([]), "{row}");
    let answer = |said: &str| dormouse.command(&["answer", &task, said]).output().expect("it runs");
    assert_eq!(answer(template).status.code(), Some(1), "it is not filled in");
    let declined = answer(r#"{"decision":"decline"}"#);
    let told = String::from_utf8_lossy(&declined.stdout);
    assert!(declined.status.success() && told.contains("  colour: text, needed\n"), "{declined:?}");
}
