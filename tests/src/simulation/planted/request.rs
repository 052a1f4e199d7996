use serde_json::Value;

use super::PlantedBug;
use crate::in_process::Body;
use crate::simulation::dynamodb::Engine;

/// What `database` does and says where `bug` was put in.
pub(crate) fn serve(database: &Engine, bug: Option<PlantedBug>, operation: &str, body: &[u8]) -> (u16, Body) {
    match (bug, operation) {
        (Some(PlantedBug::TearTransaction), "TransactWriteItems") => {
            let torn = changed(body, |request| {
                if let Some(items) = request["TransactItems"].as_array_mut() {
                    items.truncate(items.len().div_ceil(2));
                }
            });
            database.obey(operation, &torn)
        }
        (Some(PlantedBug::KeepOrphans), "DeleteItem") if lies_apart(body) => (200, b"{}".to_vec()),
        (Some(PlantedBug::ForgetOwners), "Scan") => {
            let (status, answer) = database.obey(operation, body);
            let forgotten = changed(&answer, |answer| {
                for item in answer["Items"].as_array_mut().into_iter().flatten() {
                    if item.get("owners").is_some() {
                        item["owners"]["S"] = "[]".into();
                    }
                }
            });
            (status, forgotten)
        }
        _ => database.obey(operation, body),
    }
}

/// Whether the request is about something that lies apart from the record that refers to it, or about a row of a list or
/// feed, which is written ahead of what it lists. That record may be written by a request of its own, and name what lies
/// apart.
pub(crate) fn lies_apart(body: &[u8]) -> bool {
    let apart = |pk: &str| ["BLOB#", "LIST#", "FEED#"].iter().any(|kind| pk.starts_with(kind));
    key(body).is_some_and(|(pk, sk)| apart(&pk) || sk.starts_with("SEGMENT#"))
}

/// The key of the one item that the request is about.
pub(crate) fn key(body: &[u8]) -> Option<(String, String)> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let item = request.get("Item").or_else(|| request.get("Key"))?;
    let part = |name: &str| item[name]["S"].as_str().map(str::to_owned);
    Some((part("pk")?, part("sk")?))
}

fn changed(body: &[u8], change: impl FnOnce(&mut Value)) -> Body {
    let mut value = serde_json::from_slice(body).unwrap_or_default();
    change(&mut value);
    value.to_string().into_bytes()
}
