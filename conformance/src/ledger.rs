//! What happened during an invocation, written down by the fixtures' own nodes, middleware and observers.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_engine::{Identity, Middleware, Next, NodeError, NodeEvent, State, Update, current};

/// A node that was dispatched, subgraph nodes included.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// How deep its graph lies: 0 for the outermost.
    pub(crate) depth: usize,
    pub(crate) node: String,
    pub(crate) pre_state: State,
}

/// An event in the order of its delivery.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) observer: String,
    pub(crate) event: NodeEvent,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// Who ran, as a node sees it.
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) ran: Vec<Ran>,
    pub(crate) middleware: Vec<String>,
    pub(crate) delivered: Vec<Delivered>,
}

/// The book of one case; [`take`](Self::take) closes the pages of one invocation.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Pages>);

impl Ledger {
    pub(crate) fn write(&self, note: impl FnOnce(&mut Pages)) {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Who ran last.
    pub(crate) fn identity(&self) -> Option<Arc<Identity>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).identity.clone()
    }

    pub(crate) fn take(&self) -> Pages {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The outermost layer around every node: notes that it was dispatched, and on what state.
pub(crate) struct Tracer {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) depth: usize,
    pub(crate) node: String,
}

#[async_trait]
impl Middleware for Tracer {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let ran = Ran { depth: self.depth, node: self.node.clone(), pre_state: state.clone() };
        self.ledger.write(|pages| {
            pages.identity = current();
            pages.ran.push(ran);
        });
        next.run(state).await
    }
}
