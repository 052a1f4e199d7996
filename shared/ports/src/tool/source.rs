use std::fmt;

use async_trait::async_trait;
use serde_json::Value;

use super::{ToolCall, ToolError, ToolOutput, ToolReply, ToolSpec};

/// A source of tools: the native tools, one MCP server, the HTTP tools of a workspace, the tools of a crate.
///
/// Its `Debug` shows no secret: neither headers nor environment nor keys. Dropping a future of it cancels what it does.
#[async_trait]
pub trait ToolSource: fmt::Debug + Send + Sync {
    /// The tools that it offers now, in an order that stays the same. It may keep the list and ask again when the other
    /// side says that it changed; a list is cheap to ask for between two changes.
    ///
    /// # Errors
    /// [`ToolError`] when the list cannot be had. The caller goes on without this source, and says so.
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError>;

    /// The same for who only shows them and gives up soon. A source for which such a caller waited in vain may refuse the next
    /// one at once; who needs the list is not told of that.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    async fn list_briefly(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.list().await
    }

    /// The tools of the last list that cannot be offered, by their names, each with the reason.
    async fn left_out(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Makes `call` at most once and returns what came of it.
    ///
    /// # Errors
    /// [`ToolError`] when no outcome came back; [`ToolError::uncertain`] tells if it may have happened all the same. A
    /// source never repeats a call that may have happened.
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError>;

    /// Tells the server that works on a pending call of the tool `name` that no run waits for it any more; `state` is
    /// its [`Pending::state`](super::Pending::state). A source without such a server does nothing.
    ///
    /// # Errors
    /// [`ToolError`] when the server did not acknowledge.
    async fn withdraw(&self, name: &str, state: &Value) -> Result<(), ToolError> {
        let (_, _) = (name, state);
        Ok(())
    }

    /// Looks up the secrets with which calls of the tool `name` are made, so that [`masked`](Self::masked) knows them. What is
    /// not to be had now is passed over.
    async fn recall(&self, name: &str) {
        let _ = name;
    }

    /// `output`, which came of the call with the id `call_id` later, at its callback, without the secrets of its calls that are
    /// known here, as far as they stand in it as they are.
    fn masked(&self, call_id: &str, output: ToolOutput) -> ToolOutput {
        let _ = call_id;
        output
    }

    /// True if it lists its tools without asking a server, so that a replay may have them listed again. Of any other
    /// source a run records what it listed.
    fn lists_offline(&self) -> bool {
        true
    }
}
