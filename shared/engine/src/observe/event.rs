use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Category, SignalDescriptor};
use jiff::Timestamp;

use super::{FrameworkEvent, InvocationEnd, InvocationStart};
use crate::cause::classify;
use crate::{EngineError, NodeError, State};

/// Phase that a node event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The node is about to run.
    Started,
    /// The node ran, its update was merged and its edge was chosen, or any of these failed.
    Completed,
    /// The node called `suspend()`.
    Suspended,
}

impl Phase {
    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Completed => "completed",
            Self::Suspended => "suspended",
        }
    }
}

/// A failed execution as observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedError {
    /// The category of graph-engine §4.
    pub category: Category,
    /// The category behind carriers; `category` where nothing behind has one.
    pub derived_category: Category,
    /// Message for a person.
    pub message: String,
}

impl From<&EngineError> for ObservedError {
    fn from(error: &EngineError) -> Self {
        Self {
            category: error.category().clone(),
            derived_category: error.derived_category().clone(),
            message: error.observed().to_owned(),
        }
    }
}

impl From<&NodeError> for ObservedError {
    /// As it would be if the error ended the invocation.
    fn from(error: &NodeError) -> Self {
        let category = error.surface().clone();
        let derived_category = classify(error).derived.unwrap_or_else(|| category.clone());
        Self { category, derived_category, message: error.observed().to_owned() }
    }
}

/// One transition of one node (graph-engine §6).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeEvent {
    /// Instant at which it happened; observers receive it later.
    pub at: Timestamp,
    /// Phase that it reports.
    pub phase: Phase,
    /// The node's name in its own graph.
    pub node_name: Arc<str>,
    /// Path from the outermost graph to the node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// Position in the order of executions of the invocation, from 0.
    pub step: u64,
    /// Index of the attempt among retries, from 0.
    pub attempt_index: u32,
    /// State that the node received.
    pub pre_state: State,
    /// State after the merge; only when all went well.
    pub post_state: Option<State>,
    /// The failure, if there was one.
    pub error: Option<ObservedError>,
    /// Descriptor of the wait; only when `phase` is `suspended`.
    pub descriptor: Option<SignalDescriptor>,
    /// The states of the containing graphs, outermost first; one fewer than `namespace` has names.
    pub parent_states: Vec<State>,
    /// The innermost fan-out instance that it ran in.
    pub fan_out_index: Option<u32>,
    /// The innermost parallel branch that it ran in.
    pub branch_name: Option<Arc<str>>,
    /// For each containing node, outermost first, the fan-out instance entered there.
    pub fan_out_index_chain: Vec<Option<u32>>,
    /// For each containing node, outermost first, the parallel branch entered there.
    pub branch_name_chain: Vec<Option<Arc<str>>>,
    /// For each containing node, outermost first, the graph that was entered there, and at which step.
    pub entry_chain: Vec<GraphEntry>,
    /// Configuration that a fan-out node resolved; on its own events only.
    pub fan_out_config: Option<Arc<FanOutConfig>>,
    /// Configuration that a parallel-branches node resolved; on its own events only.
    pub parallel_branches_config: Option<Arc<ParallelBranchesConfig>>,
}

/// The resolved configuration of a fan-out (graph-engine §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOutConfig {
    /// Number of instances.
    pub item_count: usize,
    /// Number of instances that run at once; `None` means all of them.
    pub concurrency: Option<usize>,
    /// `fail_fast` or `collect`.
    pub error_policy: &'static str,
    /// The fan-out node's own name.
    pub parent_node_name: Arc<str>,
}

/// The resolved configuration of a parallel-branches node (graph-engine §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParallelBranchesConfig {
    /// All declared branches, in order.
    pub branch_names: Vec<Arc<str>>,
    /// Those of them that are a plain call: their events report the branch itself, not a node in it.
    pub calls: Vec<Arc<str>>,
    /// Number of branches that run.
    pub branch_count: usize,
    /// `fail_fast` or `collect`.
    pub error_policy: &'static str,
    /// The node's own name.
    pub parent_node_name: Arc<str>,
}

/// One time that a graph was entered: a node in a loop enters the same graph again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphEntry {
    /// The graph; absent in a branch that is a plain call.
    pub graph: Option<Arc<Subgraph>>,
    /// Position of the containing node in the order of executions. A subgraph node takes none itself: it has that of
    /// the execution before which it was entered.
    pub step: u64,
    /// Index of the attempt at a node with concurrent parts; 0 in a plain subgraph, which goes on through all of them.
    pub attempt_index: u32,
}

/// A graph inside of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subgraph {
    /// The name under which it was compiled.
    pub name: Arc<str>,
    /// Name of its entry node.
    pub entry_node: Arc<str>,
}

/// Origin of an event: distinguishes the same node in different instances, branches and attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Path from the outermost graph to the node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// Index of the attempt among retries, from 0.
    pub attempt_index: u32,
    /// The innermost fan-out instance.
    pub fan_out_index: Option<u32>,
    /// The innermost parallel branch.
    pub branch_name: Option<Arc<str>>,
    /// For each containing node, outermost first, the fan-out instance entered there.
    pub fan_out_index_chain: Vec<Option<u32>>,
    /// For each containing node, outermost first, the parallel branch entered there.
    pub branch_name_chain: Vec<Option<Arc<str>>>,
    /// For each containing node, outermost first, the graph that was entered there, and at which step.
    pub entry_chain: Vec<GraphEntry>,
}

impl NodeEvent {
    /// Returns its origin.
    pub fn origin(&self) -> Origin {
        Origin {
            namespace: self.namespace.clone(),
            attempt_index: self.attempt_index,
            fan_out_index: self.fan_out_index,
            branch_name: self.branch_name.clone(),
            fan_out_index_chain: self.fan_out_index_chain.clone(),
            branch_name_chain: self.branch_name_chain.clone(),
            entry_chain: self.entry_chain.clone(),
        }
    }
}

/// Entry of the delivery queue.
#[derive(Clone, Debug)]
pub(crate) enum QueuedEvent {
    Began(Box<InvocationStart>),
    Node(NodeEvent),
    Framework(FrameworkEvent),
    Ended(Box<InvocationEnd>),
}

impl QueuedEvent {
    /// True if a drain counts it: it is an event of the specification, not the beginning or the end of a call.
    pub(crate) fn is_owed(&self) -> bool {
        match self {
            Self::Node(_) | Self::Framework(_) => true,
            Self::Began(_) | Self::Ended(_) => false,
        }
    }
}

impl fmt::Display for QueuedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began(_) => f.write_str("the start of the call"),
            Self::Node(event) => write!(f, "{} of node `{}`", event.phase.as_str(), event.node_name),
            Self::Framework(FrameworkEvent::FailureIsolated(event)) => {
                write!(f, "the isolated failure `{}`", event.event_name)
            }
            Self::Framework(FrameworkEvent::MetadataAugmented(_)) => f.write_str("an augmentation of metadata"),
            Self::Framework(FrameworkEvent::CheckpointSaved(_)) => f.write_str("the save of a checkpoint"),
            Self::Framework(FrameworkEvent::OperationEnded(event)) => {
                write!(f, "the end of the operation `{}`", event.operation.name)
            }
            Self::Framework(FrameworkEvent::LlmCompletion(event)) => {
                write!(f, "the answer of the model `{}`", event.request.model)
            }
            Self::Framework(FrameworkEvent::LlmFailed(event)) => {
                write!(f, "the failure of the model `{}`", event.request.model)
            }
            Self::Framework(FrameworkEvent::LlmToken(event)) => {
                write!(f, "piece {} of an answer of the model `{}`", event.chunk_index, event.model)
            }
            Self::Framework(FrameworkEvent::ToolCall(event)) => {
                write!(f, "the result of the tool `{}`", event.request.tool_name)
            }
            Self::Framework(FrameworkEvent::ToolCallFailed(event)) => {
                write!(f, "the failure of the tool `{}`", event.request.tool_name)
            }
            Self::Ended(_) => f.write_str("the end of the call"),
        }
    }
}
