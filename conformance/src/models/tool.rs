//! Nodes of graphs that call a tool (observability §5.5.11).

use dormouse_engine::{NodeError, ToolCallRecord, operation_ended};
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
    /// What the tool gives.
    result: Value,
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
        let result = mock.given("returns").cloned();
        mock.done()?;
        call.done()?;
        let result = result.ok_or_else(|| Failure::missing("a tool that does not return"))?;
        Ok(Self { tool, id, arguments, result, into })
    }

    /// Calls the tool; what its result sets.
    pub(crate) fn call(&self, clock: &dyn Clock, shown: Option<PayloadLimit>) -> Result<Map, NodeError> {
        let started = clock.now();
        let record = ToolCallRecord {
            tool: &self.tool,
            id: self.id.as_deref(),
            arguments: &self.arguments,
            result: Ok(&self.result),
            started,
            ended: clock.now(),
        };
        operation_ended(record.operation(shown));
        Ok(self.into.iter().map(|field| (field.clone(), self.result.clone())).collect())
    }
}
