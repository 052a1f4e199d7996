use serde::{Deserialize, Serialize};

/// Error of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum ExecutionError {
    /// There is nothing at that path.
    #[error("there is no `{path}` in the workspace")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path leads out of the workspace, or to a part of it that tools may not use.
    #[error("`{path}` may not be used: {reason}")]
    Confined {
        /// The path.
        path: String,
        /// Reason.
        reason: String,
    },
    /// It is a folder, a device, a pipe or a socket.
    #[error("`{path}` is no file but {kind}")]
    NoFile {
        /// The path.
        path: String,
        /// Kind of thing that it is, with its article.
        kind: String,
    },
    /// The file is larger than asked for.
    #[error("`{path}` has {size} bytes, and {limit} can be read")]
    TooLarge {
        /// The path.
        path: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The file is not as the writer assumed.
    #[error("`{path}` was changed in the meantime; read it again")]
    Changed {
        /// The path.
        path: String,
    },
    /// The request makes no sense.
    #[error("{reason}")]
    InvalidRequest {
        /// Problem, and what to do about it.
        reason: String,
    },
    /// The backend refuses: rights, space, policies. No later attempt helps before an operator acts.
    #[error("the workspace refused: {reason}")]
    Denied {
        /// Reason.
        reason: String,
    },
    /// The backend does not answer, or failed. A later attempt may succeed.
    #[error("the workspace cannot be reached: {reason}")]
    Unavailable {
        /// Reason.
        reason: String,
        /// True if what was asked for may have happened.
        uncertain: bool,
    },
}
