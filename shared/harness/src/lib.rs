//! The turn: classify what comes in, run or resume a graph, arrange the wake-up, and say what came out.
//!
//! It implements the OpenArmature capabilities *harness* and *harness-chat* over the engine and the ports. It imports
//! `dormouse-engine` and `dormouse-ports` and must not know AWS, HTTP or any async runtime.
//!
//! # Invariants
//! - Every transmission is classified into exactly one dispatch path before anything is loaded ([`Transmission`]).
//! - The harness never waits for a signal: a suspended turn registers its wake-up and ends.
//! - The first accepted delivery of a pause runs it; every other delivery gets the same answer, or is told to ask
//!   again. A payload that does not fit its schema is refused and changes nothing.
//! - Whatever goes wrong has one [`Category`](dormouse_ports::Category), and every category one [`Bucket`].

#![warn(missing_docs)]

mod accepted;
mod admission;
mod answer;
mod aside;
mod bucket;
mod call;
mod cancel;
pub mod chat;
mod config;
mod correlate;
mod deadline;
mod fresh;
mod harness;
mod outbound;
mod outcome;
mod registry;
mod signal;
mod standing_rules;
mod transmission;
mod turn_span;
mod wake;
mod wake_registrar;

pub use admission::{Admission, AdmissionLimits, Admitted, Overloaded, Wait};
pub use aside::is_put_aside;
pub use bucket::{Bucket, bucket_of};
pub use call::{WORK, WorkCall};
pub use cancel::CanceledTurn;
pub use config::{HarnessConfig, Mode, RulePolicy};
pub use correlate::unfit_note;
pub use harness::{Harness, subscription_failed};
pub use outbound::{Outbound, OutboundShape};
pub use outcome::{CompletedTurn, Overruled, SuspendedTurn, Tally, Turn, TurnError, TurnOutcome};
pub use registry::GraphRegistry;
pub use signal::store_failed;
pub use standing_rules::StandingRules;
pub use transmission::{DispatchPath, EventOrigin, Intent, SignalOrigin, Transmission, Trigger};
pub use turn_span::{TraceExporter, TurnSpan, TurnTracer};
pub use wake::DescriptorWakes;
pub use wake_registrar::WakeRegistrar;
