//! Observers and the delivery of events to them (graph-engine §6).

mod delivery;
mod drain;
mod event;
mod framework;
mod invocation;
mod observer;
mod phases;

pub(crate) use delivery::{Deliveries, EventQueue};
pub use drain::{DrainSummary, drain_current_events};
pub(crate) use event::Event;
pub use event::{Entry, FanOutConfig, NodeEvent, ObservedError, Origin, ParallelBranchesConfig, Phase, Subgraph};
pub use framework::{CheckpointSaved, FailureIsolated, FrameworkEvent, MetadataAugmented};
pub use invocation::{InvocationEnd, InvocationResult, InvocationStart, ResumedFrom};
pub(crate) use observer::{Attached, Observers, Registered, Registrations};
pub use observer::{Observer, ObserverHandle};
pub use phases::{EmptyPhases, Phases};
