//! Ports for tests: all of them in memory, time by hand, and the contract that every state store keeps.
//!
//! Imports `dormouse-ports` and, for its spawner, `dormouse-system`, so that any crate of the workspace can be tested with it.
//!
//! # Invariants
//! - [`MemoryStore`] behaves as the durable store does: both pass [`contract::ALL`]; so does [`MemoryCheckpointer`], by
//!   [`contract::CHECKPOINTS`].
//! - Nothing here reads the machine's clock or its random source: a test that passes once passes always.

#![warn(missing_docs)]

mod bus;
mod clock;
pub mod contract;
mod faults;
mod faulty_checkpointer;
mod ids;
mod json;
mod memory_checkpointer;
mod memory_objects;
mod memory_store;
mod planner;
mod scripted_fetch;
mod subscriptions;

pub use bus::MemoryBus;
pub use clock::{ManualClock, MovingClock};
pub use dormouse_system::TokioSpawner;
pub use faults::{Fault, FaultyStore};
pub use faulty_checkpointer::FaultyCheckpointer;
pub use ids::CountingIds;
pub use json::map;
pub use memory_checkpointer::{CheckpointCall, MemoryCheckpointer};
pub use memory_objects::MemoryObjects;
pub use memory_store::MemoryStore;
pub use planner::NoWakes;
pub use scripted_fetch::{ScriptedAnswer, ScriptedFetch};
pub use subscriptions::{MemorySubscriptions, SubscriptionCall};

/// Locks `mutex`, even when a test panicked while it held the lock.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
