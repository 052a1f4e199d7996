//! The way out: OTLP over HTTP to a collector beside the process.

use std::fmt;

use opentelemetry_otlp::{LogExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use crate::{ExportError, LogRecord};

/// Exporters of spans and log records.
pub(crate) struct Collector {
    spans: SpanExporter,
    logs: LogExporter,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

impl Collector {
    pub(crate) fn new(endpoint: &str, service_name: &str) -> Result<Self, ExportError> {
        if !endpoint.starts_with("http://") {
            return Err(ExportError(format!("`{endpoint}` does not begin with http://")));
        }
        let base = endpoint.trim_end_matches('/');
        let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let mut spans = builder.with_endpoint(format!("{base}/v1/traces")).build().map_err(refused)?;
        let builder = LogExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
        let mut logs = builder.with_endpoint(format!("{base}/v1/logs")).build().map_err(refused)?;
        let resource = Resource::builder().with_service_name(service_name.to_owned()).build();
        spans.set_resource(&resource);
        logs.set_resource(&resource);
        Ok(Self { spans, logs })
    }

    pub(crate) async fn send(&self, spans: Vec<SpanData>, logs: Vec<LogRecord>) -> Result<(), ExportError> {
        let spans_sent = if spans.is_empty() { Ok(()) } else { self.spans.export(spans).await };
        let records: Vec<_> = logs.iter().map(|(record, scope)| (record, scope)).collect();
        let logs_sent = if records.is_empty() { Ok(()) } else { self.logs.export(LogBatch::new(&records)).await };
        spans_sent.and(logs_sent).map_err(refused)
    }
}

fn refused(error: impl fmt::Display) -> ExportError {
    ExportError(error.to_string())
}
