//! What goes well, in every way of speaking.

use std::time::Duration;

use dormouse_ports::Map;
use dormouse_ports::tool::{
    Effect, InputAnswer, InputRequest, Pending, ToolCall, ToolContent, ToolErrorKind, ToolReply, ToolSource,
};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::{McpNotice, McpTransport};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::peer::BIG;
use crate::trial;
use crate::world::{Way, World, call, output, template, text, until};

pub(crate) fn trials(way: Way) -> Vec<Trial> {
    let mut trials = vec![
        trial(name(way, "lists_all_pages_and_leaves_lies_out"), move || lists(way)),
        trial(name(way, "a_list_is_asked_for_again_when_it_has_changed"), move || changes(way)),
        trial(name(way, "values_and_failures_come_back"), move || outcomes(way)),
        trial(name(way, "progress_and_log_lines_are_noticed"), move || notices(way)),
        trial(name(way, "a_slow_call_is_canceled"), move || slow(way)),
        trial(name(way, "a_dropped_call_is_canceled"), move || dropped(way)),
        trial(name(way, "large_answers_are_whole_or_told"), move || large(way)),
        trial(name(way, "a_broken_promise_is_told"), move || promise(way)),
        trial(name(way, "a_question_of_a_safe_tool_is_asked_and_answered"), move || asks_safely(way)),
        trial(name(way, "a_question_of_a_manual_tool_is_asked_where_the_call_can_end"), move || asks(way)),
    ];
    if !way.is_older {
        trials.push(trial(name(way, "a_call_that_becomes_a_task_is_asked_for_until_it_ends"), move || tasks(way)));
        trials.push(trial(name(way, "a_task_that_is_not_known_is_told_and_one_can_be_canceled"), move || {
            ended_tasks(way)
        }));
    }
    if way.is_process {
        trials.push(trial(name(way, "a_process_gets_what_is_named_and_ends"), move || environment(way)));
        trials.push(trial(name(way, "a_process_that_dies_is_started_again"), move || dies(way)));
        trials.push(trial(name(way, "a_process_that_hangs_is_replaced"), move || hangs(way)));
    }
    trials
}

fn name(way: Way, test: &str) -> String {
    format!("{}::{test}", way.name())
}

/// The pending call, as it is kept while the run sleeps.
fn pending(reply: ToolReply) -> Pending {
    match reply {
        ToolReply::Pending(pending) => pending,
        other @ (ToolReply::Done(_) | ToolReply::InputRequired(_)) => panic!("pending, not {other:?}"),
    }
}

async fn tasks(way: Way) {
    let world = World::new(way).await;
    let begun = pending(world.call("long", json!({})).await.expect("it is taken"));
    assert_eq!((begun.reference.as_deref(), begun.poll_after), (Some("task-7"), Some(Duration::from_secs(3))));
    let again =
        |pending: &Pending, input| ToolCall { pending: Some(pending.state.clone()), input, ..call("long", json!({})) };
    let still = pending(world.server.call(&again(&begun, None)).await.expect("it works"));
    let asked = match world.server.call(&again(&still, None)).await.expect("it asks") {
        ToolReply::InputRequired(request) => request,
        other @ (ToolReply::Done(_) | ToolReply::Pending(_)) => panic!("a question, not {other:?}"),
    };
    assert_eq!(asked.message, "Which room?");
    let Value::Object(content) = json!({ "room": "blue" }) else { panic!("an object") };
    let answer = InputAnswer { content: Some(content), state: asked.state };
    assert_eq!(text(world.server.call(&again(&still, Some(answer))).await), "booked \"blue\"");
    let seen = world.seen().await;
    assert_eq!(seen.matches("long began").count(), 1, "{seen}");
}

async fn ended_tasks(way: Way) {
    let world = World::new(way).await;
    let begun = pending(world.call("long", json!({})).await.expect("it is taken"));
    world.server.withdraw("long", &begun.state).await.expect("it is told");
    assert!(world.seen().await.contains("task-7 canceled"));
    let mut forgotten = begun.state;
    forgotten["task"] = json!("task-8");
    let lost = world.server.call(&ToolCall { pending: Some(forgotten), ..call("long", json!({})) }).await;
    let lost = lost.expect_err("it is not known");
    assert!(lost.uncertain && lost.message.contains("does not know its task `task-8`"), "{lost:?}");
}

async fn lists(way: Way) {
    let world = World::new(way).await;
    let specs = world.server.list().await.expect("a list");
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names[..6], ["echo", "slow", "fail", "refuse", "change", "big"], "both pages, in order");
    assert!(!names.contains(&"two words") && !names.contains(&"wrong"));
    for left_out in ["two words", "wrong"] {
        assert!(world.noticed(|n| matches!(n, McpNotice::ToolLeftOut { tool, .. } if tool == left_out)), "{left_out}");
    }
    let echo = &specs[0];
    assert_eq!((echo.effect, echo.description.as_str()), (Effect::Safe, "Says it again"));
    assert_eq!((echo.input_schema["required"].clone(), specs[1].effect), (json!(["text"]), Effect::Manual));
    assert_eq!(echo.timeout, Some(Duration::from_secs(60)));
}

async fn changes(way: Way) {
    let world = World::new(way).await;
    assert!(!world.names().await.contains(&"new".to_owned()));
    world.names().await;
    assert!(world.lists().is_none_or(|lists| lists == 1), "the list is kept");
    let error = world.call("new", json!({})).await.expect_err("not there yet");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::NotFound, false));
    text(world.call("change", json!({})).await);
    until("the change is told", || async { world.noticed(|n| *n == McpNotice::ListChanged) }).await;
    assert!(world.names().await.contains(&"new".to_owned()));
    assert_eq!(text(world.call("new", json!({})).await), "new");
    assert!(world.lists().is_none_or(|lists| lists == 2));
}

async fn outcomes(way: Way) {
    let world = World::new(way).await;
    let echoed = output(world.call("echo", json!({ "text": "hello" })).await);
    assert_eq!((echoed.structured, echoed.is_error), (Some(json!({ "said": "hello" })), false));
    assert_eq!(echoed.content, [ToolContent::text(r#"{"said":"hello"}"#)]);
    let failed = output(world.call("fail", json!({})).await);
    assert_eq!((failed.is_error, failed.content), (true, vec![ToolContent::text("out of paper")]));
    let refused = output(world.call("refuse", json!({})).await);
    assert!(refused.is_error && format!("{:?}", refused.content).contains("the printer burns"));
    let missing = world.call("nothing", json!({})).await.expect_err("no such tool");
    assert_eq!(missing.kind, ToolErrorKind::NotFound);
    assert!(missing.message.contains("`peer`") && missing.message.contains("`nothing`"), "{}", missing.message);
}

async fn notices(way: Way) {
    let world = World::new(way).await;
    assert_eq!(text(world.call("work", json!({})).await), "run/1/0", "the idempotency key is sent");
    let progress = McpNotice::Progress {
        call: "call-1".to_owned(),
        progress: 1.0,
        total: Some(2.0),
        message: Some("half".to_owned()),
    };
    let line = McpNotice::Log { level: "warning".to_owned(), logger: None, data: json!("careful") };
    until("progress", || async { world.noticed(|n| *n == progress) }).await;
    // The newest version sends lines only to those who ask for them.
    until("a line", || async { !way.is_older || world.noticed(|n| *n == line) }).await;
}

async fn slow(way: Way) {
    let short = |config| McpConfig { timeout: Duration::from_secs(6), ..config };
    let world = World::with(way, short).await;
    world.names().await;
    let error = world.call("slow", json!({})).await.expect_err("too slow");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::TimedOut, true));
    assert!(error.message.contains("`slow`"), "{}", error.message);
    until("the server is told", || async { world.seen().await.contains("slow canceled") }).await;
}

async fn dropped(way: Way) {
    let world = World::new(way).await;
    world.names().await;
    let waits = world.call("slow", json!({}));
    tokio::select! {
        reply = waits => panic!("it waits, and does not give {reply:?}"),
        () = until("it began", || async { world.seen().await.contains("slow began") }) => (),
    }
    until("the server is told", || async { world.seen().await.contains("slow canceled") }).await;
    text(world.call("change", json!({})).await);
}

async fn large(way: Way) {
    let world = World::new(way).await;
    assert_eq!(text(world.call("big", json!({})).await).len(), BIG);
    let world = World::with(way, |config| McpConfig { most_bytes: BIG / 2, ..config }).await;
    let told = output(world.call("big", json!({})).await);
    assert!(told.is_error, "{:?}", told.content.len());
    assert!(format!("{told:?}").contains("larger than 1048576 bytes"), "{told:?}");
    assert_eq!(output(world.call("fail", json!({})).await).content.len(), 1, "the conversation goes on");
}

async fn promise(way: Way) {
    let world = World::new(way).await;
    let output = output(world.call("lie", json!({})).await);
    assert_eq!((output.is_error, output.structured), (false, Some(json!({ "n": "one" }))), "nothing is lost");
    assert!(format!("{:?}", output.content).contains("does not fit its `outputSchema`"), "{:?}", output.content);
    assert!(world.noticed(|n| matches!(n, McpNotice::BrokenPromise { tool, .. } if tool == "lie")));
}

fn question(reply: Result<ToolReply, dormouse_ports::tool::ToolError>) -> InputRequest {
    match reply {
        Ok(ToolReply::InputRequired(request)) => request,
        other => panic!("a question, not {other:?}"),
    }
}

/// The call that is made again with `content`.
fn again(name: &str, state: Value, content: Option<Value>) -> ToolCall {
    let content = content.map(|content| content.as_object().cloned().unwrap_or_else(Map::new));
    ToolCall { input: Some(InputAnswer { content, state }), ..call(name, json!({})) }
}

async fn asks_safely(way: Way) {
    let world = World::new(way).await;
    let asked = question(world.call("ask_safely", json!({})).await);
    assert_eq!(asked.message, "Who are you?");
    assert_eq!(asked.schema["properties"]["name"]["type"], "string");
    let answered = world.server.call(&again("ask_safely", asked.state.clone(), Some(json!({ "name": "Ada" })))).await;
    assert_eq!(text(answered), "Hello Ada");
    assert_eq!(text(world.server.call(&again("ask_safely", asked.state, None)).await), "Nobody: decline");
}

async fn asks(way: Way) {
    let world = World::new(way).await;
    if way.is_older {
        let told = text(world.call("ask", json!({})).await);
        assert!(told.starts_with("Nobody: decline\n") && told.contains("Who are you?"), "{told}");
        assert!(world.noticed(|n| matches!(n, McpNotice::Declined { message } if message == "Who are you?")));
        assert_eq!(world.seen().await.matches("ask began").count(), 1, "it is called once");
    } else {
        let asked = question(world.call("ask", json!({})).await);
        let answered = world.server.call(&again("ask", asked.state, Some(json!({ "name": "Ada" })))).await;
        assert_eq!(text(answered), "Hello Ada");
    }
}

async fn environment(way: Way) {
    let world = World::with(way, |config| {
        let McpTransport::Stdio { command, folder, .. } = config.transport.clone() else { panic!("a process") };
        let environment = vec![("TOKEN".to_owned(), template("${secrets.token}"))];
        McpConfig { transport: McpTransport::Stdio { command, environment, folder }, ..config }
    })
    .await;
    let told = text(world.call("environment", json!({})).await);
    assert!(told.contains("token=[secret]") && told.contains("PATH"), "it has the secret, and nobody reads it: {told}");
    assert!(!told.contains("CARGO"), "nothing else is inherited: {told}");
    world.server.close().await;
    assert_eq!(text(world.call("fail", json!({})).await), "out of paper", "another one is started");
    world.server.close().await;
}

async fn dies(way: Way) {
    let world = World::new(way).await;
    let error = world.call("die", json!({})).await.expect_err("it dies");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, true), "{error}");
    assert_eq!(text(world.call("fail", json!({})).await), "out of paper");
}

async fn hangs(way: Way) {
    let world = World::with(way, |config| McpConfig { timeout: Duration::from_secs(6), ..config }).await;
    let error = world.call("hang", json!({})).await.expect_err("it hangs");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::TimedOut, true), "{error}");
    assert_eq!(text(world.call("fail", json!({})).await), "out of paper");
}
