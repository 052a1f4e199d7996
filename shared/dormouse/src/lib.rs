//! Agents that sleep for free.
//!
//! An agent is a graph of steps over a state. A step that needs a person, a job, an event or a time declares its wait;
//! the invocation then sleeps in a database and costs nothing, until it is resumed exactly once, on any machine.
//!
//! ```
//! use dormouse::{Answer, CompiledGraph, Delay, END, EngineError, Graph, Outside, Rule, Wait, invocation_id, state};
//!
//! state! {
//!     /// What the agent works on, and what is stored while it sleeps.
//!     #[derive(Clone, Debug, Default)]
//!     pub struct Leave {
//!         pub employee: String,
//!         pub approved: bool,
//!         pub result: String,
//!     }
//! }
//!
//! fn leave(_: &Outside) -> Result<CompiledGraph, EngineError> {
//!     Graph::<Leave>::new("leave")
//!         .inputs(Leave::employee)
//!         .entry("ask")
//!         .wait("ask", |leave| {
//!             let answer = Answer::new().required(Leave::approved, Rule::boolean());
//!             Ok(Wait::signal(format!("leave-{}", invocation_id()?), answer)
//!                 .describe(format!("{} asks for leave", leave.employee))
//!                 .or_default(Delay::days(3), Leave::approved.set(false)))
//!         })
//!         .node("settle", async |leave: Leave| {
//!             Ok(Leave::result.set(if leave.approved { "bon voyage" } else { "not now" }.to_owned()))
//!         })
//!         .edge("ask", "settle")
//!         .edge("settle", END)
//!         .compile()
//! }
//!
//! // A test: three days pass in a millisecond.
//! use dormouse::testing::TestBed;
//! use dormouse::{Agents, json};
//!
//! let mut bed = TestBed::new(&Agents::new().graph(leave));
//! let ada = bed.start("leave", json!({ "employee": "Ada" }));
//! assert!(bed.status(&ada).is_asleep());
//! bed.pass_days(3);
//! assert_eq!(bed.status(&ada).completed()["result"], "not now");
//! ```
//!
//! | want to | use |
//! |---|---|
//! | begin a package with an agent, its test and a Makefile | `dormouse new FOLDER` |
//! | write a graph | [`Graph`], [`state!`], [`Update`] |
//! | run several things at once | [`FanOut`], [`ParallelBranches`] |
//! | try again, or go on without | [`middleware`], or a [`Middleware`] of your own |
//! | wait | [`Wait`], [`Answer`], [`Rule`], [`Delay`], [`Step`], [`Votes`], [`Voters`] |
//! | tell clients what a node does | [`record`](fn@record), [`JournalEntry`] |
//! | name what is served | [`Agents`], [`Agent`] |
//! | give functions to agents that a folder declares, or to a model that a node asks | [`tools::RustTool`] |
//! | watch runs, their models and their tools | [`observe`] |
//! | test | [`testing::TestBed`] |
//! | run on this machine | [`dev`], or [`cli`] with all its commands |
//! | run on AWS Lambda | [`lambda::serve`], [`lambda::serve_streams`] |

#![warn(missing_docs)]

pub mod observe;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tools;

pub use dormouse_api::{Agent, Agents, AgentsError, Outside};
pub use dormouse_engine::{
    Amount, Answer, Branch, CompiledGraph, Deadline, Delay, DelayError, END, EngineError, ErrorPolicy, FanOut, Field,
    FieldKey, FieldKeys, Graph, GraphState, Integer, IntoField, List, Middleware, Migrate, Migrations, Next, Node,
    NodeError, OnEmpty, ParallelBranches, Projection, Record, Reducer, Rule, SessionConcurrency, SessionPolicy, State,
    Step, Target, Update, UpgradePolicy, View, VoteOutcome, Voters, Votes, Wait, When, middleware, record,
    save_session, state, view,
};
pub use dormouse_ports::{
    BusError, Category, Clock, EntryKind, Event, EventBus, EventWait, InvocationId, JournalEntry, Map, SignalId,
};
pub use dormouse_protocol::resource::{AutonomyTier, ReceiptPolicy};
pub use dormouse_tools::schemars;
pub use jiff::Timestamp;
pub use serde;
pub use serde_json::{Value, json};

/// The invocation in which the calling node or wait runs: what makes the id of a signal its own.
///
/// # Errors
/// Outside of a node.
pub fn invocation_id() -> Result<InvocationId, NodeError> {
    let identity = dormouse_engine::current().ok_or_else(|| NodeError::new("a node runs inside an invocation"))?;
    Ok(identity.invocation_id.clone())
}

/// The command line of `agents`: `dev` runs them on this machine, the other commands ask about suspended invocations,
/// here or on AWS. Takes the arguments of this process; `--help` lists all.
#[cfg(feature = "cli")]
pub fn cli(agents: &Agents) -> std::process::ExitCode {
    dormouse_cli::main(agents)
}

/// Runs `agents` on this machine until Ctrl-C, on the folder `.dormouse` and the port 8787: the command `dev` of
/// [`cli`] with its defaults, for a program without a command line.
#[cfg(feature = "cli")]
pub fn dev(agents: &Agents) -> std::process::ExitCode {
    dormouse_cli::dev(agents)
}

/// The functions on AWS Lambda.
#[cfg(feature = "lambda")]
pub mod lambda {
    pub use dormouse_lambda::{Allocator, Function, allocator, serve, serve_streams};
}

/// The code of the guide for authors is compiled and run.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../guide/writing-agents.md")]
mod guide {}
