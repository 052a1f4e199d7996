//! How a schema reaches the model (§8.1.5, §8.2.5, §8.3.5), and how its output is read.

use std::borrow::Cow;

use dormouse_ports::model::{Block, CompletionRequest, Content, Message, Tool, ToolChoice};
use serde_json::Value;

use crate::canonical::canonical;
use crate::ids::{self, IdRule};

/// Name of the tool with the output as its arguments, where a schema is coerced through one.
pub(crate) const OUTPUT_TOOL: &str = "structured_output";

/// What the result of a tool says that is nothing but blanks.
const NO_OUTPUT: &str = "(no output)";
/// The same of one with images.
const IMAGES_ALONE: &str = "(images alone)";

/// Way in which the schema of a request reaches the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structured {
    /// There is none.
    No,
    /// The server constrains the output.
    Native,
    /// The instructions ask for it.
    Prompted,
    /// The arguments of a tool that must be called are the output.
    Coerced,
}

impl Structured {
    /// The way for `request`. A tool can only stand in where the caller brings none.
    pub(crate) fn of(request: &CompletionRequest, is_native: bool, coerces: bool) -> Self {
        match (&request.response_schema, is_native) {
            (None, _) => Self::No,
            (Some(_), true) => Self::Native,
            (Some(_), false) if coerces && request.tools.is_empty() => Self::Coerced,
            (Some(_), false) => Self::Prompted,
        }
    }

    /// The request as the wire is to encode it: with a schema only where the server knows schemas, with ids and
    /// names of calls that it takes.
    /// Answers without words or calls, such as those that were cut while the model thought, are left out: providers refuse
    /// reasoning that nothing follows. So are instructions of blanks, and results of blanks say that they are: not every
    /// provider takes those. `origin` is the wire that signed texts go back to.
    pub(crate) fn prepare<'r>(
        self,
        request: &'r CompletionRequest,
        rule: IdRule,
        origin: &str,
    ) -> Cow<'r, CompletionRequest> {
        let mut sent = self.constrained(request);
        if sent.messages.iter().any(|message| says_nothing(message, origin)) {
            sent.to_mut().messages.retain(|message| !says_nothing(message, origin));
        }
        if sent.messages.iter().any(is_blank_result) {
            sent.to_mut().messages.iter_mut().for_each(name_blank_result);
        }
        if rule.is_broken_by(&sent) {
            rule.apply(sent.to_mut());
        }
        if ids::has_strange_names(&sent) {
            ids::tame_names(sent.to_mut());
        }
        sent
    }

    fn constrained(self, request: &CompletionRequest) -> Cow<'_, CompletionRequest> {
        let Some(schema) = &request.response_schema else { return Cow::Borrowed(request) };
        let free = || CompletionRequest { response_schema: None, ..request.clone() };
        match self {
            Self::No | Self::Native => Cow::Borrowed(request),
            Self::Prompted => Cow::Owned(prompted(free(), schema)),
            Self::Coerced => Cow::Owned(coerced(free(), schema)),
        }
    }
}

fn is_blank_result(message: &Message) -> bool {
    matches!(message, Message::Tool { content, .. } if content.trim().is_empty())
}

fn name_blank_result(message: &mut Message) {
    if let Message::Tool { content, images, .. } = message
        && content.trim().is_empty()
    {
        *content = if images.is_empty() { NO_OUTPUT } else { IMAGES_ALONE }.to_owned();
    }
}

fn says_nothing(message: &Message, origin: &str) -> bool {
    let message = match message {
        Message::System { content } => return content.trim().is_empty(),
        Message::Assistant(message) => message,
        Message::User { .. } | Message::Tool { .. } => return false,
    };
    let is_own = message.origin.as_deref().is_none_or(|known| known == origin);
    let speaks = match &message.content {
        Content::Text(text) => !text.trim().is_empty(),
        Content::Blocks(blocks) => blocks.iter().any(|block| match block {
            Block::Text { text, signature } => !text.trim().is_empty() || is_own && signature.is_some(),
            Block::Image { .. } => true,
            Block::Thinking { .. } | Block::RedactedThinking { .. } => false,
        }),
    };
    message.tool_calls.is_empty() && !speaks
}

fn prompted(mut request: CompletionRequest, schema: &Value) -> CompletionRequest {
    let directive = format!(
        "Answer with JSON that fits the following JSON Schema, and with nothing else: no explanation, no code fence.\n{}",
        canonical(schema.clone())
    );
    match request.messages.first_mut() {
        Some(Message::System { content }) => {
            content.push_str("\n\n");
            content.push_str(&directive);
        }
        Some(Message::User { .. } | Message::Assistant(_) | Message::Tool { .. }) | None => {
            request.messages.insert(0, Message::system(directive));
        }
    }
    request
}

fn coerced(mut request: CompletionRequest, schema: &Value) -> CompletionRequest {
    request.tools = vec![Tool {
        name: OUTPUT_TOOL.to_owned(),
        description: "Takes the answer.".to_owned(),
        parameters: schema.clone(),
    }];
    request.tool_choice = Some(ToolChoice::Tool(OUTPUT_TOOL.to_owned()));
    request
}
