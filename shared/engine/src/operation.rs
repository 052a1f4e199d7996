use dormouse_ports::{AttributeValue, Map, PayloadLimit};
use jiff::Timestamp;
use serde_json::Value;

use crate::ambient;
use crate::observe::{Operation, OperationError};

/// Name of the span of a call of a tool (observability §5.5.11).
const TOOL_CALL: &str = "openarmature.tool.call";

/// Tells observers of an operation that has ended within the present node: spans show it inside of the node's.
///
/// What calls a model or a tool reports it so, once for each attempt. Outside of a node, and in invocations without
/// observers, nothing happens.
pub fn operation_ended(operation: Operation) {
    // Outside of an invocation there is no observer to tell.
    let _ = ambient::look(|scope| {
        if let Some(attempts) = &scope.attempts {
            attempts.operated(operation, scope.attempt_index);
        }
    });
}

/// True if an observer would be told of an operation that ends here: without one its attributes need not be made.
pub fn operations_are_observed() -> bool {
    let is_observed =
        ambient::look(|scope| scope.attempts.as_ref().is_some_and(|attempts| attempts.events().is_some()));
    is_observed.unwrap_or(false)
}

/// A call of a tool that has ended (graph-engine §6, observability §5.5.11).
#[derive(Clone, Copy, Debug)]
pub struct ToolCallRecord<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// The model's id of the call, where a model has asked for it.
    pub id: Option<&'a str>,
    /// Its arguments.
    pub arguments: &'a Map,
    /// Its result, or the type of its error and what is said of it.
    pub result: Result<&'a Value, (&'a str, &'a str)>,
    /// Instant at which it began.
    pub started: Timestamp,
    /// Instant at which it ended.
    pub ended: Timestamp,
}

impl ToolCallRecord<'_> {
    /// The operation of which observers are told. Arguments, result and what is said of an error are content: they are in it up
    /// to that limit, and not at all without one.
    pub fn operation(self, content: Option<PayloadLimit>) -> Operation {
        let text = |name, text: &str| (name, AttributeValue::Text(text.to_owned()));
        let mut attributes = vec![text("openarmature.tool.name", self.tool)];
        attributes.extend(self.id.map(|id| text("openarmature.tool.call.id", id)));
        if let Some(limit) = content {
            let arguments = serde_json::to_string(self.arguments).unwrap_or_default();
            attributes.push(text("openarmature.tool.call.arguments", &limit.cut(arguments)));
            let result = self.result.ok().map(|result| limit.cut(result.to_string()));
            attributes.extend(result.map(|result| text("openarmature.tool.call.result", &result)));
        }
        let error = self.result.err().map(|(kind, message)| {
            attributes.push(text("error.type", kind));
            let message = content.map_or("it failed", |_| message).to_owned();
            OperationError { kind: kind.to_owned(), category: None, message }
        });
        Operation { name: TOOL_CALL, attributes, error, started: self.started, ended: self.ended }
    }
}
