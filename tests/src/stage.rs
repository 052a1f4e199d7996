use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_api::{AgentsError, Outside};
use dormouse_engine::{CompiledGraph, Engine, Ports};
use dormouse_harness::{
    DescriptorWakes, GraphRegistry, Harness, HarnessConfig, Mode, TurnError, TurnOutcome, WORK, WorkCall,
};
use dormouse_maintenance::doctor::{Diagnosis, Doctor, RulesSeen};
use dormouse_maintenance::{SweepOrder, SweepSummary, sweep};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, Event, IdSource, Journal, MaintenanceStore, Map,
    StoreError, TurnStore,
};
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use serde_json::Value;

/// Writes what is no task of anybody as a server does: without what nodes recorded.
struct Untold(Arc<dyn Commits>);

#[async_trait]
impl Commits for Untold {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.0.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let journal = Journal { recorded: None, ..commit.journal.clone() };
        let changes_nothing = commit.session.is_none() && commit.invocation.is_none() && journal.is_empty();
        if changes_nothing { Ok(()) } else { self.0.commit(&Commit { journal, ..commit.clone() }).await }
    }
}

/// One store, one clock and one outside world, on which any number of workers come and go.
#[derive(Debug)]
pub struct Stage {
    /// What survives a worker.
    pub store: Arc<MemoryStore>,
    /// Time by hand.
    pub clock: Arc<ManualClock>,
    /// What was registered outside.
    pub subscriptions: Arc<MemorySubscriptions>,
    /// What nodes and the harness announced outside.
    pub bus: Arc<MemoryBus>,
    ids: Arc<CountingIds>,
}

impl Default for Stage {
    fn default() -> Self {
        let start = "2026-01-01T00:00:00Z".parse().expect("an instant");
        Self {
            store: Arc::new(MemoryStore::default()),
            clock: Arc::new(ManualClock::starting_at(start)),
            subscriptions: Arc::default(),
            bus: Arc::default(),
            ids: Arc::default(),
        }
    }
}

impl Stage {
    /// A stage whose store lists at most `size` rows at once.
    pub fn with_pages_of(size: usize) -> Self {
        Self { store: Arc::new(MemoryStore::with_page_size(size)), ..Self::default() }
    }

    /// A new stage that gives no id which `self` has given: a store that remembers commits may be behind both.
    pub fn another(&self) -> Self {
        Self { ids: self.ids.clone(), ..Self::default() }
    }

    /// An engine on `store`.
    pub fn engine_on(&self, store: impl Into<TurnStore>) -> Engine {
        Engine::new(Ports {
            store: store.into(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(DescriptorWakes),
        })
    }

    /// An engine on the stage's own store.
    pub fn engine(&self) -> Engine {
        self.engine_on(self.store.clone())
    }

    /// A worker that serves `graphs` on `store`.
    pub fn harness_on(
        &self,
        store: impl Into<TurnStore>,
        mode: Mode,
        graphs: impl IntoIterator<Item = Arc<CompiledGraph>>,
    ) -> Harness {
        let registry = GraphRegistry::new(graphs);
        let subscriptions = self.subscriptions.clone();
        let bus = self.bus.clone();
        Harness::new(self.engine_on(store), registry, subscriptions, bus, HarnessConfig::new(mode))
    }

    /// A worker that serves the graphs that ship. What their nodes record is told to nobody.
    ///
    /// # Errors
    /// When one of them does not compile.
    pub fn shipped_on(&self, store: impl Into<TurnStore>, mode: Mode) -> Result<Harness, AgentsError> {
        let outside = Outside::new(self.bus.clone(), self.clock.clone());
        let graphs = dormouse_app::agents().compile(&outside)?.graphs;
        let config = HarnessConfig::new(mode);
        let store = store.into();
        let store = TurnStore { commits: Arc::new(Untold(store.commits.clone())), ..store };
        Ok(Harness::new(self.engine_on(store), graphs, self.subscriptions.clone(), self.bus.clone(), config))
    }

    /// An id that nobody has.
    pub fn fresh_id(&self) -> String {
        self.ids.fresh()
    }

    /// A worker claims the invocation `id` with `payload`, for 30 seconds, and dies.
    ///
    /// # Panics
    /// When the claim is not granted.
    pub async fn die_holding(&self, id: &str, payload: Map) {
        self.hold(id, payload, Duration::from_secs(30)).await;
    }

    /// A worker claims the invocation `id` with `payload`, for as long as `lasting` says.
    ///
    /// # Panics
    /// When the claim is not granted.
    pub async fn hold(&self, id: &str, payload: Map, lasting: Duration) {
        self.hold_in(&*self.store, id, payload, lasting).await;
    }

    /// The same in another store than the stage's own.
    ///
    /// # Panics
    /// When the claim is not granted.
    pub async fn hold_in(&self, store: &dyn Commits, id: &str, payload: Map, lasting: Duration) {
        let now = self.clock.now();
        let request = ClaimRequest {
            invocation_id: id.into(),
            generation: None,
            owner: "dead".into(),
            now,
            until: now + lasting,
            past: None,
            payload: Some(payload),
            answered: None,
        };
        let claimed = store.claim(&request).await;
        assert!(matches!(claimed, Ok(ClaimOutcome::Granted(_))), "{claimed:?}");
    }

    /// What a sweep of the stage's own store goes through.
    pub fn maintenance(&self) -> MaintenanceStore {
        self.store.clone().into()
    }

    /// Lets a sweep of `harness`, which is on the stage's own store, come by, and `harness` do what that called for.
    ///
    /// # Errors
    /// When the sweep fails.
    pub async fn sweep(
        &self,
        harness: &Harness,
        order: impl Into<SweepOrder> + Send,
    ) -> Result<SweepSummary, TurnError> {
        self.sweep_on(harness, &self.maintenance(), order).await.map(|(summary, _)| summary)
    }

    /// The same on any `store`; also tells what came of the calls, in their order.
    ///
    /// # Errors
    /// When the sweep fails.
    pub async fn sweep_on(
        &self,
        harness: &Harness,
        store: &MaintenanceStore,
        order: impl Into<SweepOrder> + Send,
    ) -> Result<(SweepSummary, Vec<TurnOutcome>), TurnError> {
        let before = self.bus.events().len();
        let summary = sweep(harness, store, order).await?;
        let mut outcomes = Vec::new();
        for event in self.bus.events().into_iter().skip(before) {
            if let Some(call) = called_for(event) {
                outcomes.push(harness.answer_call(&call, None).await.outcome);
            }
        }
        Ok((summary, outcomes))
    }

    /// Lets so much time pass that every lease and claim of a dead worker is over.
    pub fn outlive_leases(&self) {
        self.clock.advance(Duration::from_secs(60));
    }
}

/// The call for a worker that `event` is, if it is one.
///
/// # Panics
/// When it is one that cannot be read.
pub fn called_for(event: Event) -> Option<WorkCall> {
    let call = serde_json::from_value(Value::Object(event.detail));
    (event.detail_type == WORK).then(|| call.expect("a call for a worker"))
}

/// What the doctor says of `id`, with the rules that are on the bus just now.
///
/// # Errors
/// When there is nobody of that name, or the store does not answer.
pub async fn diagnose(harness: &Harness, store: &MaintenanceStore, id: &str) -> Result<Diagnosis, TurnError> {
    Doctor::new(harness, store, RulesSeen::look(harness).await).diagnose(&id.into()).await
}
