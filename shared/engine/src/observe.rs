//! Observers and the delivery of events to them (graph-engine §6).

mod calls;
mod delivery;
mod drain;
mod event;
mod framework;
mod invocation;
mod observer;
mod phases;

pub use calls::{
    CallOrigin, LlmCompletionEvent, LlmFailedEvent, LlmRequest, LlmResponse, LlmTokenEvent, ToolCallEvent,
    ToolCallFailedEvent, ToolRequest,
};
pub(crate) use delivery::{EventQueue, ObserverDeliveries};
pub use drain::{DrainSummary, drain_current_events};
pub(crate) use event::QueuedEvent;
pub use event::{FanOutConfig, GraphEntry, NodeEvent, ObservedError, Origin, ParallelBranchesConfig, Phase, Subgraph};
pub use framework::{
    CheckpointSaved, FailureIsolated, FrameworkEvent, MetadataAugmented, Operation, OperationEnded, OperationError,
};
pub use invocation::{InvocationEnd, InvocationResult, InvocationStart, ResumedFrom};
pub(crate) use observer::{Attached, Observers, RegisteredObserver, Registrations};
pub use observer::{Observer, ObserverHandle};
pub use phases::{EmptyPhases, Phases};
