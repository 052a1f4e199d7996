//! The OpenTelemetry side of observability: spans, log records, measurements and their export from the process.
//!
//! It turns the events that the engine reports to its observers into spans (observability §4 to §6), gives every log
//! record of an invocation its ids (§7), and measures calls of models where that is asked for (§11). It imports `dormouse-engine`, `dormouse-harness` and `dormouse-ports`; nothing
//! below the composition roots imports it. It must not know AWS or HTTP routes, and it reads no configuration but the
//! variables of OpenTelemetry, where it is asked to.
//!
//! # Invariants
//! - The providers are private: the global ones are neither set nor read (§6).
//! - The id of a node's span follows from the invocation's root span and the node's position, so that a log record
//!   names its span although observers receive its events later.
//! - Nothing is exported in the background: finished spans, records and measurements wait until [`Telemetry::flush`]. A
//!   process that is frozen between requests therefore loses nothing that it was given time for.

#![warn(missing_docs)]

mod attributes;
mod filter;
mod logs;
mod metrics;
mod observer;
#[cfg(feature = "otlp")]
mod otlp;
mod outbox;
mod place;
mod telemetry;
mod trace;
mod tree;
mod turn;

pub use attributes::{IMPLEMENTATION, SPEC_VERSION};
pub use filter::without_verbatim;
pub use observer::SpanObserver;
pub use outbox::ExportError;
pub use telemetry::{LogBridge, LogRecord, Telemetry};
pub use tree::Detached;
pub use turn::TurnSpans;
