//! Errors: what a node raises, and what `invoke()` and `compile()` report.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Category, Map};

use crate::State;

/// What a node, a middleware or an edge function raises.
///
/// Every `std::error::Error` converts into it by `?`. A category makes the failure known to classification
/// (pipeline-utilities §6.4): `NodeError::new("…").with_category(Category::ProviderUnavailable)`.
pub struct NodeError {
    category: Option<Category>,
    message: String,
    cause: Option<Cause>,
    /// The parallel branch that failed with it.
    branch: Option<Arc<str>>,
}

enum Cause {
    Foreign(Box<dyn Error + Send + Sync>),
    /// An error of an inner graph. A subgraph's passes through its node as it is; a fan-out and parallel branches wrap
    /// it.
    Engine {
        error: Box<EngineError>,
        passes: bool,
    },
    /// An error of a call in a branch.
    Node(Box<NodeError>),
}

impl NodeError {
    /// An error without a category.
    pub fn new(message: impl Into<String>) -> Self {
        Self { category: None, message: message.into(), cause: None, branch: None }
    }

    /// Sets the category.
    #[must_use]
    pub fn with_category(mut self, category: Category) -> Self {
        self.category = Some(category);
        self
    }

    /// The error of a subgraph, which its node passes on.
    pub(crate) fn passing(error: EngineError) -> Self {
        Self {
            message: error.to_string(),
            cause: Some(Cause::Engine { error: Box::new(error), passes: true }),
            ..Self::new("")
        }
    }

    /// This error as the reason for which a node with concurrent parts failed.
    pub(crate) fn wrapped(self) -> Self {
        match self.cause {
            Some(Cause::Engine { error, .. }) => {
                Self { cause: Some(Cause::Engine { error, passes: false }), ..Self { cause: None, ..self } }
            }
            Some(Cause::Foreign(_) | Cause::Node(_)) | None => {
                Self { message: self.message.clone(), cause: Some(Cause::Node(Box::new(self))), ..Self::new("") }
            }
        }
    }

    /// Names the parallel branch that failed with it.
    pub(crate) fn of_branch(self, branch: &Arc<str>) -> Self {
        Self { branch: Some(branch.clone()), ..self.wrapped() }
    }

    pub(crate) fn branch(&self) -> Option<&Arc<str>> {
        self.branch.as_ref()
    }

    pub(crate) fn into_passed(self) -> Result<EngineError, Self> {
        match self.cause {
            Some(Cause::Engine { error, passes: true }) => Ok(*error),
            cause @ (Some(_) | None) => Err(Self { cause, ..self }),
        }
    }

    /// The category under which a node that raised this fails: `node_exception`, or what its inner graph failed with.
    pub(crate) fn surface(&self) -> Category {
        match &self.cause {
            Some(Cause::Engine { error, .. }) => error.category().clone(),
            Some(Cause::Foreign(_) | Cause::Node(_)) | None => Category::NodeException,
        }
    }

    /// The category it was given, if any.
    pub fn category(&self) -> Option<&Category> {
        self.category.as_ref()
    }

    /// What a person reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn derived(&self) -> Option<&Category> {
        self.category.as_ref().or_else(|| match &self.cause {
            Some(Cause::Engine { error, .. }) => Some(error.derived_category()),
            Some(Cause::Node(error)) => error.derived(),
            Some(Cause::Foreign(_)) | None => None,
        })
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
        let foreign = match &self.cause {
            Some(Cause::Foreign(error)) => Some(error),
            Some(Cause::Engine { .. } | Cause::Node(_)) | None => None,
        };
        f.debug_struct("NodeError")
            .field("category", &self.category)
            .field("message", &self.message)
            .field("cause", &foreign)
            .finish()
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Why a graph did not compile or an invocation did not complete.
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

    /// Sets what stands behind it, where that is known by its category only.
    pub(crate) fn derived_as(self, category: Option<Category>) -> Self {
        match category {
            Some(category) => self.caused_by(NodeError::new("").with_category(category)),
            None => self,
        }
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

    /// The outermost category of the cause chain that is not a mere carrier (pipeline-utilities §6.4): for a node
    /// that raised `provider_unavailable`, that.
    pub fn derived_category(&self) -> &Category {
        let carriers = [Category::NodeException, Category::EdgeException, Category::ParallelBranchesBranchFailed];
        let carrier = carriers.contains(&self.0.category);
        let cause = self.0.cause.as_ref().filter(|_| carrier);
        cause.and_then(NodeError::derived).unwrap_or(&self.0.category)
    }

    /// What a person reads; of a carrier, what it carries.
    pub fn message(&self) -> &str {
        &self.0.message
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

    /// What raised, for carriers.
    pub fn cause(&self) -> Option<&NodeError> {
        self.0.cause.as_ref()
    }

    /// Whether the same request may succeed a moment later because a port was merely busy or unreachable.
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
