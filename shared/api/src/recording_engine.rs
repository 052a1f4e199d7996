use std::sync::Arc;

use dormouse_engine::{Engine, Ports};
use dormouse_ports::{IdSource, InvocationLimits, Spawner, WakePlanner};

use crate::{Receipts, RecordingStore};

/// An engine whose store is a [`RecordingStore`]. A server demands one, so that none is made that publishes no events
/// of its turns.
///
/// ```
/// # use std::sync::Arc;
/// # use dormouse_api::{RecordingEngine, RecordingStore};
/// # use dormouse_ports::{IdSource, Spawner, WakePlanner};
/// fn served(store: RecordingStore, ids: Arc<dyn IdSource>, spawner: Arc<dyn Spawner>, planner: Arc<dyn WakePlanner>) {
///     let engine: RecordingEngine = RecordingEngine::new(store, ids, spawner, planner);
///     # let _ = engine;
/// }
/// ```
/// On another store there is none:
/// ```compile_fail
/// # use std::sync::Arc;
/// # use dormouse_api::{RecordingEngine, RecordingStore};
/// # use dormouse_ports::{IdSource, Spawner, StateStore, WakePlanner};
/// fn bare(store: Arc<dyn StateStore>, ids: Arc<dyn IdSource>, spawner: Arc<dyn Spawner>, planner: Arc<dyn WakePlanner>) {
///     let engine: RecordingEngine = RecordingEngine::new(store, ids, spawner, planner);
///     # let _ = engine;
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RecordingEngine {
    engine: Engine,
    receipts: Option<Receipts>,
}

impl RecordingEngine {
    /// An engine on `store`, which goes by the store's time.
    pub fn new(
        store: RecordingStore,
        ids: Arc<dyn IdSource>,
        spawner: Arc<dyn Spawner>,
        planner: Arc<dyn WakePlanner>,
    ) -> Self {
        let clock = store.clock().clone();
        let receipts = store.receipts().cloned();
        let engine = Engine::new(Ports { store: store.into(), clock, ids, spawner, planner });
        Self { engine, receipts }
    }

    /// The same with other limits.
    #[must_use]
    pub fn limited(self, limits: InvocationLimits) -> Self {
        Self { engine: self.engine.limited(limits), ..self }
    }

    /// The engine, for what runs graphs with it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Issuer of the receipts of its tasks.
    pub fn receipts(&self) -> Option<&Receipts> {
        self.receipts.as_ref()
    }
}
