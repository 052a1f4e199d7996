//! Checks of a request before anything is sent (§3, §4, §5).

use std::collections::BTreeSet;

use dormouse_json::Schemas;
use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, ImageSource, Message, ModelError, ModelErrorCategory,
    RuntimeConfig, Tool, ToolChoice,
};

use crate::schema::of_object;
use crate::setup::Capabilities;

/// Checks `request`, for a model that can do `capabilities`.
pub(crate) fn check_request(
    request: &CompletionRequest,
    capabilities: Capabilities,
    schemas: &Schemas,
) -> Result<(), ModelError> {
    well_formed(request, schemas).map_err(invalid)?;
    if request.stream && !capabilities.streaming {
        return Err(invalid("this model does not support streaming here; call it without `stream`".to_owned()));
    }
    if !capabilities.images && has_images(request) {
        return Err(ModelError::new(
            ModelErrorCategory::UnsupportedContentBlock,
            "this model takes no images; leave them out or use a model that does",
        ));
    }
    Ok(())
}

/// The error for a request with that mistake.
pub(crate) fn invalid(mistake: String) -> ModelError {
    ModelError::new(ModelErrorCategory::InvalidRequest, mistake)
}

/// True if a message of a user or the result of a tool has an image.
pub(crate) fn has_images(request: &CompletionRequest) -> bool {
    let in_content = |content: &Content| {
        content.blocks().is_some_and(|blocks| blocks.iter().any(|block| matches!(block, Block::Image { .. })))
    };
    request.messages.iter().any(|message| match message {
        Message::User { content } => in_content(content),
        Message::Tool { images, .. } => !images.is_empty(),
        Message::System { .. } | Message::Assistant(_) => false,
    })
}

fn well_formed(request: &CompletionRequest, schemas: &Schemas) -> Result<(), String> {
    ordered(&request.messages)?;
    let mut known = BTreeSet::new();
    for (index, message) in request.messages.iter().enumerate() {
        message_is_sound(message, &mut known).map_err(|mistake| format!("message {index}: {mistake}"))?;
    }
    tools_are_sound(&request.tools, schemas)?;
    choice_is_possible(request)?;
    config_is_sound(request)?;
    if let Some(schema) = &request.response_schema {
        of_object(schemas, schema).map_err(|mistake| format!("the response schema cannot be used: {mistake}"))?;
    }
    Ok(())
}

fn ordered(messages: &[Message]) -> Result<(), String> {
    if let Some(before) = messages.iter().skip(1).position(|message| matches!(message, Message::System { .. })) {
        return Err(format!("message {}: only the first message may be a system message", before + 1));
    }
    match messages.first() {
        Some(Message::System { .. } | Message::User { .. }) => {}
        Some(Message::Assistant(_) | Message::Tool { .. }) => {
            return Err("the conversation must begin with a system or a user message".to_owned());
        }
        None => return Err("there is no message to answer".to_owned()),
    }
    match messages.last() {
        Some(Message::User { .. } | Message::Tool { .. }) => Ok(()),
        Some(Message::System { .. } | Message::Assistant(_)) | None => {
            Err("the last message must be a user's or a tool's: the model has nothing to answer".to_owned())
        }
    }
}

fn message_is_sound<'m>(message: &'m Message, known: &mut BTreeSet<&'m str>) -> Result<(), String> {
    match message {
        Message::System { content } if content.is_empty() => Err("a system message must not be empty".to_owned()),
        Message::System { .. } => Ok(()),
        Message::User { content } => user_is_sound(content),
        Message::Assistant(message) => {
            known.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
            assistant_is_sound(message)
        }
        Message::Tool { tool_call_id, images, .. } if known.contains(tool_call_id.as_str()) => {
            images.iter().try_for_each(|block| match block {
                Block::Image { source, media_type, .. } => image_is_sound(source, media_type.as_deref()),
                Block::Text { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => {
                    Err("`images` of a tool message has images alone".to_owned())
                }
            })
        }
        Message::Tool { tool_call_id, .. } => Err(format!("no earlier assistant message calls `{tool_call_id}`")),
    }
}

fn user_is_sound(content: &Content) -> Result<(), String> {
    if content.is_empty() {
        return Err("a user message must not be empty".to_owned());
    }
    content.blocks().unwrap_or_default().iter().try_for_each(|block| match block {
        Block::Text { text, .. } => text_is_sound(text),
        Block::Image { source, media_type, .. } => image_is_sound(source, media_type.as_deref()),
        Block::Thinking { .. } | Block::RedactedThinking { .. } => {
            Err("reasoning belongs into messages of assistants".to_owned())
        }
    })
}

fn text_is_sound(text: &str) -> Result<(), String> {
    if text.is_empty() { Err("a text block must not be empty".to_owned()) } else { Ok(()) }
}

fn image_is_sound(source: &ImageSource, media_type: Option<&str>) -> Result<(), String> {
    match source {
        ImageSource::Url { url } if url.is_empty() => Err("the address of an image must not be empty".to_owned()),
        ImageSource::Url { .. } => Ok(()),
        ImageSource::Kept { id } => Err(format!("the image `{id}` was not read before the model was asked")),
        ImageSource::Inline { base64_data } if base64_data.is_empty() => {
            Err("the data of an inline image must not be empty".to_owned())
        }
        ImageSource::Inline { .. } => match media_type {
            Some(media_type) if media_type.starts_with("image/") => Ok(()),
            Some(other) => Err(format!("`media_type` of an image must begin with `image/`, not be `{other}`")),
            None => Err("an inline image needs a `media_type`, such as `image/png`".to_owned()),
        },
    }
}

fn assistant_is_sound(message: &AssistantMessage) -> Result<(), String> {
    if message.content.is_empty() && message.tool_calls.is_empty() {
        return Err("an assistant message needs content or calls of tools".to_owned());
    }
    message.content.blocks().unwrap_or_default().iter().try_for_each(|block| match block {
        // What a provider signed goes back as it came.
        Block::Text { signature: Some(_), .. } | Block::Thinking { signature: Some(_), .. } => Ok(()),
        Block::Text { text, .. } | Block::Thinking { text, .. } => text_is_sound(text),
        Block::Image { .. } => Err("images belong into messages of users".to_owned()),
        Block::RedactedThinking { .. } => Ok(()),
    })
}

fn tools_are_sound(tools: &[Tool], schemas: &Schemas) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for tool in tools {
        if tool.name.is_empty() {
            return Err("a tool must have a name".to_owned());
        }
        if !names.insert(tool.name.as_str()) {
            return Err(format!("two tools are called `{}`; names must be unique", tool.name));
        }
        of_object(schemas, &tool.parameters)
            .map_err(|mistake| format!("the parameters of tool `{}` cannot be used: {mistake}", tool.name))?;
    }
    Ok(())
}

fn choice_is_possible(request: &CompletionRequest) -> Result<(), String> {
    match &request.tool_choice {
        Some(ToolChoice::Required) if request.tools.is_empty() => {
            Err("`tool_choice` requires a call, but there are no tools".to_owned())
        }
        Some(ToolChoice::Tool(name)) if !request.tools.iter().any(|tool| tool.name == *name) => {
            Err(format!("`tool_choice` names the tool `{name}`, which is not among the tools of the call"))
        }
        Some(ToolChoice::Auto | ToolChoice::Required | ToolChoice::None | ToolChoice::Tool(_)) | None => Ok(()),
    }
}

fn config_is_sound(request: &CompletionRequest) -> Result<(), String> {
    let config = &request.config;
    let numbers = [
        ("temperature", config.temperature),
        ("top_p", config.top_p),
        ("frequency_penalty", config.frequency_penalty),
        ("presence_penalty", config.presence_penalty),
    ];
    match numbers.iter().find(|(_, number)| number.is_some_and(|number| !number.is_finite())) {
        Some((name, _)) => Err(format!("`{name}` must be a finite number")),
        None => Ok(()),
    }
}

/// Refuses the sampling fields that a wire called `wire` does not have: to leave them out in silence would be a lie.
pub(crate) fn unsupported_fields(config: &RuntimeConfig, wire: &str) -> Result<(), ModelError> {
    let fields = [
        ("seed", config.seed.is_some()),
        ("frequency_penalty", config.frequency_penalty.is_some()),
        ("presence_penalty", config.presence_penalty.is_some()),
    ];
    match fields.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(invalid(format!("{wire} has no `{name}`; leave it out"))),
        None => Ok(()),
    }
}
