use std::sync::Arc;

use dormouse_ports::Category;

use super::CompiledGraph;
use crate::{EngineError, State, StateSchema, Update};

/// Mapping of the fields that cross the boundary between a graph and a subgraph node (graph-engine §2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// Subgraph field <- parent field, at entry.
    pub inputs: Option<Vec<(Arc<str>, Arc<str>)>>,
    /// Parent field <- subgraph field, at exit. Absent: fields of the same name.
    pub outputs: Option<Vec<(Arc<str>, Arc<str>)>>,
    /// Same-name fields that cross at entry; declaring either set makes the declaration complete.
    pub projects_in: Option<Vec<Arc<str>>>,
    /// Same-name fields that cross at exit.
    pub projects_out: Option<Vec<Arc<str>>>,
}

impl Projection {
    /// Nothing crosses in, fields of the same name cross out.
    pub fn by_name() -> Self {
        Self::default()
    }

    /// Adds an `inputs` entry: the subgraph's `field` starts with the parent's `from`.
    #[must_use]
    pub fn input(mut self, field: impl Into<Arc<str>>, from: impl Into<Arc<str>>) -> Self {
        self.inputs.get_or_insert_default().push((field.into(), from.into()));
        self
    }

    /// Adds an `outputs` entry: the parent's `field` is merged with the subgraph's final `from`.
    #[must_use]
    pub fn output(mut self, field: impl Into<Arc<str>>, from: impl Into<Arc<str>>) -> Self {
        self.outputs.get_or_insert_default().push((field.into(), from.into()));
        self
    }

    fn is_declared(&self) -> bool {
        self.projects_in.is_some() || self.projects_out.is_some()
    }

    /// The pairs (subgraph field, parent field) that cross at entry.
    fn entering(&self) -> Vec<(Arc<str>, Arc<str>)> {
        match (&self.projects_in, &self.inputs) {
            (Some(names), _) => names.iter().map(|n| (n.clone(), n.clone())).collect(),
            (None, inputs) => inputs.clone().unwrap_or_default(),
        }
    }

    /// The pairs (parent field, subgraph field) that cross at exit.
    fn leaving(&self, parent: &StateSchema, inner: &StateSchema) -> Vec<(Arc<str>, Arc<str>)> {
        match (self.is_declared(), &self.projects_out, &self.outputs) {
            (true, names, _) => names.iter().flatten().map(|n| (n.clone(), n.clone())).collect(),
            (false, _, Some(outputs)) => outputs.clone(),
            (false, _, None) => {
                let shared = inner.fields().filter(|(name, _)| parent.declares(name));
                shared.map(|(name, _)| (name.clone(), name.clone())).collect()
            }
        }
    }

    /// Checks that the projection fits both schemas.
    pub(super) fn check(&self, node: &str, parent: &StateSchema, inner: &StateSchema) -> Result<(), EngineError> {
        if self.is_declared() && (self.inputs.is_some() || self.outputs.is_some()) {
            let message = format!("node `{node}` declares both projection sets and input or output maps");
            return Err(EngineError::new(Category::ConflictingProjectionForms, message));
        }
        let entering = self.entering();
        let leaving = self.leaving(parent, inner);
        let inward = entering.iter().flat_map(|(to, from)| [(inner, to), (parent, from)]);
        let outward = leaving.iter().flat_map(|(to, from)| [(parent, to), (inner, from)]);
        super::check_declared(node, inward.chain(outward))
    }

    /// Parent fields that go in and come back into a reducer that would merge them twice.
    pub(super) fn round_trips(&self, parent: &StateSchema, inner: &StateSchema) -> Vec<Arc<str>> {
        let entering = self.entering();
        let doubled = self.leaving(parent, inner).into_iter().filter(|(parent_field, inner_field)| {
            entering.iter().any(|(i, p)| i == inner_field && p == parent_field) && super::doubles(parent, parent_field)
        });
        doubled.map(|(parent_field, _)| parent_field).collect()
    }

    /// The state in which the subgraph starts.
    pub(crate) fn enter(&self, parent: &State, inner: &CompiledGraph) -> State {
        let mut state = inner.schema().defaults();
        for (inner_field, parent_field) in self.entering() {
            if let Some(value) = parent.shared(&parent_field) {
                state.set(&inner_field, value.clone());
            }
        }
        state
    }

    /// Those fields of the subgraph's final state that leave it, under their own names.
    pub(crate) fn kept(&self, parent: &StateSchema, inner: &CompiledGraph, state: &State) -> Update {
        let pairs = self.leaving(parent, inner.schema());
        pairs.into_iter().filter_map(|(_, from)| Some((from.clone(), state.get(&from)?.clone()))).collect()
    }

    /// The update that an update of the subgraph's fields is to its parent; fields that it lacks contribute nothing.
    pub(crate) fn outwards(&self, parent: &StateSchema, inner: &CompiledGraph, update: &Update) -> Update {
        let pairs = self.leaving(parent, inner.schema());
        pairs.into_iter().filter_map(|(to, from)| Some((to, update.get(&from)?.clone()))).collect()
    }

    /// The update that the subgraph's final state is to its parent.
    pub(crate) fn leave(&self, parent: &StateSchema, inner: &CompiledGraph, state: &State) -> Update {
        let pairs = self.leaving(parent, inner.schema());
        pairs.into_iter().filter_map(|(to, from)| Some((to, state.get(&from)?.clone()))).collect()
    }
}
