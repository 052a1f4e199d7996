//! Nodes of graphs that call a tool (observability §5.5.11).

use dormouse_engine::{NodeError, ObservedCall, ToolCallRecord, operation_ended};
use dormouse_ports::{Clock, Map, PayloadLimit};
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;

/// `calls_tool` of a node.
#[derive(Clone, Debug)]
pub(crate) struct ToolCallSpec {
    tool: String,
    id: Option<String>,
    arguments: Map,
    /// What the tool gives, or the type of its error and what it says.
    result: Result<Value, (String, String)>,
    /// The field that the result goes into.
    into: Option<String>,
}

impl ToolCallSpec {
    pub(crate) fn read(mut call: Directives<'_>) -> Result<Self, Failure> {
        let tool = call.required_text("tool_name")?.to_owned();
        let id = call.text("tool_call_id")?.map(str::to_owned);
        let arguments = call.mapping("arguments")?.cloned().unwrap_or_default();
        let into = call.text("stores_result_in")?.map(str::to_owned);
        let mut mock = call.nested("mock_tool")?.ok_or_else(|| Failure::invalid("`mock_tool` is missing"))?;
        let returned = mock.given("returns").cloned();
        let raised = mock.nested("raises")?.map(raised).transpose()?;
        mock.done()?;
        call.done()?;
        let result = match (returned, raised) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(error),
            (None, None) | (Some(_), Some(_)) => {
                return Err(Failure::invalid("a tool either returns or raises"));
            }
        };
        Ok(Self { tool, id, arguments, result, into })
    }

    /// Calls the tool; what its result sets.
    pub(crate) fn call(&self, clock: &dyn Clock, shown: Option<PayloadLimit>) -> Result<Map, NodeError> {
        let started = clock.now();
        let record = ToolCallRecord {
            tool: &self.tool,
            id: self.id.as_deref(),
            arguments: &self.arguments,
            result: self.result.as_ref().map_err(|(kind, message)| (kind.as_str(), message.as_str())),
            started,
            ended: clock.now(),
        };
        if let Some(call) = ObservedCall::begin() {
            record.tell(&call);
        }
        operation_ended(record.operation(shown));
        let result = self.result.clone().map_err(|(_, message)| NodeError::new(message))?;
        Ok(self.into.iter().map(|field| (field.clone(), result.clone())).collect())
    }
}

fn raised(mut error: Directives<'_>) -> Result<(String, String), Failure> {
    let kind = error.text("error_type")?.unwrap_or_default().to_owned();
    let message = error.text("message")?.unwrap_or_default().to_owned();
    error.done()?;
    Ok((kind, message))
}
