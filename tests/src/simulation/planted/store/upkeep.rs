//! What is listed, noted and collected.

use std::sync::PoisonError;

use async_trait::async_trait;
use dormouse_ports::{
    Diagnostics, Garbage, GcReport, IndexRepair, InvocationId, Notes, Page, ParkedRow, PausedInvocation, PendingRow,
    PutAside, RuleEntries, RuleEntry, RuleIncarnation, RuleNeed, RuleUpdate, ShapeId, Sleepers, StoreError,
};
use jiff::Timestamp;

use super::LyingStore;
use crate::simulation::planted::PlantedBug;

#[async_trait]
impl Sleepers for LyingStore {
    async fn list_pending(
        &self,
        due_by: Option<Timestamp>,
        cursor: Option<&str>,
    ) -> Result<Page<PendingRow>, StoreError> {
        let mut page = self.inner.list_pending(due_by, cursor).await?;
        match self.bug {
            Some(PlantedBug::FirstPageOnly) => page.next = None,
            Some(PlantedBug::ForgetNeed) => page.items.iter_mut().for_each(|row| row.rule = RuleNeed::Nothing),
            Some(PlantedBug::RetryWithoutRow) => {
                let retried = self.retried.lock().unwrap_or_else(PoisonError::into_inner);
                page.items.retain(|row| !retried.contains(&row.invocation_id));
            }
            Some(PlantedBug::ForgetRow) => page.items.retain(|row| row.generation != 2),
            Some(PlantedBug::KeepRow) => {
                let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
                rows.extend(page.items.iter().map(|row| (row.invocation_id.clone(), row.clone())));
                if page.next.is_none() && due_by.is_none() {
                    page.items = rows.values().cloned().collect();
                }
            }
            _ => {}
        }
        Ok(page)
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
        if self.has(PlantedBug::KeepParkedRow) && matches!(repair, IndexRepair::Unparked(_)) {
            return Ok(());
        }
        self.inner.repair(repair).await
    }
}

#[async_trait]
impl RuleEntries for LyingStore {
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        self.inner.touch_rule(shape, fresh, now).await
    }

    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError> {
        let mut entries = self.inner.rule_entries().await?;
        if self.has(PlantedBug::RemoveAtOnce) {
            entries.iter_mut().filter_map(|entry| entry.idle_since.as_mut()).for_each(|since| *since = Timestamp::MIN);
        }
        Ok(entries)
    }

    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        self.inner.update_rule(update).await
    }
}

#[async_trait]
impl Notes for LyingStore {
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.inner.note(name).await
    }

    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError> {
        self.inner.keep_note(name, text, until).await
    }
}

#[async_trait]
impl Garbage for LyingStore {
    async fn collect_garbage(&self, now: Timestamp, cursor: Option<&str>) -> Result<GcReport, StoreError> {
        self.inner.collect_garbage(now, cursor).await
    }
}

impl Diagnostics for LyingStore {}
