use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::Observer;
use dormouse_harness::{TraceExporter, TurnTracer};
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider;
use opentelemetry_appender_tracing::layer::{OpenTelemetryTracingBridge, TracingSpanAttributes};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{SdkLogRecord, SdkLogger, SdkLoggerProvider};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanData};

use crate::logs::Correlation;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::trace::ChosenIds;
use crate::{Detached, ExportError, SpanObserver, TurnSpans};

/// A layer for `tracing-subscriber` that makes a log record of every event.
pub type LogBridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// A log record and the scope that made it.
pub type LogRecord = (SdkLogRecord, InstrumentationScope);

/// The variable that names the collector.
#[cfg(feature = "otlp")]
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// What the span around a request tells of it, and so each log record from inside.
const OF_REQUEST: [&str; 4] = ["request_id", "method", "route", "operation"];

/// Spans and log records of this process, on providers of their own (observability §6). Cheap to clone.
#[derive(Clone)]
pub struct Telemetry(Arc<TelemetryParts>);

struct TelemetryParts {
    observer: SpanObserver,
    tracer: SdkTracer,
    logger: SdkLoggerProvider,
    outboxes: Outboxes,
    detached: Arc<Detached>,
    metrics: Option<Metrics>,
    #[cfg(feature = "otlp")]
    collector: Option<Arc<crate::otlp::Collector>>,
}

/// Spans and log records that wait to be sent.
#[derive(Clone, Debug, Default)]
struct Outboxes {
    spans: Outbox<SpanData>,
    logs: Outbox<LogRecord>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("outboxes", &self.0.outboxes).finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Keeps everything, for tests.
    pub fn in_memory() -> Self {
        Self::new(
            Outboxes::default(),
            Arc::default(),
            None,
            #[cfg(feature = "otlp")]
            None,
        )
    }

    /// Sends everything to the collector at `endpoint`, the base address of OTLP over HTTP, for example
    /// `http://127.0.0.1:4318`. The `OTEL_EXPORTER_OTLP_HEADERS` of the process are added to each request.
    ///
    /// # Errors
    /// The address is invalid, or is not plain `http`: the collector runs beside the process.
    #[cfg(feature = "otlp")]
    pub fn otlp(endpoint: &str, service_name: &str) -> Result<Self, ExportError> {
        let collector = Arc::new(crate::otlp::Collector::new(endpoint, service_name)?);
        Ok(Self::new(Outboxes::default(), Arc::default(), None, Some(collector)))
    }

    /// Telemetry that is sent to the collector that the environment names; `None` when it names none.
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `OTEL_EXPORTER_OTLP_ENDPOINT` | base address of OTLP over HTTP, for example `http://127.0.0.1:4318` |
    /// | `OTEL_EXPORTER_OTLP_HEADERS` | headers of each request, `name=value`, with commas between |
    /// | `OTEL_SERVICE_NAME` | the name of this service; without it the name of the function, or `dormouse` |
    /// | `OTEL_METRICS_EXPORTER` | `otlp`: calls of models are measured as well |
    ///
    /// # Errors
    /// The address cannot be used.
    #[cfg(feature = "otlp")]
    pub fn from_env() -> Result<Option<Self>, ExportError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let Some(endpoint) = variable(ENDPOINT) else { return Ok(None) };
        let service = variable("OTEL_SERVICE_NAME").or_else(|| variable("AWS_LAMBDA_FUNCTION_NAME"));
        let telemetry = Self::otlp(endpoint.trim(), service.as_deref().unwrap_or("dormouse"));
        let telemetry = telemetry.map_err(|ExportError(reason)| ExportError(format!("{ENDPOINT}: {reason}")))?;
        let measures = variable("OTEL_METRICS_EXPORTER").is_some_and(|exporter| exporter.trim() == "otlp");
        Ok(Some(if measures { telemetry.measuring() } else { telemetry }))
    }

    /// The same telemetry, but the parts that `detached` names get traces of their own. Observer and log bridge must be
    /// taken from the same one; the outboxes are shared with this one.
    #[must_use]
    pub fn detaching(&self, detached: Detached) -> Self {
        Self::new(
            self.0.outboxes.clone(),
            Arc::new(detached),
            self.0.metrics.clone(),
            #[cfg(feature = "otlp")]
            self.0.collector.clone(),
        )
    }

    /// The same telemetry, which measures calls of models as well (observability §11). Observer must be taken from this one.
    #[must_use]
    pub fn measuring(&self) -> Self {
        #[cfg(feature = "otlp")]
        let resource = self.0.collector.as_ref().map(|collector| collector.resource());
        #[cfg(not(feature = "otlp"))]
        let resource = None;
        let resource = resource.unwrap_or_else(|| Resource::builder_empty().build());
        Self::new(
            self.0.outboxes.clone(),
            self.0.detached.clone(),
            Some(Metrics::new(resource)),
            #[cfg(feature = "otlp")]
            self.0.collector.clone(),
        )
    }

    fn new(
        outboxes: Outboxes,
        detached: Arc<Detached>,
        metrics: Option<Metrics>,
        #[cfg(feature = "otlp")] collector: Option<Arc<crate::otlp::Collector>>,
    ) -> Self {
        let provider = SdkTracerProvider::builder()
            .with_span_processor(outboxes.spans.clone())
            .with_id_generator(ChosenIds::default())
            // The sampling of a trace is decided where it begins; one that begins here is sampled.
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
            .build();
        let logger = SdkLoggerProvider::builder()
            .with_log_processor(Correlation { detached: detached.clone() })
            .with_log_processor(outboxes.logs.clone())
            .build();
        let tracer = provider.tracer("dormouse");
        Self(Arc::new(TelemetryParts {
            observer: SpanObserver::new(tracer.clone(), detached.clone(), metrics.clone()),
            tracer,
            logger,
            outboxes,
            detached,
            metrics,
            #[cfg(feature = "otlp")]
            collector,
        }))
    }

    /// Makes the spans of invocations; attach it to graphs or to a call.
    pub fn observer(&self) -> SpanObserver {
        self.0.observer.clone()
    }

    /// Makes the spans of turns; give it to a harness.
    pub fn turns(&self) -> TurnSpans {
        TurnSpans::new(self.0.tracer.clone())
    }

    /// Makes log records of `tracing` events, which name the request that they are of; add it to the subscriber of the process or
    /// of a test.
    pub fn log_bridge(&self) -> LogBridge {
        let of_request = TracingSpanAttributes::allowlist(OF_REQUEST);
        OpenTelemetryTracingBridge::builder(&self.0.logger).with_tracing_span_attributes(of_request).build()
    }

    /// The spans that have ended and wait, in the order in which they ended.
    pub fn spans(&self) -> Vec<SpanData> {
        self.0.outboxes.spans.snapshot()
    }

    /// The log records that wait, in order.
    pub fn logs(&self) -> Vec<LogRecord> {
        self.0.outboxes.logs.snapshot()
    }

    /// What was measured since the last time; nothing, unless it [measures](Self::measuring).
    pub fn take_measurements(&self) -> ResourceMetrics {
        self.0.metrics.as_ref().map(Metrics::collect).unwrap_or_default()
    }

    /// Forgets the waiting spans and log records.
    pub fn clear(&self) {
        self.0.outboxes.spans.take();
        self.0.outboxes.logs.take();
    }

    /// Sends the waiting spans, log records and measurements. Without a collector they keep waiting. The caller bounds the
    /// time; those that are on their way when the future is dropped are gone.
    ///
    /// # Errors
    /// The collector did not take them.
    pub async fn flush(&self) -> Result<(), ExportError> {
        #[cfg(feature = "otlp")]
        if let Some(collector) = &self.0.collector {
            let measured = self.0.metrics.as_ref().map(Metrics::collect);
            return collector.send(self.0.outboxes.spans.take(), self.0.outboxes.logs.take(), measured).await;
        }
        Ok(())
    }
}

#[async_trait]
impl TraceExporter for Telemetry {
    fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(self.observer())
    }

    fn turn_tracer(&self) -> Arc<dyn TurnTracer> {
        Arc::new(self.turns())
    }

    async fn flush(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.flush().await?)
    }
}
