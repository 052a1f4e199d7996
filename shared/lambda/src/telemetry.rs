//! Structured logs: one JSON object a line.

use dormouse_otel::{Telemetry, without_verbatim};
use tracing_subscriber::layer::{Identity, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// What is worth a line in production.
const USUAL: &str = "info";

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
    let named = ["DORMOUSE_LOG", "RUST_LOG"].into_iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
    let directives = named.as_ref().map_or(USUAL, |(_, directives)| directives.as_str());
    let (filter, unreadable) = filter_of(directives);
    // All spans around a line belong to it: the request, and the invocation with its ids.
    let json =
        tracing_subscriber::fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(true);
    let log = tracing_subscriber::registry().with(bridge).with(filter).with(json);
    if log.try_init().is_err() {
        tracing::debug!("somebody else decides already where the log goes");
    }
    if let (Some(reason), Some((name, _))) = (unreadable, named) {
        tracing::warn!(reason, "{name} cannot be read, and `{USUAL}` counts in its place");
    }
}

/// The filter of `directives`; where they cannot be read the usual one, and why.
fn filter_of(directives: &str) -> (EnvFilter, Option<String>) {
    let (filter, unreadable) = match EnvFilter::try_new(directives) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(USUAL), Some(error.to_string())),
    };
    (without_verbatim(filter, directives), unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_that_cannot_be_read_are_told_and_the_usual_ones_count() {
        for (directives, shown, is_unreadable) in
            [("warn,dormouse_http=debug", "dormouse_http=debug", false), ("dormouse_http=loud", USUAL, true)]
        {
            let (filter, unreadable) = filter_of(directives);
            assert!(filter.to_string().contains(shown), "{directives}: {filter}");
            assert_eq!(unreadable.is_some(), is_unreadable, "{directives}: {unreadable:?}");
        }
    }
}
