//! Judges an answer before it is returned (§3, §5, §7).

use std::collections::BTreeSet;

use dormouse_json::Schemas;
use dormouse_ports::model::{
    AssistantMessage, Block, CompletionRequest, Content, FinishReason, Message, ModelError, ModelErrorCategory,
    Response, StructuredFailure, ToolCall,
};
use serde_json::Value;

use crate::canonical::canonical;
use crate::schema::{check, of_object};
use crate::structured::{OUTPUT_TOOL, Structured};
use crate::wire::{Called, ReadAnswer};

/// Rules that an answer is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'a> {
    /// As the caller made it.
    pub(crate) request: &'a CompletionRequest,
    pub(crate) structured: Structured,
    /// The wire that reasoning belongs to.
    pub(crate) origin: &'static str,
    pub(crate) schemas: &'a Schemas,
}

impl Judge<'_> {
    /// The response, if `answer` is sound. `raw` is what it was read from.
    pub(crate) fn judge(self, answer: ReadAnswer, raw: Value) -> Result<Response, ModelError> {
        let mut answer = answer;
        if self.structured == Structured::Coerced {
            uncoerce(&mut answer);
        }
        answer.calls.iter_mut().for_each(readable);
        self.name(&mut answer.calls);
        let complaint = self.complaint(&answer);
        let mut response = self.response(answer, raw);
        if let Some(complaint) = complaint {
            return Err(rejected(complaint, response));
        }
        let has_output = response.message.tool_calls.is_empty() && response.finish_reason != FinishReason::ToolCalls;
        if self.structured != Structured::No && has_output {
            response.parsed = Some(self.parsed(&response)?);
        }
        Ok(response)
    }

    /// Gives each call without an id one that no other call of the conversation has.
    fn name(self, calls: &mut [Called]) {
        let earlier = self.request.messages.iter().flat_map(|message| match message {
            Message::Assistant(message) => message.tool_calls.as_slice(),
            Message::System { .. } | Message::User { .. } | Message::Tool { .. } => &[],
        });
        let mut known: BTreeSet<String> = earlier.map(|call| call.id.clone()).collect();
        let before = known.len();
        known.extend(calls.iter().map(|call| call.id.clone()));
        for (at, call) in calls.iter_mut().enumerate().filter(|(_, call)| call.id.is_empty()) {
            let ids = (before + at..).map(|position| format!("call-{position}"));
            call.id = ids.into_iter().find(|id| !known.contains(id)).unwrap_or_default();
            known.insert(call.id.clone());
        }
    }

    /// Problem of the answer. An answer that ended in an error is as it is (§3).
    fn complaint(self, answer: &ReadAnswer) -> Option<String> {
        if answer.finish == FinishReason::Error {
            return None;
        }
        let mut ids = BTreeSet::new();
        let wrong = answer.calls.iter().find_map(|call| match self.check_call(call) {
            Ok(()) if ids.insert(call.id.as_str()) => None,
            Ok(()) => Some(format!("two calls of tools have the id `{}`", call.id)),
            Err(complaint) => Some(complaint),
        });
        let is_silent = answer.calls.is_empty()
            && answer.finish == FinishReason::Stop
            && self.structured == Structured::No
            && answer.blocks.is_empty();
        wrong.or_else(|| is_silent.then(|| "the answer has neither content nor calls of tools".to_owned()))
    }

    fn check_call(self, call: &Called) -> Result<(), String> {
        let name = &call.name;
        let Some(tool) = self.request.tools.iter().find(|tool| tool.name == *name) else {
            return Err(format!("the model called the tool `{name}`, which does not exist; {}", self.tools_in_words()));
        };
        let arguments = call
            .arguments
            .as_ref()
            .map_err(|reason| format!("the arguments of the call of `{name}` cannot be read: {reason}"))?;
        let schema = of_object(self.schemas, &tool.parameters)?;
        check(&schema, &Value::Object(arguments.clone()))
            .map_err(|reason| format!("the arguments of the call of `{name}` break its schema: {reason}"))
    }

    fn tools_in_words(self) -> String {
        let names: Vec<_> = self.request.tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
        if names.is_empty() { "there are no tools".to_owned() } else { format!("tools are {}", names.join(", ")) }
    }

    fn response(self, answer: ReadAnswer, raw: Value) -> Response {
        let tool_calls = answer.calls.into_iter().map(|call| ToolCall {
            id: call.id,
            name: call.name,
            arguments: call.arguments.ok(),
            signature: call.signature,
        });
        let mut message =
            AssistantMessage { content: content(answer.blocks), tool_calls: tool_calls.collect(), origin: None };
        message.origin = message.is_bound().then(|| self.origin.to_owned());
        Response { message, finish_reason: answer.finish, usage: answer.usage, raw, parsed: None }
    }

    fn read_output(self, schema: &Value, output: &str) -> Result<Value, String> {
        let value = dormouse_json::read(output.as_bytes(), dormouse_json::ENTRY)
            .map_err(|error| format!("it is no JSON: {error}"))?;
        dormouse_json::measure(&value, dormouse_json::STATE).map_err(|excess| excess.to_string())?;
        let schema = of_object(self.schemas, schema)?;
        check(&schema, &value)?;
        Ok(value)
    }

    fn parsed(self, response: &Response) -> Result<Value, ModelError> {
        let output = response.message.content.as_text();
        let schema = self.request.response_schema.as_ref().unwrap_or(&Value::Null);
        self.read_output(schema, &output).map_err(|reason| {
            let mut error = ModelError::new(
                ModelErrorCategory::StructuredOutputInvalid,
                format!("the model's output does not fit the schema: {reason}"),
            );
            error.structured = Some(Box::new(StructuredFailure {
                response_schema: schema.clone(),
                output_content: output.clone(),
                error_message: reason,
                finish_reason: response.finish_reason,
                usage: response.usage,
            }));
            error.raw = Some(Box::new(response.raw.clone()));
            error
        })
    }
}

/// A text where there is nothing but one.
fn content(mut blocks: Vec<Block>) -> Content {
    match blocks.as_mut_slice() {
        [] => Content::default(),
        [Block::Text { text, signature: None }] => Content::Text(std::mem::take(text)),
        _ => Content::Blocks(blocks),
    }
}

/// Turns the call of the tool that stands in for a schema into the content that it stands for.
fn uncoerce(answer: &mut ReadAnswer) {
    let Some(index) = answer.calls.iter().position(|call| call.name == OUTPUT_TOOL) else { return };
    let call = answer.calls.remove(index);
    // It may be called twice; the first counts.
    answer.calls.retain(|call| call.name != OUTPUT_TOOL);
    if let Ok(arguments) = call.arguments {
        answer.blocks.retain(Block::is_reasoning);
        answer.blocks.push(Block::text(canonical(Value::Object(arguments)).to_string()));
    }
    if answer.finish == FinishReason::ToolCalls && answer.calls.is_empty() {
        answer.finish = FinishReason::Stop;
    }
}

/// Arguments that could not be kept with the conversation and read again are none.
fn readable(call: &mut Called) {
    if let Ok(arguments) = &call.arguments
        && let Err(excess) = dormouse_json::measure_object(arguments, dormouse_json::STATE)
    {
        call.arguments = Err(excess.to_string());
    }
}

fn rejected(complaint: String, response: Response) -> ModelError {
    let mut error = ModelError::new(ModelErrorCategory::InvalidResponse, complaint);
    error.raw = Some(Box::new(response.raw.clone()));
    error.rejected = Some(Box::new(response));
    error
}

/// Reads the arguments of a call from the text in which a provider wrote them. No text is no argument.
pub(crate) fn arguments(text: &str) -> Result<dormouse_ports::Map, String> {
    if text.trim().is_empty() {
        return Ok(dormouse_ports::Map::new());
    }
    match dormouse_json::read(text.as_bytes(), dormouse_json::ENTRY) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(Value::Null) => Ok(dormouse_ports::Map::new()),
        Ok(_) => Err("they are no JSON object".to_owned()),
        Err(error) => Err(format!("they are no JSON: {error}")),
    }
}

/// A counter of tokens, if it is one (§7).
pub(crate) fn counter(value: Option<&Value>) -> Option<u64> {
    value.and_then(Value::as_u64)
}
