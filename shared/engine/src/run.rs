//! Running a graph: `invoke`, suspension and resume (graph-engine §3, sessions §6, suspension §3 to §8).

mod accepted;
mod answer;
mod attempts;
mod batched;
mod branches;
mod cancellation;
mod checkpoint;
mod child;
mod dispatch;
mod early;
mod engine;
mod fan_out;
mod finish;
mod journal;
mod pause;
mod pausing;
mod progress;
mod record;
mod recover;
mod restore;
mod resume;
mod session;
mod slot;
mod upgrade;
mod walk;

pub use answer::admit_answer;
pub(crate) use attempts::Attempts;
pub use batched::BatchedSaves;
pub use cancellation::{CancellationWatch, cancellation};
pub use engine::{AfterError, Carry, Completed, Engine, Invocation, LeaseTerms, Outcome, Ports, Resume, Suspended};
pub use journal::record;
pub use session::save_session;
pub(crate) use slot::Body;
pub use slot::{suspend, suspend_and_rerun};
pub use upgrade::Upgrade;
