use std::fmt;
use std::sync::Arc;

use dormouse_ports::tool::with_texts;
use serde_json::Value;

use crate::mask::Mask;

/// Notice of a server beside its answers, and what was made of it.
#[derive(Clone, Debug, PartialEq)]
pub enum McpNotice {
    /// A call goes on (`notifications/progress`).
    Progress {
        /// [`ToolCall::id`](dormouse_ports::tool::ToolCall::id) of the call.
        call: String,
        /// Progress so far; it grows.
        progress: f64,
        /// Progress at the end, if that is known.
        total: Option<f64>,
        /// Message that says what it does now.
        message: Option<String>,
    },
    /// A line of the server's log (`notifications/message`).
    Log {
        /// Its level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
        level: String,
        /// Part of the server that wrote it.
        logger: Option<String>,
        /// Data that it wrote.
        data: Value,
    },
    /// The list of tools has changed; the next one is asked for.
    ListChanged,
    /// A tool that the server lists is not offered. Of many in one list the first are told.
    ToolLeftOut {
        /// Its name.
        tool: String,
        /// Reason.
        reason: String,
    },
    /// A question of the server to a person was declined, for the call is one that must not be made twice.
    Declined {
        /// The question.
        message: String,
    },
    /// A tool's answer does not fit the schema that the server promised.
    BrokenPromise {
        /// Its name.
        tool: String,
        /// Problem with the answer.
        message: String,
    },
}

impl McpNotice {
    /// The same without the secrets that `mask` knows.
    pub(super) fn masked(self, mask: &Mask) -> Self {
        let text = |text: String| mask.text(text);
        match self {
            Self::Progress { call, progress, total, message } => {
                Self::Progress { call, progress, total, message: message.map(text) }
            }
            Self::Log { level, logger, data } => {
                Self::Log { level, logger: logger.map(text), data: with_texts(data, &text) }
            }
            Self::ListChanged => Self::ListChanged,
            Self::ToolLeftOut { tool, reason } => Self::ToolLeftOut { tool, reason: text(reason) },
            Self::Declined { message } => Self::Declined { message: text(message) },
            Self::BrokenPromise { tool, message } => Self::BrokenPromise { tool, message: text(message) },
        }
    }
}

/// Takes the notices of a server, with its name. It is called between two messages of the server and must not block.
#[derive(Clone)]
pub struct NoticeListener(Arc<Listen>);

type Listen = dyn Fn(&str, McpNotice) + Send + Sync;

impl NoticeListener {
    /// The listener `take`.
    pub fn new(take: impl Fn(&str, McpNotice) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(super) fn tell(&self, server: &str, notice: McpNotice) {
        tracing::debug!(server, ?notice, "notice of an MCP server");
        (self.0)(server, notice);
    }
}

impl Default for NoticeListener {
    /// Without a listener; notices are only logged.
    fn default() -> Self {
        Self::new(|_, _| ())
    }
}

impl fmt::Debug for NoticeListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoticeListener")
    }
}
