//! Parallel branches (conformance-adapter §5.4, pipeline-utilities §11).

use std::sync::Arc;

use dormouse_engine::{Branch, CompiledGraph, ErrorPolicy, ParallelBranches, Projection, State, When};
use indexmap::IndexMap;
use serde_json::Value;

use super::Stage;
use super::action::Actions;
use super::fan_out::error_policy;
use super::middleware::Layer;
use super::node::projection;
use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;

/// A parallel-branches node as a fixture configures it.
#[derive(Clone, Debug)]
pub(super) struct BranchesSpec {
    branches: IndexMap<String, BranchSpec>,
    error_policy: ErrorPolicy,
    errors_field: Option<String>,
}

#[derive(Clone, Debug)]
struct BranchSpec {
    subgraph: Option<String>,
    call: Option<Actions>,
    projection: Projection,
    layers: Vec<Layer>,
    when: Option<Condition>,
}

/// `when`: the field is truthy, or equals a value.
#[derive(Clone, Debug)]
struct Condition {
    field: String,
    equals: Option<Value>,
}

impl BranchesSpec {
    pub(super) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let mut branches = IndexMap::new();
        if let Some(mut listed) = given.nested("branches")? {
            for name in listed.unread() {
                let at = format!("{}.{name}", listed.at());
                branches.insert(name.to_owned(), BranchSpec::read(Directives::new(at, listed.require(name)?)?)?);
            }
        }
        let errors_field = given.text("errors_field")?.map(str::to_owned);
        let spec = Self { branches, error_policy: error_policy(&mut given)?, errors_field };
        given.done()?;
        Ok(spec)
    }

    /// The subgraphs that its branches run.
    pub(super) fn subgraphs(&self) -> impl Iterator<Item = &String> {
        self.branches.values().filter_map(|branch| branch.subgraph.as_ref())
    }

    pub(super) fn build(&self, graphs: &IndexMap<String, Arc<CompiledGraph>>, stage: &Stage) -> ParallelBranches {
        let mut node = ParallelBranches::new().error_policy(self.error_policy);
        if let Some(field) = &self.errors_field {
            node = node.errors_field(field.as_str());
        }
        for (name, branch) in &self.branches {
            node = node.branch(name.as_str(), branch.build(name, graphs, stage));
        }
        node
    }
}

impl BranchSpec {
    fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let call = match given.nested("call")? {
            None => None,
            Some(mut call) => {
                let actions = Actions::read(&mut call)?;
                call.done()?;
                Some(actions)
            }
        };
        let mut projection = projection(&mut given)?;
        if projection.projects_in.is_none() && projection.projects_out.is_none() {
            // A branch contributes what its `outputs` name, and nothing where it has none (pipeline-utilities §11.4).
            projection.outputs.get_or_insert_default();
        }
        let read = Self {
            subgraph: given.text("subgraph")?.map(str::to_owned),
            call,
            projection,
            layers: Layer::read_list(&mut given, "middleware")?,
            when: given.nested("when")?.map(Condition::read).transpose()?,
        };
        given.done()?;
        Ok(read)
    }

    fn build(&self, name: &str, graphs: &IndexMap<String, Arc<CompiledGraph>>, stage: &Stage) -> Branch {
        let graph = self.subgraph.as_ref().and_then(|name| graphs.get(name)).cloned();
        let call = self.call.as_ref().map(|call| call.node(name, stage));
        let mut branch = match (graph, call) {
            (Some(graph), None) => Branch::subgraph(graph, self.projection.clone()),
            (None, Some(call)) => Branch::call(call),
            (Some(graph), Some(call)) => Branch::subgraph(graph, self.projection.clone()).and_call(call),
            (None, None) => Branch::default(),
        };
        for layer in &self.layers {
            branch = branch.wrap(layer.middleware(stage));
        }
        if let Some(condition) = self.when.clone() {
            let when: When = Arc::new(move |state| condition.holds(state));
            branch = branch.when(when);
        }
        branch
    }
}

impl Condition {
    fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let field = given.text("field")?.or(given.text("if_field")?);
        let field = field.ok_or_else(|| Failure::invalid("`when` names no field"))?.to_owned();
        let read = Self { field, equals: given.get("equals").cloned() };
        given.done()?;
        Ok(read)
    }

    fn holds(&self, state: &State) -> bool {
        let value = state.get(&self.field).unwrap_or(&Value::Null);
        self.equals.as_ref().map_or_else(|| is_truthy(value), |expected| equal(expected, value))
    }
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}
