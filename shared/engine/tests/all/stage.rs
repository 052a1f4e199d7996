//! What the tests run engines on, and what several of them use.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{Engine, Middleware, Next, NodeError, Ports, State, Update};
use dormouse_ports::TurnStore;
use dormouse_testkit::{CountingIds, ManualClock, MemoryStore, NoWakes, TokioSpawner};
use serde_json::json;

/// One store and one clock, on which any number of engines come and go.
#[derive(Debug)]
pub(crate) struct Stage {
    /// What survives an engine.
    pub(crate) store: Arc<MemoryStore>,
    /// Time by hand.
    pub(crate) clock: Arc<ManualClock>,
    ids: Arc<CountingIds>,
}

impl Default for Stage {
    fn default() -> Self {
        let start = "2026-01-01T00:00:00Z".parse().expect("an instant");
        Self { store: Arc::default(), clock: Arc::new(ManualClock::starting_at(start)), ids: Arc::default() }
    }
}

impl Stage {
    /// An engine on `store`.
    pub(crate) fn engine_on(&self, store: impl Into<TurnStore>) -> Engine {
        Engine::new(Ports {
            store: store.into(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(NoWakes),
        })
    }

    /// An engine on the stage's own store.
    pub(crate) fn engine(&self) -> Engine {
        self.engine_on(self.store.clone())
    }
}

/// A middleware that makes nothing of a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swallows;

#[async_trait]
impl Middleware for Swallows {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        Ok(next.run(state).await.unwrap_or_default())
    }
}

/// A middleware that passes on a log of its own, for the node alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassesOn;

#[async_trait]
impl Middleware for PassesOn {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let mut passed = state.to_map();
        passed.insert("log".to_owned(), json!(["for the node alone"]));
        next.run(State::from(passed)).await
    }
}
