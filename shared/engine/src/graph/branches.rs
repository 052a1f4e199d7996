use std::fmt;
use std::sync::Arc;

use dormouse_ports::Category;

use super::{CompiledGraph, ErrorPolicy, Projection};
use crate::node::{Middleware, Node};
use crate::{EngineError, State, StateSchema};

/// Decides whether a branch runs.
pub type When = Arc<dyn Fn(&State) -> bool + Send + Sync>;

/// A node that runs different things side by side (pipeline-utilities §11).
#[derive(Clone, Default)]
#[must_use = "parallel branches do nothing until they are added to a graph"]
pub struct ParallelBranches {
    pub(crate) branches: Vec<(Arc<str>, Branch)>,
    pub(crate) error_policy: ErrorPolicy,
    pub(crate) errors_field: Option<Arc<str>>,
}

impl fmt::Debug for ParallelBranches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.branches.iter().map(|(name, _)| name).collect();
        f.debug_struct("ParallelBranches").field("branches", &names).field("error_policy", &self.error_policy).finish()
    }
}

/// One of the things that run side by side: a subgraph or a call, not both (§11.1.1).
#[derive(Clone, Default)]
#[must_use = "a branch does nothing until it is added to parallel branches"]
pub struct Branch {
    pub(crate) graph: Option<Arc<CompiledGraph>>,
    pub(crate) call: Option<Arc<dyn Node>>,
    pub(crate) projection: Projection,
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
    pub(crate) when: Option<When>,
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.graph.is_some() { "subgraph" } else { "call" };
        f.debug_struct("Branch").field("kind", &kind).field("conditional", &self.when.is_some()).finish()
    }
}

impl Branch {
    /// A branch that runs `graph` on a state of its own. It contributes what `projection` takes out of that: with `outputs`
    /// the fields that these name, with [`Projection::by_name`] every field that both states have.
    pub fn subgraph(graph: Arc<CompiledGraph>, projection: Projection) -> Self {
        Self { graph: Some(graph), projection, ..Self::default() }
    }

    /// A branch that calls `node` on the parent's state; the update that it returns is its contribution.
    pub fn call(node: Arc<dyn Node>) -> Self {
        Self { call: Some(node), ..Self::default() }
    }

    /// Adds a call to a branch; a branch that has both forms does not compile.
    pub fn and_call(mut self, node: Arc<dyn Node>) -> Self {
        self.call = Some(node);
        self
    }

    /// Wraps the branch as a whole, inside of its present middleware (§11.7).
    pub fn wrap(mut self, middleware: Arc<dyn Middleware>) -> Self {
        self.middleware.push(middleware);
        self
    }

    /// Runs the branch only when `when` holds for the parent's state at entry (§11.10).
    pub fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }
}

impl ParallelBranches {
    /// No branches yet, failing fast.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a branch; contributions are merged in the order in which branches are added.
    pub fn branch(mut self, name: impl Into<Arc<str>>, branch: Branch) -> Self {
        self.branches.push((name.into(), branch));
        self
    }

    /// Sets the effect of an error.
    pub fn error_policy(mut self, policy: ErrorPolicy) -> Self {
        self.error_policy = policy;
        self
    }

    /// The parent's field that receives the errors of failed branches, under [`ErrorPolicy::Collect`]: a list, whose items have
    /// two texts, `branch_name` and `category`.
    pub fn errors_field(mut self, field: impl Into<Arc<str>>) -> Self {
        self.errors_field = Some(field.into());
        self
    }

    pub(super) fn check(&self, node: &str, parent: &StateSchema) -> Result<(), EngineError> {
        if self.branches.is_empty() {
            let message = format!("node `{node}` has no branches");
            return Err(EngineError::new(Category::ParallelBranchesNoBranches, message));
        }
        super::check_declared(node, self.errors_field.iter().map(|field| (parent, field)))?;
        if let Some(field) = &self.errors_field {
            super::check_takes_errors(node, parent, field, "branch_name")?;
        }
        if self.error_policy == ErrorPolicy::Collect {
            super::check_waits_nowhere(node, self.waiting_node())?;
        }
        for (index, (name, branch)) in self.branches.iter().enumerate() {
            if self.branches[..index].iter().any(|(earlier, _)| earlier == name) {
                let message = format!("node `{node}` has two branches `{name}`: give one of them another name");
                return Err(EngineError::new(Category::ParallelBranchesInvalidBranchSpec, message));
            }
            if branch.graph.is_some() == branch.call.is_some() || name.is_empty() {
                let message = format!("node `{node}`: branch `{name}` needs a name and either a subgraph or a call");
                return Err(EngineError::new(Category::ParallelBranchesInvalidBranchSpec, message));
            }
            if let Some(graph) = &branch.graph {
                branch.projection.check(node, parent, graph.schema())?;
            }
        }
        Ok(())
    }

    /// Words for a node that is there to wait, in one of the branches.
    pub(super) fn waiting_node(&self) -> Option<String> {
        self.branches.iter().find_map(|(name, branch)| match (&branch.graph, &branch.call) {
            (Some(graph), _) => graph.waiting_node(),
            (None, Some(call)) => call.waits().then(|| format!("branch `{name}`")),
            (None, None) => None,
        })
    }

    pub(super) fn round_trips(&self, parent: &StateSchema) -> Vec<Arc<str>> {
        let graphs = self.branches.iter().filter_map(|(_, branch)| Some((branch, branch.graph.as_ref()?)));
        graphs.flat_map(|(branch, graph)| branch.projection.round_trips(parent, graph.schema())).collect()
    }
}
