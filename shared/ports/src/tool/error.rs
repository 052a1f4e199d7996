use std::fmt;

/// Error of a source of tools: the call did not come to an outcome of the tool.
///
/// A tool that ran and failed is no such error but a [`ToolOutput`](crate::tool::ToolOutput) that says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ToolError {
    /// Kind of error: what can be done about it.
    pub kind: ToolErrorKind,
    /// Message that says what happened and what to do next, without secrets.
    pub message: String,
    /// True if the call may have taken effect although no outcome came back.
    pub uncertain: bool,
}

/// Kinds of [`ToolError`], by what can be done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolErrorKind {
    /// The source has no tool of that name now.
    NotFound,
    /// The tool refuses these arguments; the model can mend them.
    InvalidArguments,
    /// A later attempt may succeed: a server that is down, busy or slow.
    Transient,
    /// No attempt will succeed.
    Permanent,
    /// An operator has to grant access or change the configuration first.
    Denied,
    /// It did not answer before its deadline.
    TimedOut,
}

impl ToolError {
    /// An error before the call took effect.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), uncertain: false }
    }

    /// A transient error before the call took effect.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Transient, message)
    }

    /// A permanent error before the call took effect.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Permanent, message)
    }

    /// An operator has to act.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ToolErrorKind::Denied, message)
    }

    /// The same, of a call that may have taken effect: a connection lost behind the request, a deadline passed.
    pub fn maybe_done(mut self) -> Self {
        self.uncertain = true;
        self
    }
}

impl ToolErrorKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::NotFound, Self::InvalidArguments, Self::Transient, Self::Permanent, Self::Denied, Self::TimedOut];

    /// Its name in records and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::InvalidArguments => "invalid_arguments",
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
        }
    }
}

impl fmt::Display for ToolErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
