//! Measurements of calls of models (observability §11).

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dormouse_engine::{Operation, TokenBudget};
use dormouse_ports::AttributeValue;
use dormouse_ports::model::Usage;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, MeterProvider};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Temporality};

/// Name of the operations that are measured: attempts at a call of a model.
pub(crate) const COMPLETION: &str = "openarmature.llm.complete";

/// Attributes that tell the tokens of a request and of its answer.
const PROMPT_TOKENS: &str = "openarmature.llm.usage.prompt_tokens";
const COMPLETION_TOKENS: &str = "openarmature.llm.usage.completion_tokens";

/// Bounds of the buckets of tokens, and of seconds (§11.2).
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Bounds of the buckets of the use of a budget; above 1 it is exceeded.
const RATIOS: [f64; 11] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0];
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The instruments, and what was measured since it was collected last. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    tokens: Histogram<u64>,
    durations: Histogram<f64>,
    budgets: Histogram<f64>,
    exceeded: Counter<u64>,
    reader: Arc<ManualReader>,
    /// It holds what the instruments record.
    _provider: SdkMeterProvider,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A reader that two have.
#[derive(Debug)]
struct SharedReader(Arc<ManualReader>);

impl MetricReader for SharedReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, into: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(into)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

impl Metrics {
    /// Instruments of the service `resource`.
    pub(crate) fn new(resource: Resource) -> Self {
        // A process is short-lived, and of one function there are many: each tells what was added since it told last.
        let reader = Arc::new(ManualReader::builder().with_temporality(Temporality::Delta).build());
        let provider =
            SdkMeterProvider::builder().with_resource(resource).with_reader(SharedReader(reader.clone())).build();
        let meter = provider.meter("dormouse");
        let tokens = meter.u64_histogram("openarmature.gen_ai.client.token.usage");
        let durations = meter.f64_histogram("openarmature.gen_ai.client.operation.duration");
        let budgets = meter.f64_histogram("openarmature.gen_ai.client.token_budget.utilization");
        let exceeded = meter.u64_counter("openarmature.gen_ai.client.token_budget.exceeded");
        Self {
            tokens: tokens.with_unit("{token}").with_boundaries(TOKENS.to_vec()).build(),
            durations: durations.with_unit("s").with_boundaries(SECONDS.to_vec()).build(),
            budgets: budgets.with_unit("1").with_boundaries(RATIOS.to_vec()).build(),
            exceeded: exceeded.with_unit("{call}").build(),
            reader,
            _provider: provider,
        }
    }

    /// Measures an operation that has ended. Only calls of models are measured.
    pub(crate) fn record(&self, operation: &Operation) {
        if operation.name != COMPLETION {
            return;
        }
        let mut dimensions = vec![KeyValue::new("openarmature.gen_ai.operation", "chat")];
        dimensions.extend(text(operation, "openarmature.llm.model").map(|t| KeyValue::new("gen_ai.request.model", t)));
        dimensions.extend(text(operation, "gen_ai.system").map(|text| KeyValue::new("gen_ai.system", text)));
        for (kind, counter) in [("input", PROMPT_TOKENS), ("output", COMPLETION_TOKENS)] {
            if let Some(tokens) = count(operation, counter) {
                let kind = KeyValue::new("openarmature.gen_ai.token.type", kind);
                self.tokens.record(tokens, &[&dimensions[..], &[kind]].concat());
            }
        }
        self.record_budget(operation, &dimensions);
        dimensions.extend(operation.error.as_ref().map(|error| KeyValue::new("error.type", error.kind.clone())));
        let took = operation.ended.duration_since(operation.started).as_secs_f64();
        self.durations.record(took.max(0.0), &dimensions);
    }

    /// Measures the use of each bound of a prompt whose counter was reported (§11.2).
    fn record_budget(&self, operation: &Operation, dimensions: &[KeyValue]) {
        let budget = TokenBudget {
            input_max_tokens: count(operation, "openarmature.prompt.token_budget.input_max_tokens"),
            total_max_tokens: count(operation, "openarmature.prompt.token_budget.total_max_tokens"),
        };
        let usage = Usage {
            prompt_tokens: count(operation, PROMPT_TOKENS),
            completion_tokens: count(operation, COMPLETION_TOKENS),
            total_tokens: count(operation, "openarmature.llm.usage.total_tokens"),
            ..Usage::default()
        };
        for (kind, used, most) in budget.used_by(&usage) {
            let dimensions = [dimensions, &[KeyValue::new("openarmature.gen_ai.token_budget.kind", kind)]].concat();
            // There is no share of nothing.
            if most > 0 {
                #[expect(clippy::cast_precision_loss, reason = "a ratio of tokens")]
                self.budgets.record(used as f64 / most as f64, &dimensions);
            }
            if used > most {
                self.exceeded.add(1, &dimensions);
            }
        }
    }

    /// What was measured since it was collected last; empty where there was nothing.
    pub(crate) fn collect(&self) -> ResourceMetrics {
        let mut collected = ResourceMetrics::default();
        if let Err(error) = self.reader.collect(&mut collected) {
            tracing::warn!(%error, "measurements could not be collected");
        }
        collected
    }
}

fn attribute<'o>(operation: &'o Operation, name: &str) -> Option<&'o AttributeValue> {
    operation.attributes.iter().find(|(of, _)| *of == name).map(|(_, value)| value)
}

fn text(operation: &Operation, name: &str) -> Option<String> {
    let AttributeValue::Text(text) = attribute(operation, name)? else { return None };
    Some(text.clone())
}

fn count(operation: &Operation, name: &str) -> Option<u64> {
    let AttributeValue::Integer(number) = attribute(operation, name)? else { return None };
    u64::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ScopeMetrics};

    use super::*;

    #[test]
    fn a_budget_that_is_a_little_exceeded_is_told_from_one_that_is_clearly_exceeded() {
        let metrics = Metrics::new(Resource::builder_empty().build());
        for used in [105, 120] {
            let operation = Operation {
                name: COMPLETION,
                is_remote: true,
                attributes: vec![
                    (PROMPT_TOKENS, AttributeValue::Integer(used)),
                    ("openarmature.prompt.token_budget.input_max_tokens", AttributeValue::Integer(100)),
                ],
                error: None,
                started: Timestamp::UNIX_EPOCH,
                ended: Timestamp::UNIX_EPOCH,
            };
            metrics.record(&operation);
        }
        let measured = metrics.collect();
        let mut all = measured.scope_metrics().flat_map(ScopeMetrics::metrics);
        let shares = all.find(|metric| metric.name().ends_with("token_budget.utilization")).expect("a budget");
        let AggregatedMetrics::F64(MetricData::Histogram(shares)) = shares.data() else { panic!("no histogram") };
        let point = shares.data_points().next().expect("a point");
        let counts: Vec<u64> = point.bucket_counts().collect();
        assert_eq!(counts.iter().filter(|count| **count > 0).count(), 2, "{counts:?}");
    }
}
