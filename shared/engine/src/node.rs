//! Nodes, middleware and routing: the pieces that applications write.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::ambient::{self, CallScope, Scoped};
use crate::observe::{FailureIsolated, Origin};
use crate::run::Attempts;
use crate::{NodeError, State, Update};

/// A named unit of work (graph-engine §2).
///
/// A node may run again after a crash or a suspension: its effects outside must be safe to repeat (pipeline-utilities
/// §10.5).
#[async_trait]
pub trait Node: Send + Sync {
    /// Does the work on `state` and returns the changes. Here, and only here, [`crate::suspend`] may be called.
    ///
    /// # Errors
    /// The error that the node raises; the invocation ends with `node_exception`.
    async fn run(&self, state: State) -> Result<Update, NodeError>;

    /// True if it is there to wait, and suspends whenever it succeeds: a graph is refused that has it where nothing may wait
    /// (suspension §9).
    fn waits(&self) -> bool {
        false
    }
}

/// The rest of the chain, as a middleware around a node sees it.
pub struct Next<'a> {
    pub(crate) chain: &'a dyn MiddlewareChain,
    pub(crate) depth: usize,
}

/// A chain of middleware around a node; layer 0 is the outermost.
pub(crate) trait MiddlewareChain: Send + Sync {
    fn layer(&self, depth: usize, state: State) -> BoxFuture<'_, Result<Update, NodeError>>;

    /// The attempts that were made through this chain.
    fn attempts(&self) -> &Arc<Attempts>;
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

impl Next<'_> {
    /// Runs the rest of the chain on `state`. When the node suspends, this never returns.
    ///
    /// # Errors
    /// The error that the rest of the chain raised.
    pub async fn run(&self, state: State) -> Result<Update, NodeError> {
        self.chain.layer(self.depth, state).await
    }

    /// Runs the rest of the chain on `state` as attempt `index`, counted from 0: the events of everything inside carry
    /// that index, unless a retry further in counts for itself (graph-engine §6). An attempt that fails takes with it
    /// the metadata that was added in it (observability §3.4).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn attempt(&self, state: State, index: u32) -> Result<Update, NodeError> {
        let attempts = self.chain.attempts();
        attempts.enter(index);
        let before = attempts.view.identity();
        let scope = CallScope::around_node(attempts, index);
        let (result, recorded) = Scoped::new(scope, self.chain.layer(self.depth, state)).recording().await;
        match &result {
            Ok(_) => ambient::adopt(recorded),
            Err(error) => {
                attempts.failed(error);
                attempts.view.show(before);
            }
        }
        result
    }

    /// Index to begin with: 0, or after a suspension that of the attempt that paused, so that it keeps its index and
    /// the budget goes on (suspension §3).
    pub fn first_attempt(&self) -> u32 {
        self.chain.attempts().first()
    }

    /// Reports to observers that a failure of the rest of the chain was replaced. `isolated` is given the wrapped node
    /// and its latest attempt.
    pub(crate) fn isolated(&self, isolated: impl FnOnce(Origin) -> FailureIsolated) {
        self.chain.attempts().isolated(isolated);
    }
}

/// Wraps the execution of nodes (pipeline-utilities §2).
#[async_trait]
pub trait Middleware: Send + Sync {
    /// Does what it does around `next`. It must not call [`crate::suspend`]: the invocation ends with
    /// `suspension_in_unsupported_context` then.
    ///
    /// # Errors
    /// An error counts as raised by the node.
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError>;

    /// Asked once per node when a graph compiles: a middleware that wants to know the node's name answers with one
    /// that is bound to it.
    fn bound_to(&self, node: &str) -> Option<Arc<dyn Middleware>> {
        let _ = node;
        None
    }

    /// The update by which it replaces a failure, where that is fixed: a fan-out checks that it fills the collected
    /// field (pipeline-utilities §9.8).
    fn static_degraded_update(&self) -> Option<&Update> {
        None
    }
}

/// Target of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the node of that name.
    Node(Arc<str>),
    /// To the end of the graph. A node may all the same be called `END`.
    End,
}

/// The target that ends a graph.
pub const END: Target = Target::End;

impl From<&str> for Target {
    fn from(name: &str) -> Self {
        Self::Node(name.into())
    }
}

impl From<String> for Target {
    fn from(name: String) -> Self {
        Self::Node(name.into())
    }
}

/// A conditional edge: where to go from the state after the update (graph-engine §2).
pub type Route = Arc<dyn Fn(&State) -> Result<Target, NodeError> + Send + Sync>;
