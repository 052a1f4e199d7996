use std::sync::Arc;

use dormouse_ports::{AttributeValue, Category, Map, SavePoint, SaveSource};
use jiff::Timestamp;

use super::{LlmCompletionEvent, LlmFailedEvent, LlmTokenEvent, Origin, ToolCallEvent, ToolCallFailedEvent};
use crate::cause::Classification;
use crate::{State, Update};

/// Event of the engine besides node events. It has no phase: every observer receives it, regardless of its phases.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameworkEvent {
    /// A failure was replaced by a degraded update.
    FailureIsolated(FailureIsolated),
    /// Code of the invocation added metadata.
    MetadataAugmented(MetadataAugmented),
    /// The checkpointer was given a record.
    CheckpointSaved(CheckpointSaved),
    /// An operation within a node has ended.
    OperationEnded(OperationEnded),
    /// A call of a model was answered.
    LlmCompletion(Box<LlmCompletionEvent>),
    /// A call of a model failed.
    LlmFailed(Box<LlmFailedEvent>),
    /// A piece of an answer of a model has arrived.
    LlmToken(Box<LlmTokenEvent>),
    /// A call of a tool gave a result.
    ToolCall(Box<ToolCallEvent>),
    /// A call of a tool failed.
    ToolCallFailed(Box<ToolCallFailedEvent>),
}

impl FrameworkEvent {
    /// True of the typed events of calls of models and tools.
    pub(super) fn is_of_call(&self) -> bool {
        match self {
            Self::LlmCompletion(_)
            | Self::LlmFailed(_)
            | Self::LlmToken(_)
            | Self::ToolCall(_)
            | Self::ToolCallFailed(_) => true,
            Self::FailureIsolated(_)
            | Self::MetadataAugmented(_)
            | Self::CheckpointSaved(_)
            | Self::OperationEnded(_) => false,
        }
    }
}

/// A failure that [`FailureIsolation`](crate::middleware::FailureIsolation) caught (pipeline-utilities §6.3).
#[derive(Clone, Debug, PartialEq)]
pub struct FailureIsolated {
    /// Names the place that caught it.
    pub event_name: Arc<str>,
    /// The wrapped node, instance or branch, and the latest attempt at it.
    pub origin: Origin,
    /// State that the wrapped chain received.
    pub pre_state: State,
    /// The degraded update.
    pub post_state: Update,
    /// The failure that was caught.
    pub caught: Classification,
}

/// Metadata that was added in the midst of an invocation (observability §3.4).
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataAugmented {
    /// Entries that were added.
    pub entries: Map,
    /// The node and the attempt in the dispatch of which it was added.
    pub origin: Origin,
}

/// A save of progress that succeeded (pipeline-utilities §10.8). The invocation is the one around the observer.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointSaved {
    /// That of the record.
    pub last_saved_at: Timestamp,
    /// The node that caused the save by its event.
    pub at: SavePoint,
    /// Place of that node among fan-outs.
    pub source: SaveSource,
    /// Number of completed nodes that the record names.
    pub completed_node_count: usize,
}

/// Work within a node that has a span of its own: an attempt at a call of a model, a call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Name of its span.
    pub name: &'static str,
    /// True if another system does the work, so that its span is that of a client.
    pub is_remote: bool,
    /// Attributes of its span.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Its error, if it failed.
    pub error: Option<OperationError>,
    /// Instant at which it began.
    pub started: Timestamp,
    /// Instant at which it ended.
    pub ended: Timestamp,
}

/// Error of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationError {
    /// Its type, as `exception.type` has it.
    pub kind: String,
    /// Its category, where there are such.
    pub category: Option<Category>,
    /// For people.
    pub message: String,
}

/// An operation that has ended, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationEnded {
    /// The operation.
    pub operation: Operation,
    /// The node and the attempt that it belongs to.
    pub origin: Origin,
}
