//! Events: append-only facts about resources, which streams deliver and replay reads.
//!
//! An event has two numbers. Its *position* counts the events of one stream (a session's, say) and is inside its id, so
//! a cursor is an id. Its `sequence` counts the events of the one resource that it is about. Both begin with 1.
//!
//! # Invariant
//! A server makes events from [`Draft`]s only, and the payload of a draft has been through [`redact`]: no hidden
//! reasoning, no secret and no part that is not public is ever in one.

mod draft;
mod kind;
pub mod redact;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use draft::{Draft, EventPlace};
pub use kind::EventKind;

use crate::envelope::{Envelope, Map, ResourcePointer};
use crate::id::{EventId, ReceiptId, SessionId, TaskId, WorkspaceId};
use crate::replay::ReplayEventMetadata;

/// A fact about a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Fields that all resources have. An event never changes: `updated_at` is `created_at`.
    #[serde(flatten)]
    pub envelope: Envelope<EventId>,
    /// Event that happened.
    pub event: EventKind,
    /// To what.
    pub resource: ResourcePointer,
    /// The number of this event among those of the resource.
    pub sequence: u64,
    /// More about it.
    pub payload: Map,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// The span that it belongs to.
    pub span_id: Option<String>,
    /// The session.
    pub session_id: Option<SessionId>,
    /// The task.
    pub task_id: Option<TaskId>,
    /// The workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// Actor that did it.
    pub actor: Option<String>,
    /// The key of the request that did it.
    pub idempotency_key: Option<String>,
    /// The event before it in its stream.
    pub previous_event_id: Option<EventId>,
    /// The receipt that reports it.
    pub receipt_id: Option<ReceiptId>,
    /// True if it repeats an event of the past.
    #[serde(default)]
    pub replayed: bool,
    /// Replay that it belongs to.
    pub replay: Option<ReplayEventMetadata>,
}
