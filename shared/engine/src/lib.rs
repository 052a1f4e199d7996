//! The graph engine: runs graphs of async nodes over typed state, pauses them, and resumes them anywhere.
//!
//! It implements the OpenArmature capabilities *graph-engine*, *pipeline-utilities*, *sessions* and *suspension* on ports
//! alone. It imports `dormouse-ports` and `dormouse-json`, and must not know AWS, HTTP, any async runtime, the clock, the
//! environment, files, the network or randomness; a clippy ban and a test keep it so.
//!
//! # Invariants
//! - A node never sees a half-merged state: an update is checked in full before any field changes.
//! - State is shared, not copied: a field is copied only when it changes while the old value is still held elsewhere.
//! - A suspension is no error: `suspend()` puts its request into a slot and stays pending; the engine drops the node's
//!   future together with every middleware around it, so no code behind `suspend()` can run or catch it.
//! - The pause, the session, the signal and the pending row are one [`dormouse_ports::Commit`].
//! - Observers only look: `invoke()` never waits for them, `drain` does.
//!
//! # An example
//! ```
//! use dormouse_engine::{Answer, Delay, END, Graph, Rule, Wait};
//!
//! dormouse_engine::state! {
//!     #[derive(Clone, Debug, Default)]
//!     struct Order {
//!         amount: u32,
//!         approved: bool,
//!         shipped: bool,
//!     }
//! }
//!
//! let graph = Graph::<Order>::new("order")
//!     .entry("ask")
//!     .wait("ask", |order| {
//!         let answer = Answer::new().required(Order::approved, Rule::boolean());
//!         Ok(Wait::signal("order-7", answer)
//!             .describe(format!("Is {} all right?", order.amount))
//!             .or_default(Delay::days(3), Order::approved.set(false)))
//!     })
//!     .node("ship", async |order: Order| Ok(Order::shipped.set(order.approved)))
//!     .edge("ask", "ship")
//!     .edge("ship", END)
//!     .compile()?;
//! # Ok::<(), dormouse_engine::EngineError>(())
//! ```
//! At `ask` the invocation sleeps until the signal `order-7` arrives or three days are over, and goes on at `ship`.

#![warn(missing_docs)]

mod ambient;
pub mod cause;
mod error;
mod graph;
mod metadata;
pub mod middleware;
mod node;
mod observe;
mod operation;
mod prompt;
mod run;
mod sending;
mod state;
mod wait;

pub use ambient::{
    Identity, Position, SignedAnswer, TurnTime, active_prompt, answer_under_way, answering, current, in_trace, in_turn,
    origin, position, surrounding_trace, turn_time, under_prompt,
};
pub use error::{EngineError, NodeError};
pub use graph::{
    Amount, Branch, CompiledGraph, Compute, ErrorPolicy, FanOut, Graph, GraphBuilder, GraphOutline, MakeTwin, Migrate,
    Migrations, NextNode, NodeKind, NodeOutline, OnEmpty, ParallelBranches, Projection, SessionConcurrency,
    SessionPolicy, Twin, UpgradePolicy, When,
};
pub use metadata::{MetadataError, augment_metadata};
pub use node::{END, Middleware, Next, Node, Route, Target};
pub use observe::{
    CallOrigin, CheckpointSaved, DrainSummary, EmptyPhases, FailureIsolated, FanOutConfig, FrameworkEvent, GraphEntry,
    InvocationEnd, InvocationResult, InvocationStart, LlmCompletionEvent, LlmFailedEvent, LlmRequest, LlmResponse,
    LlmTokenEvent, MetadataAugmented, NodeEvent, ObservedError, Observer, ObserverHandle, Operation, OperationEnded,
    OperationError, Origin, ParallelBranchesConfig, Phase, Phases, ResumedFrom, Subgraph, ToolCallEvent,
    ToolCallFailedEvent, ToolRequest, drain_current_events,
};
pub use operation::{GIVEN_UP, ObservedCall, ToolCallRecord, operation_ended, operations_are_observed};
pub use prompt::{ActivePrompt, TokenBudget};
pub use run::{
    AfterError, BatchedSaves, Begin, CancellationWatch, Carry, Completed, Engine, Invocation, LeaseTerms, Outcome,
    Ports, Resume, Suspended, Upgrade, admit_answer, cancellation, keep_worker, record, save_session, suspend,
    suspend_and_rerun, uncommitted,
};
pub use sending::{CutShort, Sending, cut_off};
pub use state::{
    Field, FieldKey, FieldKeys, FieldType, GraphState, IntoField, KeyFn, List, Record, ReduceFn, Reducer, State,
    StateSchema, Untyped, Update, View,
};

pub use wait::{Answer, Deadline, Delay, DelayError, Integer, Rule, Step, VoteOutcome, Voters, Votes, Wait};

/// Items that the macros of this crate expand to.
#[doc(hidden)]
pub mod __private {
    pub use serde_json::to_value;

    pub use crate::state::typed::{ReadMore, read_field};

    /// The JSON of a field.
    pub type Written = serde_json::Result<serde_json::Value>;
}
