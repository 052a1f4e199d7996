//! Observers and the delivery of events to them (graph-engine §6).

mod delivery;
mod drain;
mod event;
mod observer;

pub(crate) use delivery::{Deliveries, EventQueue};
pub use drain::{DrainSummary, drain_current_events};
pub(crate) use event::Event;
pub use event::{
    EmptyPhases, FailureIsolated, FrameworkEvent, MetadataAugmented, NodeEvent, ObservedError, Phase, Phases,
};
pub(crate) use observer::{Attached, Observers, Registered, Registrations};
pub use observer::{Observer, ObserverHandle};
