use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, Message, ModelError, Tool, ToolCall, ToolChoice,
};
use serde_json::{Value, json};

use crate::body::{RequestBody, Sampling, tool_choice, without_stream};
use crate::check::{invalid, unsupported_fields};
use crate::openai::OF_RESPONSES;
use crate::openai::described::within_limit;
use crate::openai::request::{address, arguments_text, schema_name};
use crate::schema::{is_strict, with_properties};

/// What is asked for where the provider keeps nothing: its reasoning, sealed, so that it knows it when it is given back.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// The body of `POST /responses`.
pub(crate) fn encode(model: &str, request: &CompletionRequest, in_background: bool) -> Result<Value, ModelError> {
    let shorter = within_limit(request);
    let request = &*shorter;
    let config = &request.config;
    unsupported_fields(config, "OpenAI Responses")?;
    if config.stop_sequences.is_some() {
        return Err(invalid("OpenAI Responses has no `stop_sequences`; leave it out".to_owned()));
    }
    if !in_background && config.extras.get("background") == Some(&Value::Bool(true)) {
        return Err(invalid("nobody waits for what is made in the background; ask with `start`".to_owned()));
    }
    let mut body = RequestBody::default();
    body.set("model", Some(model));
    body.set("instructions", instructions(&request.messages));
    let is_kept = in_background || config.extras.get("store") != Some(&Value::Bool(false));
    let items = request.messages.iter().flat_map(|message| items(message, is_kept));
    body.set("input", Some(items.collect::<Vec<_>>()));
    body.set("tools", (!request.tools.is_empty()).then(|| request.tools.iter().map(tool).collect::<Vec<_>>()));
    body.set("tool_choice", tool_choice(request).map(choice));
    body.set_sampling(
        config,
        &Sampling { temperature: "temperature", top_p: "top_p", max_tokens: "max_output_tokens" },
    );
    body.set("text", request.response_schema.as_ref().map(text_format));
    body.set("stream", request.stream.then_some(true));
    body.set("background", in_background.then_some(true));
    // Only what is kept can be asked for later.
    body.set("store", in_background.then_some(true));
    // Models that do not reason refuse it.
    let is_asked_for = !is_kept && config.extras.contains_key("reasoning");
    body.set_list("include", is_asked_for.then(|| vec![ENCRYPTED.to_owned()]).as_ref());
    let extras = without_stream(&config.extras, request.stream)?;
    Ok(Value::Object(body.with_extras(&extras, false)?))
}

fn instructions(messages: &[Message]) -> Option<&str> {
    match messages.first() {
        Some(Message::System { content }) => Some(content),
        Some(Message::User { .. } | Message::Assistant(_) | Message::Tool { .. }) | None => None,
    }
}

fn items(message: &Message, is_kept: bool) -> Vec<Value> {
    match message {
        Message::System { .. } => Vec::new(),
        Message::User { content } => vec![json!({ "role": "user", "content": user_content(content) })],
        Message::Assistant(message) => assistant(message, is_kept),
        Message::Tool { content, tool_call_id, images } => {
            let output = output(content, images);
            vec![json!({ "type": "function_call_output", "call_id": tool_call_id, "output": output })]
        }
    }
}

fn output(text: &str, images: &[Block]) -> Value {
    if images.is_empty() {
        return Value::from(text);
    }
    let text = json!({ "type": "input_text", "text": text });
    std::iter::once(text).chain(images.iter().filter_map(part)).collect()
}

fn user_content(content: &Content) -> Value {
    match content {
        Content::Text(text) => Value::from(text.as_str()),
        Content::Blocks(blocks) => blocks.iter().filter_map(part).collect(),
    }
}

fn part(block: &Block) -> Option<Value> {
    match block {
        Block::Text { text, .. } => Some(json!({ "type": "input_text", "text": text })),
        Block::Image { source, media_type, detail } => {
            let mut image = json!({ "type": "input_image", "image_url": address(source, media_type.as_deref()) });
            if let Some(detail) = detail {
                image["detail"] = Value::from(detail.as_str());
            }
            Some(image)
        }
        Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}

/// Reasoning, text and calls in the order in which they came: the provider wants reasoning right before what it led to. Calls
/// of which that is not known stand last.
fn assistant(message: &AssistantMessage, is_kept: bool) -> Vec<Value> {
    let is_own = message.origin.as_deref() == Some(OF_RESPONSES);
    let mut calls = message.tool_calls.iter().peekable();
    let mut items = Vec::new();
    let mut text = String::new();
    for (at, block) in message.content.blocks().unwrap_or_default().iter().enumerate() {
        while let Some(call) = calls.next_if(|call| is_own && place(call).is_some_and(|place| place <= at)) {
            say(&mut text, &mut items);
            items.push(function_call(call));
        }
        match block {
            Block::Text { text: said, .. } => text.push_str(said),
            Block::Image { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => {
                if let Some(item) = reasoning(block).filter(|item| is_own && is_known(item, is_kept)) {
                    say(&mut text, &mut items);
                    items.push(item);
                }
            }
        }
    }
    if let Content::Text(said) = &message.content {
        text.push_str(said);
    }
    say(&mut text, &mut items);
    items.extend(calls.map(function_call));
    items
}

/// Sends the `text` that has come so far.
fn say(text: &mut String, items: &mut Vec<Value>) {
    if !text.is_empty() {
        items.push(json!({ "role": "assistant", "content": std::mem::take(text) }));
    }
}

fn function_call(call: &ToolCall) -> Value {
    json!({
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments_text(call),
    })
}

/// The number of blocks before `call`, which stands for its signature where others follow it.
fn place(call: &ToolCall) -> Option<usize> {
    call.signature.as_deref()?.parse().ok()
}

/// True for reasoning that the provider knows by its id, or has sealed: it refuses any other.
fn is_known(item: &Value, is_kept: bool) -> bool {
    is_kept || item.get("encrypted_content").is_some_and(Value::is_string)
}

/// The item that a block was read from; it is kept whole.
fn reasoning(block: &Block) -> Option<Value> {
    let kept = match block {
        Block::Thinking { signature, .. } => signature.as_deref()?,
        Block::RedactedThinking { data } => data,
        Block::Text { .. } | Block::Image { .. } => return None,
    };
    dormouse_json::read(kept.as_bytes(), dormouse_json::ENTRY).ok()
}

fn tool(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": with_properties(&tool.parameters),
        // Strict unless it is said otherwise, which not every schema can be.
        "strict": false,
    })
}

fn choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => Value::from("auto"),
        ToolChoice::Required => Value::from("required"),
        ToolChoice::None => Value::from("none"),
        ToolChoice::Tool(name) => json!({ "type": "function", "name": name }),
    }
}

fn text_format(schema: &Value) -> Value {
    let format = json!({
        "type": "json_schema",
        "name": schema_name(schema),
        "schema": schema,
        "strict": is_strict(schema),
    });
    json!({ "format": format })
}
