use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, ImageSource, Message, ModelError, Tool, ToolCall, ToolChoice,
};
use serde_json::{Value, json};

use super::SYSTEM;
use crate::body::{NOTHING_SAID, RequestBody, Sampling, data_in, past_tools, system_text, tool_choice, without_stream};
use crate::check::{invalid, unsupported_fields};
use crate::schema::without_choices;

/// The body of `POST /v1/messages` (§8.2.1).
pub(super) fn encode(model: &str, request: &CompletionRequest) -> Result<Value, ModelError> {
    let config = &request.config;
    unsupported_fields(config, "Anthropic Messages")?;
    if config.max_tokens.is_none() {
        return Err(invalid(
            "Anthropic Messages needs `max_tokens` in every call; set it in the configuration".to_owned(),
        ));
    }
    let mut body = RequestBody::default();
    body.set("model", Some(model));
    body.set("system", system_text(&request.messages));
    body.set("messages", Some(messages(&request.messages)));
    body.set("tools", tools(request));
    body.set("tool_choice", tool_choice(request).map(choice));
    body.set_sampling(config, &Sampling { temperature: "temperature", top_p: "top_p", max_tokens: "max_tokens" });
    body.set_list("stop_sequences", config.stop_sequences.as_ref());
    body.set("output_config", request.response_schema.as_ref().map(output_config));
    body.set("stream", request.stream.then_some(true));
    let extras = without_stream(&config.extras, request.stream)?;
    Ok(Value::Object(body.with_extras(&extras, false)?))
}

fn messages(messages: &[Message]) -> Vec<Value> {
    let mut sent: Vec<Value> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    for message in messages {
        if let Message::Tool { content, tool_call_id, images } = message {
            let content = result_content(content, images);
            results.push(json!({ "type": "tool_result", "tool_use_id": tool_call_id, "content": content }));
            continue;
        }
        flush(&mut results, &mut sent);
        match message {
            Message::System { .. } | Message::Tool { .. } => {}
            Message::User { content } => sent.push(json!({ "role": "user", "content": user_content(content) })),
            Message::Assistant(message) => sent.push(json!({ "role": "assistant", "content": assistant(message) })),
        }
    }
    flush(&mut results, &mut sent);
    sent
}

fn result_content(text: &str, images: &[Block]) -> Value {
    if images.is_empty() {
        return Value::from(text);
    }
    let text = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
    text.into_iter().chain(images.iter().filter_map(|block| entry(block, false))).collect()
}

/// Results of tools that follow one another are one message of the user (§8.2.1.2).
fn flush(results: &mut Vec<Value>, sent: &mut Vec<Value>) {
    if !results.is_empty() {
        sent.push(json!({ "role": "user", "content": std::mem::take(results) }));
    }
}

fn user_content(content: &Content) -> Value {
    match content {
        Content::Text(text) if text.trim().is_empty() => Value::from(NOTHING_SAID),
        Content::Text(text) => Value::from(text.as_str()),
        Content::Blocks(blocks) => {
            let entries: Vec<_> = blocks.iter().filter_map(|block| entry(block, false)).collect();
            if entries.is_empty() { Value::from(NOTHING_SAID) } else { Value::from(entries) }
        }
    }
}

fn assistant(message: &AssistantMessage) -> Value {
    let is_own = message.origin.as_deref().is_none_or(|origin| origin == SYSTEM);
    let mut entries: Vec<Value> = match &message.content {
        Content::Text(text) if message.tool_calls.is_empty() => return Value::from(text.as_str()),
        Content::Text(text) if text.trim().is_empty() => Vec::new(),
        Content::Text(text) => vec![json!({ "type": "text", "text": text })],
        Content::Blocks(blocks) => blocks.iter().filter_map(|block| entry(block, is_own)).collect(),
    };
    entries.extend(message.tool_calls.iter().map(tool_use));
    Value::from(entries)
}

/// A block as an entry of content (§8.2.1.1). Reasoning of another wire, and reasoning without a signature, has none.
fn entry(block: &Block, with_reasoning: bool) -> Option<Value> {
    match block {
        Block::Text { text, .. } => (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text })),
        Block::Image { source, media_type, .. } => Some(image(source, media_type.as_deref())),
        Block::Thinking { text, signature: Some(signature) } if with_reasoning => {
            Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        Block::RedactedThinking { data } if with_reasoning => {
            Some(json!({ "type": "redacted_thinking", "data": data }))
        }
        Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

fn image(source: &ImageSource, media_type: Option<&str>) -> Value {
    let source = match source {
        ImageSource::Url { url } => match data_in(url) {
            Some((kind, data)) => json!({ "type": "base64", "media_type": kind, "data": data }),
            None => json!({ "type": "url", "url": url }),
        },
        ImageSource::Inline { base64_data } => {
            json!({ "type": "base64", "media_type": media_type, "data": base64_data })
        }
        // Refused before a request is made.
        ImageSource::Kept { .. } => Value::Null,
    };
    json!({ "type": "image", "source": source })
}

fn tool_use(call: &ToolCall) -> Value {
    let input = call.arguments.clone().unwrap_or_default();
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

fn tools(request: &CompletionRequest) -> Option<Vec<Value>> {
    // Calls in a conversation without tools may be refused. Extras may name some that run at Anthropic.
    let has_some = !request.tools.is_empty() || request.config.extras.contains_key("tools");
    let past = if has_some { Vec::new() } else { past_tools(&request.messages) };
    let tools: Vec<Value> = request.tools.iter().chain(&past).map(tool).collect();
    (!tools.is_empty()).then_some(tools)
}

fn tool(tool: &Tool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": without_choices(&tool.parameters) })
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({ "type": "auto" }),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::None => json!({ "type": "none" }),
        ToolChoice::Tool(name) => json!({ "type": "tool", "name": name }),
    }
}

fn output_config(schema: &Value) -> Value {
    json!({ "format": { "type": "json_schema", "schema": schema } })
}
