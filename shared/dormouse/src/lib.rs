//! Agents that sleep for free.
//!
//! An agent is a graph of steps over a state. A step that needs a person, a job, an event or a time says what it waits
//! for; the invocation then sleeps in a database and costs nothing, until it is resumed exactly once, on any machine.

#![warn(missing_docs)]

use std::process::ExitCode;

pub use dormouse_api::{Agent, Agents, AgentsError, Outside};
pub use dormouse_protocol::resource::AutonomyTier;

/// The command line of `agents`: `dev` runs them on this machine, the other commands ask about what sleeps, here or on
/// AWS. Takes the arguments of this process; `--help` tells all.
#[cfg(feature = "cli")]
pub fn cli(agents: &Agents) -> ExitCode {
    dormouse_local::cli::main(agents)
}

/// The functions on AWS Lambda.
#[cfg(feature = "lambda")]
pub mod lambda {
    pub use dormouse_lambda::{Function, serve};
}
