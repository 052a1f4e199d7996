//! Tools that are one HTTP request each.

mod address;
mod answer;
mod request;
mod tool;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Fetch;
use dormouse_ports::tool::{ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec};

pub use self::tool::{HttpTool, HttpToolError};
use crate::Values;
use crate::failure::unanswered;
use crate::mask::Mask;

/// Tools behind HTTP addresses.
///
/// | the other side | makes of the call |
/// |---|---|
/// | answers 2xx | its outcome: JSON as a value, text and images as they are |
/// | answers 202 | pending, where it was given a callback address |
/// | answers 401 or 403 | an error for the operator: a header is missing or wrong |
/// | answers 429 | a transient error |
/// | answers 4xx otherwise | a failure that the model is shown |
/// | answers 408 or 5xx, closes the connection | a transient error of a call that may have happened |
/// | answers 3xx | a permanent error: no redirect is followed |
/// | is silent till the timeout | timed out, and may have happened |
/// | cannot be reached | a transient error of a call that did not happen |
///
/// Each request carries `idempotency-key`, the same when a call is made again, and `dormouse-callback-url` where the
/// outcome may be sent later: one POST with a JSON object to that address, which is a secret.
#[derive(Clone)]
pub struct HttpTools {
    tools: Vec<HttpTool>,
    fetch: Arc<dyn Fetch>,
    values: Values,
    /// Takes the secrets that were looked up for calls out of what comes of them, also later.
    mask: Mask,
}

impl HttpTools {
    /// The tools `tools`; of two with one name the first counts.
    pub fn new(tools: impl IntoIterator<Item = HttpTool>, fetch: Arc<dyn Fetch>, values: Values) -> Self {
        let mut kept: Vec<HttpTool> = Vec::new();
        for tool in tools {
            match kept.iter().any(|known| known.spec.name == tool.spec.name) {
                true => tracing::warn!(tool = tool.spec.name, "two HTTP tools have one name; the first one counts"),
                false => kept.push(tool),
            }
        }
        let (values, mask) = values.watched();
        Self { tools: kept, fetch, values, mask }
    }

    fn tool(&self, name: &str) -> Option<&HttpTool> {
        self.tools.iter().find(|tool| tool.spec.name == name)
    }
}

impl fmt::Debug for HttpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTools").field("tools", &self.tools).finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolSource for HttpTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        Ok(self.tools.iter().map(|tool| tool.spec.clone()).collect())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let Some(tool) = self.tool(&call.name) else {
            return Err(ToolError::new(ToolErrorKind::NotFound, format!("there is no tool `{}`", call.name)));
        };
        let request = request::build(tool, call, &self.values).await?;
        call.effects.asked(&request.url);
        let outcome = match self.fetch.fetch(request).await {
            Ok(response) => answer::read(tool, call, response).await,
            Err(error) => Err(unanswered(&error)),
        };
        self.mask.and_callback(call.callback.as_ref()).outcome(outcome)
    }

    async fn recall(&self, name: &str) {
        let Some(tool) = self.tool(name) else { return };
        let headers = tool.headers.iter().map(|(_, value)| value);
        for value in headers.chain([&tool.url]) {
            // The mask learns of each that is found.
            let _ = value.secrets(&self.values.lookup()).await;
        }
    }

    fn masked(&self, _: &str, output: ToolOutput) -> ToolOutput {
        self.mask.output(output)
    }
}

#[cfg(test)]
mod tests;
