//! The turn: classify the input, run or resume a graph, arrange the wake-up, and report the outcome.
//!
//! It implements the OpenArmature capabilities *harness* and *harness-chat* over the engine and the ports. It imports
//! `dormouse-engine`, `dormouse-ports` and `dormouse-json`, and must not know AWS, HTTP or any async runtime.
//!
//! # Invariants
//! - Every transmission is classified into exactly one dispatch path before anything is loaded ([`Transmission`]).
//! - The harness never waits for a signal: a suspended turn registers its wake-up and ends.
//! - The first accepted delivery of a pause runs it; every other delivery gets the same answer, or is asked to come
//!   again. A payload that does not fit its schema is refused and changes nothing.
//! - Every error has one [`Category`](dormouse_ports::Category), and every category one [`Bucket`].

#![warn(missing_docs)]

mod admission;
mod bucket;
mod budget;
mod call;
pub mod chat;
mod children;
mod config;
mod envelope;
mod error;
mod harness;
mod late_children;
mod lines;
mod mode;
mod outbound;
mod outcome;
mod records;
mod registry;
mod standing_rules;
mod transmission;
mod turn;
mod turn_span;
mod wake;
mod wake_registrar;
mod worker;

pub use admission::{Admission, AdmissionLimits, AdmissionWait, Admitted, Overloaded};
pub use bucket::{Bucket, bucket_of};
pub use call::{SIGNAL, WORK, WorkCall};
pub use config::{HarnessConfig, RulePolicy};
pub use envelope::{Declared, Envelope};
pub use error::{TurnError, store_failed, subscription_failed};
pub use harness::Harness;
pub use late_children::HarnessChildren;
pub use mode::Mode;
pub use outbound::{Outbound, OutboundShape};
pub use outcome::{CompletedTurn, Overruled, SuspendedTurn, Tally, Turn, TurnOutcome};
pub use records::is_put_aside;
pub use registry::{GraphRegistry, GraphSource, VersionedGraph};
pub use standing_rules::StandingRules;
pub use transmission::{
    Callback, DispatchPath, EventOrigin, FreshTurn, Intent, Signal, SignalOrigin, Transmission, TransmissionKind,
    Wakeup,
};
pub use turn::cancel::CanceledTurn;
pub use turn_span::{TraceExporter, TurnSpan, TurnTracer};
pub use wake::DescriptorWakes;
pub use wake_registrar::WakeRegistrar;
