//! Sweeps that die, or in whose midst somebody pauses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dormouse_harness::Harness;
use dormouse_maintenance::SweepScope;
use dormouse_ports::{
    IndexRepair, InvocationId, InvocationRecord, InvocationSummary, Invocations, MaintenanceStore, Notes, Page,
    ParkedRow, PausedInvocation, PendingRow, PutAside, RuleEntries, RuleEntry, RuleIncarnation, RuleUpdate, ShapeId,
    Sleepers, StoreError, TurnStore,
};
use dormouse_testkit::{Fault, FaultyStore, MemoryStore};
use futures::FutureExt;
use jiff::Timestamp;

use super::{KEPT, Scene, begin, has_a_rule, worker};

/// The store on which somebody pauses at one chosen call, while the sweep waits for its answer.
async fn pauses_at(call: usize) -> bool {
    let scene = Scene::new().with_a_ripe_rule().await;
    let sleeper = scene.another_worker();
    // The process that sweeps dies at that call; the one that comes next goes on.
    let broken = Arc::new(FaultyStore::broken_at(scene.stage.store.clone(), call, Fault::DieBefore));
    let sweeper = worker(&scene.stage, broken.clone());
    assert!(
        dormouse_maintenance::sweep(&sweeper, &broken.clone().into(), SweepScope::Everything).now_or_never().is_none()
            == broken.has_struck()
    );
    begin(&sleeper, "job", "second").await;
    has_a_rule(&scene, "second").await;
    for _ in 0..4 {
        scene.sweep().await;
        has_a_rule(&scene, "second").await;
        scene.stage.clock.advance(KEPT);
    }
    assert_eq!(scene.rules().len(), 1, "nothing is left of the rule before");
    broken.has_struck()
}

#[tokio::test]
async fn whoever_pauses_while_a_rule_goes_has_one_wherever_the_sweep_dies() {
    let mut call = 0;
    while pauses_at(call).await {
        call += 1;
    }
    assert!(call > 10, "the sweep has so many calls");
}

/// A store on which somebody pauses before one chosen call of the sweep, which then goes on.
struct Interrupted {
    inner: Arc<MemoryStore>,
    sleeper: Harness,
    calls: AtomicUsize,
    at: usize,
    /// Whether the end of an entry has no condition, which is a bug.
    is_blind: bool,
}

impl Interrupted {
    async fn meet(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == self.at {
            begin(&self.sleeper, "job", "second").await;
        }
    }

    /// The store with this before it.
    fn turns(self: Arc<Self>) -> TurnStore {
        let store = self.inner.clone();
        TurnStore { invocations: self.clone(), rules: self.clone(), notes: self, ..store.into() }
    }

    /// The store with this before it.
    fn maintenance(self: Arc<Self>) -> MaintenanceStore {
        let store = self.inner.clone();
        MaintenanceStore { sleepers: self, ..store.into() }
    }
}

#[async_trait]
impl Sleepers for Interrupted {
    async fn list_pending(&self, due_by: Option<Timestamp>, at: Option<&str>) -> Result<Page<PendingRow>, StoreError> {
        self.meet().await;
        self.inner.list_pending(due_by, at).await
    }

    async fn pending_row(&self, paused: &PausedInvocation) -> Result<Option<PendingRow>, StoreError> {
        self.inner.pending_row(paused).await
    }

    async fn dead_claims(&self, now: Timestamp) -> Result<Vec<InvocationId>, StoreError> {
        self.inner.dead_claims(now).await
    }

    async fn put_aside(&self) -> Result<PutAside, StoreError> {
        self.inner.put_aside().await
    }

    async fn list_parked(&self, cursor: Option<&str>) -> Result<Page<ParkedRow>, StoreError> {
        self.inner.list_parked(cursor).await
    }

    async fn repair(&self, repair: &IndexRepair) -> Result<(), StoreError> {
        self.meet().await;
        self.inner.repair(repair).await
    }
}

#[async_trait]
impl Invocations for Interrupted {
    async fn load_invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        self.inner.load_invocation(id).await
    }

    async fn glance(&self, ids: &[InvocationId]) -> Result<Vec<Option<InvocationSummary>>, StoreError> {
        self.meet().await;
        self.inner.glance(ids).await
    }
}

#[async_trait]
impl RuleEntries for Interrupted {
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        self.inner.touch_rule(shape, fresh, now).await
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        self.meet().await;
        self.inner.rule_entries().await
    }

    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        self.meet().await;
        if self.is_blind && matches!(update, RuleUpdate::Unneeded(_)) {
            let entry = self.inner.rule_entries().await?.remove(0);
            return self.inner.update_rule(&RuleUpdate::Unneeded(entry)).await;
        }
        self.inner.update_rule(update).await
    }
}

#[async_trait]
impl Notes for Interrupted {
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.inner.note(name).await
    }

    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError> {
        self.meet().await;
        self.inner.keep_note(name, text, until).await
    }
}

/// A sweep that removes a rule, while somebody pauses before its call number `at`; `None` when it has fewer calls.
async fn interrupted(at: usize, is_blind: bool) -> Option<Scene> {
    let scene = Scene::new().with_a_ripe_rule().await;
    let inner = scene.stage.store.clone();
    let sleeper = scene.another_worker();
    let store = Arc::new(Interrupted { inner, sleeper, calls: AtomicUsize::new(0), at, is_blind });
    dormouse_maintenance::sweep(
        &worker(&scene.stage, store.clone().turns()),
        &store.clone().maintenance(),
        SweepScope::Everything,
    )
    .await
    .unwrap();
    (store.calls.load(Ordering::Relaxed) > at).then_some(scene)
}

#[tokio::test]
async fn whoever_pauses_between_two_steps_of_the_sweep_keeps_a_rule() {
    let mut at = 0;
    while let Some(scene) = interrupted(at, false).await {
        for _ in 0..4 {
            has_a_rule(&scene, "second").await;
            let summary = scene.sweep().await;
            assert_eq!(summary.orphan_timers, 0, "before call {at}");
            scene.stage.clock.advance(KEPT);
        }
        assert_eq!(scene.rules().len(), 1, "before call {at}");
        at += 1;
    }
    assert!(at >= 5, "the end of an entry is one of the steps");
}

/// What the condition is for.
#[tokio::test]
async fn if_an_entry_went_unconditionally_somebody_would_sleep_without_a_rule() {
    let mut lost = Vec::new();
    for at in 0.. {
        let Some(scene) = interrupted(at, true).await else { break };
        if scene.rules().is_empty() {
            lost.push(at);
        }
    }
    assert_eq!(lost.len(), 1, "who paused between the look at the entry and its end: {lost:?}");
}

#[tokio::test]
async fn what_a_dead_sweep_left_of_a_rule_goes_in_the_next_round() {
    let mut call = 0;
    loop {
        for fault in Fault::ALL {
            let scene = Scene::new().with_a_ripe_rule().await;
            let broken = Arc::new(FaultyStore::broken_at(scene.stage.store.clone(), call, fault));
            let sweeper = worker(&scene.stage, broken.clone());
            let _ =
                dormouse_maintenance::sweep(&sweeper, &broken.clone().into(), SweepScope::Everything).now_or_never();
            let summary = scene.sweep().await;
            assert_eq!((scene.rules(), summary.orphan_timers), (Vec::new(), 0), "call {call}, {fault:?}");
            if !broken.has_struck() {
                return;
            }
        }
        call += 1;
    }
}
