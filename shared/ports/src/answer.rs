//! The rules for the answer to a pause.

mod schema;

use serde_json::Value;

pub use schema::ValueSchema;

use crate::{Map, SignalDescriptor};

/// Key of a descriptor's metadata with the JSON Schema of the answer.
const ACCEPTS: &str = "accepts";
/// Key of a descriptor's metadata with the state field that receives the whole answer.
const INTO: &str = "into";

/// Content and destination of the answer to a pause, as the descriptor's metadata declares them.
///
/// | key | value | meaning |
/// |---|---|---|
/// | `accepts` | a [JSON Schema](ValueSchema) of type `object` | an answer with a field that the schema does not name is refused, as is one that breaks the schema, and an empty one unless the schema names no field |
/// | `into` | the name of a state field | the field receives the whole answer; without this key each field of the answer is laid over the state field of its name |
///
/// A pause with neither key accepts everything: its answer may set every field of the state. Where the pause waits for
/// an `event`, fields that the schema does not name are dropped instead of refused, because an event carries the fields
/// that its sender likes. With `expects` the schema holds for the answer of each part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerRule {
    schema: Option<ValueSchema>,
    into: Option<String>,
    drops_unknown: bool,
}

impl AnswerRule {
    /// The rule that `descriptor` declares.
    ///
    /// # Errors
    /// A sentence that names the wrong key of the metadata and its expected form.
    pub fn of(descriptor: &SignalDescriptor) -> Result<Self, String> {
        let Some(metadata) = &descriptor.metadata else { return Ok(Self::default()) };
        let into = match metadata.get(INTO) {
            None => None,
            Some(Value::String(field)) if !field.is_empty() => Some(field.clone()),
            Some(_) => return Err(format!("`{INTO}` must name a field of the state")),
        };
        if into.is_some() && metadata.contains_key("expects") {
            return Err(format!("`{INTO}` of a pause that expects several signals belongs under `expects`"));
        }
        let schema = metadata.get(ACCEPTS).map(|schema| ValueSchema::of_answer(ACCEPTS, schema)).transpose()?;
        Ok(Self { schema, into, drops_unknown: metadata.contains_key("event") })
    }

    /// True if an answer may set every field of the state.
    pub fn accepts_everything(&self) -> bool {
        self.schema.is_none() && self.into.is_none()
    }

    /// The state fields that an answer may set; empty also when it [may set every field](Self::accepts_everything).
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let named = self.schema.iter().flat_map(ValueSchema::property_names);
        let named = named.filter(|_| self.into.is_none());
        named.chain(self.into.as_deref())
    }

    /// True if the schema names `field`.
    pub fn names(&self, field: &str) -> bool {
        self.schema.as_ref().is_some_and(|schema| schema.property_names().any(|name| name == field))
    }

    /// `answer` without the fields that are to be dropped, if it is acceptable.
    ///
    /// # Errors
    /// A sentence that names the wrong field, and the accepted ones.
    pub fn admit(&self, mut answer: Map) -> Result<Map, String> {
        let Some(schema) = &self.schema else { return Ok(answer) };
        let mut dropped = Vec::new();
        if self.drops_unknown {
            answer.retain(|name, _| {
                let is_known = schema.property_names().any(|known| known == name);
                dropped.extend((!is_known).then(|| name.clone()));
                is_known
            });
        }
        if let Some(unknown) = answer.keys().find(|name| !schema.property_names().any(|known| known == *name)) {
            return Err(format!("field `{unknown}` is not accepted here; {}", schema.in_words()));
        }
        if answer.is_empty() && schema.property_names().next().is_some() {
            let reason = match dropped.first() {
                Some(name) => format!("the answer has no field that is taken here, only such as `{name}`"),
                None => "the answer is empty".to_owned(),
            };
            return Err(format!("{reason}; {}", schema.in_words()));
        }
        schema.check_fields(&answer).map_err(|reason| format!("{reason}; {}", schema.in_words()))?;
        Ok(answer)
    }

    /// The state fields that `answer` sets.
    pub fn placed(&self, answer: Map) -> Map {
        match &self.into {
            Some(field) => Map::from_iter([(field.clone(), Value::Object(answer))]),
            None => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map {
        value.as_object().cloned().expect("an object")
    }

    fn decision() -> SignalDescriptor {
        SignalDescriptor::new("s").with(
            ACCEPTS,
            json!({
                "type": "object",
                "properties": {
                    "decision": { "enum": ["approved", "rejected"] },
                    "decided_by": { "type": "string", "maxLength": 10 },
                },
                "required": ["decision"],
            }),
        )
    }

    fn admitted(descriptor: &SignalDescriptor, answer: Value) -> Result<Value, String> {
        let rule = AnswerRule::of(descriptor).expect("a rule");
        rule.admit(object(answer)).map(|answer| Value::Object(rule.placed(answer)))
    }

    #[test]
    fn an_answer_says_only_what_was_asked() {
        let answer = json!({ "decision": "approved", "decided_by": "Ada" });
        assert_eq!(admitted(&decision(), answer.clone()), Ok(answer));
        for (answer, reason) in [
            (json!({ "descision": "approved" }), "field `descision` is not accepted here; accepted are `decision`"),
            (json!({ "decision": "approved", "amount_cents": 1 }), "field `amount_cents` is not accepted"),
            (json!({}), "the answer is empty"),
            (json!({ "decided_by": "Ada" }), "field `decision` is missing"),
            (json!({ "decision": "maybe" }), "field `decision` must be \"approved\" or \"rejected\", not \"maybe\""),
            (json!({ "decision": "approved", "decided_by": "a".repeat(11) }), "field `decided_by`"),
            (json!({ "decision": "approved", "decided_by": null }), "field `decided_by` must be a string, not null"),
        ] {
            let refused = admitted(&decision(), answer.clone()).expect_err("refused");
            assert!(refused.contains(reason), "{answer}: {refused}");
        }
    }

    #[test]
    fn an_event_of_which_nothing_is_taken_is_told_what_it_had() {
        let decision = decision().with("event", json!({ "source": "shop", "detail_type": "Decided" }));
        let refused = admitted(&decision, json!({ "descision": "approved" })).expect_err("refused");
        assert!(
            refused.starts_with("the answer has no field that is taken here, only such as `descision`; accepted are")
        );
    }

    #[test]
    fn a_pause_without_a_rule_accepts_everything() {
        let open = SignalDescriptor::new("s").with("kind", "job");
        assert!(AnswerRule::of(&open).expect("a rule").accepts_everything());
        assert_eq!(admitted(&open, json!({ "a": 1 })), Ok(json!({ "a": 1 })));
    }

    #[test]
    fn a_whole_answer_goes_into_one_field() {
        let whole = SignalDescriptor::new("s").with(INTO, "answer");
        assert_eq!(admitted(&whole, json!({ "amount": 1 })), Ok(json!({ "answer": { "amount": 1 } })));
        let rule = AnswerRule::of(&decision().with(INTO, "answer")).expect("a rule");
        assert!(!rule.accepts_everything());
        assert_eq!(rule.fields().collect::<Vec<_>>(), ["answer"]);
    }

    #[test]
    fn an_event_carries_more_than_is_taken() {
        let event = decision().with("event", json!({}));
        let taken = admitted(&event, json!({ "decision": "approved", "amount_cents": 1 }));
        assert_eq!(taken, Ok(json!({ "decision": "approved" })));
        assert!(admitted(&event, json!({ "amount_cents": 1 })).is_err());
    }

    #[test]
    fn a_pause_that_accepts_no_field_takes_an_empty_answer() {
        let nudge = SignalDescriptor::new("s").with(ACCEPTS, json!({ "properties": {} }));
        assert_eq!(admitted(&nudge, json!({})), Ok(json!({})));
        assert!(admitted(&nudge, json!({ "text": "x" })).is_err());
    }

    #[test]
    fn a_wrong_declaration_is_told() {
        for (key, value, reason) in [
            (INTO, json!(""), "`into` must name a field"),
            (INTO, json!(1), "`into` must name a field"),
            (ACCEPTS, json!(["decision"]), "`accepts` must be a JSON Schema"),
            (ACCEPTS, json!({ "type": "string" }), "`accepts.type` must be \"object\""),
            (ACCEPTS, json!({ "properties": { "a": { "oneOf": [] } } }), "`accepts.properties.a.oneOf`"),
            (ACCEPTS, json!({ "properties": {}, "required": ["a"] }), "`accepts.required` names `a`"),
        ] {
            let refused = AnswerRule::of(&SignalDescriptor::new("s").with(key, value)).expect_err("refused");
            assert!(refused.contains(reason), "{refused}");
        }
        let both = decision().with(INTO, "answer").with("expects", json!({ "parts": { "a": {} } }));
        assert!(AnswerRule::of(&both).expect_err("refused").contains("belongs under `expects`"));
    }
}
