//! The words that receipts choose from.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }
    )*};
}

words! {
    /// Subject of a receipt.
    SubjectKind {
        /// A task.
        Task,
        /// Its outcome.
        Outcome,
        /// An event.
        Event,
        /// An artifact.
        Artifact,
        /// An approval.
        Approval,
        /// A call of a tool.
        ToolCall,
        /// Something that was replayed.
        ReplaySegment,
    }

    /// Kind of issuer of a receipt.
    IssuerKind {
        /// A server like this one.
        Harness,
        /// Embedding host.
        Host,
        /// An agent.
        Agent,
        /// A connector.
        Connector,
    }

    /// Decision.
    Decision {
        /// Yes.
        Approved,
        /// No.
        Denied,
        /// The question was withdrawn.
        Canceled,
        /// No answer came in time.
        Timeout,
    }

    /// Determinism of a replay.
    Determinism {
        /// To the byte.
        ByteDeterministic,
        /// Nearly.
        BestEffort,
        /// There is none.
        Unavailable,
    }

    /// Kind of a recorded material.
    MaterialKind {
        /// Response of a model.
        LlmProviderResponse,
        /// Result of a tool over MCP.
        McpToolReturn,
        /// Events.
        EventLog,
        /// An artifact.
        Artifact,
        /// Fact supplied by the host.
        HostFact,
    }

    /// Change of a file.
    FileOperation {
        /// It is new.
        Create,
        /// Its content.
        Modify,
        /// It is gone.
        Delete,
        /// Its name.
        Rename,
    }

    /// Result of a call of a tool.
    ToolCallStatus {
        /// Well.
        Succeeded,
        /// Badly.
        Failed,
        /// It was called off.
        Canceled,
    }

    /// Outcome of work that was handed on.
    HandoffStatus {
        /// It was taken.
        Accepted,
        /// It was not.
        Rejected,
        /// It failed.
        Failed,
        /// It is done.
        Completed,
    }

    /// Kind of a replacement by a replay.
    DeltaOperation {
        /// There was nothing before.
        Add,
        /// There was something else before.
        Replace,
        /// There is nothing now.
        Remove,
    }
}
