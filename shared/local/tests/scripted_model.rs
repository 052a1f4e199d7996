//! The scripted model, asked by the real provider over the real network.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_fetch::NetworkFetch;
use dormouse_local::{ScriptedFault, ScriptedModel, ScriptedTurn};
use dormouse_ports::FetchLimits;
use dormouse_ports::model::{
    CallEvent, CallObserver, CallOptions, CompletionRequest, FinishReason, Message, ModelError,
    ModelErrorCategory as Category, ModelProvider, Response, Tool,
};
use dormouse_providers::{Provider, ProviderPorts, ProviderSetup, openai};
use dormouse_system::SystemClock;
use serde_json::json;

fn provider(model: &ScriptedModel, limits: FetchLimits) -> Provider {
    let ports =
        ProviderPorts { fetch: Arc::new(NetworkFetch::past_proxies()), clock: Arc::new(SystemClock::default()) };
    openai(ProviderSetup::new(ports, "scripted-1").base_url(model.base_url()).limits(limits))
}

fn question(stream: bool) -> CompletionRequest {
    let mut request = CompletionRequest::new([Message::user("What is 1 + 2?")]);
    let number = json!({ "type": "integer" });
    let parameters = json!({ "type": "object", "properties": { "a": number, "b": number } });
    request.tools = vec![Tool { name: "add".into(), description: "Adds.".into(), parameters }];
    request.stream = stream;
    request
}

#[derive(Default)]
struct Tokens(Mutex<Vec<String>>);

impl CallObserver for Tokens {
    fn observe(&self, event: CallEvent<'_>) {
        if let CallEvent::Token { text, .. } = event {
            self.0.lock().expect("nobody panics with it").push(text.to_owned());
        }
    }
}

async fn ask(turn: ScriptedTurn, stream: bool, limits: FetchLimits) -> (Result<Response, ModelError>, Vec<String>) {
    let model = ScriptedModel::with_turns("scripted-1", [turn]).await.expect("a model");
    let tokens = Arc::new(Tokens::default());
    let options = CallOptions { observer: tokens.clone(), ..CallOptions::default() };
    let result = provider(&model, limits).complete(&question(stream), &options).await;
    let heard = tokens.0.lock().expect("nobody panics with it").clone();
    (result, heard)
}

#[tokio::test]
async fn it_answers_the_same_in_one_piece_and_streamed() {
    let turn = ScriptedTurn::saying("I will add.").thinking("Hm, numbers.").and_calling("add", "{\"a\":1,\"b\":2}");
    let (whole, heard) = ask(turn.clone(), false, FetchLimits::default()).await;
    assert_eq!(heard, Vec::<String>::new());
    let (streamed, heard) = ask(turn.paced(Duration::from_millis(1)), true, FetchLimits::default()).await;
    assert_eq!(heard, ["Hm, ", "numbers.", "I ", "will ", "add."]);
    let whole = whole.expect("an answer");
    let streamed = streamed.expect("an answer");
    assert_eq!((whole.message, whole.usage), (streamed.message, streamed.usage));
    assert_eq!(whole.finish_reason, FinishReason::ToolCalls);
}

#[tokio::test]
async fn it_is_ready_and_keeps_what_it_was_asked() {
    let model = ScriptedModel::with_turns("scripted-1", [ScriptedTurn::saying("3")]).await.expect("a model");
    let provider = provider(&model, FetchLimits::default());
    provider.ready().await.expect("ready");
    provider.complete(&question(false), &CallOptions::default()).await.expect("an answer");
    assert_eq!(model.requests()[0]["messages"][0]["content"], "What is 1 + 2?");
    let error = provider.complete(&question(false), &CallOptions::default()).await.expect_err("no more");
    assert!(error.message.contains("at its end"), "{error}");
}

#[tokio::test]
async fn it_fails_in_the_ways_in_which_models_do() {
    let said = || ScriptedTurn::saying("one two three four");
    let is_silent = |turn: &ScriptedTurn| {
        let silences = [said().with_fault(ScriptedFault::Silence { after: 2 }), said().after(Duration::from_secs(60))];
        silences.contains(turn)
    };
    for (turn, stream, category) in [
        (ScriptedTurn::failing(429, "slow down").retry_after(7), false, Category::RateLimit),
        (ScriptedTurn::failing(401, "who are you"), true, Category::Authentication),
        (ScriptedTurn::failing(503, "busy"), true, Category::Unavailable),
        (ScriptedTurn::raw("<html>"), false, Category::InvalidResponse),
        (ScriptedTurn::saying("").and_calling("add", "{\"a\": "), true, Category::InvalidResponse),
        (said().with_fault(ScriptedFault::HangUp { after: 2 }), true, Category::Unavailable),
        (said().with_fault(ScriptedFault::HangUp { after: 0 }), false, Category::Unavailable),
        (said().with_fault(ScriptedFault::Garbage { after: 2 }), true, Category::InvalidResponse),
        (said().with_fault(ScriptedFault::Garbage { after: 0 }), false, Category::InvalidResponse),
        (said().with_fault(ScriptedFault::Silence { after: 2 }), true, Category::Unavailable),
        (said().after(Duration::from_secs(60)), false, Category::Unavailable),
    ] {
        // A busy machine is silent for as long now and then: nobody waits for less where silence is not what fails.
        let idle = if is_silent(&turn) { Duration::from_millis(500) } else { FetchLimits::default().idle };
        let limits = FetchLimits { idle, ..FetchLimits::default() };
        let (result, heard) = ask(turn.clone(), stream, limits).await;
        let error = result.expect_err("it fails");
        assert_eq!(error.category, category, "{turn:?}: {error}");
        if category == Category::RateLimit {
            assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        }
        if turn == said().with_fault(ScriptedFault::HangUp { after: 2 }) {
            assert_eq!(heard, ["one ", "two "], "what came was passed on");
        }
    }
}

#[tokio::test]
async fn another_model_does_not_exist() {
    let model = ScriptedModel::with_turns("other", []).await.expect("a model");
    let provider = provider(&model, FetchLimits::default());
    let error = provider.complete(&question(false), &CallOptions::default()).await.expect_err("no such model");
    assert_eq!(error.category, Category::InvalidModel);
    assert_eq!(provider.ready().await.expect_err("no such model").category, Category::InvalidModel);
}
