//! A folder's agent over the real code of a provider, whose wire is a script.

use std::sync::Arc;

use dormouse::testing::TestBed;
use dormouse_agent::workspace::{FileContent, Files, Platform, Workspace, load};
use dormouse_declared::{Declared, DeclaredPorts, NoTools, agents};
use dormouse_ports::Secret;
use dormouse_testkit::{CountingIds, ManualClock, ScriptedAnswer, ScriptedFetch};
use futures::executor::block_on;
use serde_json::{Value, json};

fn workspace(files: &[(&str, &str)]) -> Workspace {
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    let files: Files = files.iter().map(|(path, text)| ((*path).to_owned(), bytes(text))).collect();
    load(&files, &Platform::default())
}

fn declared(workspace: &Workspace, fetch: &ScriptedFetch) -> Declared {
    let ports = DeclaredPorts {
        fetch: Arc::new(fetch.clone()),
        clock: Arc::new(ManualClock::default()),
        ids: Arc::new(CountingIds::default()),
        env: Arc::new(Secret::new("from-the-environment")),
        secrets: Arc::new(Secret::new("hush")),
        tools: Arc::new(NoTools),
        deltas: None,
        bedrock: None,
        lender: None,
    };
    block_on(agents(workspace, &ports))
}

const MODEL: &str =
    "main:\n  provider: openai-compatible\n  name: tiny\n  url: http://models.test/v1\n  key: ${secrets.KEY}\n";
const AGENT: &str = "---\ndescription: helps\ntemperature: 0.5\n---\nYou help.\n";

fn sound() -> Vec<(&'static str, &'static str)> {
    vec![(".openharness/models/m.yaml", MODEL), (".openharness/agents/helper.md", AGENT)]
}

fn completion(content: &str) -> ScriptedAnswer {
    let message = json!({ "role": "assistant", "content": content });
    let usage = json!({ "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    ScriptedAnswer::json(200, &json!({ "id": "1", "model": "tiny", "choices": [choice], "usage": usage }))
}

fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hello" }] })
}

#[test]
fn a_run_goes_over_the_wire_with_the_key_that_it_refers_to() {
    let fetch = ScriptedFetch::default();
    fetch.answer(completion("Good night."));
    let declared = declared(&workspace(&sound()), &fetch);
    assert_eq!((declared.names.as_slice(), declared.left_out.as_slice()), (&["helper".to_owned()][..], &[][..]));
    let mut bed = TestBed::new(&declared.agents);
    let run = bed.start("helper", hello());
    let state = bed.status(&run).completed();
    assert_eq!(state["messages"][1], json!({ "role": "assistant", "content": "Good night." }));
    assert_eq!((&state["reason"], &state["usage"]["prompt_tokens"]), (&json!("completed"), &json!(7)));
    let request = &fetch.requests()[0];
    assert_eq!(request.url, "http://models.test/v1/chat/completions");
    let key = request.headers.iter().find(|(name, _)| name == "authorization").expect("a key");
    assert_eq!(key.1.expose(), "Bearer hush");
    let body = &fetch.bodies()[0];
    assert_eq!((&body["model"], &body["temperature"]), (&json!("tiny"), &json!(0.5)));
    assert_eq!(body["messages"][0]["content"], "You help.");
}

#[test]
fn a_key_goes_in_the_header_that_the_model_names() {
    let fetch = ScriptedFetch::default();
    fetch.answer(completion("Good night."));
    let model = format!("{MODEL}  key_header: API-Key\n");
    let files = [(".openharness/models/m.yaml", model.as_str()), (".openharness/agents/helper.md", AGENT)];
    let mut bed = TestBed::new(&declared(&workspace(&files), &fetch).agents);
    let run = bed.start("helper", hello());
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    let request = &fetch.requests()[0];
    let sent = ["api-key", "authorization"].map(|name| request.headers.iter().find(|(known, _)| known == name));
    assert_eq!(sent.map(|header| header.map(|(_, value)| value.expose())), [Some("hush"), None]);
}

#[test]
fn a_model_of_anthropic_is_asked_for_as_many_tokens_as_it_takes_where_nobody_says_how_many() {
    let metadata = ", metadata: {max_output_tokens: 64000}";
    for (agent, name, metadata, most) in [
        ("---\ndescription: helps\n---\nYou help.\n", "claude-sonnet-4-5", "", 8192),
        ("---\ndescription: helps\n---\nYou help.\n", "claude-3-haiku-20240307", "", 4096),
        ("---\ndescription: helps\n---\nYou help.\n", "claude-sonnet-4-5", metadata, 64_000),
        ("---\nmodel: {ref: workspace/claude, max_tokens: 100}\n---\nYou help.\n", "claude-sonnet-4-5", metadata, 100),
    ] {
        let fetch = ScriptedFetch::default();
        let usage = json!({ "input_tokens": 7, "output_tokens": 3 });
        let content = json!([{ "type": "text", "text": "Good night." }]);
        let answer = json!({ "type": "message", "role": "assistant", "model": name, "content": content,
            "stop_reason": "end_turn", "usage": usage });
        fetch.answer(ScriptedAnswer::json(200, &answer));
        let model = format!("claude: {{provider: anthropic, name: {name}, key: '${{secrets.KEY}}'{metadata}}}\n");
        let files = [(".openharness/models/m.yaml", model.as_str()), (".openharness/agents/helper.md", agent)];
        let mut bed = TestBed::new(&declared(&workspace(&files), &fetch).agents);
        let run = bed.start("helper", hello());
        assert_eq!(bed.status(&run).completed()["reason"], "completed");
        assert_eq!(fetch.bodies()[0]["max_tokens"], most, "{model}");
    }
}

#[test]
fn a_key_that_is_refused_fails_the_run() {
    let fetch = ScriptedFetch::default();
    fetch.answer(ScriptedAnswer::json(401, &json!({ "error": { "message": "wrong key" } })));
    let mut bed = TestBed::new(&declared(&workspace(&sound()), &fetch).agents);
    let refused = bed.try_start("helper", hello()).expect_err("an operator has to act");
    assert_eq!(refused.category, "provider_authentication");
    assert!(!refused.message.contains("hush"), "{refused}");
}

#[test]
fn what_cannot_be_made_is_left_out_and_named() {
    let mut files = sound();
    files.push((".openharness/tools/settings.yaml", "docs:\n  url: http://docs.test/mcp\n"));
    files.push((".openharness/models/b.yaml", "far:\n  provider: bedrock\n  name: x\n"));
    files.push((".openharness/agents/far.md", "---\nmodel: workspace/far\n---\nHi.\n"));
    files.push((".openharness/settings.yaml", "models:\n  default: workspace/main\n"));
    let declared = declared(&workspace(&files), &ScriptedFetch::default());
    assert_eq!(declared.names, ["helper"]);
    assert!(
        declared.left_out.iter().any(|reason| reason.contains("agent `far` is left out")),
        "{:?}",
        declared.left_out
    );
    assert!(
        declared.left_out.iter().any(|reason| reason.contains("tool server `docs` is left out")),
        "{:?}",
        declared.left_out
    );
}
