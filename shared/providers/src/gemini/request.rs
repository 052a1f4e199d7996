use std::collections::BTreeMap;

use dormouse_ports::Map;
use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, ImageSource, Message, ModelError, Tool, ToolCall, ToolChoice,
};
use serde_json::{Value, json};

use super::{SYSTEM, sent_name};
use crate::body::{RequestBody, Sampling, data_in, system_text, tool_choice};

/// The body of `generateContent` (§8.3.1).
pub(super) fn encode(model: &str, request: &CompletionRequest) -> Result<Value, ModelError> {
    let mut body = RequestBody::default();
    body.set("systemInstruction", system(&request.messages));
    body.set("contents", Some(contents(&request.messages, checks_signatures(model))));
    body.set("tools", (!request.tools.is_empty()).then(|| tools(&request.tools)));
    body.set(TOOL_CONFIG, tool_choice(request).map(choice));
    let extras = request.config.extras.clone().into_iter();
    let (of_tools, of_generation): (Map, Map) = extras.partition(|(name, _)| name == TOOL_CONFIG);
    let generation = generation(request, &of_generation)?;
    body.set("generationConfig", (!generation.is_empty()).then_some(generation));
    Ok(Value::Object(body.with_extras(&of_tools, false)?))
}

/// The one extra that has its place beside the tools: a mode that no `tool_choice` says is asked for so (§8.3.1).
const TOOL_CONFIG: &str = "toolConfig";

/// Sampling, the schema, and the caller's `extras` among them.
fn generation(request: &CompletionRequest, extras: &Map) -> Result<Map, ModelError> {
    let config = &request.config;
    let mut body = RequestBody::default();
    let names = Sampling { temperature: "temperature", top_p: "topP", max_tokens: "maxOutputTokens" };
    body.set_sampling(config, &names);
    body.set("seed", config.seed);
    body.set("frequencyPenalty", config.frequency_penalty);
    body.set("presencePenalty", config.presence_penalty);
    body.set_list("stopSequences", config.stop_sequences.as_ref());
    body.set("responseMimeType", request.response_schema.as_ref().map(|_| "application/json"));
    body.set("responseJsonSchema", request.response_schema.clone());
    body.with_extras(extras, false)
}

fn system(messages: &[Message]) -> Option<Value> {
    system_text(messages).map(|text| json!({ "parts": [{ "text": text }] }))
}

fn contents(messages: &[Message], checks_signatures: bool) -> Vec<Value> {
    let mut sent: Vec<Value> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    // A response is a value; what is no value stands behind all of them.
    let mut images: Vec<Value> = Vec::new();
    // Which tool each call named, the latest counting.
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for message in messages {
        if let Message::Tool { content, tool_call_id, images: of_result } = message {
            let name = names.get(tool_call_id.as_str()).copied().unwrap_or_default();
            let response = json!({ "name": sent_name(name), "id": tool_call_id, "response": { "result": content } });
            results.push(json!({ "functionResponse": response }));
            if !of_result.is_empty() {
                images.push(json!({ "text": format!("[images of the result of the call `{tool_call_id}`]") }));
                images.extend(of_result.iter().filter_map(|block| part(block, Origin::Other)));
            }
            continue;
        }
        results.append(&mut images);
        flush(&mut results, &mut sent);
        match message {
            Message::System { .. } | Message::Tool { .. } => {}
            Message::User { content } => sent.push(json!({ "role": "user", "parts": parts(content, Origin::Other) })),
            Message::Assistant(message) => {
                names.extend(message.tool_calls.iter().map(|call| (call.id.as_str(), call.name.as_str())));
                sent.push(json!({ "role": "model", "parts": assistant(message, checks_signatures) }));
            }
        }
    }
    results.append(&mut images);
    flush(&mut results, &mut sent);
    sent
}

/// Results of tools that follow one another are one content of the user (§8.3.1.2).
fn flush(results: &mut Vec<Value>, sent: &mut Vec<Value>) {
    if !results.is_empty() {
        sent.push(json!({ "role": "user", "parts": std::mem::take(results) }));
    }
}

/// What stands for the signature of a call that another model made.
const OF_ANOTHER: &str = "skip_thought_signature_validator";

/// True if `model` refuses calls without a signature: those of Gemini since its third version do, and what is the latest.
fn checks_signatures(model: &str) -> bool {
    let name = model.strip_prefix("models/").unwrap_or(model);
    let Some(version) = name.strip_prefix("gemini-") else { return false };
    let number = version.split(['-', '.']).next().and_then(|number| number.parse::<u32>().ok());
    number.is_some_and(|number| number >= 3) || version.ends_with("-latest")
}

/// Whose the reasoning of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Gemini's.
    Own,
    /// Nobody says; its form does.
    Unnamed,
    Other,
}

fn assistant(message: &AssistantMessage, checks_signatures: bool) -> Vec<Value> {
    let origin = match message.origin.as_deref() {
        Some(SYSTEM) => Origin::Own,
        None => Origin::Unnamed,
        Some(_) => Origin::Other,
    };
    let mut sent = parts(&message.content, origin);
    let with_signature = origin != Origin::Other;
    let mut calls: Vec<_> = message.tool_calls.iter().map(|call| function_call(call, with_signature)).collect();
    let is_signed = calls.iter().any(|call| call.get("thoughtSignature").is_some());
    // Of calls that are made together, the first has the signature.
    if let Some(first) = calls.first_mut().filter(|_| checks_signatures && !is_signed) {
        first["thoughtSignature"] = Value::from(OF_ANOTHER);
    }
    sent.append(&mut calls);
    sent
}

fn parts(content: &Content, origin: Origin) -> Vec<Value> {
    match content {
        Content::Text(text) if text.is_empty() => Vec::new(),
        Content::Text(text) => vec![json!({ "text": text })],
        Content::Blocks(blocks) => blocks.iter().filter_map(|block| part(block, origin)).collect(),
    }
}

/// A block as a part (§8.3.1.1). Reasoning of another wire has none. Here a thinking block is hardly ever signed itself: one that is
/// counts as another wire's, where nobody says that it is not.
fn part(block: &Block, origin: Origin) -> Option<Value> {
    match block {
        Block::Text { text, signature: Some(signature) } if origin != Origin::Other && !signature.is_empty() => {
            Some(json!({ "text": text, "thoughtSignature": signature }))
        }
        Block::Text { text, .. } => (!text.is_empty()).then(|| json!({ "text": text })),
        Block::Image { source, media_type, .. } => Some(image(source, media_type.as_deref())),
        Block::Thinking { text, signature: Some(signature) } if origin == Origin::Own => {
            Some(json!({ "text": text, "thought": true, "thoughtSignature": signature }))
        }
        Block::Thinking { text, signature: None } if origin != Origin::Other => {
            Some(json!({ "text": text, "thought": true }))
        }
        Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

fn image(source: &ImageSource, media_type: Option<&str>) -> Value {
    match source {
        ImageSource::Inline { base64_data } => {
            json!({ "inlineData": { "mimeType": media_type, "data": base64_data } })
        }
        ImageSource::Url { url } => match (data_in(url), inferred(url).or(media_type)) {
            (Some((kind, data)), _) => json!({ "inlineData": { "mimeType": kind, "data": data } }),
            (None, Some(kind)) => json!({ "fileData": { "mimeType": kind, "fileUri": url } }),
            (None, None) => json!({ "fileData": { "fileUri": url } }),
        },
        // Refused before a request is made.
        ImageSource::Kept { .. } => Value::Null,
    }
}

/// The type that the ending of an address says.
fn inferred(url: &str) -> Option<&'static str> {
    const ENDINGS: [(&str, &str); 7] = [
        (".png", "image/png"),
        (".jpg", "image/jpeg"),
        (".jpeg", "image/jpeg"),
        (".webp", "image/webp"),
        (".gif", "image/gif"),
        (".heic", "image/heic"),
        (".heif", "image/heif"),
    ];
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    ENDINGS.iter().find(|(ending, _)| path.ends_with(ending)).map(|(_, kind)| *kind)
}

fn function_call(call: &ToolCall, with_signature: bool) -> Value {
    let arguments = call.arguments.clone().unwrap_or_default();
    let mut part = json!({ "functionCall": { "name": sent_name(&call.name), "id": call.id, "args": arguments } });
    if let (true, Some(signature)) = (with_signature, call.signature.as_deref().filter(|text| !text.is_empty())) {
        part["thoughtSignature"] = Value::from(signature);
    }
    part
}

/// True if `schema` is one of those that Gemini takes as `parameters` (§8.3.1): its own kind of schema, which refuses words
/// of JSON Schema and formats that it does not have, objects without properties, lists without a word of what is in them, values
/// of what is no text, and needs of what is no property. Those are taken in a field of their own, of which the specification says
/// nothing.
fn is_plain(schema: &Value) -> bool {
    const FORMATS: [&str; 6] = ["date-time", "enum", "int32", "int64", "float", "double"];
    const WORDS: [&str; 22] = [
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "maxItems",
        "minItems",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "example",
        "propertyOrdering",
        "default",
        "minimum",
        "maximum",
        "properties",
        "items",
        "anyOf",
    ];
    let Some(fields) = schema.as_object() else { return false };
    let properties = fields.get("properties").and_then(Value::as_object);
    let kind = fields.get("type").and_then(Value::as_str);
    if kind == Some("object") && properties.is_none_or(serde_json::Map::is_empty)
        || kind == Some("array") && !fields.contains_key("items")
    {
        return false;
    }
    fields.iter().all(|(word, value)| match (word.as_str(), value) {
        ("properties", Value::Object(properties)) => properties.values().all(is_plain),
        ("items", items) => is_plain(items),
        ("anyOf", Value::Array(choices)) => choices.iter().all(is_plain),
        ("type", kind) => kind.is_string(),
        ("format", format) => FORMATS.iter().any(|known| format == known),
        ("enum", Value::Array(values)) => {
            kind == Some("string") && values.iter().all(|value| value.as_str().is_some_and(|text| !text.is_empty()))
        }
        ("required", Value::Array(needed)) => needed.iter().all(|name| {
            name.as_str().is_some_and(|name| properties.is_some_and(|properties| properties.contains_key(name)))
        }),
        (word, _) => WORDS.contains(&word),
    })
}

fn tools(tools: &[Tool]) -> Value {
    let declared: Vec<_> = tools
        .iter()
        .map(|tool| {
            let field = if is_plain(&tool.parameters) { "parameters" } else { "parametersJsonSchema" };
            json!({ "name": sent_name(&tool.name), "description": tool.description, field: tool.parameters })
        })
        .collect();
    json!([{ "functionDeclarations": declared }])
}

fn choice(choice: &ToolChoice) -> Value {
    let config = match choice {
        ToolChoice::Auto => json!({ "mode": "AUTO" }),
        ToolChoice::Required => json!({ "mode": "ANY" }),
        ToolChoice::None => json!({ "mode": "NONE" }),
        ToolChoice::Tool(name) => json!({ "mode": "ANY", "allowedFunctionNames": [sent_name(name)] }),
    };
    json!({ "functionCallingConfig": config })
}
