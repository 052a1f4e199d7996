//! Structured logs: one JSON object a line.

use dormouse_otel::{Telemetry, without_verbatim};
use tracing_subscriber::layer::{Identity, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Begins to log to standard output: what `DORMOUSE_LOG` or else `RUST_LOG` asks for, in the syntax of
/// `tracing-subscriber`; without them what is worth a line in production. What servers of tools say word by word is logged
/// where a directive names `rmcp`. The same lines go to `exporter` as log
/// records. A second call changes nothing.
pub fn init(exporter: Option<&Telemetry>) {
    start(exporter.map(Telemetry::log_bridge));
}

/// Begins to log to standard output alone.
pub(crate) fn init_without_exporter() {
    start(Identity::new());
}

fn start(bridge: impl Layer<Registry> + Send + Sync) {
    let directives = std::env::var("DORMOUSE_LOG").or_else(|_| std::env::var("RUST_LOG"));
    let directives = directives.as_deref().unwrap_or("info");
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = without_verbatim(filter, directives);
    // All spans around a line belong to it: the request, and the invocation with its ids.
    let json =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(true);
    let log = tracing_subscriber::registry().with(bridge).with(filter).with(json);
    if log.try_init().is_err() {
        tracing::debug!("somebody else decides already where the log goes");
    }
}
