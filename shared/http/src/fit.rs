//! Answers are no longer than can be sent. What they report has happened by then, so that some answer is needed: one
//! that is too long reports everything but its largest fields, and how large those are.

use dormouse_ports::limits::ANSWER;
use serde_json::{Value, json};

use crate::reply::TurnReply;
use crate::said::FieldOmitted;

/// Suffix of the name of a field that stands for one that was left out.
pub(crate) const OMITTED: &str = "_omitted";
/// Help text for an answer at an address where fields of a state can be asked for.
const ASK_FOR_FIELDS: &str =
    "too large for one answer: ask status_url for some fields of the state, with &fields=NAME,NAME";
const NOT_KEPT: &str = "too large for one answer, and kept nowhere else: keep large data elsewhere and a reference in the \
    state, or begin with an invocation_id or an Idempotency-Key, under which the state can be asked for by its fields";

impl TurnReply {
    /// The same, as far as it can be sent. Instead of each field `name` that is left out, the largest first, stands
    /// `name_omitted`: `{"bytes", "help"}`, its size as JSON and what to do.
    pub(crate) fn fit(mut self) -> Self {
        let Self { status, body, .. } = &mut self;
        while bytes_of(body) > ANSWER {
            let Some(fields) = body.as_object_mut() else { break };
            let told = fields.iter().filter(|(name, _)| !name.ends_with(OMITTED));
            let sizes = told.map(|(name, value)| (bytes_of(value), name.clone()));
            let Some((bytes, name)) = sizes.max() else { break };
            fields.shift_remove(&name);
            tracing::warn!(status, field = name, bytes, "an answer is too long and leaves a field out");
            let help = if fields.contains_key("status_url") { ASK_FOR_FIELDS } else { NOT_KEPT };
            fields.insert(format!("{name}{OMITTED}"), json!(FieldOmitted { bytes, help }));
        }
        self
    }
}

/// The size of `value` as JSON. A [`Value`] always is JSON.
fn bytes_of(value: &Value) -> usize {
    dormouse_json::length(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_leaves_out_as_little_as_it_can() {
        let large = "x".repeat(ANSWER / 2 + 100);
        let small = "y".repeat(100);
        let body =
            json!({ "status": "completed", "status_url": "/", "replies": [large], "state": [large, 1], "note": small });
        let fit = TurnReply::new(200, body).fit().body;
        assert_eq!(fit["state_omitted"], json!({ "bytes": large.len() + 6, "help": ASK_FOR_FIELDS }));
        assert_eq!((&fit["state"], &fit["note"], &fit["replies"][0]), (&Value::Null, &json!(small), &json!(large)));
        let one = TurnReply::new(200, json!({ "status": "completed", "state": "x".repeat(ANSWER - 31) }));
        assert_eq!(
            (bytes_of(&one.body), one.clone().fit()),
            (
                ANSWER + 2,
                TurnReply::new(
                    200,
                    json!({
                        "status": "completed", "state_omitted": { "bytes": ANSWER - 29, "help": NOT_KEPT },
                    })
                )
            )
        );
        let fits = TurnReply::new(200, json!({ "status": "completed", "state": "x".repeat(ANSWER - 33) }));
        assert_eq!((bytes_of(&fits.body), fits.clone().fit()), (ANSWER, fits));
    }
}
