use serde::{Serialize, Serializer};
use serde_json::Value;

/// Field of a message of a session that makes calls, or has the result of one: the mark of the run that added it. Earlier
/// versions did not set it.
pub const RUN_MARK: &str = "run";

/// A message of a session without the mark of its run, which is no part of what was said. Written, it is the message as earlier
/// versions kept it.
#[derive(Clone, Copy, Debug)]
pub struct Unmarked<'m>(pub &'m Value);

impl<'m> Unmarked<'m> {
    /// Its fields, in their order; none of what is no object.
    pub fn fields(self) -> impl Iterator<Item = (&'m str, &'m Value)> {
        let fields = self.0.as_object().into_iter().flatten();
        fields.map(|(name, value)| (name.as_str(), value)).filter(|(name, _)| *name != RUN_MARK)
    }

    /// True if `message` has the same fields, in whatever order.
    pub fn is(self, message: &Value) -> bool {
        self.0.is_object()
            && message.as_object().is_some_and(|fields| fields.len() == self.fields().count())
            && self.fields().all(|(name, value)| message.get(name) == Some(value))
    }
}

impl Serialize for Unmarked<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(_) => serializer.collect_map(self.fields()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_written_as_if_it_had_no_mark() {
        let marked = json!({ "role": "tool", "run": "0a1b2c3d", "content": "3", "tool_call_id": "1" });
        let plain = json!({ "role": "tool", "content": "3", "tool_call_id": "1" });
        assert_eq!(serde_json::to_string(&Unmarked(&marked)).expect("JSON"), plain.to_string());
        assert_eq!(serde_json::to_string(&Unmarked(&json!([1]))).expect("JSON"), "[1]");
        assert!(Unmarked(&marked).is(&plain) && Unmarked(&plain).is(&plain));
        assert!(!Unmarked(&plain).is(&marked), "what has a mark is another one");
        assert!(!Unmarked(&marked).is(&json!({ "role": "tool", "content": "3" })));
    }
}
