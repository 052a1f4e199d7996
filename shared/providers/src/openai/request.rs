use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, ImageDetail, ImageSource, Message, ModelError, Tool, ToolCall,
    ToolChoice,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::described::within_limit;
use super::response::{REASONING, REASONING_DETAILS};
use super::{ChatServer, SYSTEM};
use crate::body::{NOTHING_SAID, RequestBody, Sampling, tool_choice, without_stream};
use crate::canonical::canonical;
use crate::schema::{is_strict, with_properties};

/// The body of `POST /chat/completions` (§8.1.1), for that server, with the reasoning of calls or without.
pub(super) fn encode(
    model: &str,
    request: &CompletionRequest,
    (server, with_reasoning): (ChatServer, bool),
) -> Result<Value, ModelError> {
    let is_limited = matches!(server, ChatServer::OpenAi | ChatServer::Deployment);
    let shorter = is_limited.then(|| within_limit(request));
    let request = shorter.as_deref().unwrap_or(request);
    let config = &request.config;
    let mut body = RequestBody::default();
    body.set("model", Some(model));
    let messages = messages(&request.messages, with_reasoning);
    body.set("messages", Some(if server == ChatServer::Mistral { answered(messages) } else { messages }));
    body.set("tools", (!request.tools.is_empty()).then(|| request.tools.iter().map(tool).collect::<Vec<_>>()));
    body.set("tool_choice", tool_choice(request).map(choice));
    let max_tokens = if server == ChatServer::OpenAi { "max_completion_tokens" } else { "max_tokens" };
    body.set_sampling(config, &Sampling { temperature: "temperature", top_p: "top_p", max_tokens });
    body.set(if server == ChatServer::Mistral { "random_seed" } else { "seed" }, config.seed);
    body.set("frequency_penalty", config.frequency_penalty);
    body.set("presence_penalty", config.presence_penalty);
    body.set_list("stop", config.stop_sequences.as_ref());
    body.set("response_format", request.response_schema.as_ref().map(response_format));
    body.set("stream", request.stream.then_some(true));
    let is_asked_for_usage = request.stream && server != ChatServer::Mistral;
    body.set("stream_options", is_asked_for_usage.then(|| json!({ "include_usage": true })));
    let extras = without_stream(&config.extras, request.stream)?;
    Ok(Value::Object(body.with_extras(&extras, true)?))
}

fn messages(messages: &[Message], with_reasoning: bool) -> Vec<Value> {
    let mut sent = Vec::new();
    let mut images = Vec::new();
    for one in messages {
        match one {
            Message::Tool { images: of_result, tool_call_id, .. } if !of_result.is_empty() => {
                let told = format!("[images of the result of the call `{tool_call_id}`]");
                images.push(json!({ "type": "text", "text": told }));
                images.extend(of_result.iter().filter_map(part));
            }
            Message::Tool { .. } => {}
            Message::System { .. } | Message::User { .. } | Message::Assistant(_) => show(&mut images, &mut sent),
        }
        sent.push(message(one, with_reasoning));
    }
    show(&mut images, &mut sent);
    sent
}

/// `sent` with an answer behind results of tools that a user speaks behind: Mistral wants one.
fn answered(sent: Vec<Value>) -> Vec<Value> {
    let mut answered: Vec<Value> = Vec::with_capacity(sent.len());
    for message in sent {
        if message["role"] == "user" && answered.last().is_some_and(|last| last["role"] == "tool") {
            answered.push(json!({ "role": "assistant", "content": NOTHING_SAID }));
        }
        answered.push(message);
    }
    answered
}

/// Results of tools are text alone here, and stand together behind their calls: their images are a message of the user behind
/// them.
fn show(images: &mut Vec<Value>, sent: &mut Vec<Value>) {
    if !images.is_empty() {
        sent.push(json!({ "role": "user", "content": std::mem::take(images) }));
    }
}

fn message(message: &Message, with_reasoning: bool) -> Value {
    match message {
        Message::System { content } => json!({ "role": "system", "content": content }),
        Message::User { content } => json!({ "role": "user", "content": user_content(content) }),
        Message::Assistant(message) => assistant(message, with_reasoning),
        Message::Tool { content, tool_call_id, images: _ } => {
            json!({ "role": "tool", "content": content, "tool_call_id": tool_call_id })
        }
    }
}

fn user_content(content: &Content) -> Value {
    match content {
        Content::Text(text) => Value::from(text.as_str()),
        Content::Blocks(blocks) => blocks.iter().filter_map(part).collect(),
    }
}

/// A block as an entry of a list of content; reasoning has none (§8.1.1).
fn part(block: &Block) -> Option<Value> {
    match block {
        Block::Text { text, .. } => (!text.is_empty()).then(|| json!({ "type": "text", "text": text })),
        Block::Image { source, media_type, detail } => Some(image(source, media_type.as_deref(), *detail)),
        Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

fn image(source: &ImageSource, media_type: Option<&str>, detail: Option<ImageDetail>) -> Value {
    let mut image = json!({ "url": address(source, media_type) });
    if let Some(detail) = detail {
        image["detail"] = Value::from(detail.as_str());
    }
    json!({ "type": "image_url", "image_url": image })
}

/// The address of an image; of an inline one its data (RFC 2397).
pub(crate) fn address(source: &ImageSource, media_type: Option<&str>) -> String {
    match source {
        ImageSource::Url { url } => url.clone(),
        ImageSource::Inline { base64_data } => {
            format!("data:{};base64,{base64_data}", media_type.unwrap_or_default())
        }
        // Refused before a request is made.
        ImageSource::Kept { .. } => String::new(),
    }
}

fn assistant(message: &AssistantMessage, with_reasoning: bool) -> Value {
    let content = match &message.content {
        Content::Text(text) => Value::from(text.as_str()),
        Content::Blocks(blocks) => {
            let parts: Vec<_> = blocks.iter().filter_map(part).collect();
            match parts.as_slice() {
                [] => Value::from(""),
                [one] => one["text"].clone(),
                _ => Value::from(parts),
            }
        }
    };
    if message.tool_calls.is_empty() {
        return json!({ "role": "assistant", "content": content });
    }
    let content = if content == "" { Value::Null } else { content };
    let calls: Vec<_> = message.tool_calls.iter().map(call).collect();
    let mut sent = json!({ "role": "assistant", "content": content, "tool_calls": calls });
    if let Some((name, reasoning)) = reasoning(message).filter(|_| with_reasoning) {
        sent[name] = reasoning;
    }
    sent
}

/// What a server of this wire thought before its calls, and the name under which it takes that back.
fn reasoning(message: &AssistantMessage) -> Option<(&'static str, Value)> {
    let Content::Blocks(blocks) = &message.content else { return None };
    let is_own = message.origin.as_deref().is_none_or(|origin| origin == SYSTEM);
    if !is_own {
        return None;
    }
    if let Some(details) = blocks.iter().find_map(details) {
        return Some((REASONING_DETAILS, details));
    }
    let thought = |block: &Block| match block {
        Block::Thinking { text, signature: None } => Some(text.clone()),
        Block::Thinking { .. } | Block::Text { .. } | Block::Image { .. } | Block::RedactedThinking { .. } => None,
    };
    let told: String = blocks.iter().filter_map(thought).collect();
    (!told.is_empty()).then(|| (REASONING[0], Value::from(told)))
}

/// The parts of reasoning that a block was read from.
fn details(block: &Block) -> Option<Value> {
    let kept = match block {
        Block::Thinking { signature, .. } => signature.as_deref()?,
        Block::RedactedThinking { data } => data,
        Block::Text { .. } | Block::Image { .. } => return None,
    };
    dormouse_json::read(kept.as_bytes(), dormouse_json::ENTRY).ok().filter(Value::is_array)
}

fn call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": arguments_text(call) });
    json!({ "id": call.id, "type": "function", "function": function })
}

/// Arguments as a text of JSON, the same for the same arguments.
pub(crate) fn arguments_text(call: &ToolCall) -> String {
    canonical(Value::Object(call.arguments.clone().unwrap_or_default())).to_string()
}

fn tool(tool: &Tool) -> Value {
    let function =
        json!({ "name": tool.name, "description": tool.description, "parameters": with_properties(&tool.parameters) });
    json!({ "type": "function", "function": function })
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => Value::from("auto"),
        ToolChoice::Required => Value::from("required"),
        ToolChoice::None => Value::from("none"),
        ToolChoice::Tool(name) => json!({ "type": "function", "function": { "name": name } }),
    }
}

fn response_format(schema: &Value) -> Value {
    let named = json!({ "name": schema_name(schema), "schema": schema, "strict": is_strict(schema) });
    json!({ "type": "json_schema", "json_schema": named })
}

/// A name that stays the same as long as the schema does: its title where that can be one.
pub(crate) fn schema_name(schema: &Value) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match schema.get("title").and_then(Value::as_str) {
        Some(title) if !title.is_empty() && title.len() <= 64 && title.chars().all(allowed) => title.to_owned(),
        Some(_) | None => {
            let digest = Sha256::digest(canonical(schema.clone()).to_string());
            let short = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("schema_{short}")
        }
    }
}
