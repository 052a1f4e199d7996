//! Observers and the delivery of events to them (graph-engine §6).

mod delivery;
mod event;
mod invocation;
mod observer;

pub use delivery::DrainSummary;
pub(crate) use delivery::{Deliveries, EventQueue};
pub use event::{FanOutConfig, NodeEvent, ObservedError, ParallelBranchesConfig, Phase, Phases};
pub use invocation::{InvocationEnd, InvocationResult, InvocationStart, ResumedFrom};
pub use observer::{Observer, ObserverHandle};
pub(crate) use observer::{Observers, Registered, Registrations};
