//! What the tests of the whole share: a stage on which harnesses live and die over one store, and as much of Lambda as
//! a function sees.

pub mod lambda;
pub mod simulation;
mod stage;

pub use stage::{Stage, map};
