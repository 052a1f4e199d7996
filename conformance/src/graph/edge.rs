use dormouse_engine::{END, GraphBuilder, NodeError, State, Target};
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;

/// An edge of a fixture (conformance-adapter §5.3).
#[derive(Clone, Debug)]
pub(super) struct EdgeSpec {
    from: String,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    To(String),
    Compare(Comparison),
    /// The target is the name that stands in a field of the state.
    ReadField(String),
    Raise(String),
}

#[derive(Clone, Debug)]
struct Comparison {
    field: String,
    equals: Value,
    then: String,
    otherwise: String,
}

impl EdgeSpec {
    pub(super) fn read(mut edge: Directives<'_>) -> Result<Self, Failure> {
        let from = edge.required_text("from")?.to_owned();
        let way = match edge.nested("condition")? {
            None => Way::To(edge.required_text("to")?.to_owned()),
            Some(condition) => {
                // Some fixtures name a second node beside the condition, so that it counts as reachable.
                edge.text("to")?;
                conditional(condition)?
            }
        };
        edge.done()?;
        Ok(Self { from, way })
    }

    pub(super) fn add_to(&self, graph: GraphBuilder) -> GraphBuilder {
        match &self.way {
            Way::To(to) => graph.edge(self.from.as_str(), target(to)),
            Way::Compare(comparison) => {
                let comparison = comparison.clone();
                graph.route(self.from.as_str(), move |state| Ok(comparison.choose(state)))
            }
            Way::ReadField(field) => {
                let field = field.clone();
                graph.route(self.from.as_str(), move |state| {
                    Ok(target(state.get(&field).and_then(Value::as_str).unwrap_or_default()))
                })
            }
            Way::Raise(message) => {
                let message = message.clone();
                graph.route(self.from.as_str(), move |_| Err(NodeError::new(message.clone())))
            }
        }
    }
}

impl Comparison {
    fn choose(&self, state: &State) -> Target {
        let holds = equal(&self.equals, state.get(&self.field).unwrap_or(&Value::Null));
        target(if holds { &self.then } else { &self.otherwise })
    }
}

fn conditional(mut condition: Directives<'_>) -> Result<Way, Failure> {
    let way = match condition.text("callable")? {
        Some("state_field_read") => Way::ReadField(condition.required_text("field")?.to_owned()),
        Some("edge_raises") => Way::Raise(condition.text("message")?.unwrap_or("the edge raised").to_owned()),
        Some(other) => return Err(Failure::missing(format!("edge function `{other}`"))),
        None => Way::Compare(Comparison {
            field: condition.required_text("if_field")?.to_owned(),
            equals: condition.require("equals")?.clone(),
            then: condition.required_text("then")?.to_owned(),
            otherwise: condition.required_text("else")?.to_owned(),
        }),
    };
    condition.done()?;
    Ok(way)
}

fn target(name: &str) -> Target {
    if name == "END" { END } else { Target::from(name) }
}
