use std::sync::Arc;

use dormouse_engine::{Engine, Ports};
use dormouse_ports::{IdSource, InvocationLimits, Spawner, WakePlanner};

use crate::RecordingStore;

/// An engine whose store is a [`RecordingStore`]. A server demands one, so that none is made whose turns tell their clients
/// nothing.
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
pub struct RecordingEngine(Engine);

impl RecordingEngine {
    /// An engine on `store`, which goes by the store's time.
    pub fn new(
        store: RecordingStore,
        ids: Arc<dyn IdSource>,
        spawner: Arc<dyn Spawner>,
        planner: Arc<dyn WakePlanner>,
    ) -> Self {
        let clock = store.clock().clone();
        Self(Engine::new(Ports { store: store.into(), clock, ids, spawner, planner }))
    }

    /// The same with other limits.
    #[must_use]
    pub fn limited(self, limits: InvocationLimits) -> Self {
        Self(self.0.limited(limits))
    }

    /// The engine, for what runs graphs with it.
    pub fn engine(&self) -> &Engine {
        &self.0
    }
}
