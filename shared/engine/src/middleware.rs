//! The canonical middleware (pipeline-utilities §6).
//!
//! Middleware is listed from the outside in. "Try again what is transient, and live with the rest" is
//! [`FailureIsolation`] around [`Retry`]: the other way round isolation would catch what retry is for.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dormouse_engine::middleware::{FailureIsolation, Jitter, Retry};
//! use dormouse_engine::{END, Graph, Update};
//! use dormouse_ports::Clock;
//!
//! dormouse_engine::state! {
//!     #[derive(Clone, Debug, Default)]
//!     struct Page {
//!         summary: String,
//!     }
//! }
//!
//! # fn graph(clock: Arc<dyn Clock>, jitter: Jitter) -> Result<(), dormouse_engine::EngineError> {
//! let degraded = Update::none().with("summary", "(no summary)");
//! let graph = Graph::<Page>::new("page")
//!     .entry("summarise")
//!     .node("summarise", async |()| Ok(Update::none()))
//!     .wrap("summarise", Arc::new(FailureIsolation::with("summary_failed", degraded)))
//!     .wrap("summarise", Arc::new(Retry::new(clock, jitter).max_attempts(5)))
//!     .edge("summarise", END)
//!     .compile()?;
//! # Ok(())
//! # }
//! ```
//!
//! None of them sees a suspension or a cancellation: the engine drops the node's future together with its middleware.

mod isolation;
mod retry;
mod timing;

use std::sync::Arc;

use futures::future::BoxFuture;

pub use isolation::FailureIsolation;
pub use retry::{Jitter, Retry, full_jitter, is_transient, jitter_from};
pub use timing::{Timing, TimingOutcome, TimingRecord};

use crate::NodeError;

/// Result of a middleware's callback; an error counts as raised by the middleware.
pub type Told<'t> = BoxFuture<'t, Result<(), NodeError>>;

type OnError<A> = Arc<dyn for<'e> Fn(&'e NodeError, A) -> Told<'e> + Send + Sync>;
