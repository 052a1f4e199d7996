//! Notes which nodes ran: a layer outside of everything that wraps a node and one right around its body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dormouse_engine::{Middleware, Next, NodeError, State, Update, current};

use crate::ledger::{Ledger, Ran};

tokio::task_local! {
    /// Whether the body of the node that is being executed was reached.
    static REACHED: Arc<AtomicBool>;
}

/// The outermost layer of a graph: one execution of one node, attempts and all.
pub(super) struct Execution {
    pub(super) ledger: Arc<Ledger>,
}

#[async_trait]
impl Middleware for Execution {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        self.ledger.write(|pages| pages.identity = current());
        REACHED.scope(Arc::default(), next.run(state)).await
    }
}

/// The innermost layer: the first attempt that comes so far is noted.
pub(super) struct Body {
    pub(super) ledger: Arc<Ledger>,
    pub(super) depth: usize,
    pub(super) node: String,
    pub(super) holds_graph: bool,
}

#[async_trait]
impl Middleware for Body {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let again = REACHED.try_with(|reached| reached.swap(true, Ordering::Relaxed)).unwrap_or_default();
        if !again {
            let node = self.node.clone();
            let pre_state = state.clone();
            let ran = Ran { depth: self.depth, node, pre_state, holds_graph: self.holds_graph };
            self.ledger.write(|pages| pages.ran.push(ran));
        }
        next.run(state).await
    }
}
