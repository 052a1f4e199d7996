//! The tools of a source, each with the time that a definition gives its calls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::tool::{ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use serde_json::Value;

/// The tools of `source`, a call of each of which may take `timeout`.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) timeout: Duration,
}

impl Timed {
    fn all(&self, listed: Vec<ToolSpec>) -> Vec<ToolSpec> {
        listed.into_iter().map(|spec| ToolSpec { timeout: Some(self.timeout), ..spec }).collect()
    }
}

#[async_trait]
impl ToolSource for Timed {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.source.list().await.map(|listed| self.all(listed))
    }

    async fn list_briefly(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.source.list_briefly().await.map(|listed| self.all(listed))
    }

    async fn left_out(&self) -> Vec<(String, String)> {
        self.source.left_out().await
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        self.source.call(call).await
    }

    async fn withdraw(&self, name: &str, state: &Value) -> Result<(), ToolError> {
        self.source.withdraw(name, state).await
    }

    async fn recall(&self, name: &str) {
        self.source.recall(name).await;
    }

    fn masked(&self, call_id: &str, output: ToolOutput) -> ToolOutput {
        self.source.masked(call_id, output)
    }

    fn lists_offline(&self) -> bool {
        self.source.lists_offline()
    }
}
