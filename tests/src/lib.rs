//! What the tests of the whole share: a stage on which harnesses live and die over one store.

pub mod simulation;
mod stage;

pub use stage::{Stage, map};
