//! Requests of sweeps and repairs to the store in memory.

use dormouse_ports::{
    IndexRepair, InvocationId, InvocationPhase, InvocationRecord, InvocationStatus, InvocationSummary, ParkedRow,
    PausedInvocation, PendingRow, RuleEntry, RuleIncarnation, RuleUpdate, ShapeId, SignalState, limits,
};
use jiff::Timestamp;

use super::tables::{Tables, pending_key};

/// Orders the index of parked signals by the instant at which they arrived.
pub(super) fn parked_key(row: &ParkedRow) -> String {
    format!("{:021}#{}", row.received_at.as_nanosecond().max(0), row.signal_id)
}

pub(super) fn glance(tables: &Tables, record: &InvocationRecord) -> InvocationSummary {
    let standing = match &record.status {
        InvocationStatus::Errored(_) if tables.aside.contains_key(&record.paused.invocation_id) => {
            InvocationPhase::Aside
        }
        InvocationStatus::Suspended => InvocationPhase::Asleep,
        InvocationStatus::Accepted { .. } => {
            let since = tables.accepted.get(&record.paused.invocation_id).copied().unwrap_or_default();
            InvocationPhase::Accepted { since, postponed: tables.postponed.contains(&record.paused.invocation_id) }
        }
        InvocationStatus::Resuming(claim) => InvocationPhase::Claimed { until: claim.until },
        InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => {
            InvocationPhase::Ended
        }
    };
    InvocationSummary { generation: record.paused.generation, standing }
}

/// The invocations with a payload that no worker has at `now`: at most `count`, the oldest.
pub(super) fn dead_claims(tables: &Tables, now: Timestamp, count: usize) -> Vec<InvocationId> {
    let mut dead: Vec<_> = tables
        .invocations
        .iter()
        .filter(|(_, record)| match &record.status {
            InvocationStatus::Accepted { .. } => true,
            InvocationStatus::Resuming(claim) => limits::out_of_time(claim.until, now),
            InvocationStatus::Suspended
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => false,
        })
        .map(|(id, _)| (tables.accepted.get(id), id))
        .collect();
    dead.sort();
    dead.into_iter().take(count).map(|(_, id)| id.clone()).collect()
}

impl Tables {
    pub(super) fn pending_row(&self, paused: &PausedInvocation) -> Option<PendingRow> {
        let kept = self.pending.get(&pending_key(&PendingRow::of(paused)));
        kept.filter(|row| row.generation == paused.generation).cloned()
    }

    /// Removes the signals that wait for an invocation that is over, and returns their number.
    pub(super) fn collect_waits(&mut self) -> usize {
        let mut signals = std::mem::take(&mut self.signals);
        let before = signals.len();
        signals.retain(|_, state| match state {
            SignalState::Waiting { invocation_id, .. } => {
                let record = self.invocations.get(invocation_id);
                record.is_some_and(|record| glance(self, record).standing != InvocationPhase::Ended)
            }
            SignalState::Buffered(_) | SignalState::Delivered { .. } => true,
        });
        self.signals = signals;
        before - self.signals.len()
    }

    pub(super) fn touch_rule(&mut self, shape: &ShapeId, fresh: &RuleIncarnation, now: Timestamp) -> RuleEntry {
        let made = || RuleEntry {
            shape: shape.clone(),
            edition: fresh.clone(),
            touches: 0,
            made_at: now,
            stands_since: None,
            idle_since: None,
        };
        let entry = self.rules.entry(shape.clone()).or_insert_with(made);
        entry.touches += 1;
        entry.idle_since = None;
        entry.clone()
    }

    /// The entry of a rule, if it is that of `read` and was not touched since.
    fn untouched(&mut self, read: &RuleEntry) -> Option<&mut RuleEntry> {
        let kept = self.rules.get_mut(&read.shape)?;
        (kept.edition == read.edition && kept.touches == read.touches).then_some(kept)
    }

    pub(super) fn repair(&mut self, repair: &IndexRepair) {
        match repair {
            IndexRepair::Registered(row) => {
                if let Some(kept) = self.pending.get_mut(&pending_key(row))
                    && kept.generation == row.generation
                {
                    kept.registered = true;
                    kept.rule = row.rule.clone();
                }
            }
            IndexRepair::Ended(row) => {
                let key = pending_key(row);
                if self.pending.get(&key).is_some_and(|kept| kept.generation == row.generation) {
                    self.pending.remove(&key);
                }
            }
            IndexRepair::Row(paused) => {
                let row = PendingRow::of(paused);
                self.pending.entry(pending_key(&row)).or_insert(row);
            }
            IndexRepair::Wait(paused) => {
                let is_past = |record: &InvocationRecord| {
                    record.paused.generation > paused.generation
                        || glance(self, record).standing == InvocationPhase::Ended
                };
                if self.invocations.get(&paused.invocation_id).is_some_and(is_past) {
                    return;
                }
                for id in paused.waits() {
                    let invocation_id = paused.invocation_id.clone();
                    let generation = paused.generation;
                    if matches!(self.signals.get(&id), None | Some(SignalState::Delivered { .. })) {
                        self.signals.insert(id, SignalState::Waiting { invocation_id, generation });
                    }
                }
            }
            IndexRepair::Unparked(row) => {
                self.parked.remove(&parked_key(row));
            }
        }
    }

    pub(super) fn update_rule(&mut self, update: &RuleUpdate) {
        match update {
            RuleUpdate::Idle { entry, since } => {
                if let Some(kept) = self.untouched(entry) {
                    kept.idle_since = Some(*since);
                }
            }
            RuleUpdate::Stands { entry, since } => {
                let kept = self.rules.get_mut(&entry.shape).filter(|kept| kept.edition == entry.edition);
                if let Some(kept) = kept {
                    kept.stands_since = Some(*since);
                }
            }
            RuleUpdate::Unneeded(entry) => {
                if self.untouched(entry).is_some() {
                    self.rules.remove(&entry.shape);
                }
            }
        }
    }
}
