//! The work beside the turns: the sweep, the doctor, and the collection of items that nothing needs any more.
//!
//! It looks at stored invocations, calls for workers, registers wake-ups that are not registered, and removes rows of
//! pauses that are over. Turns are run by the harness. It must not know AWS, HTTP or any async runtime.
//!
//! # Invariants
//! - A sweep runs no turn, is bounded in rows and time, and remembers where it stopped.
//! - No item goes while another refers to it ([`sweep`] removes only items that a whole round has not met).
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
