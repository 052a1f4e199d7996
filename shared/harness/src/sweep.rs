//! The second line: what was lost between a pause and its wake-up is found, and a worker is called for it (late, never
//! lost).
//!
//! A sweep runs no turn: one that kills its process would keep the sweep from everybody else. It glances, removes the rows
//! of what is over, and [calls](WorkCall) for the rest; what is claimed by a worker that may live is not called for.
//!
//! A sweep looks at a bounded number of rows and remembers where it stopped, so that what it costs does not depend on
//! how many sleep. In the lane of what fell due it reads only due rows. Claims whose worker died are in an index of
//! their own, which holds nothing else for long: they are found by the next sweep. In the lane of everything it reads
//! the index of what sleeps. In each of them it needs one glance for a hundred rows; an invocation is loaded only to
//! register a wake-up for the first time, and that is noted on its row. When it has seen all of them, it looks after the rules for events
//! ([`rules`](crate::rules)). In the lane of the ground it looks at a stretch of all that is stored, for what
//! nothing refers to any more.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_ports::{
    Glance, InvocationId, InvocationRecord, InvocationStatus, PendingRow, Registration, RuleNeed, Standing,
    SubscriptionError, Upkeep, WakePlan, limits,
};
use jiff::Timestamp;

use crate::harness::subscription_failed;
use crate::rules::{ROUND, Round};
use crate::signal::{store_failed, subscription_to};
use crate::{Harness, TurnError, WorkCall};

/// What is left of the time of a sweep when it begins no more rows: enough to write down where it stopped.
const MARGIN: Duration = Duration::from_secs(2);
/// How late a wake-up may be before its timer counts as lost: what fires timers is as exact as that.
const LOST_AFTER: Duration = Duration::from_secs(60);
/// How long a worker may take to come to accepted work before its call counts as lost, and the sweep calls again.
const CALLED_FOR: Duration = Duration::from_secs(10);
/// The lane of all that is stored.
const GROUND: &str = "ground";
/// The most rows that the store is asked about at once.
pub(crate) const TOGETHER: usize = 100;

/// Which rows a sweep looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepScope {
    /// What has fallen due, and claims whose worker died.
    Due,
    /// The same, and then the rest: wake-ups that may not be registered, rows of pauses that are over, signals that
    /// nobody claimed.
    Everything,
}

impl SweepScope {
    /// Its name in the log, in events and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Everything => "everything",
        }
    }
}

/// What a sweep is to do, and how much of it at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOrder {
    /// Which rows.
    pub scope: SweepScope,
    /// How many rows in each lane; the next sweep goes on behind them.
    pub rows: usize,
    /// After which time no more rows are begun.
    pub time_left: Option<Duration>,
}

impl From<SweepScope> for SweepOrder {
    /// At most 1,000 rows in each lane, without a limit of time.
    fn from(scope: SweepScope) -> Self {
        Self { scope, rows: 1000, time_left: None }
    }
}

/// What a sweep did and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepSummary {
    /// Rows that it looked at.
    pub examined: usize,
    /// Invocations for which it called for a worker: to continue them, or to end them.
    pub called: usize,
    /// Wake-ups that it registered.
    pub registered: usize,
    /// Rows that it could not deal with, and what the event bus did not do or take; a later sweep will try again.
    pub failed: usize,
    /// How long ago the most overdue row fell due; zero when none was due.
    pub late_by: Duration,
    /// How long the one that sleeps longest has slept, among the rows that were looked at.
    pub oldest_pause: Duration,
    /// Claims whose worker had died or had a wrong clock, or for which none had come: work whose call was lost. Each sweep
    /// counts those that it finds, until a worker has them.
    pub expired_claims: usize,
    /// Timers and pauses that had lost each other: rows whose pause was over, and which are removed; wake-ups that were
    /// not registered outside, and now are; rules for events that were needed and gone, and are there again; and pauses
    /// that nothing woke for a minute after they fell due, counted by each sweep until a worker has them.
    pub orphan_timers: usize,
    /// Signals that have been parked for a minute or more, and for which nobody has waited yet; at most 100 are counted.
    pub unclaimed_signals: usize,
    /// Items that nothing referred to any more, and rules for events that nobody needed, which were removed.
    pub collected: usize,
    /// Whether rows are left for the next sweep.
    pub unfinished: bool,
}

/// What a sweep may still spend.
pub(crate) struct Allowance {
    rows: usize,
    /// On the monotonic clock.
    ends: Option<Duration>,
}

/// For whom a sweep has called: an invocation that it meets in several lanes is called for, and counted, once.
#[derive(Debug, Default)]
struct Called(BTreeSet<InvocationId>);

/// Work that nobody has.
#[derive(Debug)]
struct Found {
    call: WorkCall,
    told: Told,
}

/// As what it is counted.
#[derive(Clone, Copy, Debug)]
enum Told {
    ExpiredClaim,
    OrphanTimer,
    Nothing,
}

impl SweepSummary {
    fn row_failed(&mut self, id: &InvocationId, error: &TurnError) {
        self.failed += 1;
        tracing::warn!(category = %error.category, message = %error.message,
            invocation_id = %id, "the sweep could not deal with an invocation");
    }

    pub(crate) fn bus_failed(&mut self, error: &SubscriptionError) {
        self.failed += 1;
        tracing::warn!(%error, "the sweep could not look after the rules for events");
    }
}

/// From `instant` to `now`; nothing when it lies ahead.
pub(crate) fn since(instant: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(instant)).unwrap_or_default()
}

impl Harness {
    /// Looks through the index of what sleeps, as far as `order` goes, and does what should have happened.
    ///
    /// # Errors
    /// When the index cannot be read. A row that cannot be dealt with is counted, not raised.
    pub async fn sweep(&self, order: impl Into<SweepOrder> + Send) -> Result<SweepSummary, TurnError> {
        let order = order.into();
        let ends = order.time_left.map(|left| self.engine().ports().clock.monotonic() + left.saturating_sub(MARGIN));
        let (mut summary, mut called) = (SweepSummary::default(), Called::default());
        let allowance = || Allowance { rows: order.rows, ends };
        self.sweep_lane(SweepScope::Due, &mut allowance(), &mut called, &mut summary).await?;
        self.sweep_claims(&allowance(), &mut called, &mut summary).await?;
        if order.scope == SweepScope::Everything {
            self.sweep_lane(SweepScope::Everything, &mut allowance(), &mut called, &mut summary).await?;
            self.sweep_parked(&mut summary).await?;
            self.sweep_ground(&allowance(), &mut summary).await?;
        }
        Ok(summary)
    }

    /// Goes on where the lane was left. A round ends at the last row; the next sweep begins a new one.
    async fn sweep_lane(
        &self,
        lane: SweepScope,
        allowance: &mut Allowance,
        called: &mut Called,
        summary: &mut SweepSummary,
    ) -> Result<(), TurnError> {
        let store = &self.engine().ports().store;
        let began = store.sweep_position(lane.as_str()).await.map_err(store_failed)?;
        let (mut cursor, mut kept, mut done) = (began.clone(), began.clone(), false);
        let due_by = (lane == SweepScope::Due).then(|| self.now());
        let mut round = self.round(lane, began.as_deref()).await?;
        while self.may_go_on(allowance) {
            let page = store.list_pending(due_by, cursor.as_deref()).await.map_err(store_failed)?;
            allowance.rows = allowance.rows.saturating_sub(page.items.len().max(1));
            if round.is_some() && kept != page.next && page.items.iter().any(is_unregistered) {
                // What is loaded to be registered may be too much for this process: the next one goes on behind it.
                self.keep_position(lane, page.next.clone()).await?;
                kept = page.next.clone();
            }
            for rows in page.items.chunks(TOGETHER) {
                if self.has_no_time(allowance) {
                    summary.unfinished = true;
                    break;
                }
                summary.examined += rows.len();
                let calls = match &mut round {
                    None => self.sweep_due(rows, summary).await?,
                    Some(round) => self.sweep_rows(rows, round, summary).await?,
                };
                self.call_for_workers(calls, called, summary).await;
            }
            cursor = page.next;
            if cursor.is_none() {
                done = true;
                break;
            }
        }
        summary.unfinished |= cursor.is_some();
        match (round, &cursor) {
            (Some(round), None) if done => self.keep_rules(&round, allowance, summary).await?,
            (Some(round), Some(cursor)) if began.as_ref() != Some(cursor) => {
                store.upkeep(&round.kept(cursor)).await.map_err(store_failed)?;
            }
            (Some(_) | None, _) => {}
        }
        if cursor != kept {
            self.keep_position(lane, cursor).await?;
        }
        Ok(())
    }

    async fn keep_position(&self, lane: SweepScope, position: Option<String>) -> Result<(), TurnError> {
        let position = Upkeep::Position { lane: lane.as_str().to_owned(), position };
        self.engine().ports().store.upkeep(&position).await.map_err(store_failed)
    }

    /// The round of the lane of everything, which goes on behind `cursor`.
    async fn round(&self, lane: SweepScope, cursor: Option<&str>) -> Result<Option<Round>, TurnError> {
        Ok(match (lane, cursor) {
            (SweepScope::Due, _) => None,
            (SweepScope::Everything, None) => Some(Round::beginning(self.now())),
            (SweepScope::Everything, Some(cursor)) => {
                let kept = self.engine().ports().store.sweep_position(ROUND).await.map_err(store_failed)?;
                Some(Round::going_on(kept.as_deref(), cursor, self.now()))
            }
        })
    }

    fn may_go_on(&self, allowance: &Allowance) -> bool {
        allowance.rows > 0 && !self.has_no_time(allowance)
    }

    pub(crate) fn has_no_time(&self, allowance: &Allowance) -> bool {
        allowance.ends.is_some_and(|ends| ends <= self.engine().ports().clock.monotonic())
    }

    /// The calls for what fell due and nobody has.
    async fn sweep_due(&self, rows: &[PendingRow], summary: &mut SweepSummary) -> Result<Vec<Found>, TurnError> {
        let mut found = Vec::new();
        for (row, standing) in self.alive(rows, summary).await? {
            let late_by = self.late_by(row);
            // What was accepted falls due at once, and its row stays until it first sleeps.
            let has_begun = row.generation > 0;
            if has_begun {
                summary.late_by = summary.late_by.max(late_by);
            }
            match standing {
                Standing::Asleep if has_begun => {
                    let told = if late_by >= LOST_AFTER { Told::OrphanTimer } else { Told::Nothing };
                    found.push(Found { call: WorkCall::due(row), told });
                }
                Standing::Claimed { until } if !has_begun && limits::out_of_time(until, self.now()) => {
                    found.extend(self.not_begun(row));
                }
                // A dead claim is in an index of its own.
                Standing::Asleep | Standing::Claimed { .. } | Standing::Aside | Standing::Ended => {}
            }
        }
        Ok(found)
    }

    /// How long ago the row fell due; zero when it has not.
    fn late_by(&self, row: &PendingRow) -> Duration {
        row.due_at.map(|due_at| since(due_at, self.now())).unwrap_or_default()
    }

    /// The call for what was accepted, once the first one has had its time.
    fn not_begun(&self, row: &PendingRow) -> Option<Found> {
        let call = WorkCall::abandoned(row.invocation_id.clone());
        (self.late_by(row) >= CALLED_FOR).then_some(Found { call, told: Told::ExpiredClaim })
    }

    /// Calls for those who take over the claims that are out of time. The store knows them without going through what
    /// sleeps.
    async fn sweep_claims(
        &self,
        allowance: &Allowance,
        called: &mut Called,
        summary: &mut SweepSummary,
    ) -> Result<(), TurnError> {
        let store = &self.engine().ports().store;
        let mut dead = store.dead_claims(self.now()).await.map_err(store_failed)?;
        summary.unfinished |= dead.len() > allowance.rows;
        dead.truncate(allowance.rows);
        for ids in dead.chunks(TOGETHER) {
            if self.has_no_time(allowance) {
                summary.unfinished = true;
                break;
            }
            // The index may be behind.
            let glances = store.glance(ids).await.map_err(store_failed)?;
            let is_dead = |glance: &Glance| matches!(glance.standing, Standing::Claimed { until } if limits::out_of_time(until, self.now()));
            let dead = ids.iter().zip(glances).filter(|(_, glance)| glance.as_ref().is_some_and(is_dead));
            let found = dead.map(|(id, _)| Found { call: WorkCall::abandoned(id.clone()), told: Told::ExpiredClaim });
            self.call_for_workers(found.collect(), called, summary).await;
        }
        Ok(())
    }

    /// Calls for a worker for each of `found` that this sweep has not called for.
    async fn call_for_workers(&self, found: Vec<Found>, called: &mut Called, summary: &mut SweepSummary) {
        let mut calls = Vec::new();
        for Found { call, told } in found {
            if called.0.insert(call.invocation_id.clone()) {
                match told {
                    Told::ExpiredClaim => summary.expired_claims += 1,
                    Told::OrphanTimer => summary.orphan_timers += 1,
                    Told::Nothing => {}
                }
                calls.push(call);
            }
        }
        if calls.is_empty() {
            return;
        }
        for (call, made) in calls.iter().zip(self.call_for_all(&calls).await) {
            match made {
                Ok(()) => summary.called += 1,
                Err(error) => {
                    summary.failed += 1;
                    tracing::warn!(%error, invocation_id = %call.invocation_id, "the sweep could not call for a worker");
                }
            }
        }
    }

    /// Removes a row whose pause is over.
    async fn forget_orphan(&self, row: &PendingRow, summary: &mut SweepSummary) {
        summary.orphan_timers += 1;
        let forgotten = self.engine().ports().store.upkeep(&Upkeep::Ended(row.clone())).await;
        if let Err(error) = forgotten {
            summary.row_failed(&row.invocation_id, &store_failed(error));
        }
    }

    /// How it stands with those of `rows` whose pause is not over; the others are removed.
    async fn alive<'r>(
        &self,
        rows: &'r [PendingRow],
        summary: &mut SweepSummary,
    ) -> Result<Vec<(&'r PendingRow, Standing)>, TurnError> {
        let ids: Vec<_> = rows.iter().map(|row| row.invocation_id.clone()).collect();
        let glances = self.engine().ports().store.glance(&ids).await.map_err(store_failed)?;
        let mut alive = Vec::new();
        for (row, glance) in rows.iter().zip(glances) {
            match glance {
                Some(glance) if !is_over(row, &glance) => alive.push((row, glance.standing)),
                Some(_) | None => self.forget_orphan(row, summary).await,
            }
        }
        Ok(alive)
    }

    async fn sweep_rows(
        &self,
        rows: &[PendingRow],
        round: &mut Round,
        summary: &mut SweepSummary,
    ) -> Result<Vec<Found>, TurnError> {
        let mut found = Vec::new();
        for (row, standing) in self.alive(rows, summary).await? {
            match self.sweep_row(row, standing, round, summary).await {
                Ok(call) => found.extend(call),
                Err(error) => summary.row_failed(&row.invocation_id, &error),
            }
        }
        Ok(found)
    }

    /// For what of the row's invocation a worker is to be called.
    async fn sweep_row(
        &self,
        row: &PendingRow,
        standing: Standing,
        round: &mut Round,
        summary: &mut SweepSummary,
    ) -> Result<Option<Found>, TurnError> {
        if let Some(at) = row.since {
            summary.oldest_pause = summary.oldest_pause.max(since(at, self.now()));
        }
        let is_noted = row.rule != RuleNeed::Unknown;
        let looks_closer = standing == Standing::Asleep && is_unregistered(row);
        // Whatever becomes of the rest: it is needed.
        if is_noted || !looks_closer {
            round.needs(&row.rule, &row.invocation_id);
        }
        match standing {
            Standing::Claimed { until } if limits::out_of_time(until, self.now()) => {
                if row.generation == 0 {
                    return Ok(self.not_begun(row));
                }
                let told = if until == Timestamp::UNIX_EPOCH { Told::Nothing } else { Told::ExpiredClaim };
                Ok(Some(Found { call: WorkCall::abandoned(row.invocation_id.clone()), told }))
            }
            Standing::Asleep if looks_closer => {
                let loaded = self.load_invocation(&row.invocation_id).await;
                if !is_noted {
                    round.needs(&need_of(row, &loaded), &row.invocation_id);
                }
                if let Some(record) = loaded? {
                    self.register(row, *record, summary).await?;
                }
                Ok(None)
            }
            Standing::Asleep | Standing::Claimed { .. } | Standing::Aside | Standing::Ended => Ok(None),
        }
    }

    /// Sees to it that the wake-up of `record` is registered, and notes it so that no later sweep does it again.
    async fn register(
        &self,
        row: &PendingRow,
        record: InvocationRecord,
        summary: &mut SweepSummary,
    ) -> Result<(), TurnError> {
        let paused = record.paused;
        if !matches!(record.status, InvocationStatus::Suspended) || paused.generation != row.generation {
            return Ok(());
        }
        if !row.registered && paused.wake != WakePlan::default() {
            let subscribed = self.register_wake(&subscription_to(&paused)).await;
            let registration = subscribed.map_err(subscription_failed)?;
            summary.registered += 1;
            summary.orphan_timers += usize::from(registration == Registration::Made);
        }
        let noted = Upkeep::Registered(PendingRow { rule: RuleNeed::of(&paused), ..row.clone() });
        self.engine().ports().store.upkeep(&noted).await.map_err(store_failed)
    }

    /// Removes what nothing refers to any more from the next stretch of all that is stored.
    async fn sweep_ground(&self, allowance: &Allowance, summary: &mut SweepSummary) -> Result<(), TurnError> {
        if !self.may_go_on(allowance) {
            return Ok(());
        }
        let store = &self.engine().ports().store;
        let began = store.sweep_position(GROUND).await.map_err(store_failed)?;
        let collected = store.collect(self.now(), began.as_deref()).await.map_err(store_failed)?;
        summary.collected += collected.removed;
        if collected.next != began {
            let position = Upkeep::Position { lane: GROUND.to_owned(), position: collected.next };
            store.upkeep(&position).await.map_err(store_failed)?;
        }
        Ok(())
    }
}

/// What the pause of `row` needs, whose invocation was `loaded`; nothing, when it is over.
fn need_of(row: &PendingRow, loaded: &Result<Option<Box<InvocationRecord>>, TurnError>) -> RuleNeed {
    match loaded {
        Ok(Some(record)) if record.paused.generation == row.generation => RuleNeed::of(&record.paused),
        Ok(_) => RuleNeed::Nothing,
        Err(_) => RuleNeed::Unknown,
    }
}

/// Whether it is not noted on the row that everything is registered.
fn is_unregistered(row: &PendingRow) -> bool {
    !row.registered || row.rule == RuleNeed::Unknown
}

/// Whether the pause of `row` is over: not while it is put aside, for whoever lets it be tried again writes the row
/// again. Rows are written together with their invocation, so that none is early.
fn is_over(row: &PendingRow, glance: &Glance) -> bool {
    glance.standing == Standing::Ended || glance.generation > row.generation
}
