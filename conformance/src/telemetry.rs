//! Spans and log records of a case, kept in memory (conformance-adapter §6.3).

use std::future::Future;

use dormouse_otel::{Detached, LogRecord, SpanObserver, Telemetry};
use dormouse_ports::Map;
use indexmap::IndexMap;
use opentelemetry::KeyValue;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Histogram, Metric, MetricData, ScopeMetrics};
use opentelemetry_sdk::trace::SpanData;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;
use tracing_subscriber::layer::SubscriberExt;

use crate::observers::ObserverSpec;

/// The `tracing` target of what the nodes of fixtures log; nothing else counts as a log record of the case.
pub(crate) const NODE_LOG: &str = "fixture";

/// The providers of a case: one for each observer that makes spans. Empty where nobody asks for any.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    providers: IndexMap<String, Telemetry>,
    logs: Option<Dispatch>,
}

/// What came out of them during one invocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captured {
    /// By the name of the observer, in the order in which they ended.
    pub(crate) spans: IndexMap<String, Vec<SpanData>>,
    /// What nodes logged, in order.
    pub(crate) logs: Vec<LogRecord>,
    /// What the first of them measured.
    pub(crate) measured: Vec<Measured>,
}

/// The observations of an instrument that have the same dimensions.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) instrument: String,
    pub(crate) dimensions: Map,
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

fn dimensions<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> Map {
    attributes.map(|attribute| (attribute.key.to_string(), attribute.value.to_string().into())).collect()
}

/// What was measured by an instrument. Ours are histograms, and counters.
fn points(metric: &Metric) -> Vec<Measured> {
    fn all<T: Copy>(metric: &Metric, histogram: &Histogram<T>, sum: impl Fn(T) -> f64) -> Vec<Measured> {
        let points = histogram.data_points().map(|point| Measured {
            instrument: metric.name().to_owned(),
            dimensions: dimensions(point.attributes()),
            count: point.count(),
            sum: sum(point.sum()),
        });
        points.collect()
    }
    #[expect(clippy::cast_precision_loss, reason = "tokens of a fixture")]
    match metric.data() {
        AggregatedMetrics::U64(MetricData::Sum(counts)) => {
            let points = counts.data_points().map(|point| Measured {
                instrument: metric.name().to_owned(),
                dimensions: dimensions(point.attributes()),
                count: 1,
                sum: point.value() as f64,
            });
            points.collect()
        }
        AggregatedMetrics::U64(MetricData::Histogram(histogram)) => all(metric, histogram, |sum| sum as f64),
        AggregatedMetrics::F64(MetricData::Histogram(histogram)) => all(metric, histogram, |sum| sum),
        AggregatedMetrics::U64(_) | AggregatedMetrics::F64(_) | AggregatedMetrics::I64(_) => Vec::new(),
    }
}

impl Capture {
    /// Providers for those of the observers that make spans, with what is `detached` in traces of its own.
    pub(crate) fn of(observers: impl Iterator<Item = ObserverSpec>, detached: &Detached, measures: bool) -> Self {
        let telemetry = || {
            let telemetry = Telemetry::in_memory().detaching(detached.clone());
            if measures { telemetry.measuring() } else { telemetry }
        };
        let named = |observer: ObserverSpec| Some((observer.span_maker()?.to_owned(), telemetry()));
        let providers: IndexMap<String, Telemetry> = observers.filter_map(named).collect();
        let bridge = |telemetry: &Telemetry| Dispatch::new(tracing_subscriber::registry().with(telemetry.log_bridge()));
        let logs = providers.first().map(|(_, telemetry)| bridge(telemetry));
        Self { providers, logs }
    }

    /// What makes the spans of the observer `name`.
    pub(crate) fn observer(&self, name: &str) -> Option<SpanObserver> {
        self.providers.get(name).map(Telemetry::observer)
    }

    /// The first of the providers.
    pub(crate) fn first(&self) -> Option<&Telemetry> {
        self.providers.first().map(|(_, telemetry)| telemetry)
    }

    /// Runs `work` so that what it logs is kept.
    pub(crate) async fn around<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.logs {
            Some(logs) => work.with_subscriber(logs.clone()).await,
            None => work.await,
        }
    }

    /// What was made since the last time.
    pub(crate) fn take(&self) -> Captured {
        let spans = self.providers.iter().map(|(name, telemetry)| (name.clone(), telemetry.spans())).collect();
        let mut logs = self.first().map_or_else(Vec::new, Telemetry::logs);
        logs.retain(|(record, _)| record.target().is_some_and(|target| target == NODE_LOG));
        self.providers.values().for_each(Telemetry::clear);
        let measured = self.first().map(Telemetry::take_measurements).unwrap_or_default();
        let measured = measured.scope_metrics().flat_map(ScopeMetrics::metrics).flat_map(points).collect();
        Captured { spans, logs, measured }
    }
}
