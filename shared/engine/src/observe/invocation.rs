use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::ObservedError;
use crate::Identity;

/// A call of `invoke()` begins, fresh or resumed. It precedes every event of the call.
#[derive(Clone, Debug)]
pub struct InvocationStart {
    /// Whose call it is.
    pub identity: Arc<Identity>,
    /// Name of the outermost graph.
    pub graph: String,
    /// Name of that graph's entry node.
    pub entry_node: Arc<str>,
    /// The graphs inside of that graph.
    pub subgraphs: Arc<Subgraphs>,
    /// When the call began.
    pub at: Timestamp,
    /// The span around the call, as a W3C `traceparent`.
    pub surrounding_trace: Option<Arc<str>>,
    /// The pause out of which it comes; absent in a fresh call.
    pub resumed: Option<ResumedFrom>,
}

/// All graphs inside of a graph, by the way to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subgraphs(BTreeMap<Vec<Arc<str>>, Subgraph>);

/// A graph inside of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subgraph {
    /// The name under which it was compiled.
    pub name: Arc<str>,
    /// Name of its entry node.
    pub entry_node: Arc<str>,
}

impl Subgraphs {
    /// The graph at `path`: the nodes on the way to it, each followed by the branch where it has branches.
    pub fn at<'p>(&self, path: impl IntoIterator<Item = &'p Arc<str>>) -> Option<&Subgraph> {
        let path: Vec<Arc<str>> = path.into_iter().cloned().collect();
        self.0.get(&path)
    }

    /// Adds `graph` at `path`, and what is inside of it.
    pub(crate) fn add(&mut self, path: &[Arc<str>], graph: Subgraph, inner: &Self) {
        let further = inner.0.iter().map(|(way, graph)| ([path, way].concat(), graph.clone()));
        self.0.extend(further.chain([(path.to_vec(), graph)]));
    }
}

/// The pause that a call resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedFrom {
    /// Which pause of the invocation it was, from 1.
    pub generation: u64,
    /// [`Identity::trace_context`] of the call that suspended.
    pub trace_context: Option<String>,
}

/// A call of `invoke()` is over. It follows every event of the call.
#[derive(Clone, Debug)]
pub struct InvocationEnd {
    /// Whose call it was.
    pub identity: Arc<Identity>,
    /// When it ended.
    pub at: Timestamp,
    /// How it ended.
    pub result: InvocationResult,
}

/// How a call of `invoke()` ended (graph-engine §3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationResult {
    /// It reached END.
    Completed,
    /// It sleeps.
    Suspended,
    /// It failed.
    Errored(ObservedError),
    /// Its future was dropped, for example because its time was over.
    Abandoned,
}
