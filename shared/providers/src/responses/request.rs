use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, Message, ModelError, Tool, ToolChoice,
};
use serde_json::{Value, json};

use crate::body::{RequestBody, Sampling, without_stream};
use crate::check::{invalid, unsupported_fields};
use crate::openai::OF_RESPONSES;
use crate::openai::request::{address, arguments_text, schema_name};
use crate::schema::{is_strict, with_properties};

/// The body of `POST /responses`.
pub(crate) fn encode(model: &str, request: &CompletionRequest, in_background: bool) -> Result<Value, ModelError> {
    let config = &request.config;
    unsupported_fields(config, "OpenAI Responses")?;
    if config.stop_sequences.is_some() {
        return Err(invalid("OpenAI Responses has no `stop_sequences`; leave it out".to_owned()));
    }
    let mut body = RequestBody::default();
    body.set("model", Some(model));
    body.set("instructions", instructions(&request.messages));
    body.set("input", Some(request.messages.iter().flat_map(items).collect::<Vec<_>>()));
    body.set("tools", (!request.tools.is_empty()).then(|| request.tools.iter().map(tool).collect::<Vec<_>>()));
    body.set("tool_choice", request.tool_choice.as_ref().map(choice));
    body.set_sampling(
        config,
        &Sampling { temperature: "temperature", top_p: "top_p", max_tokens: "max_output_tokens" },
    );
    body.set("text", request.response_schema.as_ref().map(text_format));
    body.set("stream", request.stream.then_some(true));
    body.set("background", in_background.then_some(true));
    // Only what is kept can be asked for later.
    body.set("store", in_background.then_some(true));
    let extras = without_stream(&config.extras, request.stream)?;
    Ok(Value::Object(body.with_extras(&extras, false)?))
}

fn instructions(messages: &[Message]) -> Option<&str> {
    match messages.first() {
        Some(Message::System { content }) => Some(content),
        Some(Message::User { .. } | Message::Assistant(_) | Message::Tool { .. }) | None => None,
    }
}

fn items(message: &Message) -> Vec<Value> {
    match message {
        Message::System { .. } => Vec::new(),
        Message::User { content } => vec![json!({ "role": "user", "content": user_content(content) })],
        Message::Assistant(message) => assistant(message),
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

/// Reasoning first, as it came; then the text, then the calls.
fn assistant(message: &AssistantMessage) -> Vec<Value> {
    let is_own = message.origin.as_deref() == Some(OF_RESPONSES);
    let blocks = message.content.blocks().unwrap_or_default();
    let mut items: Vec<_> = blocks.iter().filter(|_| is_own).filter_map(reasoning).collect();
    let text = message.content.as_text();
    if !text.is_empty() {
        items.push(json!({ "role": "assistant", "content": text }));
    }
    items.extend(message.tool_calls.iter().map(|call| {
        json!({
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_text(call),
        })
    }));
    items
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
