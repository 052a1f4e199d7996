//! The second line: what was lost between a pause and its wake-up is found, and a worker is called for it (late, never
//! lost).
//!
//! A sweep runs no turn: one that kills its process would keep the sweep from all other invocations. It glances,
//! removes the rows of pauses that are over, and [calls](WorkCall) for the rest; an invocation that is claimed by a
//! worker that may live is not called for.
//!
//! A sweep looks at a bounded number of rows and remembers where it stopped, so that its cost does not depend on the
//! number of suspended invocations. In the lane of rows that fell due it reads only due rows. Accepted work
//! is in an index of its own, which holds nothing for long: what waits for a worker, or has lost it, is found by the next
//! sweep. In the lane of
//! everything it reads the index of suspended invocations. In each of them it needs one glance for a hundred rows; an
//! invocation is loaded only to register a wake-up for the first time, and that is noted on its row. When it has seen
//! all of them, it looks after the rules for events (the module `rules`). In the lane of the ground it looks at a
//! stretch of all stored items, for those to which nothing refers any more.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_harness::{Harness, TurnError, WorkCall, store_failed, subscription_failed};
use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Due, DueAction, IndexRepair, InvocationId, InvocationPhase, InvocationRecord, InvocationStatus,
    InvocationSummary, MaintenanceStore, PausedInvocation, PendingRow, Registration, RuleNeed, StoreError,
    Subscription, TurnStore, WakePlan, limits,
};
use jiff::Timestamp;

use crate::order::{SweepOrder, SweepScope, TOGETHER};
use crate::parked::sweep_parked;
use crate::rules::{ROUND, Round, keep_rules};
use crate::summary::SweepSummary;
use crate::time::{TimeLimit, since};

/// Time that a sweep has left when it begins no more rows: enough to write down where it stopped.
const MARGIN: Duration = Duration::from_secs(2);
/// Time by which a wake-up may be late before its timer counts as lost: the scheduler is as exact as that.
const LOST_AFTER: Duration = Duration::from_secs(60);
/// Time that a worker may take to come to accepted work before its call counts as lost, and the sweep calls again.
const CALLED_FOR: Duration = Duration::from_secs(10);
/// Time that a worker may take to register the wake-up of the pause that it has written before that counts as lost.
const REGISTERS: Duration = Duration::from_secs(10);
/// The lane of all that is stored.
const GROUND: &str = "ground";

/// Looks through the index of suspended invocations, as far as `order` goes, and makes up for what was missed. Workers
/// of `harness` do the work that it calls for.
///
/// # Errors
/// If the index cannot be read. A row that cannot be dealt with is counted, not raised.
pub async fn sweep(
    harness: &Harness,
    store: &MaintenanceStore,
    order: impl Into<SweepOrder> + Send,
) -> Result<SweepSummary, TurnError> {
    let order = order.into();
    let left = order.time_left.map(|left| left.saturating_sub(MARGIN));
    let time = TimeLimit::new(&*harness.engine().ports().clock, left);
    let mut sweep = Sweep { harness, store, order, time, called: BTreeSet::new(), summary: SweepSummary::default() };
    sweep.lane(SweepScope::Due).await?;
    sweep.claims().await?;
    if order.scope == SweepScope::Everything {
        sweep.lane(SweepScope::Everything).await?;
        sweep_parked(harness, store, &mut sweep.summary).await?;
        sweep.ground().await?;
    }
    Ok(sweep.summary)
}

/// A sweep that is under way.
struct Sweep<'h> {
    harness: &'h Harness,
    store: &'h MaintenanceStore,
    /// Rows that it may look at.
    order: SweepOrder,
    time: TimeLimit<'h>,
    /// Invocations for which it has called: one that it meets in several lanes is called for, and counted, once.
    called: BTreeSet<InvocationId>,
    summary: SweepSummary,
}

/// Work that no worker has.
#[derive(Debug)]
struct FoundWork {
    call: WorkCall,
    told: SummaryCounter,
}

/// Counter of the summary for which it counts.
#[derive(Clone, Copy, Debug)]
enum SummaryCounter {
    ExpiredClaim,
    NotBegun,
    OrphanTimer,
    Nothing,
}

impl<'h> Sweep<'h> {
    /// The store of turns.
    fn turns(&self) -> &'h TurnStore {
        &self.harness.engine().ports().store
    }

    fn now(&self) -> Timestamp {
        self.harness.engine().ports().clock.now()
    }

    /// Goes on where the lane was left. A round ends at the last row; the next sweep begins a new one.
    async fn lane(&mut self, lane: SweepScope) -> Result<(), TurnError> {
        let mut rows_left = match lane {
            SweepScope::Due => self.order.due_rows,
            SweepScope::Everything => self.order.rows,
        };
        let began = self.turns().notes.note(lane.as_str()).await.map_err(store_failed)?;
        let mut cursor = began.clone();
        let mut kept = began.clone();
        let mut done = false;
        let due_by = (lane == SweepScope::Due).then(|| self.now());
        let mut round = self.round(lane, began.as_deref()).await?;
        while rows_left > 0 && !self.time.is_over() {
            let page = self.store.sleepers.list_pending(due_by, cursor.as_deref()).await.map_err(store_failed)?;
            rows_left = rows_left.saturating_sub(page.items.len().max(1));
            if round.is_some() && kept != page.next && page.items.iter().any(is_unregistered) {
                // A pause that is loaded to be registered may be too much for this process: the next one goes on behind
                // it.
                self.keep_position(lane, page.next.clone()).await?;
                kept = page.next.clone();
            }
            for rows in page.items.chunks(TOGETHER) {
                if self.time.is_over() {
                    self.summary.unfinished = true;
                    break;
                }
                self.summary.examined += rows.len();
                let calls = match &mut round {
                    None => self.due(rows).await?,
                    Some(round) => self.rows(rows, round).await?,
                };
                self.call_for_workers(calls).await;
            }
            cursor = page.next;
            if cursor.is_none() {
                done = true;
                break;
            }
        }
        self.summary.unfinished |= cursor.is_some();
        match (round, &cursor) {
            (Some(mut round), None) if done => {
                let sleepers = &*self.store.sleepers;
                keep_rules(self.harness, sleepers, &mut round, self.time, &mut self.summary).await?;
            }
            (Some(round), Some(cursor)) if began.as_ref() != Some(cursor) => {
                self.keep_note(ROUND, round.kept(cursor)).await?;
            }
            (Some(_) | None, _) => {}
        }
        if cursor != kept {
            self.keep_position(lane, cursor).await?;
        }
        Ok(())
    }

    async fn keep_position(&self, lane: SweepScope, position: Option<String>) -> Result<(), TurnError> {
        self.keep_note(lane.as_str(), position).await
    }

    async fn keep_note(&self, name: &str, text: Option<String>) -> Result<(), TurnError> {
        self.turns().notes.keep_note(name, text.as_deref(), None).await.map_err(store_failed)
    }

    /// The round of the lane of everything, which goes on behind `cursor`.
    async fn round(&self, lane: SweepScope, cursor: Option<&str>) -> Result<Option<Round>, TurnError> {
        Ok(match (lane, cursor) {
            (SweepScope::Due, _) => None,
            (SweepScope::Everything, None) => Some(Round::beginning(self.now())),
            (SweepScope::Everything, Some(cursor)) => {
                let kept = self.turns().notes.note(ROUND).await.map_err(store_failed)?;
                Some(Round::going_on(kept.as_deref(), cursor, self.now()))
            }
        })
    }

    /// The calls for invocations that fell due and that no worker has.
    async fn due(&mut self, rows: &[PendingRow]) -> Result<Vec<FoundWork>, TurnError> {
        let mut found = Vec::new();
        for (row, standing) in self.alive(rows).await? {
            let late_by = self.late_by(row);
            // Accepted work has a row where an earlier version accepted it: it fell due at once.
            let has_begun = row.has_paused();
            let Some(standing) = standing else { continue };
            if has_begun {
                self.summary.late_by = self.summary.late_by.max(late_by);
            }
            match standing {
                InvocationPhase::Asleep if has_begun => {
                    let told =
                        if late_by >= LOST_AFTER { SummaryCounter::OrphanTimer } else { SummaryCounter::Nothing };
                    found.push(FoundWork { call: WorkCall::due(row), told });
                }
                InvocationPhase::Accepted { .. } if !has_begun => found.extend(self.not_begun(row)),
                InvocationPhase::Claimed { until } if !has_begun && limits::out_of_time(until, self.now()) => {
                    found.extend(self.not_begun(row));
                }
                // A dead claim is in an index of its own.
                InvocationPhase::Asleep
                | InvocationPhase::Accepted { .. }
                | InvocationPhase::Claimed { .. }
                | InvocationPhase::Aside
                | InvocationPhase::Ended => {}
            }
        }
        Ok(found)
    }

    /// Time since the row fell due; zero when it has not.
    fn late_by(&self, row: &PendingRow) -> Duration {
        row.due_at.map(|due_at| since(due_at, self.now())).unwrap_or_default()
    }

    /// The call for accepted work, once the first one has had its time.
    fn not_begun(&self, row: &PendingRow) -> Option<FoundWork> {
        let call = WorkCall::abandoned(row.invocation_id.clone());
        (self.late_by(row) >= CALLED_FOR).then_some(FoundWork { call, told: SummaryCounter::NotBegun })
    }

    /// Calls for those who take up what is accepted, and those who take over the claims that are out of time. The store
    /// knows them without going through what sleeps.
    async fn claims(&mut self) -> Result<(), TurnError> {
        let mut dead = self.store.sleepers.dead_claims(self.now()).await.map_err(store_failed)?;
        self.summary.unfinished |= dead.len() > self.order.rows;
        dead.truncate(self.order.rows);
        for ids in dead.chunks(TOGETHER) {
            if self.time.is_over() {
                self.summary.unfinished = true;
                break;
            }
            // The index may be behind.
            let glances = self.glances(ids).await?;
            let lost = |glance: &InvocationSummary| match glance.standing {
                // The first call has its time, and what waits for other work is not late. Input is called for at once all the
                // same: nobody else does where its call was lost.
                InvocationPhase::Accepted { since: at, postponed } => {
                    let is_late = since(at, self.now()) >= CALLED_FOR;
                    let told = if postponed || !is_late { SummaryCounter::Nothing } else { SummaryCounter::NotBegun };
                    (is_late || glance.generation != BEFORE_FIRST_PAUSE).then_some(told)
                }
                InvocationPhase::Claimed { until } => {
                    limits::out_of_time(until, self.now()).then_some(SummaryCounter::ExpiredClaim)
                }
                InvocationPhase::Asleep | InvocationPhase::Aside | InvocationPhase::Ended => None,
            };
            let found = ids.iter().zip(glances).filter_map(|(id, glance)| {
                let Glance::Known(glance) = glance else { return None };
                Some(FoundWork { call: WorkCall::abandoned(id.clone()), told: lost(&glance)? })
            });
            self.call_for_workers(found.collect()).await;
        }
        Ok(())
    }

    /// Calls for a worker for each of `found` that this sweep has not called for.
    async fn call_for_workers(&mut self, found: Vec<FoundWork>) {
        let mut calls = Vec::new();
        for FoundWork { call, told } in found {
            if self.called.insert(call.invocation_id.clone()) {
                match told {
                    SummaryCounter::ExpiredClaim => self.summary.expired_claims += 1,
                    SummaryCounter::NotBegun => self.summary.not_begun += 1,
                    SummaryCounter::OrphanTimer => self.summary.orphan_timers += 1,
                    SummaryCounter::Nothing => {}
                }
                calls.push(call);
            }
        }
        if calls.is_empty() {
            return;
        }
        for (call, made) in calls.iter().zip(self.harness.call_for_all(&calls).await) {
            match made {
                Ok(()) => self.summary.called += 1,
                Err(error) => {
                    self.summary.failed += 1;
                    tracing::warn!(%error, invocation_id = %call.invocation_id, "the sweep could not call for a worker");
                }
            }
        }
    }

    /// Removes the row of a pause that is over. Most of those that are found went with their pause, between the listing and
    /// the glance: of these nothing is left.
    async fn forget_orphan(&mut self, row: &PendingRow) {
        match self.is_left(row).await {
            Ok(false) => return,
            Ok(true) => self.summary.orphan_timers += 1,
            Err(error) => {
                self.summary.row_failed(&row.invocation_id, &store_failed(error));
                return;
            }
        }
        let forgotten = self.store.sleepers.repair(&IndexRepair::Ended(row.clone())).await;
        if let Err(error) = forgotten {
            self.summary.row_failed(&row.invocation_id, &store_failed(error));
        }
    }

    /// True if `row` is still in the index.
    async fn is_left(&self, row: &PendingRow) -> Result<bool, StoreError> {
        let due = row.due_at.map(|at| Due::first(at, DueAction::Fail));
        let paused = Box::new(PausedInvocation {
            wake: WakePlan { due, ..WakePlan::default() },
            ..PausedInvocation::unreadable(row.invocation_id.clone(), row.generation, self.now())
        });
        Ok(self.store.sleepers.pending_row(&paused).await?.is_some())
    }

    /// What is known of each of `ids` without its bodies, in their order. One that cannot be read, as one of a later build whose
    /// phase this one does not know, counts as failed and keeps nobody from the others.
    async fn glances(&mut self, ids: &[InvocationId]) -> Result<Vec<Glance>, TurnError> {
        let invocations = &self.turns().invocations;
        match invocations.glance(ids).await {
            Ok(glances) => return Ok(glances.into_iter().map(Glance::of).collect()),
            Err(StoreError::Corrupt(_)) => {}
            Err(error) => return Err(store_failed(error)),
        }
        let mut glances = Vec::new();
        for id in ids {
            let glance = match invocations.glance(std::slice::from_ref(id)).await {
                Ok(found) => Glance::of(found.into_iter().next().flatten()),
                Err(error @ StoreError::Corrupt(_)) => {
                    self.summary.row_failed(id, &store_failed(error));
                    Glance::Unreadable
                }
                Err(error) => return Err(store_failed(error)),
            };
            glances.push(glance);
        }
        Ok(glances)
    }

    /// The phases of those of `rows` with a pause that is not over, `None` where that cannot be read; the others are removed.
    async fn alive<'r>(
        &mut self,
        rows: &'r [PendingRow],
    ) -> Result<Vec<(&'r PendingRow, Option<InvocationPhase>)>, TurnError> {
        let ids: Vec<_> = rows.iter().map(|row| row.invocation_id.clone()).collect();
        let mut alive = Vec::new();
        for (row, glance) in rows.iter().zip(self.glances(&ids).await?) {
            match glance {
                Glance::Known(glance) if !is_over(row, &glance) => alive.push((row, Some(glance.standing))),
                Glance::Known(_) | Glance::Nothing => self.forget_orphan(row).await,
                Glance::Unreadable => alive.push((row, None)),
            }
        }
        Ok(alive)
    }

    async fn rows(&mut self, rows: &[PendingRow], round: &mut Round) -> Result<Vec<FoundWork>, TurnError> {
        let mut found = Vec::new();
        for (row, standing) in self.alive(rows).await? {
            let Some(standing) = standing else {
                round.may_need(&row.rule, &row.invocation_id);
                continue;
            };
            match self.row(row, standing, round).await {
                Ok(call) => found.extend(call),
                Err(error) => self.summary.row_failed(&row.invocation_id, &error),
            }
        }
        Ok(found)
    }

    /// The work of the row's invocation for which a worker is to be called.
    async fn row(
        &mut self,
        row: &PendingRow,
        standing: InvocationPhase,
        round: &mut Round,
    ) -> Result<Option<FoundWork>, TurnError> {
        if let Some(at) = row.since {
            self.summary.oldest_pause = self.summary.oldest_pause.max(since(at, self.now()));
        }
        let is_noted = row.rule != RuleNeed::Unknown;
        let looks_closer = standing == InvocationPhase::Asleep && is_unregistered(row);
        // However the rest ends: it is needed.
        if is_noted || !looks_closer {
            round.needs(&row.rule, &row.invocation_id);
        }
        match standing {
            InvocationPhase::Accepted { .. } if !row.has_paused() => Ok(self.not_begun(row)),
            InvocationPhase::Accepted { .. } => Ok(Some(FoundWork {
                call: WorkCall::abandoned(row.invocation_id.clone()),
                told: SummaryCounter::Nothing,
            })),
            InvocationPhase::Claimed { until } if limits::out_of_time(until, self.now()) => {
                if !row.has_paused() {
                    return Ok(self.not_begun(row));
                }
                Ok(Some(FoundWork {
                    call: WorkCall::abandoned(row.invocation_id.clone()),
                    told: SummaryCounter::ExpiredClaim,
                }))
            }
            InvocationPhase::Asleep if looks_closer => {
                let loaded = self.turns().invocations.load_invocation(&row.invocation_id).await.map_err(store_failed);
                if !is_noted {
                    round.needs(&need_of(row, &loaded), &row.invocation_id);
                }
                if let Some(record) = loaded? {
                    self.register(row, record).await?;
                }
                Ok(None)
            }
            InvocationPhase::Asleep
            | InvocationPhase::Claimed { .. }
            | InvocationPhase::Aside
            | InvocationPhase::Ended => Ok(None),
        }
    }

    /// Sees to it that the wake-up of `record` is registered, and notes it so that no later sweep does it again.
    async fn register(&mut self, row: &PendingRow, record: InvocationRecord) -> Result<(), TurnError> {
        let paused = record.paused;
        if !matches!(record.status, InvocationStatus::Suspended) || paused.generation != row.generation {
            return Ok(());
        }
        if !row.registered && paused.wake != WakePlan::default() {
            let subscribed = self.harness.wakes().register(&Subscription::from(&paused)).await;
            let registration = subscribed.map_err(subscription_failed)?;
            self.summary.registered += 1;
            // Whoever has written it a moment ago is about to register it.
            let is_late = row.since.is_none_or(|at| since(at, self.now()) >= REGISTERS);
            self.summary.orphan_timers += usize::from(is_late && registration == Registration::Made);
        }
        let noted = IndexRepair::Registered(PendingRow { rule: RuleNeed::of(&paused), ..row.clone() });
        self.store.sleepers.repair(&noted).await.map_err(store_failed)
    }

    /// Removes what nothing refers to any more from the next stretch of all that is stored.
    async fn ground(&mut self) -> Result<(), TurnError> {
        if self.order.rows == 0 || self.time.is_over() {
            return Ok(());
        }
        let began = self.turns().notes.note(GROUND).await.map_err(store_failed)?;
        let collected = match self.store.garbage.collect_garbage(self.now(), began.as_deref()).await {
            Ok(collected) => collected,
            // What is left lying costs little. It keeps no sweep from telling what it found.
            Err(error) => {
                self.summary.failed += 1;
                tracing::warn!(%error, "the sweep could not collect what nothing refers to");
                return Ok(());
            }
        };
        self.summary.collected += collected.removed;
        if collected.next != began {
            self.keep_note(GROUND, collected.next).await?;
        }
        Ok(())
    }
}

/// What the store tells of an invocation without its bodies.
enum Glance {
    Nothing,
    Known(InvocationSummary),
    /// It is damaged, or was written by another version.
    Unreadable,
}

impl Glance {
    fn of(found: Option<InvocationSummary>) -> Self {
        found.map_or(Self::Nothing, Self::Known)
    }
}

/// The rule that the pause of `row` needs, by its invocation as `loaded`; none, when it is over.
fn need_of(row: &PendingRow, loaded: &Result<Option<InvocationRecord>, TurnError>) -> RuleNeed {
    match loaded {
        Ok(Some(record)) if record.paused.generation == row.generation => RuleNeed::of(&record.paused),
        Ok(_) => RuleNeed::Nothing,
        Err(_) => RuleNeed::Unknown,
    }
}

/// True unless it is noted on the row that everything is registered.
fn is_unregistered(row: &PendingRow) -> bool {
    !row.registered || row.rule == RuleNeed::Unknown
}

/// True if the pause of `row` is over: not while it is put aside, for a retry writes the row again. Rows are written
/// together with their invocation, so that none is early.
fn is_over(row: &PendingRow, glance: &InvocationSummary) -> bool {
    glance.standing == InvocationPhase::Ended || glance.generation > row.generation
}
