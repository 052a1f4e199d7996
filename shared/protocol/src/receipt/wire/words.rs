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
    /// What a receipt is about.
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

    /// What issued a receipt.
    IssuerKind {
        /// A server like this one.
        Harness,
        /// What embeds it.
        Host,
        /// An agent.
        Agent,
        /// A connector.
        Connector,
    }

    /// What was decided.
    Decision {
        /// Yes.
        Approved,
        /// No.
        Denied,
        /// The question was withdrawn.
        Canceled,
        /// Nobody answered in time.
        Timeout,
    }

    /// Whether a replay would be the same.
    Determinism {
        /// To the byte.
        ByteDeterministic,
        /// Nearly.
        BestEffort,
        /// There is none.
        Unavailable,
    }

    /// What was recorded.
    MaterialKind {
        /// What a model answered.
        LlmProviderResponse,
        /// What a tool over MCP gave.
        McpToolReturn,
        /// Events.
        EventLog,
        /// An artifact.
        Artifact,
        /// Something that the host said.
        HostFact,
    }

    /// How a file was changed.
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

    /// How a call of a tool ended.
    ToolCallStatus {
        /// Well.
        Succeeded,
        /// Badly.
        Failed,
        /// It was called off.
        Canceled,
    }

    /// What became of work that was handed on.
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

    /// How a replay replaced something.
    DeltaOperation {
        /// There was nothing before.
        Add,
        /// There was something else before.
        Replace,
        /// There is nothing now.
        Remove,
    }
}
