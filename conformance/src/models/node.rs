//! Nodes of graphs that call a model (observability §5.5).

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{Middleware, Next, NodeError, State, Update, under_prompt};
use dormouse_ports::model::{CallOptions, ModelError, ModelProvider};
use dormouse_ports::{Clock, Map};
use dormouse_providers::telemetry::{PayloadLimit, TelemetryOptions};
use dormouse_providers::{ProviderPorts, ProviderSetup, Reported, openai};
use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
use serde_json::{Value, json};

use super::prompts::{PromptUse, PromptsSpec, message};
use super::spec::{AnswerSpec, RetrySpec};
use super::wire::read_request;
use crate::Failure;
use crate::directives::Directives;

/// The model that the nodes of a case call, and what its spans say.
#[derive(Debug)]
pub(crate) struct NodeModelSpec {
    answers: Vec<AnswerSpec>,
    /// The model of calls that name none.
    model: String,
    prompts: PromptsSpec,
    /// Name of the provider in telemetry.
    system: Option<String>,
    has_spans: bool,
    options: TelemetryOptions,
}

/// `calls_llm` of a node.
#[derive(Clone, Debug)]
pub(crate) struct ModelCallSpec {
    /// The model, where it is not that of most fixtures.
    model: Option<String>,
    request: Map,
    /// What the model says, where the fixture leaves the wire to the runner.
    answer: Option<String>,
    /// The field that the text of the answer goes into.
    into: Option<String>,
    retry: Option<RetrySpec>,
}

/// The same, ready to be called.
pub(crate) struct NodeModel {
    ports: ProviderPorts,
    model: String,
    prompts: PromptsSpec,
    system: Option<String>,
    spans: Option<TelemetryOptions>,
    shown: Option<PayloadLimit>,
}

impl NodeModelSpec {
    pub(crate) fn read(case: &mut Directives<'_>) -> Result<Self, Failure> {
        let answers = case.list("mock_llm")?.into_iter().map(|(at, answer)| AnswerSpec::read(at, answer));
        let mut answers = answers.collect::<Result<Vec<_>, _>>()?;
        for (at, call) in case.list("mock_llm_stream")? {
            answers.extend(AnswerSpec::read_streams(&at, call)?);
        }
        let model = named(&answers).to_owned();
        let prompts = PromptsSpec::read(case)?;
        let system = case.nested("provider")?.map(system).transpose()?.flatten();
        let has_spans = !case.flag("disable_llm_spans")?.unwrap_or_default();
        let is_silent = case.flag("disable_provider_payload")?.unwrap_or(true);
        let genai = !case.flag("disable_genai_semconv")?.unwrap_or_default();
        let payload = (!is_silent).then(PayloadLimit::default);
        Ok(Self { answers, model, prompts, system, has_spans, options: TelemetryOptions { genai, payload } })
    }

    /// The model, on a wire of its own.
    pub(crate) fn model(&self, clock: Arc<dyn Clock>) -> Arc<NodeModel> {
        let fetch = ScriptedFetch::default();
        self.answers.iter().for_each(|answer| answer.put(&fetch));
        let ports = ProviderPorts { fetch: Arc::new(fetch), clock };
        let (spans, shown) = (self.has_spans.then_some(self.options), self.options.payload);
        let (model, prompts) = (self.model.clone(), self.prompts.clone());
        Arc::new(NodeModel { ports, model, prompts, system: self.system.clone(), spans, shown })
    }
}

/// The model that a fixture has in mind where its calls name none.
fn named(answers: &[AnswerSpec]) -> &'static str {
    const OTHERS: &str = "gpt-test";

    let is_other = |answer: &AnswerSpec| match answer {
        AnswerSpec::Stream { .. } => answer.model().is_none(),
        AnswerSpec::Failure | AnswerSpec::Json { .. } | AnswerSpec::Text { .. } => answer.model() == Some(OTHERS),
    };
    if answers.iter().any(is_other) { OTHERS } else { "test-model" }
}

fn system(mut provider: Directives<'_>) -> Result<Option<String>, Failure> {
    match provider.text("type")? {
        None | Some("openai_compatible") => {}
        Some(other) => return Err(Failure::missing(format!("provider `{other}`"))),
    }
    let system = provider.text("genai_system")?.map(str::to_owned);
    provider.done()?;
    Ok(system)
}

impl ModelCallSpec {
    pub(crate) fn read(mut call: Directives<'_>) -> Result<Self, Failure> {
        let model = call.text("model")?.map(str::to_owned);
        let into = call.text("stores_response_in")?.map(str::to_owned);
        let mut request = Map::new();
        for name in ["messages", "tools", "config", "response_schema", "tool_choice", "stream"] {
            if let Some(value) = call.given(name) {
                let value = if name == "tools" { plain_tools(value.clone()) } else { expanded(value.clone()) };
                request.insert(name.to_owned(), value);
            }
        }
        let answer = call.text("response")?.map(str::to_owned);
        if answer.is_some() && request.is_empty() {
            request.insert("messages".to_owned(), message("Hello"));
        }
        let retry = call.nested("retry")?.map(RetrySpec::read).transpose()?;
        call.done()?;
        Ok(Self { model, request, answer, into, retry })
    }
}

/// Tools as the port has them; some fixtures have them as the wire does.
fn plain_tools(mut tools: Value) -> Value {
    for tool in tools.as_array_mut().into_iter().flatten() {
        if let Some(mut function) = tool.get_mut("function").map(Value::take) {
            if function.get("description").is_none() {
                function["description"] = "a tool of the fixture".into();
            }
            *tool = function;
        }
    }
    tools
}

/// The message with what fixtures only describe: a long text, the bytes of an image.
fn expanded(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(expanded).collect(),
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| field(name, value)).collect()),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => scalar,
    }
}

fn field(name: String, value: Value) -> (String, Value) {
    let bytes = || value["bytes"].as_u64().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
    match name.as_str() {
        "content_repeat" => ("content".to_owned(), value["char"].as_str().unwrap_or_default().repeat(bytes()).into()),
        "base64_data_synthetic" => ("base64_data".to_owned(), synthetic(bytes()).into()),
        _ => (name, expanded(value)),
    }
}

/// Base64 that is told from everything else.
pub(crate) const SYNTHETIC: &str = "SYNTHETICBASE64+";

fn synthetic(bytes: usize) -> String {
    SYNTHETIC.chars().cycle().take(bytes).collect()
}

impl NodeModel {
    /// Calls the model with what is rendered of `prompt`, where there is one; what its answer sets.
    pub(crate) async fn call_under(&self, prompt: Option<&PromptUse>, call: &ModelCallSpec) -> Result<Map, NodeError> {
        let Some(prompt) = prompt else { return self.call(call).await };
        let (identity, text) = self.prompts.render(prompt)?;
        let mut call = call.clone();
        call.request.entry("messages").or_insert_with(|| message(&text));
        under_prompt(identity, self.call(&call)).await
    }

    /// Calls the model; what its answer sets.
    async fn call(&self, call: &ModelCallSpec) -> Result<Map, NodeError> {
        let model = call.model.as_deref().unwrap_or(&self.model);
        let setup = ProviderSetup::new(self.ports_for(call, model), model).base_url("http://model.test");
        let provider = openai(self.system.iter().fold(setup, ProviderSetup::system));
        let identity = provider.identity();
        let provider: Arc<dyn ModelProvider> = Arc::new(provider);
        let provider = match self.spans {
            None => provider,
            Some(options) => Arc::new(Reported::new(provider, identity, self.ports.clock.clone(), options)),
        };
        let raised = |error: ModelError| NodeError::new(error.message).with_category(error.category.category());
        let request = read_request(&call.request).map_err(raised)?;
        let retry = call.retry.as_ref().map(RetrySpec::policy);
        let options = CallOptions { retry, ..CallOptions::default() };
        let response = provider.complete(&request, &options).await.map_err(raised)?;
        let text = response.message.content.as_text();
        Ok(call.into.iter().map(|field| (field.clone(), text.clone().into())).collect())
    }
}

impl NodeModel {
    /// How much of what is content spans show.
    pub(crate) fn shown(&self) -> Option<PayloadLimit> {
        self.shown
    }

    /// The wire of the case, or one of its own for a call whose answer stands beside it.
    fn ports_for(&self, call: &ModelCallSpec, model: &str) -> ProviderPorts {
        let Some(text) = &call.answer else { return self.ports.clone() };
        let message = json!({ "role": "assistant", "content": text });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::json(200, &json!({ "model": model, "choices": [choice] })));
        ProviderPorts { fetch: Arc::new(fetch), clock: self.ports.clock.clone() }
    }
}

/// Calls a model around a node, before it or after it.
#[derive(Clone, Debug)]
pub(crate) struct WrapperCallSpec {
    is_before: bool,
    call: ModelCallSpec,
}

impl WrapperCallSpec {
    pub(crate) fn read(call: &Value) -> Result<Self, Failure> {
        let mut fields = call.as_object().cloned().unwrap_or_default();
        let is_before = match fields.shift_remove("phase").as_ref().and_then(Value::as_str) {
            None | Some("pre") => true,
            Some("post") => false,
            Some(other) => return Err(Failure::missing(format!("the phase `{other}` of a call"))),
        };
        let call = ModelCallSpec::read(Directives::of("calls_llm_from_wrapper", &fields))?;
        Ok(Self { is_before, call })
    }

    pub(crate) fn middleware(&self, model: Arc<NodeModel>) -> Arc<dyn Middleware> {
        Arc::new(Wrapper { spec: self.clone(), model })
    }
}

struct Wrapper {
    spec: WrapperCallSpec,
    model: Arc<NodeModel>,
}

#[async_trait]
impl Middleware for Wrapper {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        if self.spec.is_before {
            self.model.call_under(None, &self.spec.call).await?;
            return next.run(state).await;
        }
        let result = next.run(state).await;
        self.model.call_under(None, &self.spec.call).await?;
        result
    }
}
