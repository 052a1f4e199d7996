//! The way out: OTLP over HTTP to a collector beside the process.

use std::fmt;

use opentelemetry_otlp::{LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter as _;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use crate::{ExportError, LogRecord};

/// Exporters of spans, log records and measurements.
pub(crate) struct Collector {
    spans: SpanExporter,
    logs: LogExporter,
    metrics: MetricExporter,
    resource: Resource,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

impl Collector {
    pub(crate) fn new(endpoint: &str, service_name: &str) -> Result<Self, ExportError> {
        if !endpoint.starts_with("http://") {
            return Err(ExportError(format!(
                "`{endpoint}` does not begin with http://: name a collector on this machine, http://127.0.0.1:4318 for example, \
                 which sends on what it is given"
            )));
        }
        let base = endpoint.trim_end_matches('/');
        let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let mut spans = builder.with_endpoint(format!("{base}/v1/traces")).build().map_err(refused)?;
        let builder = LogExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let mut logs = builder.with_endpoint(format!("{base}/v1/logs")).build().map_err(refused)?;
        let builder = MetricExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let builder = builder.with_temporality(Temporality::Delta);
        let metrics = builder.with_endpoint(format!("{base}/v1/metrics")).build().map_err(refused)?;
        let resource = Resource::builder().with_service_name(service_name.to_owned()).build();
        spans.set_resource(&resource);
        logs.set_resource(&resource);
        Ok(Self { spans, logs, metrics, resource })
    }

    /// What all of it is about.
    pub(crate) fn resource(&self) -> Resource {
        self.resource.clone()
    }

    pub(crate) async fn send(
        &self,
        spans: Vec<SpanData>,
        logs: Vec<LogRecord>,
        measured: Option<ResourceMetrics>,
    ) -> Result<(), ExportError> {
        let spans_sent = if spans.is_empty() { Ok(()) } else { self.spans.export(spans).await };
        let records: Vec<_> = logs.iter().map(|(record, scope)| (record, scope)).collect();
        let logs_sent = if records.is_empty() { Ok(()) } else { self.logs.export(LogBatch::new(&records)).await };
        let measured = measured.filter(|measured| measured.scope_metrics().next().is_some());
        let measured_sent = match &measured {
            Some(measured) => self.metrics.export(measured).await,
            None => Ok(()),
        };
        spans_sent.and(logs_sent).and(measured_sent).map_err(refused)
    }
}

fn refused(error: impl fmt::Display) -> ExportError {
    ExportError(error.to_string())
}
