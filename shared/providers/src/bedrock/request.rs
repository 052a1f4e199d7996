use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, ImageSource, Message, ModelError, ModelErrorCategory, Tool,
    ToolCall, ToolChoice,
};
use serde_json::{Value, json};

use super::SYSTEM;
use crate::body::{NOTHING_SAID, RequestBody, Sampling, data_in, past_tools};
use crate::check::{invalid, unsupported_fields};
use crate::schema::without_choices;

/// The body of `Converse` and `ConverseStream`.
pub(super) fn encode(request: &CompletionRequest) -> Result<Value, ModelError> {
    let config = &request.config;
    unsupported_fields(config, "Bedrock Converse")?;
    let mut inference = RequestBody::default();
    inference.set_sampling(config, &Sampling { temperature: "temperature", top_p: "topP", max_tokens: "maxTokens" });
    inference.set_list("stopSequences", config.stop_sequences.as_ref());
    let inference = inference.with_extras(&dormouse_ports::Map::new(), false)?;
    let mut body = RequestBody::default();
    body.set("system", system(&request.messages));
    body.set("messages", Some(messages(&request.messages)?));
    body.set("inferenceConfig", (!inference.is_empty()).then_some(inference));
    body.set("toolConfig", tool_config(request)?);
    body.set("additionalModelRequestFields", (!config.extras.is_empty()).then(|| config.extras.clone()));
    Ok(Value::Object(body.with_extras(&dormouse_ports::Map::new(), false)?))
}

fn system(messages: &[Message]) -> Option<Value> {
    match messages.first() {
        Some(Message::System { content }) => Some(json!([{ "text": content }])),
        Some(Message::User { .. } | Message::Assistant(_) | Message::Tool { .. }) | None => None,
    }
}

/// Roles alternate here, and the user begins: what one role says in a row is one message.
fn messages(messages: &[Message]) -> Result<Vec<Value>, ModelError> {
    let mut sent: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, entries) = match message {
            Message::System { .. } => continue,
            Message::User { content } => ("user", of_user(content)?),
            Message::Assistant(message) => ("assistant", assistant(message)?),
            Message::Tool { content, tool_call_id, images } => {
                ("user", vec![tool_result(tool_call_id, content, images)?])
            }
        };
        match sent.last_mut() {
            Some((last, known)) if *last == role => known.extend(entries),
            Some(_) | None => sent.push((role, entries)),
        }
    }
    if sent.first().is_some_and(|(role, _)| *role == "assistant") {
        sent.insert(0, ("user", vec![json!({ "text": NOTHING_SAID })]));
    }
    Ok(sent.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect())
}

fn of_user(content: &Content) -> Result<Vec<Value>, ModelError> {
    let sent = entries(content, false)?;
    Ok(if sent.is_empty() { vec![json!({ "text": NOTHING_SAID })] } else { sent })
}

fn tool_result(id: &str, text: &str, images: &[Block]) -> Result<Value, ModelError> {
    let images = images.iter().filter_map(|block| entry(block, false).transpose());
    let content = std::iter::once(Ok(json!({ "text": text }))).chain(images).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "toolResult": { "toolUseId": id, "content": content } }))
}

fn assistant(message: &AssistantMessage) -> Result<Vec<Value>, ModelError> {
    let is_own = message.origin.as_deref().is_none_or(|origin| origin == SYSTEM);
    let mut sent = entries(&message.content, is_own)?;
    sent.extend(message.tool_calls.iter().map(tool_use));
    Ok(sent)
}

fn entries(content: &Content, with_reasoning: bool) -> Result<Vec<Value>, ModelError> {
    match content {
        Content::Text(text) if text.trim().is_empty() => Ok(Vec::new()),
        Content::Text(text) => Ok(vec![json!({ "text": text })]),
        Content::Blocks(blocks) => blocks.iter().filter_map(|block| entry(block, with_reasoning).transpose()).collect(),
    }
}

fn entry(block: &Block, with_reasoning: bool) -> Result<Option<Value>, ModelError> {
    Ok(match block {
        Block::Text { text, .. } => (!text.trim().is_empty()).then(|| json!({ "text": text })),
        Block::Image { source, media_type, .. } => Some(image(source, media_type.as_deref())?),
        Block::Thinking { text, signature: Some(signature) } if with_reasoning => {
            Some(json!({ "reasoningContent": { "reasoningText": { "text": text, "signature": signature } } }))
        }
        Block::RedactedThinking { data } if with_reasoning => {
            Some(json!({ "reasoningContent": { "redactedContent": data } }))
        }
        Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    })
}

fn image(source: &ImageSource, media_type: Option<&str>) -> Result<Value, ModelError> {
    let (media_type, source) = match source {
        ImageSource::Inline { base64_data } => (media_type, json!({ "bytes": base64_data })),
        ImageSource::Url { url } if url.starts_with("s3://") => {
            (Some(media_type.unwrap_or_else(|| type_by_ending(url))), json!({ "s3Location": { "uri": url } }))
        }
        ImageSource::Url { url } => match data_in(url) {
            Some((media_type, data)) => (Some(media_type), json!({ "bytes": data })),
            None => return Err(unsupported("Bedrock takes images inline or at s3://, not at other addresses")),
        },
        ImageSource::Kept { .. } => return Err(unsupported("the image was not read before the model was asked")),
    };
    let format = media_type.and_then(|media_type| media_type.strip_prefix("image/"));
    let format = format.ok_or_else(|| unsupported("the image has no `media_type` such as `image/png`"))?;
    let format = if format == "jpg" { "jpeg" } else { format };
    Ok(json!({ "image": { "format": format, "source": source } }))
}

/// The type of the image at `url`, where nobody says it: Converse wants one of every image.
fn type_by_ending(url: &str) -> &'static str {
    let ending = url.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        _ => "image/png",
    }
}

fn unsupported(reason: &str) -> ModelError {
    ModelError::new(ModelErrorCategory::UnsupportedContentBlock, reason)
}

fn tool_use(call: &ToolCall) -> Value {
    let input = call.arguments.clone().unwrap_or_default();
    json!({ "toolUse": { "toolUseId": call.id, "name": call.name, "input": input } })
}

fn tool_config(request: &CompletionRequest) -> Result<Option<Value>, ModelError> {
    if request.tools.is_empty() {
        // Converse refuses calls in the conversation where it is told of no tool.
        let known: Vec<_> = past_tools(&request.messages).iter().map(tool).collect();
        return Ok((!known.is_empty()).then(|| json!({ "tools": known })));
    }
    let tools: Vec<_> = request.tools.iter().map(tool).collect();
    Ok(match &request.tool_choice {
        None => Some(json!({ "tools": tools })),
        Some(ToolChoice::Auto) => Some(json!({ "tools": tools, "toolChoice": { "auto": {} } })),
        Some(ToolChoice::Required) => Some(json!({ "tools": tools, "toolChoice": { "any": {} } })),
        Some(ToolChoice::Tool(name)) => Some(json!({ "tools": tools, "toolChoice": { "tool": { "name": name } } })),
        // Converse has no word for it: without tools there can be no call.
        Some(ToolChoice::None) if !has_calls(&request.messages) => None,
        Some(ToolChoice::None) => {
            return Err(invalid(
                "Bedrock Converse cannot forbid tools once the conversation has used them; leave `tool_choice` out"
                    .to_owned(),
            ));
        }
    })
}

fn has_calls(messages: &[Message]) -> bool {
    messages.iter().any(|message| match message {
        Message::Assistant(message) => !message.tool_calls.is_empty(),
        Message::Tool { .. } => true,
        Message::System { .. } | Message::User { .. } => false,
    })
}

fn tool(tool: &Tool) -> Value {
    let mut spec = json!({ "name": tool.name, "inputSchema": { "json": without_choices(&tool.parameters) } });
    // It may not be empty here.
    if !tool.description.is_empty() {
        spec["description"] = Value::from(tool.description.as_str());
    }
    json!({ "toolSpec": spec })
}
