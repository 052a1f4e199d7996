use std::sync::{Arc, Mutex};

use dormouse_ports::model::{
    CallEvent, CallObserver, CallOptions, CompletionRequest, DeltaKind, Message, ModelError, ModelProvider, Response,
    Tool,
};
use dormouse_ports::{Secret, Sign, SignError};
use dormouse_providers::{ApiKey, Capabilities, ProviderPorts, ProviderSetup};
use dormouse_testkit::{ManualClock, ScriptedAnswer, ScriptedFetch};
use serde_json::{Value, json};

/// A scripted wire, and what was heard of the calls on it.
#[derive(Default)]
pub(crate) struct Stage {
    pub(crate) fetch: ScriptedFetch,
    pub(crate) clock: Arc<ManualClock>,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard(Mutex<Vec<(DeltaKind, String)>>);

impl CallObserver for Heard {
    fn observe(&self, event: CallEvent<'_>) {
        if let CallEvent::Token { kind, text } = event {
            self.0.lock().expect("nobody panics with it").push((kind, text.to_owned()));
        }
    }
}

impl Stage {
    /// A stage that gives that answer.
    pub(crate) fn answering(answer: ScriptedAnswer) -> Self {
        let stage = Self::default();
        stage.fetch.answer(answer);
        stage
    }

    /// A stage that answers with that JSON.
    pub(crate) fn json(body: Value) -> Self {
        Self::answering(ScriptedAnswer::json(200, &body))
    }

    /// A model with a key on this stage.
    pub(crate) fn setup(&self) -> ProviderSetup {
        let ports = ProviderPorts { fetch: Arc::new(self.fetch.clone()), clock: self.clock.clone() };
        ProviderSetup::new(ports, "m-1").key(ApiKey::known(Secret::new("hush")))
    }

    /// The same, for a wire that streams only where it is told so.
    pub(crate) fn streaming(&self) -> ProviderSetup {
        self.setup().capabilities(Capabilities::ALL)
    }

    pub(crate) async fn ask(
        &self,
        provider: &dyn ModelProvider,
        request: &CompletionRequest,
    ) -> Result<Response, ModelError> {
        let options = CallOptions { observer: self.heard.clone(), ..CallOptions::default() };
        provider.complete(request, &options).await
    }

    /// What was heard, the kinds told apart by brackets.
    pub(crate) fn heard(&self) -> Vec<String> {
        let heard = self.heard.0.lock().expect("nobody panics with it");
        let told = |(kind, text): &(DeltaKind, String)| match kind {
            DeltaKind::Content => text.clone(),
            DeltaKind::Reasoning => format!("({text})"),
        };
        heard.iter().map(told).collect()
    }

    /// The body of the only request.
    pub(crate) fn sent(&self) -> Value {
        let mut bodies = self.fetch.bodies();
        assert_eq!(bodies.len(), 1, "one request");
        bodies.remove(0)
    }

    /// The value of a header of the only request.
    pub(crate) fn sent_header(&self, name: &str) -> Option<String> {
        let request = self.fetch.requests().remove(0);
        request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose().to_owned())
    }

    /// The address of the only request.
    pub(crate) fn sent_to(&self) -> String {
        self.fetch.requests().remove(0).url
    }
}

pub(crate) fn hello() -> CompletionRequest {
    CompletionRequest::new([Message::user("Hello")])
}

/// A question with a tool that adds two numbers.
pub(crate) fn sum() -> CompletionRequest {
    let mut request = CompletionRequest::new([Message::system("Be brief."), Message::user("What is 1 + 2?")]);
    request.tools = vec![Tool { name: "add".into(), description: "Adds.".into(), parameters: add_schema() }];
    request
}

fn add_schema() -> Value {
    let number = json!({ "type": "integer" });
    json!({ "type": "object", "properties": { "b": number, "a": number }, "required": ["a", "b"] })
}

/// A question whose answer must be `{"value": …}`.
pub(crate) fn structured() -> CompletionRequest {
    let mut request = hello();
    request.response_schema = Some(value_schema());
    request
}

pub(crate) fn value_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "value": { "type": "integer" } },
        "required": ["value"],
        "additionalProperties": false,
    })
}

pub(crate) fn with_most(mut request: CompletionRequest) -> CompletionRequest {
    request.config.max_tokens = Some(100);
    request
}

/// Signs with a header that says how long the body is.
pub(crate) struct Signer;

#[async_trait::async_trait]
impl Sign for Signer {
    async fn sign(&self, request: &mut dormouse_ports::FetchRequest) -> Result<(), SignError> {
        let length = request.body.len();
        request.headers.push(("authorization".to_owned(), format!("Signed {length}").into()));
        Ok(())
    }
}
