//! What one invocation of a case came to: everything that an assertion may look at.

use std::sync::Arc;

use dormouse_engine::cause::classify;
use dormouse_engine::{DrainSummary, EngineError, NodeEvent, Outcome, State};
use dormouse_ports::{
    Category, CheckpointRecord, InvocationRecord, InvocationStatus, Map, SessionRecord, SignalDescriptor,
};
use indexmap::IndexMap;

use crate::case::Names;
use crate::ledger::{Pages, Ran};
use crate::matching::Bindings;
use crate::past::{EndKind, Past};
use crate::store::Calls;
use crate::telemetry::Captured;

/// How far the case came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Sessions, migrations or middleware could not be registered.
    Registration,
    /// The graph did not compile.
    Compilation,
    Invocation,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Completed {
        state: Map,
    },
    Suspended {
        state: Map,
        descriptor: SignalDescriptor,
        node: String,
    },
    Errored(SeenError),
    /// The process ended right after a save.
    Crashed,
    /// Nothing ran, for this reason.
    Idle(&'static str),
}

/// An error as a caller of the engine or the harness sees it.
#[derive(Clone, Debug)]
pub(crate) struct SeenError {
    pub(crate) category: Category,
    /// The category behind carriers.
    pub(crate) derived: Category,
    pub(crate) message: String,
    pub(crate) node: Option<String>,
    pub(crate) state: Option<Map>,
    pub(crate) details: Map,
    pub(crate) cause: Option<String>,
    /// The messages of the whole cause chain, outermost first.
    pub(crate) causes: Vec<String>,
    pub(crate) transient: bool,
}

impl SeenError {
    /// What `node` raised.
    pub(crate) fn of_node(node: &str, message: &str) -> Self {
        Self {
            category: Category::NodeException,
            derived: Category::NodeException,
            message: message.to_owned(),
            node: Some(node.to_owned()),
            state: None,
            details: Map::new(),
            cause: None,
            causes: Vec::new(),
            transient: false,
        }
    }
}

impl From<&EngineError> for SeenError {
    fn from(error: &EngineError) -> Self {
        Self {
            category: error.category().clone(),
            derived: error.derived_category().clone(),
            message: error.message().to_owned(),
            node: error.node().map(str::to_owned),
            state: error.state().map(State::to_map),
            details: error.details().clone(),
            cause: error.cause().map(|cause| cause.message().to_owned()),
            causes: classify(error).chain.into_iter().map(|link| link.message).collect(),
            transient: error.is_transient(),
        }
    }
}

impl From<&Outcome> for End {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Completed(completed) => Self::Completed { state: completed.state.to_map() },
            Outcome::Suspended(suspended) => Self::Suspended {
                state: suspended.state.to_map(),
                descriptor: suspended.descriptor.clone(),
                node: suspended.suspending_node().to_owned(),
            },
        }
    }
}

impl End {
    pub(crate) fn kind(&self) -> EndKind {
        match self {
            Self::Completed { .. } => EndKind::Completed,
            Self::Suspended { .. } => EndKind::Suspended,
            Self::Errored(_) => EndKind::Errored,
            Self::Crashed => EndKind::Crashed,
            Self::Idle(_) => EndKind::Idle,
        }
    }

    /// The end in a few words, for a failure's text.
    pub(crate) fn tell(&self) -> String {
        match self {
            Self::Completed { .. } => "it completed".to_owned(),
            Self::Suspended { node, .. } => format!("it was suspended at `{node}`"),
            Self::Errored(error) => format!("it errored: {}: {}", error.category, error.message),
            Self::Crashed => "the process ended".to_owned(),
            Self::Idle(reason) => format!("nothing ran: {reason}"),
        }
    }

    pub(crate) fn error(&self) -> Option<&SeenError> {
        match self {
            Self::Errored(error) => Some(error),
            Self::Completed { .. } | Self::Suspended { .. } | Self::Crashed | Self::Idle(_) => None,
        }
    }
}

/// An invocation before the one in question.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    pub(crate) invocation_id: Option<String>,
    pub(crate) correlation_id: Option<String>,
    /// The checkpoint that it left behind.
    pub(crate) checkpoint: Option<CheckpointRecord>,
    /// Of every drain with a timeout: whether it returned in time.
    pub(crate) drains: Vec<bool>,
}

pub(crate) struct Evidence {
    pub(crate) stage: Stage,
    pub(crate) end: End,
    pub(crate) invocation_id: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) pages: Pages,
    pub(crate) captured: Captured,
    pub(crate) calls: Calls,
    pub(crate) drain: DrainSummary,
    /// The sessions that the case names, as they are stored after the invocation.
    pub(crate) sessions: IndexMap<String, Option<SessionRecord>>,
    pub(crate) record: Option<InvocationRecord>,
    /// The checkpoints that were saved, in order, and the one that is stored now.
    pub(crate) saves: Vec<CheckpointRecord>,
    pub(crate) checkpoint: Option<CheckpointRecord>,
    /// The runs of the case before this one.
    pub(crate) earlier: Vec<Earlier>,
    /// What the case names.
    pub(crate) names: Arc<Names>,
    /// The schema version that the graph declares.
    pub(crate) schema_version: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) past: Past,
    pub(crate) bindings: Arc<Bindings>,
}

impl Evidence {
    /// What ran in the outermost graph, or in the graphs inside of it.
    pub(crate) fn ran(&self, inside: bool) -> impl Iterator<Item = &Ran> {
        self.pages.ran.iter().filter(move |ran| (ran.depth > 0) == inside)
    }

    pub(crate) fn events<'e>(&'e self, observer: &'e str) -> impl Iterator<Item = &'e NodeEvent> {
        self.pages.delivered.iter().filter(move |delivered| delivered.observer == observer).map(|d| &d.event)
    }

    /// Whether the invocation is stored as asleep.
    pub(crate) fn is_asleep(&self) -> bool {
        self.record.as_ref().is_some_and(|record| matches!(record.status, InvocationStatus::Suspended))
    }

    /// The session that the invocation belongs to, as it is stored.
    pub(crate) fn saved_session(&self) -> Option<&SessionRecord> {
        let id = self.session_id.as_ref().or_else(|| self.sessions.keys().next())?;
        self.sessions.get(id)?.as_ref()
    }
}
