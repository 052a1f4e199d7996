use dormouse_ports::tool::{ToolCall, ToolError};
use dormouse_ports::{FetchLimits, FetchRequest, Map, Method, Secret};
use serde_json::Value;

use super::HttpTool;
use super::address;
use crate::Values;
use crate::failure::unresolved;
use crate::text::{encode, secret_in_address};

/// The request that makes `call`.
///
/// # Errors
/// An argument cannot stand in the address, or a reference leads nowhere. No request was made.
pub(super) async fn build(tool: &HttpTool, call: &ToolCall, values: &Values) -> Result<FetchRequest, ToolError> {
    let names = tool.url.arguments();
    let filled = address::values(&names, &call.arguments)?;
    address::fits(&tool.url, &filled)?;
    let url = tool.url.resolve_around(&values.lookup(), &|text| address::fill(text, &filled), &secret_in_address).await;
    let url = url.map_err(|error| unresolved(&error))?;
    let rest: Map = call.arguments.clone().into_iter().filter(|(name, _)| !names.contains(name)).collect();
    let mut request = FetchRequest::new(tool.method, url.expose()).header("accept", "application/json, */*;q=0.5");
    for (name, value) in &tool.headers {
        request = request.header(name, values.resolve(value).await.map_err(|error| unresolved(&error))?);
    }
    request = request.header("idempotency-key", call.idempotency_key.as_str());
    if let Some(callback) = &call.callback {
        request = request.header("dormouse-callback-url", Secret::new(&callback.url));
    }
    request.limits = limits(tool);
    Ok(match tool.method {
        Method::Get | Method::Delete => FetchRequest { url: with_query(&request.url, &rest), ..request },
        Method::Post | Method::Put | Method::Patch => request.json(Value::Object(rest).to_string().into_bytes()),
    })
}

fn limits(tool: &HttpTool) -> FetchLimits {
    let default = FetchLimits::default();
    let total = tool.spec.timeout.unwrap_or(default.total);
    FetchLimits { total, idle: total, most_bytes: tool.most_bytes }
}

/// `url` with `arguments` behind its query. The values of a list are repeated under its name; an object is JSON.
fn with_query(url: &str, arguments: &Map) -> String {
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let mut url = url.to_owned();
    for (name, value) in arguments.iter().flat_map(|(name, value)| flat(name, value)) {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&format!("{}={}", encode(name), encode(&value)));
    }
    match fragment {
        Some(fragment) => format!("{url}#{fragment}"),
        None => url,
    }
}

fn flat<'n>(name: &'n str, value: &Value) -> Vec<(&'n str, String)> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().map(|value| (name, plain(value))).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => vec![(name, plain(value))],
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
