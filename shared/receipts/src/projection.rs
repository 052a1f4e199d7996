//! What the receipts of a task and of its exact replay have in common: all that the task came to, and nothing of when,
//! under which ids and in which place of the chain it was told.

use serde_json::Value;

use crate::{Flaw, Map, canonical};

/// Fields that differ between two runs of the same, by the part of the receipt that they are in.
const OWN: [(&str, &[&str]); 9] = [
    ("", &["receipt_id", "issued_at", "chain", "signatures"]),
    ("subject", &["id"]),
    ("identifiers", &["task_id", "trace_id"]),
    ("lifecycle", &["created_at", "started_at", "completed_at"]),
    ("autonomy_budget/consumed", &["wall_time_ms"]),
    ("replay_input", &["determinism"]),
    ("metadata", &["replay", "parent_task_id"]),
    // Of each of them.
    ("approvals", &["approval_id", "decided_at"]),
    ("final_artifacts", &["artifact_id", "uri"]),
];

/// `receipt` without what differs between a run and its exact replay: ids of receipt, task, artifacts and approvals, every
/// time and duration, the place in the chain, signatures, and what only one of the two says of replays.
pub fn projection(receipt: &Map) -> Map {
    let mut projected = Value::Object(receipt.clone());
    for (path, names) in OWN {
        let mut steps = path.split('/').filter(|step| !step.is_empty());
        let found = steps.try_fold(&mut projected, |value, step| value.get_mut(step));
        if let Some(found) = found {
            remove(found, names);
        }
    }
    match projected {
        Value::Object(projected) => projected,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// The hash of the [`projection`] of `receipt`: the same for a task and for its exact replay.
///
/// # Errors
/// As [`canonical::bytes`].
pub fn projection_hash(receipt: &Map) -> Result<String, Flaw> {
    canonical::digest(&Value::Object(projection(receipt)))
}

/// Removes the fields `names` of an object, or of each object of a list.
fn remove(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => fields.retain(|name, _| !names.contains(&name.as_str())),
        Value::Array(parts) => parts.iter_mut().for_each(|part| remove(part, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(task: &str, end: &str) -> Map {
        let receipt = json!({
            "receipt_id": format!("receipt_{task}"),
            "subject": { "object": "task", "id": task },
            "identifiers": { "task_id": task, "session_id": "session_1" },
            "lifecycle": { "started_at": format!("at {task}"), "final_state": end },
            "approvals": [{ "approval_id": task, "decision": "approved" }],
            "final_artifacts": [{ "artifact_id": task, "sha256": "sha256:00" }],
            "chain": { "receipt_hash": task },
        });
        receipt.as_object().cloned().expect("an object")
    }

    #[test]
    fn ids_and_times_do_not_matter_and_what_came_of_it_does() {
        let hash = |task, end| projection_hash(&receipt(task, end)).expect("a hash");
        assert_eq!(hash("task_1", "SUCCEEDED"), hash("task_2", "SUCCEEDED"));
        assert_ne!(hash("task_1", "SUCCEEDED"), hash("task_1", "FAILED"));
        let projected = Value::Object(projection(&receipt("task_1", "SUCCEEDED")));
        assert_eq!(projected["approvals"], json!([{ "decision": "approved" }]));
        assert_eq!(projected["final_artifacts"], json!([{ "sha256": "sha256:00" }]));
        assert_eq!(projected["subject"], json!({ "object": "task" }));
    }
}
