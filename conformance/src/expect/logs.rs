//! Assertions over log records (observability §7).

use dormouse_otel::LogRecord;
use dormouse_ports::Map;
use opentelemetry::logs::AnyValue;
use serde_json::Value;

use super::{attributes, differs, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;

/// `log_records`: as many as nodes logged, in order. The ids of the span are attributes here.
pub(super) fn all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let Some(expected) = expected.as_array() else {
        return Err(Failure::invalid(format!("log_records must be a list, not {expected}")));
    };
    let logs = &seen.captured.logs;
    if expected.len() != logs.len() {
        return Err(differs(format!("{} log records", expected.len()), bodies(logs)));
    }
    expected.iter().zip(logs).enumerate().try_for_each(|(index, (wanted, record))| {
        one(wanted, record, seen).map_err(|failure| failure.within(&format!("[{index}]")))
    })
}

fn one(wanted: &Value, record: &LogRecord, seen: &Evidence) -> Result<(), Failure> {
    let mut wanted = Directives::new("log_records", wanted)?;
    let actual = map(record);
    for (key, value) in [
        ("body", record.0.body().map_or(Value::Null, json)),
        ("level", record.0.severity_text().map_or(Value::Null, Value::from)),
        ("severity", record.0.severity_text().map_or(Value::Null, Value::from)),
        ("trace_id", actual.get("trace_id").cloned().unwrap_or_default()),
        ("span_id", actual.get("span_id").cloned().unwrap_or_default()),
    ] {
        if let Some(wanted) = wanted.given(key) {
            same(wanted, &value, seen).map_err(|failure| failure.within(key))?;
        }
    }
    attributes::check(&mut wanted, &actual, seen)?;
    wanted.done()
}

pub(super) fn map((record, _): &LogRecord) -> Map {
    let own = record.attributes_iter().map(|(key, value)| (key.to_string(), json(value)));
    let mut all: Map = own.collect();
    if let Some(context) = record.trace_context() {
        all.insert("trace_id".to_owned(), context.trace_id.to_string().into());
        all.insert("span_id".to_owned(), context.span_id.to_string().into());
    }
    all
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is open; a fixture logs nothing else")]
fn json(value: &AnyValue) -> Value {
    match value {
        AnyValue::Int(value) => (*value).into(),
        AnyValue::Double(value) => (*value).into(),
        AnyValue::String(text) => text.as_str().into(),
        AnyValue::Boolean(value) => (*value).into(),
        AnyValue::ListAny(items) => items.iter().map(json).collect(),
        other => format!("{other:?}").into(),
    }
}

fn bodies(logs: &[LogRecord]) -> Value {
    logs.iter().map(|(record, _)| record.body().map_or(Value::Null, json)).collect()
}
