//! What a span of a call of a model says (observability §5.5), as a list of attributes.
//!
//! Content is left out unless it is asked for; the bytes of inline images always.

mod payload;
mod prompts;

use dormouse_ports::model::{
    CompletionRequest, ModelError, ModelIdentity, Response, RetryReason, RuntimeConfig, Usage,
};
use serde_json::Value;

pub(crate) use payload::redacted;

pub use dormouse_ports::{AttributeValue, PayloadLimit};

/// Name of the span of an attempt.
pub const SPAN_NAME: &str = "openarmature.llm.complete";

/// Attributes in order.
pub type Attributes = Vec<(&'static str, AttributeValue)>;

/// Contents of spans of calls (observability §5.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelemetryOptions {
    /// Attributes under the names of the GenAI conventions. On by default.
    pub genai: bool,
    /// Messages, output and extras, each up to that limit. Off by default.
    pub payload: Option<PayloadLimit>,
}

impl Default for TelemetryOptions {
    fn default() -> Self {
        Self { genai: true, payload: None }
    }
}

/// What is known of an attempt before it has ended.
pub(crate) fn begun(
    identity: &ModelIdentity,
    (attempt, reason): (u32, Option<RetryReason>),
    request: &CompletionRequest,
    options: TelemetryOptions,
) -> Attributes {
    let mut list = AttributeList::default();
    list.text("openarmature.llm.model", &identity.model);
    list.integer("openarmature.llm.attempt_index", Some(u64::from(attempt)));
    if let Some(reason) = reason {
        list.text("openarmature.llm.retry_reason", reason.as_str());
    }
    if options.genai {
        // Backends of today look for the name that follows `gen_ai.system`.
        list.text("gen_ai.provider.name", &identity.system);
        list.text("gen_ai.system", &identity.system);
        list.text("gen_ai.request.model", &identity.model);
        request_parameters(&mut list, &request.config);
    }
    prompts::named(&mut list);
    if let Some(limit) = options.payload {
        payload::input(&mut list, request, limit);
    }
    list.0
}

/// The same with what became of it.
pub(crate) fn ended(
    begun: Attributes,
    result: Result<&Response, &ModelError>,
    options: TelemetryOptions,
) -> Attributes {
    let mut list = AttributeList(begun);
    match result {
        Ok(response) => succeeded(&mut list, response, options),
        Err(error) => failed(&mut list, error, options),
    }
    list.0
}

/// What a span says of `error`.
pub(crate) fn said_of(error: &ModelError, options: TelemetryOptions) -> String {
    match options.payload {
        None => error.in_general(),
        Some(_) => error.message.clone(),
    }
}

/// An attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub struct AttemptRecord<'a> {
    /// The wire and the model.
    pub identity: &'a ModelIdentity,
    /// From 0.
    pub attempt: u32,
    /// Reason why it is another one.
    pub reason: Option<RetryReason>,
    /// Request that was sent.
    pub request: &'a CompletionRequest,
    /// Result of the attempt.
    pub result: Result<&'a Response, &'a ModelError>,
}

impl AttemptRecord<'_> {
    /// The attributes of its span. An error's category is among them.
    pub fn attributes(self, options: TelemetryOptions) -> Attributes {
        let begun = begun(self.identity, (self.attempt, self.reason), self.request, options);
        ended(begun, self.result, options)
    }
}

/// A list of attributes as it grows.
#[derive(Debug, Default)]
struct AttributeList(Attributes);

impl AttributeList {
    fn text(&mut self, name: &'static str, text: &str) {
        self.0.push((name, AttributeValue::Text(text.to_owned())));
    }

    fn texts(&mut self, name: &'static str, texts: Vec<String>) {
        self.0.push((name, AttributeValue::Texts(texts)));
    }

    fn integer(&mut self, name: &'static str, number: Option<u64>) {
        let number = number.and_then(|number| i64::try_from(number).ok());
        self.0.extend(number.map(|number| (name, AttributeValue::Integer(number))));
    }

    fn number(&mut self, name: &'static str, number: Option<f64>) {
        self.0.extend(number.map(|number| (name, AttributeValue::Number(number))));
    }
}

/// What the call sets, and nothing that it does not (§5.5.2).
fn request_parameters(list: &mut AttributeList, config: &RuntimeConfig) {
    list.number("gen_ai.request.temperature", config.temperature);
    list.integer("gen_ai.request.max_tokens", config.max_tokens);
    list.number("gen_ai.request.top_p", config.top_p);
    list.0.extend(config.seed.map(|seed| ("gen_ai.request.seed", AttributeValue::Integer(seed))));
    list.number("gen_ai.request.frequency_penalty", config.frequency_penalty);
    list.number("gen_ai.request.presence_penalty", config.presence_penalty);
    if let Some(texts) = &config.stop_sequences {
        list.texts("gen_ai.request.stop_sequences", texts.clone());
    }
}

fn succeeded(list: &mut AttributeList, response: &Response, options: TelemetryOptions) {
    let finish = response.finish_reason.as_str();
    list.text("openarmature.llm.finish_reason", finish);
    usage(list, &response.usage, options.genai);
    prompts::judged(list, &response.usage);
    let calls = &response.message.tool_calls;
    if !calls.is_empty() {
        list.integer("openarmature.llm.output.tool_calls.count", Some(calls.len() as u64));
        list.texts("openarmature.llm.output.tool_calls.names", calls.iter().map(|call| call.name.clone()).collect());
        list.texts("openarmature.llm.output.tool_calls.ids", calls.iter().map(|call| call.id.clone()).collect());
    }
    if options.genai {
        list.texts("gen_ai.response.finish_reasons", vec![finish.to_owned()]);
        names(list, &response.raw);
    }
    if let Some(limit) = options.payload {
        payload::output(list, response, limit);
    }
}

/// What the provider calls the answer, and the model that gave it (§5.5.3).
fn names(list: &mut AttributeList, raw: &Value) {
    for (name, text) in [("gen_ai.response.model", response_model(raw)), ("gen_ai.response.id", response_id(raw))] {
        if let Some(text) = text {
            list.text(name, text);
        }
    }
}

/// The provider's own name of the model, in an answer as it came.
pub(crate) fn response_model(raw: &Value) -> Option<&str> {
    first_text(raw, ["model", "modelVersion"])
}

/// The provider's id of an answer, as it came.
pub(crate) fn response_id(raw: &Value) -> Option<&str> {
    first_text(raw, ["id", "responseId"])
}

fn first_text<'r>(raw: &'r Value, places: [&str; 2]) -> Option<&'r str> {
    places.iter().find_map(|place| raw.get(*place).and_then(Value::as_str))
}

/// Counters that the provider has reported (§5.5.3, §5.5.3.1).
fn usage(list: &mut AttributeList, usage: &Usage, genai: bool) {
    list.integer("openarmature.llm.usage.prompt_tokens", usage.prompt_tokens);
    list.integer("openarmature.llm.usage.completion_tokens", usage.completion_tokens);
    list.integer("openarmature.llm.usage.total_tokens", usage.total_tokens);
    if genai {
        list.integer("gen_ai.usage.input_tokens", usage.prompt_tokens);
        list.integer("gen_ai.usage.output_tokens", usage.completion_tokens);
        list.integer("openarmature.llm.cache_read.input_tokens", usage.cached_tokens);
        list.integer("openarmature.llm.cache_creation.input_tokens", usage.cache_creation_tokens);
    }
}

/// An answer that cannot be used, since its output or its calls of tools do not fit, has a reason to end and has cost tokens
/// all the same.
fn failed(list: &mut AttributeList, error: &ModelError, options: TelemetryOptions) {
    let category = error.category.category();
    list.text("openarmature.error.category", category.as_str());
    list.text("error.type", category.as_str());
    let unfit = error.structured.as_deref().map(|failure| (failure.finish_reason, failure.usage));
    let rejected = error.rejected.as_deref().map(|response| (response.finish_reason, response.usage));
    if let Some((finish_reason, counted)) = unfit.or(rejected) {
        list.text("openarmature.llm.finish_reason", finish_reason.as_str());
        usage(list, &counted, options.genai);
        prompts::judged(list, &counted);
        if options.genai {
            list.texts("gen_ai.response.finish_reasons", vec![finish_reason.as_str().to_owned()]);
            names(list, error.raw.as_deref().unwrap_or(&Value::Null));
        }
    }
    if let (Some(limit), Some(failure)) = (options.payload, &error.structured)
        && !failure.output_content.is_empty()
    {
        list.text("openarmature.llm.output.content", &limit.cut(failure.output_content.clone()));
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::model::{AssistantMessage, Block, FinishReason, Message, ModelErrorCategory, ToolCall};
    use serde_json::json;

    use super::*;

    fn identity() -> ModelIdentity {
        ModelIdentity { system: "openai".into(), model: "m".into(), server: "localhost".into() }
    }

    fn request() -> CompletionRequest {
        let mut request = CompletionRequest::new([Message::user(vec![Block::image_inline("image/png", "hush")])]);
        request.config.temperature = Some(0.0);
        request.config.extras.insert("top_k".into(), json!(3));
        request
    }

    fn response() -> Response {
        let call = ToolCall::new("1", "add", dormouse_ports::Map::new());
        Response {
            message: AssistantMessage { content: "hush".into(), tool_calls: vec![call], origin: None },
            finish_reason: FinishReason::ToolCalls,
            usage: Usage { prompt_tokens: Some(3), cached_tokens: Some(0), ..Usage::default() },
            raw: json!({ "id": "r", "model": "m-2" }),
            parsed: None,
        }
    }

    fn names(options: TelemetryOptions) -> (Vec<&'static str>, String) {
        let identity = identity();
        let request = request();
        let response = response();
        let record =
            AttemptRecord { identity: &identity, attempt: 0, reason: None, request: &request, result: Ok(&response) };
        let attributes = record.attributes(options);
        (attributes.iter().map(|(name, _)| *name).collect(), format!("{attributes:?}"))
    }

    #[test]
    fn content_is_off_unless_asked_for_and_images_are_never_shown() {
        let (off, shown) = names(TelemetryOptions::default());
        assert!(!shown.contains("hush"), "{shown}");
        assert!(off.contains(&"openarmature.llm.output.tool_calls.names") && off.contains(&"gen_ai.response.id"));
        let limit = PayloadLimit::new(256).expect("a limit");
        let (on, shown) = names(TelemetryOptions { genai: false, payload: Some(limit) });
        for name in ["input.messages", "output.content", "output.tool_calls", "request.extras"] {
            assert!(on.contains(&format!("openarmature.llm.{name}").as_str()), "{name}: {on:?}");
        }
        assert!(!on.iter().any(|name| name.starts_with("gen_ai.")), "{on:?}");
        assert!(shown.contains("inline_redacted") && shown.matches("hush").count() == 1, "{shown}");
    }

    #[test]
    fn what_is_said_of_an_answer_that_does_not_fit_is_content() {
        let shown = TelemetryOptions { payload: PayloadLimit::new(256), ..TelemetryOptions::default() };
        let of_provider = ModelError::new(ModelErrorCategory::RateLimit, "too many requests");
        let quotes = "the arguments of the call of `add` break its schema: /a: \"hush\" is not of type \"integer\"";
        let mut of_answer = ModelError::new(ModelErrorCategory::InvalidResponse, quotes);
        of_answer.rejected = Some(Box::new(response()));
        assert_eq!(said_of(&of_provider, TelemetryOptions::default()), "too many requests");
        assert!(!said_of(&of_answer, TelemetryOptions::default()).contains("hush"));
        assert_eq!(said_of(&of_answer, shown), quotes);
    }

    #[test]
    fn the_words_in_which_a_provider_refuses_a_request_may_quote_it() {
        let shown = TelemetryOptions { payload: PayloadLimit::new(256), ..TelemetryOptions::default() };
        let mut refused = ModelError::new(ModelErrorCategory::InvalidRequest, "status 422: 'input': 'hush'");
        refused.status = Some(422);
        assert_eq!(said_of(&refused, TelemetryOptions::default()), "the provider answered with status 422");
        for (kind, told) in [("invalid_value", ": invalid_value"), ("hush, he said", "")] {
            refused.raw = Some(Box::new(json!({ "error": { "type": kind } })));
            let general = format!("the provider answered with status 422{told}");
            assert_eq!(said_of(&refused, TelemetryOptions::default()), general);
        }
        assert_eq!(said_of(&refused, shown), refused.message);
        // One that gave up in the background tells why in an answer that was none of a failure.
        let given_up = ModelError { status: None, ..refused };
        assert_eq!(said_of(&given_up, TelemetryOptions::default()), "the provider gave no answer that can be used");
        assert_eq!(said_of(&given_up, shown), given_up.message);
    }

    #[test]
    fn an_answer_whose_calls_do_not_fit_has_its_tokens_all_the_same() {
        let (identity, request) = (identity(), request());
        let mut error = ModelError::new(ModelErrorCategory::InvalidResponse, "the arguments break the schema");
        error.raw = Some(Box::new(response().raw));
        error.rejected = Some(Box::new(response()));
        let record =
            AttemptRecord { identity: &identity, attempt: 0, reason: None, request: &request, result: Err(&error) };
        let attributes = record.attributes(TelemetryOptions::default());
        for (name, value) in [
            ("error.type", AttributeValue::Text("provider_invalid_response".to_owned())),
            ("openarmature.llm.usage.prompt_tokens", AttributeValue::Integer(3)),
            ("gen_ai.usage.input_tokens", AttributeValue::Integer(3)),
            ("openarmature.llm.finish_reason", AttributeValue::Text("tool_calls".to_owned())),
            ("gen_ai.response.id", AttributeValue::Text("r".to_owned())),
        ] {
            let found = attributes.iter().find(|(one, _)| *one == name).map(|(_, value)| value);
            assert_eq!(found, Some(&value), "{name}");
        }
        assert!(!format!("{attributes:?}").contains("hush"));
    }

    #[test]
    fn what_is_not_reported_is_not_there_and_nothing_is_something() {
        let (names, _) = names(TelemetryOptions::default());
        assert!(names.contains(&"openarmature.llm.usage.prompt_tokens"));
        assert!(names.contains(&"openarmature.llm.cache_read.input_tokens"), "zero is a report");
        assert!(!names.contains(&"openarmature.llm.usage.completion_tokens"));
        assert!(names.contains(&"gen_ai.request.temperature") && !names.contains(&"gen_ai.request.top_p"));
    }
}
