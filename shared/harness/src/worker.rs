//! The services on which turns run.

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{CompiledGraph, Engine, Ports};
use dormouse_ports::{EventBus, PausedInvocation, TurnStore};
use jiff::Timestamp;

use crate::bucket::Bucket;
use crate::budget::{Budget, ProgressBackoff};
use crate::chat::Listeners;
use crate::config::HarnessConfig;
use crate::error::{TurnError, subscription_failed};
use crate::lines::Lines;
use crate::records::InvocationRecords;
use crate::registry::{GraphRegistry, VersionedGraph, events_of};
use crate::wake_registrar::WakeRegistrar;

/// The services on which turns run: each part has one concern.
pub(crate) struct Worker {
    pub(crate) engine: Engine,
    pub(crate) graphs: GraphRegistry,
    pub(crate) config: HarnessConfig,
    pub(crate) records: InvocationRecords,
    pub(crate) wakes: WakeRegistrar,
    pub(crate) bus: Arc<dyn EventBus>,
    pub(crate) lines: Lines,
    pub(crate) listeners: Listeners,
}

impl Worker {
    pub(crate) fn ports(&self) -> &Ports {
        self.engine.ports()
    }

    pub(crate) fn store(&self) -> &TurnStore {
        &self.ports().store
    }

    /// The tenant whose keys bring signals to an invocation of `graph` that began in the name of `tenant`.
    pub(crate) fn signalled_by(&self, graph: &VersionedGraph, tenant: Option<String>) -> Option<String> {
        // What a graph of a source waits for is answered in ways of its own, so that none of its pauses pays for this one.
        tenant.filter(|_| graph.version.is_none() && self.config.signals_of_tenants)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.ports().clock.now()
    }

    /// The time of a turn with a worker that has `time_left`.
    pub(crate) fn budget(&self, time_left: Option<Duration>) -> Budget<'_> {
        Budget::new(self.ports(), &self.config, time_left)
    }

    /// Waits between looks at the progress of another worker.
    pub(crate) fn backoff(&self) -> ProgressBackoff<'_> {
        ProgressBackoff::new(self.ports(), &self.config)
    }

    /// The graph of a pause. A worker that does not know it leaves it to one that does.
    pub(crate) async fn graph_of(&self, paused: &PausedInvocation) -> Result<Arc<CompiledGraph>, TurnError> {
        let known = self.graphs.of(paused).await;
        known.map_err(|error| TurnError { bucket: Bucket::RetryableTransient, ..TurnError::from(error) })
    }

    /// Makes sure that the rules stand for the events that `graph` declares, before any node of it runs.
    pub(crate) async fn stand_rules_of(&self, graph: &CompiledGraph) -> Result<(), TurnError> {
        for shape in events_of(graph) {
            self.wakes.rules().rely_on(shape).await.map_err(subscription_failed)?;
        }
        Ok(())
    }
}
