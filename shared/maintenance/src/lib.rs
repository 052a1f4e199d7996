//! What is no turn: the sweep, the doctor, and the collection of what nothing needs any more.
//!
//! It looks at what is stored, calls for workers, registers what is not registered, and removes what is over. What has to
//! be run, the harness runs. It must not know AWS, HTTP or any async runtime.
//!
//! # Invariants
//! - A sweep runs no turn, is bounded in rows and time, and remembers where it stopped.
//! - Nothing goes that something refers to ([`sweep`] removes only what a whole round has not met).
//! - The doctor changes nothing unless it is asked to [repair](doctor::repair).

#![warn(missing_docs)]

mod aside;
pub mod doctor;
mod order;
mod parked;
mod rules;
mod summary;
mod sweep;
mod time;
mod upgrade;

pub use aside::put_aside;
pub use order::{SweepOrder, SweepScope};
pub use parked::{ParkedSignal, parked_signals};
pub use summary::SweepSummary;
pub use sweep::sweep;
pub use upgrade::{MigrationOutcome, MigrationReport, PauseUpgrade, migration_report};
