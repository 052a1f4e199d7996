use dormouse_ports::Template;
use dormouse_ports::model::Usage;
use serde::Serialize;

use super::fields::Fields;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::{NodeValue, YamlEntry, YamlNode};
use crate::names::slip_of;

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
    /// Header in which the key is sent as it is, in lower case; that of the wire when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_header: Option<String>,
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
    /// Of what of a request was written to a cache; that of a request without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<f64>,
}

impl Prices {
    /// Cost of those tokens, as they are [billed](dormouse_ports::model::Response::billed).
    #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 tokens")]
    pub fn cost(&self, usage: &Usage) -> f64 {
        let prompt = usage.prompt_tokens.unwrap_or_default();
        let cached = self.cached.map_or(0, |_| usage.cached_tokens.unwrap_or_default().min(prompt));
        let rest = prompt - cached;
        let written = self.written.map_or(0, |_| usage.cache_creation_tokens.unwrap_or_default().min(rest));
        let completion = usage.completion_tokens.unwrap_or_default() as f64 * self.completion;
        let cached_price = self.cached.unwrap_or_default();
        let written_price = self.written.unwrap_or_default();
        let caches = cached as f64 * cached_price + written as f64 * written_price;
        ((rest - written) as f64 * self.prompt + caches + completion) / 1_000_000.0
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
        let named = self.metadata.get("max_output_tokens").and_then(tokens);
        let standard = || match OLD.iter().any(|name| self.model.starts_with(name)) {
            true => MOST_TOKENS_OF_OLD,
            false => MOST_TOKENS,
        };
        (self.provider == "anthropic").then(|| named.unwrap_or_else(standard))
    }

    /// True if its server wants to be told what the model thought before its calls of tools.
    pub fn returns_reasoning(&self) -> bool {
        self.metadata.get(RETURNS_REASONING).and_then(serde_json::Value::as_bool).unwrap_or_default()
    }

    /// Reads the model `name` from its mapping in `file`.
    pub(crate) fn read(name: &str, file: &str, node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<Self> {
        problems.about(DefinitionName::new(DefinitionKind::Model, name));
        let mut fields = Fields::of(node, format!("model `{name}`"), problems);
        if fields.is_misfit() {
            return None;
        }
        let provider = fields.word("provider", &PROVIDERS, problems);
        let model = fields.text("name", problems);
        let model = model.filter(|model| !model.trim().is_empty());
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
        let key_header = key_header(name, &mut fields, problems);
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
        let metadata = fields.get("metadata");
        tell_of_metadata(name, metadata, problems);
        let metadata = metadata.and_then(|node| node.to_json().as_object().cloned()).unwrap_or_default();
        let window = |name: &str| metadata.get(name).and_then(tokens);
        let context_window = window("context_window").or_else(|| window("max_model_len"));
        let prices = metadata.get("prices").and_then(Prices::read);
        fields.finish(problems);
        Some(Self {
            name: name.to_owned(),
            file: file.to_owned(),
            provider: provider?.to_owned(),
            model: model?,
            key,
            key_header,
            url,
            background,
            takes_images,
            context_window,
            prices,
            metadata,
        })
    }
}

impl Prices {
    /// The prices that `value` has, if it has those that are needed.
    fn read(value: &serde_json::Value) -> Option<Self> {
        let of = |name: &str| value.get(name).and_then(price);
        let (cached, written) = (of("cached"), of("written"));
        Some(Self { prompt: of("prompt")?, completion: of("completion")?, cached, written })
    }
}

/// A number of tokens, if `value` is one.
fn tokens(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().filter(|tokens| *tokens > 0)
}

/// A price, if `value` is one.
fn price(value: &serde_json::Value) -> Option<f64> {
    value.as_f64().filter(|price| *price >= 0.0)
}

/// Numbers of tokens in `metadata`, and what is so without them.
const TOKENS: [(&str, &str); 3] = [
    ("context_window", "its conversations are never compacted"),
    ("max_model_len", "its conversations are never compacted"),
    ("max_output_tokens", "an answer is as long as Dormouse takes it to be for such a model"),
];
/// The field of `metadata` by which a model is told its reasoning again.
const RETURNS_REASONING: &str = "return_reasoning";
/// Fields of `metadata.prices`, per million tokens.
const PRICES: [&str; 4] = ["prompt", "completion", "cached", "written"];

/// Warns of what in `metadata` of the model `name` was meant and has no effect. Other fields are the author's own.
fn tell_of_metadata(name: &str, metadata: Option<&YamlNode>, problems: &mut FileProblems<'_>) {
    let Some(node) = metadata else { return };
    let NodeValue::Map(entries) = &node.value else {
        let message = format!("`metadata` of model `{name}` must be a mapping of fields, and is {}", node.kind());
        return problems.warning(node.line, format!("{message}: it has no effect"));
    };
    for entry in entries {
        let key = entry.key.as_str();
        let field = format!("`metadata.{key}` of model `{name}`");
        if let Some((_, otherwise)) = TOKENS.iter().find(|(known, _)| *known == key) {
            if tokens(&entry.value.to_json()).is_none() {
                let message = format!("{field} must be a whole number of tokens, in digits alone: {otherwise}");
                problems.warning(entry.line, message);
            }
        } else if key == RETURNS_REASONING {
            if entry.value.as_bool().is_none() {
                problems.warning(entry.line, format!("{field} must be `true` or `false`: it has no effect"));
            }
        } else if key == "prices" {
            tell_of_prices(name, entry, problems);
        } else if let Some(meant) =
            slip_of(key, TOKENS.iter().map(|(known, _)| *known).chain(["prices", RETURNS_REASONING]))
        {
            problems.warning(entry.line, format!("{field} has no effect: did you mean `{meant}`?"));
        }
    }
}

/// The same of its `prices`.
fn tell_of_prices(name: &str, prices: &YamlEntry, problems: &mut FileProblems<'_>) {
    if Prices::read(&prices.value.to_json()).is_none() {
        let message = "must have the numbers `prompt` and `completion`, per million tokens: no cost is counted";
        problems.warning(prices.line, format!("`metadata.prices` of model `{name}` {message}"));
    }
    let NodeValue::Map(entries) = &prices.value.value else { return };
    for entry in entries {
        let field = format!("`metadata.prices.{}` of model `{name}`", entry.key);
        if !PRICES.contains(&entry.key.as_str()) {
            let message = format!("{field} has no effect: prices are `{}`", PRICES.join("`, `"));
            problems.warning(entry.line, message);
        } else if price(&entry.value.to_json()).is_none() {
            problems.warning(entry.line, format!("{field} must be a number from 0 on: it has no effect"));
        }
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

/// The header that the model `name` has its key in, where it says so.
fn key_header(name: &str, fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> Option<String> {
    let line = fields.get("key_header").map(|node| node.line);
    let header = fields.text("key_header", problems)?.to_ascii_lowercase();
    if fields.get("key").is_none() {
        problems.warning(line, format!("`key_header` of model `{name}` has no effect: there is no `key`"));
    }
    let is_name =
        (1..=64).contains(&header.len()) && header.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if !is_name {
        let message = format!(
            "`key_header` of model `{name}` is no name of a header: write `key_header: api-key`, for example, and the key \
             itself under `key`"
        );
        problems.error(line, message);
    }
    is_name.then_some(header)
}

/// True if `text` can be asked over HTTP.
fn is_address(text: &str) -> bool {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let is_http = ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    is_http && !host.is_empty() && !text.contains('#') && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
