//! The graph engine: runs graphs of async nodes over typed state, pauses them, and resumes them anywhere.
//!
//! It implements the OpenArmature capabilities *graph-engine*, *sessions* and *suspension* on ports alone. It imports
//! `dormouse-ports` and must not know AWS, HTTP, any async runtime, the clock, the environment, files, the network
//! or randomness; a clippy ban and a test keep it so.
//!
//! # Invariants
//! - A node never sees a half-merged state: an update is checked in full before any field changes.
//! - State is shared, not copied: a field is copied only when it changes while somebody still holds the old value.
//! - A suspension is no error: `suspend()` puts the wish into a slot and stays pending; the engine drops the node's
//!   future together with every middleware around it, so no code behind `suspend()` can run or catch it.
//! - The pause, the session, the signal and the pending row are one [`dormouse_ports::Commit`].
//! - Observers only look: `invoke()` never waits for them, `drain` does.
//!
//! # An example
//! ```
//! use dormouse_engine::{END, Outcome, TypedGraph, Update, suspend};
//! use dormouse_ports::SignalDescriptor;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Order {
//!     amount: u32,
//!     approved: bool,
//!     shipped: bool,
//! }
//!
//! let graph = TypedGraph::<Order>::new("order")
//!     .entry("ask")
//!     .node("ask", async |order: Order| {
//!         let wait = SignalDescriptor::new("order-7").with("amount", order.amount);
//!         Err(suspend(wait).await)
//!     })
//!     .node("ship", async |order: Order| Ok(Update::none().with("shipped", order.approved)))
//!     .edge("ask", "ship")
//!     .edge("ship", END)
//!     .compile()?;
//! # Ok::<(), dormouse_engine::EngineError>(())
//! ```
//! The node `ask` never returns: the invocation sleeps until the signal `order-7` arrives, and goes on at `ship`.

#![warn(missing_docs)]

mod ambient;
pub mod cause;
mod error;
mod graph;
mod metadata;
pub mod middleware;
mod node;
mod observe;
mod run;
mod sending;
mod state;

pub use ambient::{Identity, Position, current, in_trace, origin, position, surrounding_trace};
pub use error::{EngineError, NodeError};
pub use graph::{
    Amount, Branch, CompiledGraph, Compute, ErrorPolicy, FanOut, GraphBuilder, Migrate, Migrations, OnEmpty,
    ParallelBranches, Projection, SessionConcurrency, SessionPolicy, TypedGraph, UpgradePolicy, When,
};
pub use metadata::{MetadataError, augment_metadata};
pub use node::{END, Middleware, Next, Node, Route, Target};
pub use observe::{
    CheckpointSaved, DrainSummary, EmptyPhases, Entry, FailureIsolated, FanOutConfig, FrameworkEvent, InvocationEnd,
    InvocationResult, InvocationStart, MetadataAugmented, NodeEvent, ObservedError, Observer, ObserverHandle, Origin,
    ParallelBranchesConfig, Phase, Phases, ResumedFrom, Subgraph, drain_current_events,
};
pub use run::{
    AfterError, BatchedSaves, CancellationWatch, Carry, Completed, Engine, Invocation, LeaseTerms, Outcome, Ports,
    Resume, Suspended, Upgrade, admit_answer, cancellation, save_session, suspend, suspend_and_rerun,
};
pub use sending::{Cut, Sending, cut_off};
pub use state::{Field, FieldType, KeyFn, Openness, ReduceFn, Reducer, State, StateSchema, Update};
