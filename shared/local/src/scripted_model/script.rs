use std::time::Duration;

use serde_json::Value;

/// What the model does with one request.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedTurn {
    pub(super) reply: ScriptedReply,
    /// Before it answers at all.
    pub(super) delay: Duration,
    /// Before each piece of a streamed answer.
    pub(super) pace: Duration,
    pub(super) fault: Option<ScriptedFault>,
}

/// Answer of the model.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptedReply {
    /// A message.
    Answer {
        /// Reasoning, shown before anything else; may be empty.
        reasoning: String,
        /// Text; may be empty.
        text: String,
        /// Calls of tools: names, and arguments as a text that need not be JSON.
        calls: Vec<(String, String)>,
    },
    /// An error.
    Refuse {
        /// Status.
        status: u16,
        /// For people.
        message: String,
        /// In seconds.
        retry_after: Option<u32>,
    },
    /// A body of status 200 as it is, which may be no JSON.
    Text(String),
}

/// Way in which an answer goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedFault {
    /// The connection breaks after that many pieces, or in the midst of an answer in one piece.
    HangUp {
        /// Pieces that arrive.
        after: usize,
    },
    /// After that many pieces one comes that is no JSON.
    Garbage {
        /// Pieces that arrive.
        after: usize,
    },
    /// After that many pieces nothing comes, and no end either.
    Silence {
        /// Pieces that arrive.
        after: usize,
    },
}

impl ScriptedTurn {
    fn new(reply: ScriptedReply) -> Self {
        Self { reply, delay: Duration::ZERO, pace: Duration::ZERO, fault: None }
    }

    /// The model says `text`.
    pub fn saying(text: impl Into<String>) -> Self {
        Self::new(ScriptedReply::Answer { reasoning: String::new(), text: text.into(), calls: Vec::new() })
    }

    /// The model calls the tool `name`.
    pub fn calling(name: impl Into<String>, arguments: &Value) -> Self {
        Self::saying("").and_calling(name, arguments.to_string())
    }

    /// The model refuses with `status`.
    pub fn failing(status: u16, message: impl Into<String>) -> Self {
        Self::new(ScriptedReply::Refuse { status, message: message.into(), retry_after: None })
    }

    /// The server answers `text`, which need not be valid.
    pub fn raw(text: impl Into<String>) -> Self {
        Self::new(ScriptedReply::Text(text.into()))
    }

    /// Calls the tool `name` as well, with `arguments` as they are. Without effect where it does not answer.
    #[must_use]
    pub fn and_calling(mut self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        if let ScriptedReply::Answer { calls, .. } = &mut self.reply {
            calls.push((name.into(), arguments.into()));
        }
        self
    }

    /// Shows `text` as reasoning first. Without effect where it does not answer.
    #[must_use]
    pub fn thinking(mut self, text: impl Into<String>) -> Self {
        if let ScriptedReply::Answer { reasoning, .. } = &mut self.reply {
            *reasoning = text.into();
        }
        self
    }

    /// Tells after how many seconds it wants to be asked again. Without effect where it does not refuse.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        if let ScriptedReply::Refuse { retry_after, .. } = &mut self.reply {
            *retry_after = Some(seconds);
        }
        self
    }

    /// Waits before it answers.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits before each piece of a streamed answer.
    #[must_use]
    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Goes wrong.
    #[must_use]
    pub fn with_fault(mut self, fault: ScriptedFault) -> Self {
        self.fault = Some(fault);
        self
    }
}
