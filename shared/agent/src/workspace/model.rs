use dormouse_ports::Template;
use dormouse_ports::model::Usage;
use serde::Serialize;

use super::fields::Fields;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::YamlNode;

/// The wires that a model may be behind.
pub(crate) const PROVIDERS: [&str; 5] = ["openai", "openai-compatible", "anthropic", "gemini", "bedrock"];

/// Those that can work in the background.
const WITH_BACKGROUND: [&str; 2] = ["openai", "openai-compatible"];

/// A model, as a file in `.openharness/models` declares it; `workspace/NAME` refers to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelDefinition {
    /// Its name in the workspace.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// The wire: `openai`, `openai-compatible`, `anthropic`, `gemini` or `bedrock`.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// The key, in most cases a reference.
    pub key: Option<Template>,
    /// Address of the provider; its usual one when absent.
    pub url: Option<Template>,
    /// True if its calls are worked on in the background, over OpenAI's Responses.
    pub background: bool,
    /// True if it takes images beside text.
    pub takes_images: bool,
    /// Tokens that one request and its answer may have together.
    pub context_window: Option<u64>,
    /// Prices of the model.
    pub prices: Option<Prices>,
    /// Everything else that is said of it.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// Prices of a model, per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prices {
    /// Of a request.
    pub prompt: f64,
    /// Of an answer.
    pub completion: f64,
    /// Of what of a request a cache had; that of a request without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
}

impl Prices {
    /// Cost of those tokens, as they are [billed](dormouse_ports::model::Response::billed).
    #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 tokens")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        let prompt = usage.prompt_tokens.unwrap_or_default();
        let cached = self.cached.map_or(0, |_| usage.cached_tokens.unwrap_or_default().min(prompt));
        let completion = usage.completion_tokens.unwrap_or_default() as f64 * self.completion;
        let cached_price = self.cached.unwrap_or_default();
        ((prompt - cached) as f64 * self.prompt + cached as f64 * cached_price + completion) / 1_000_000.0
    }
}

/// Tokens of an answer of a model of Anthropic, where neither the agent nor `metadata` says how many.
const MOST_TOKENS: u64 = 8192;
/// The same of its third generation, which takes no more.
const MOST_TOKENS_OF_OLD: u64 = 4096;
/// Names of that generation.
const OLD: [&str; 3] = ["claude-3-haiku", "claude-3-sonnet", "claude-3-opus"];

impl ModelDefinition {
    /// The most tokens of one answer, where the agent does not say and the wire wants to be told in every request: those that
    /// `metadata` names, or as many as its models take. `None` where the provider chooses.
    pub fn most_tokens(&self) -> Option<u64> {
        let named = self.metadata.get("max_output_tokens").and_then(serde_json::Value::as_u64).filter(|most| *most > 0);
        let standard = || match OLD.iter().any(|name| self.model.starts_with(name)) {
            true => MOST_TOKENS_OF_OLD,
            false => MOST_TOKENS,
        };
        (self.provider == "anthropic").then(|| named.unwrap_or_else(standard))
    }

    /// Reads the model `name` from its mapping in `file`.
    pub(crate) fn read(name: &str, file: &str, node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<Self> {
        problems.about(DefinitionName::new(DefinitionKind::Model, name));
        let mut fields = Fields::of(node, format!("model `{name}`"), problems);
        let provider = fields.word("provider", &PROVIDERS, problems);
        let model = fields.text("name", problems);
        for (field, missing) in [("provider", fields.get("provider").is_none()), ("name", model.is_none())] {
            if missing {
                problems.error(node.line, format!("model `{name}` has no `{field}`"));
            }
        }
        let url = fields.template("url", problems);
        if provider == Some("openai-compatible") && url.is_none() {
            problems.error(node.line, format!("model `{name}` is `openai-compatible` and has no `url` to ask"));
        }
        if let Some(url) = url.as_ref().filter(|url| !url.refers() && !is_address(url.written())) {
            let line = fields.get("url").map(|node| node.line);
            let message = format!(
                "the `url` of model `{name}` is no address: `{}`; write `https://…`, or `http://…`, without `#`",
                url.written()
            );
            problems.error(line, message);
        }
        let key = fields.template("key", problems);
        if let Some(key) = key.as_ref().filter(|key| !key.refers()) {
            let hint = "write `${secrets.NAME}` or `${env.NAME}`";
            let line = fields.get("key").map(|node| node.line);
            problems.warning(
                line,
                format!("the key of model `{name}` ({} characters) stands in the file: {hint}", key.written().len()),
            );
        }
        let background = fields.boolean("background", problems).unwrap_or_default();
        if let Some(provider) = provider.filter(|provider| background && !WITH_BACKGROUND.contains(provider)) {
            let line = fields.get("background").map(|node| node.line);
            let message = format!(
                "model `{name}` cannot work in the background: `{provider}` has no way for it (those of OpenAI's \
                 Responses have: `{}`); remove `background`",
                WITH_BACKGROUND.join("`, `")
            );
            problems.error(line, message);
        }
        let takes_images = takes_images(name, &mut fields, problems);
        let metadata = fields.json("metadata").and_then(|value| value.as_object().cloned()).unwrap_or_default();
        let number = |name: &str| metadata.get(name).and_then(serde_json::Value::as_u64);
        let context_window = number("context_window").or_else(|| number("max_model_len"));
        let prices = metadata.get("prices").and_then(|prices| {
            Some(Prices {
                prompt: prices.get("prompt")?.as_f64()?,
                completion: prices.get("completion")?.as_f64()?,
                cached: prices.get("cached").and_then(serde_json::Value::as_f64),
            })
        });
        if metadata.contains_key("prices") && prices.is_none() {
            let message = "must have the numbers `prompt` and `completion`, per million tokens";
            problems.warning(node.line, format!("`metadata.prices` of model `{name}` {message}: no cost is counted"));
        }
        fields.finish(problems);
        Some(Self {
            name: name.to_owned(),
            file: file.to_owned(),
            provider: provider?.to_owned(),
            model: model?,
            key,
            url,
            background,
            takes_images,
            context_window,
            prices,
            metadata,
        })
    }
}

/// Kinds of content that a model may take.
const CONTENT: [&str; 2] = ["text", "image"];

/// True if `input` of the model `name` says that it takes images.
fn takes_images(name: &str, fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> bool {
    let line = fields.get("input").map(|node| node.line);
    let input = fields.texts("input", problems).unwrap_or_default();
    for unknown in input.iter().filter(|word| !CONTENT.contains(&word.as_str())) {
        let message =
            format!("`input` of model `{name}` has `{unknown}`: models are given `{}`", CONTENT.join("` and `"));
        problems.error(line, message);
    }
    if line.is_some() && !input.is_empty() && !input.iter().any(|word| word == "text") {
        problems.error(line, format!("`input` of model `{name}` lacks `text`, which every model is given"));
    }
    input.iter().any(|word| word == "image")
}

/// True if `text` can be asked over HTTP.
fn is_address(text: &str) -> bool {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_http = ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    is_http && !host.is_empty() && !text.contains('#') && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
