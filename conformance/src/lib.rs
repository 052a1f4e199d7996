//! Runs fixtures of the OpenArmature conformance format against this implementation.
//!
//! A fixture is read in full before anything runs, into values that name what the runner knows; whatever is left over
//! fails the case by name. Nothing is simulated: graphs, suspensions, sessions and turns are those of `dormouse-engine`
//! and `dormouse-harness`, on the ports under test.
//!
//! # Invariants
//! - A directive or an assertion that the runner does not implement fails its case; it is never passed over
//!   (`Directives`).
//! - A known failure is a line in the list of gaps with its reason ([`Gaps`]); one that passes fails.
//! - Each case has its own graph, ledger, identifiers and empty store.

#![warn(missing_docs)]

mod bench;
mod case;
mod chat;
mod checkpoints;
mod clock;
mod directives;
mod evidence;
mod expect;
mod failure;
mod falsify;
mod fixture;
mod gaps;
mod graph;
mod invocations;
mod ledger;
mod matching;
mod models;
mod observers;
mod past;
mod sessions;
mod spec;
mod store;
mod suite;
mod telemetry;
mod turns;
mod typed;

pub use failure::Failure;
pub use fixture::{Case, discover};
pub use gaps::Gaps;
pub use store::{Backends, PortKind};
pub use suite::{Summary, passes, run};
