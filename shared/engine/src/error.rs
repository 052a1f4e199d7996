//! Errors: those that a node raises, and those that `invoke()` and `compile()` report.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Category, Map};

use crate::State;
use crate::cause::{Failure, derived};

/// Error raised by a node, a middleware or an edge function.
///
/// Every `std::error::Error` converts into it by `?`. A category makes the failure known to classification
/// (pipeline-utilities §6.4): `NodeError::new("…").with_category(Category::ProviderUnavailable)`.
pub struct NodeError {
    category: Option<Category>,
    message: String,
    cause: Option<Cause>,
    /// The parallel branch that failed with its cause.
    branch: Option<Arc<str>>,
    /// What observers are told in place of the message.
    observed: Option<Box<str>>,
}

enum Cause {
    /// The error that this one was made of.
    Foreign(Box<dyn Error + Send + Sync>),
    /// The failure of an inner graph, of which this one is the outside. A subgraph's passes through its node as it
    /// is; a fan-out and parallel branches fail themselves because of it.
    Engine { error: Box<EngineError>, passes: bool },
    /// Another error that led to this one.
    Raised(Box<NodeError>),
}

static NODE_EXCEPTION: Category = Category::NodeException;
static BRANCH_FAILED: Category = Category::ParallelBranchesBranchFailed;

impl NodeError {
    /// An error without a category.
    pub fn new(message: impl Into<String>) -> Self {
        Self { category: None, message: message.into(), cause: None, branch: None, observed: None }
    }

    /// Sets the category.
    #[must_use]
    pub fn with_category(mut self, category: Category) -> Self {
        self.category = Some(category);
        self
    }

    /// Sets what observers, such as those that make spans, are told in place of the message: it may quote what is not theirs to see.
    #[must_use]
    pub fn observed_as(mut self, message: impl Into<Box<str>>) -> Self {
        self.observed = Some(message.into());
        self
    }

    /// Sets the error that led to this one, for example where a category is replaced by a better one. It takes the
    /// place of what this error was converted from.
    #[must_use]
    pub fn caused_by(mut self, cause: NodeError) -> Self {
        self.cause = Some(Cause::Raised(Box::new(cause)));
        self
    }

    /// The error of a subgraph, which its node passes on.
    pub(crate) fn passing(error: EngineError) -> Self {
        let message = error.message().to_owned();
        Self { cause: Some(Cause::Engine { error: Box::new(error), passes: true }), ..Self::new(message) }
    }

    /// This error as the reason for which a node with concurrent parts failed.
    pub(crate) fn wrapped(mut self) -> Self {
        if let Some(Cause::Engine { passes, .. }) = &mut self.cause {
            *passes = false;
        }
        self
    }

    /// This error as the reason for which a parallel branch failed.
    pub(crate) fn of_branch(self, branch: &Arc<str>) -> Self {
        let message = self.message.clone();
        Self { branch: Some(branch.clone()), ..Self::new(message) }.caused_by(self.wrapped())
    }

    /// The parallel branch that failed and its error, or this error.
    pub(crate) fn into_branch(self) -> Result<(Arc<str>, Self), Self> {
        match (self.branch, self.cause) {
            (Some(branch), Some(Cause::Raised(error))) => Ok((branch, *error)),
            (branch, cause) => Err(Self { branch, cause, ..self }),
        }
    }

    pub(crate) fn into_passed(self) -> Result<EngineError, Self> {
        match self.cause {
            Some(Cause::Engine { error, passes: true }) if self.category.is_none() => Ok(*error),
            cause @ (Some(_) | None) => Err(Self { cause, ..self }),
        }
    }

    /// The category under which a node that raised this fails: `node_exception`, or what its inner graph failed with.
    pub(crate) fn surface(&self) -> &Category {
        match &self.cause {
            _ if self.branch.is_some() => &BRANCH_FAILED,
            Some(Cause::Engine { error, passes: true }) if self.category.is_none() => error.category(),
            Some(_) | None => &NODE_EXCEPTION,
        }
    }

    /// True if it only carries the error of a branch.
    pub(crate) fn is_carrier(&self) -> bool {
        self.branch.is_some()
    }

    /// The failure of an inner graph, or of another invocation, that this error is and adds nothing to.
    pub(crate) fn carried(&self) -> Option<&EngineError> {
        match &self.cause {
            _ if self.category.is_some() => None,
            Some(Cause::Engine { error, .. }) => Some(error),
            Some(Cause::Foreign(error)) => error.downcast_ref(),
            Some(Cause::Raised(_)) | None => None,
        }
    }

    /// Failure that led to this error, for one that is not itself the failure of a graph.
    pub(crate) fn cause(&self) -> Option<Failure<'_>> {
        match self.cause.as_ref()? {
            Cause::Raised(error) => Some(Failure::from(&**error)),
            Cause::Engine { error, .. } => Some(Failure::Engine(error)),
            Cause::Foreign(error) => match error.downcast_ref() {
                Some(error) => Some(Failure::Engine(error)),
                None => error.source().map(Failure::from),
            },
        }
    }

    /// The category on the surface: the one it was given; where it is the failure of an inner graph or of a branch,
    /// that one's, which is `node_exception` when a node in the graph raised.
    /// [`cause::classify`](crate::cause::classify) looks deeper.
    pub fn category(&self) -> Option<&Category> {
        let branch = self.branch.as_ref().map(|_| &BRANCH_FAILED);
        self.category.as_ref().or(branch).or_else(|| self.carried().map(EngineError::category))
    }

    /// Message for a person.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Message for observers. An error that has taken its message over from another one is told as that.
    pub(crate) fn observed(&self) -> &str {
        match (&self.observed, &self.cause) {
            (Some(observed), _) => observed,
            (None, Some(Cause::Engine { error, .. })) if error.message() == self.message => error.observed(),
            (None, Some(Cause::Raised(error))) if error.message == self.message => error.observed(),
            (None, Some(Cause::Engine { .. } | Cause::Raised(_) | Cause::Foreign(_)) | None) => &self.message,
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for NodeError {
    fn from(error: E) -> Self {
        let message = error.to_string();
        Self { cause: Some(Cause::Foreign(Box::new(error))), ..Self::new(message) }
    }
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error = f.debug_struct("NodeError");
        error.field("category", &self.category()).field("message", &self.message);
        match &self.cause {
            Some(Cause::Foreign(cause)) => error.field("cause", cause),
            Some(Cause::Engine { error: cause, .. }) => error.field("cause", cause),
            Some(Cause::Raised(cause)) => error.field("cause", cause),
            None => &mut error,
        };
        error.finish()
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Error of a graph that did not compile or of an invocation that did not complete.
#[derive(Debug)]
pub struct EngineError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    category: Category,
    message: String,
    node: Option<Arc<str>>,
    state: Option<State>,
    details: Map,
    cause: Option<NodeError>,
    transient: bool,
}

impl EngineError {
    /// An error of `category`.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            category,
            message: message.into(),
            node: None,
            state: None,
            details: Map::new(),
            cause: None,
            transient: false,
        }))
    }

    pub(crate) fn caused_by(mut self, cause: NodeError) -> Self {
        self.0.cause = Some(cause);
        self
    }

    pub(crate) fn at(mut self, node: &Arc<str>, state: &State) -> Self {
        self.0.node.get_or_insert_with(|| node.clone());
        self.0.state.get_or_insert_with(|| state.clone());
        self
    }

    pub(crate) fn with_state(mut self, state: &State) -> Self {
        self.0.state.get_or_insert_with(|| state.clone());
        self
    }

    pub(crate) fn detail(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn transient_if(mut self, transient: bool) -> Self {
        self.0.transient = transient;
        self
    }

    /// The surface category: for a node that raised, `node_exception`.
    pub fn category(&self) -> &Category {
        &self.0.category
    }

    /// The category behind carriers (pipeline-utilities §6.4): for a node that raised `provider_unavailable`, that;
    /// where nothing behind has a category, the surface category.
    pub fn derived_category(&self) -> &Category {
        derived(self).unwrap_or(&self.0.category)
    }

    /// True if it only carries the error of a node (pipeline-utilities §6.3).
    pub(crate) fn is_carrier(&self) -> bool {
        matches!(self.0.category, Category::NodeException | Category::ParallelBranchesBranchFailed)
    }

    /// Message for a person; of a carrier, the message of the error that it carries.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Message for observers.
    pub(crate) fn observed(&self) -> &str {
        let carried = self.cause().filter(|cause| cause.message == self.0.message);
        carried.map_or(self.0.message.as_str(), NodeError::observed)
    }

    /// The node at which it happened, if it happened at one.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The state at the point of failure, before any part of the failed merge (graph-engine §4).
    pub fn state(&self) -> Option<&State> {
        self.0.state.as_ref()
    }

    /// Fields that the category carries, for example `from_version` and `to_version`.
    pub fn details(&self) -> &Map {
        &self.0.details
    }

    /// Error of the node, for carriers.
    pub fn cause(&self) -> Option<&NodeError> {
        self.0.cause.as_ref()
    }

    /// True if the same request may succeed a moment later because a port was merely busy or unreachable.
    pub fn is_transient(&self) -> bool {
        self.0.transient
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.category, self.0.message)
    }
}

impl Error for EngineError {}
