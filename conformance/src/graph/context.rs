//! What a fixture's node logs, and what it does with the metadata of its invocation (observability §3.4, §7).

use async_trait::async_trait;
use dormouse_engine::{Middleware, Next, NodeError, State, Update, augment_metadata};
use dormouse_ports::Map;
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;
use crate::telemetry::NODE_LOG;

/// `emits_log`.
#[derive(Clone, Debug)]
pub(super) struct LogSpec {
    message: String,
    level: tracing::Level,
}

impl LogSpec {
    /// Reads a message, or a mapping with a message and a level.
    pub(super) fn read(at: &str, value: &Value) -> Result<Self, Failure> {
        if let Some(message) = value.as_str() {
            return Ok(Self { message: message.to_owned(), level: tracing::Level::INFO });
        }
        let mut given = Directives::new(at, value)?;
        let message = given.required_text("message")?.to_owned();
        let name = given.text("level")?.unwrap_or("INFO").to_ascii_uppercase();
        let level = match name.as_str() {
            "WARNING" => tracing::Level::WARN,
            "CRITICAL" | "FATAL" => tracing::Level::ERROR,
            name => name.parse().map_err(|_| Failure::missing(format!("log level `{name}`")))?,
        };
        given.done()?;
        Ok(Self { message, level })
    }

    pub(super) fn emit(&self) {
        let message = &self.message;
        match self.level {
            tracing::Level::ERROR => tracing::error!(target: NODE_LOG, "{message}"),
            tracing::Level::WARN => tracing::warn!(target: NODE_LOG, "{message}"),
            tracing::Level::INFO => tracing::info!(target: NODE_LOG, "{message}"),
            tracing::Level::DEBUG => tracing::debug!(target: NODE_LOG, "{message}"),
            tracing::Level::TRACE => tracing::trace!(target: NODE_LOG, "{message}"),
        }
    }
}

#[async_trait]
impl Middleware for LogSpec {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        self.emit();
        next.run(state).await
    }
}

pub(super) fn augment(entries: Map) -> Result<(), NodeError> {
    augment_metadata(entries).map_err(|error| NodeError::new(error.to_string()))
}

/// The entries whose values stand in fields of the state.
pub(super) fn entries_of(pairs: &[(String, String)], state: &State) -> Map {
    pairs.iter().map(|(key, field)| (key.clone(), state.get(field).cloned().unwrap_or_default())).collect()
}
