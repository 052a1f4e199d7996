//! Tools that are functions of an author's crate.

mod schema;
mod tool;

use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use dormouse_ports::tool::{ToolCall, ToolError, ToolErrorKind, ToolReply, ToolSource, ToolSpec};
use futures::FutureExt;

pub use self::tool::{RunnableTool, RustTool};
use crate::names;

/// The tools of an author's crate, in their order.
///
/// A call with arguments that do not fit the type is refused with the field that is wrong. A function that panics fails
/// its call, which may have taken effect.
#[derive(Debug)]
pub struct RustTools(Vec<RunnableTool>);

/// Error of a set of tools that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RustToolsError {
    /// Two tools have one name.
    #[error("there are two tools `{0}`; give one of them another name")]
    Twice(String),
    /// No model can call it by that name.
    #[error("the tool `{name}` cannot be offered: {message}")]
    Name {
        /// The name.
        name: String,
        /// Message that says what is wrong with it.
        message: String,
    },
    /// Its input is no object.
    #[error("the tool `{0}` takes other than an object; let its function take a struct with named fields")]
    NoObject(String),
}

impl RustTools {
    /// The set of `tools`.
    ///
    /// # Errors
    /// [`RustToolsError`] for the first tool that cannot be offered.
    pub fn new(tools: impl IntoIterator<Item = RunnableTool>) -> Result<Self, RustToolsError> {
        let mut set = Self(Vec::new());
        for tool in tools {
            set.add(tool)?;
        }
        Ok(set)
    }

    fn add(&mut self, tool: RunnableTool) -> Result<(), RustToolsError> {
        let name = tool.spec().name.clone();
        names::check(&name).map_err(|message| RustToolsError::Name { name: name.clone(), message })?;
        if tool.spec().input_schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(RustToolsError::NoObject(name));
        }
        if self.named(&name).is_some() {
            return Err(RustToolsError::Twice(name));
        }
        self.0.push(tool);
        Ok(())
    }

    fn named(&self, name: &str) -> Option<&RunnableTool> {
        self.0.iter().find(|tool| tool.spec().name == name)
    }
}

#[async_trait]
impl ToolSource for RustTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        Ok(self.0.iter().map(|tool| tool.spec().clone()).collect())
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let Some(tool) = self.named(&call.name) else {
            return Err(ToolError::new(ToolErrorKind::NotFound, format!("there is no tool `{}`", call.name)));
        };
        let outcome = AssertUnwindSafe(tool.call(call)).catch_unwind().await;
        outcome.unwrap_or_else(|_| Err(ToolError::permanent(format!("the tool `{}` panicked", call.name)).maybe_done()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dormouse_ports::Map;
    use dormouse_ports::tool::{Effect, Pending, ToolOutput};
    use futures::executor::block_on;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;

    /// A question about the weather.
    #[derive(Deserialize, JsonSchema)]
    struct CityQuestion {
        /// Name of the city.
        city: String,
        #[serde(default)]
        days: Vec<Day>,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Day {
        number: u8,
    }

    #[derive(Serialize, JsonSchema)]
    struct Forecast {
        degrees: i8,
    }

    fn weather() -> RunnableTool {
        RustTool::new("weather").describe("Tells the weather").read_only().returns::<Forecast>().run(
            async |question: CityQuestion| match question.city.as_str() {
                "Atlantis" => Err("there is no such city"),
                city => Ok(Forecast {
                    degrees: city.len() as i8 + question.days.iter().map(|d| d.number as i8).sum::<i8>(),
                }),
            },
        )
    }

    fn call(tool: RunnableTool, arguments: Value) -> Result<ToolReply, ToolError> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let name = tool.spec().name.clone();
        let tools = RustTools::new([tool]).expect("tools");
        block_on(tools.call(&ToolCall::new("1", name, arguments)))
    }

    #[test]
    fn the_schema_is_that_of_the_type() {
        let tools = RustTools::new([weather()]).expect("tools");
        let [spec] = &*block_on(tools.list()).expect("a list") else { panic!("one tool") };
        assert_eq!((spec.description.as_str(), spec.effect), ("Tells the weather", Effect::Safe));
        let schema = Value::Object(spec.input_schema.clone());
        assert_eq!(schema["required"], json!(["city"]));
        assert_eq!(schema["properties"]["city"], json!({ "description": "Name of the city.", "type": "string" }));
        assert_eq!(schema["properties"]["days"]["items"]["properties"]["number"]["type"], "integer");
        assert_eq!(
            spec.output_schema.as_ref().map(|schema| &schema["properties"]["degrees"]["type"]),
            Some(&json!("integer"))
        );
    }

    #[test]
    fn a_value_and_a_failure_come_back() {
        let done = call(weather(), json!({ "city": "Rome", "days": [{ "number": 2 }] }));
        assert_eq!(done, Ok(ToolReply::Done(ToolOutput::value(json!({ "degrees": 6 })))));
        let failed = call(weather(), json!({ "city": "Atlantis" }));
        assert_eq!(failed, Ok(ToolReply::Done(ToolOutput::error("there is no such city"))));
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused_with_their_place() {
        let error = call(weather(), json!({ "city": "Rome", "days": [{ "number": 300 }] })).expect_err("refused");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::InvalidArguments, false));
        assert!(error.message.contains("days[0].number"), "{}", error.message);
    }

    #[test]
    fn a_panic_is_a_failure_that_may_have_taken_effect() {
        let broken = RustTool::new("broken").run(async |_: Map| -> Result<String, String> { panic!("out of paper") });
        let error = call(broken, json!({})).expect_err("it panics");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Permanent, true));
    }

    #[test]
    fn a_function_may_answer_later_with_the_whole_call_in_hand() {
        let pending = Pending { poll_after: Some(Duration::from_secs(60)), ..Pending::default() };
        let reply = ToolReply::Pending(Pending { reference: Some("key-1".to_owned()), ..pending.clone() });
        let job = RustTool::new("job").reply(move |_: Map, call: ToolCall| {
            let pending = pending.clone();
            async move {
                Ok(ToolReply::Pending(Pending { reference: Some(format!("key-{}", call.idempotency_key)), ..pending }))
            }
        });
        assert_eq!(call(job, json!({})), Ok(reply));
    }

    #[test]
    fn a_set_that_cannot_be_offered_is_refused() {
        assert_eq!(RustTools::new([weather(), weather()]).err(), Some(RustToolsError::Twice("weather".to_owned())));
        let nameless = RustTool::new("").run(async |_: Map| Ok::<_, String>(""));
        assert!(matches!(RustTools::new([nameless]), Err(RustToolsError::Name { .. })));
        let number = RustTool::new("number").run(async |n: u8| Ok::<_, String>(n));
        assert_eq!(RustTools::new([number]).err(), Some(RustToolsError::NoObject("number".to_owned())));
    }
}
