//! A round of the sweep through all suspended invocations: the rules that they need, and the consequences at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_harness::{Harness, StandingRules, TurnError, is_put_aside, store_failed, subscription_failed};
use dormouse_ports::{
    EventShape, InvocationId, InvocationRecord, InvocationStatus, ListedRule, Registration, RuleEntry, RuleName,
    RuleNeed, RuleUpdate, ShapeId, Sleepers, StoreError, SubscriptionError,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::summary::SweepSummary;
use crate::time::TimeLimit;

/// The lane under which a round is kept between two sweeps.
pub(crate) const ROUND: &str = "rules";
/// Number of needed shapes that a round remembers; with more of them it removes nothing.
const MOST_NEEDED: usize = 1_000;

/// State of a round so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Position up to which the listing was looked at.
    cursor: Option<String>,
    began: Timestamp,
    /// The shapes that rows need, each with an invocation that needs it.
    needed: BTreeMap<ShapeId, InvocationId>,
    /// True if these are all of them.
    sure: bool,
}

impl Round {
    /// A round that begins now, at the first row.
    pub(crate) fn beginning(now: Timestamp) -> Self {
        Self { cursor: None, began: now, needed: BTreeMap::new(), sure: true }
    }

    /// The round that was `kept`, if it is the one that got as far as `cursor`; otherwise one that is not sure of
    /// itself.
    pub(crate) fn going_on(kept: Option<&str>, cursor: &str, now: Timestamp) -> Self {
        let kept: Option<Self> = kept.and_then(|kept| serde_json::from_str(kept).ok());
        let kept = kept.filter(|kept| kept.cursor.as_deref() == Some(cursor));
        kept.unwrap_or_else(|| Self { sure: false, ..Self::beginning(now) })
    }

    /// Form in which it is kept until the next sweep goes on behind `cursor`. It is kept before the sweep's own
    /// position: a crash between the two leaves a round that is not sure of itself.
    pub(crate) fn kept(self, cursor: &str) -> Option<String> {
        serde_json::to_string(&Self { cursor: Some(cursor.to_owned()), ..self }).ok()
    }

    /// Notes that the invocation `id` is suspended and has that need.
    pub(crate) fn needs(&mut self, need: &RuleNeed, id: &InvocationId) {
        match need {
            RuleNeed::Nothing => {}
            RuleNeed::Unknown => self.sure = false,
            RuleNeed::Shape(shape) if self.needed.len() < MOST_NEEDED || self.needed.contains_key(shape) => {
                self.needed.insert(shape.clone(), id.clone());
            }
            RuleNeed::Shape(_) => self.sure = false,
        }
    }

    /// Notes the same of one that cannot be read, and may wait on when it can. Whoever can be read makes the rule again.
    pub(crate) fn may_need(&mut self, need: &RuleNeed, id: &InvocationId) {
        match need {
            RuleNeed::Shape(shape) if self.needed.contains_key(shape) => {}
            RuleNeed::Shape(_) | RuleNeed::Unknown | RuleNeed::Nothing => self.needs(need, id),
        }
    }

    /// Notes what the invocations need that were put aside. They have no row, and may wait on when they are tried again: an
    /// event that comes until then has to arrive, and be put aside as well. One that cannot be read may need any rule.
    async fn needs_of_aside(
        &mut self,
        harness: &Harness,
        sleepers: &dyn Sleepers,
        summary: &mut SweepSummary,
    ) -> Result<(), TurnError> {
        let aside = sleepers.put_aside().await.map_err(store_failed)?;
        self.sure &= !aside.more;
        for id in &aside.ids {
            match load(harness, id, summary).await? {
                Loaded::Record(record) => self.needs(&RuleNeed::of(&record.paused), id),
                Loaded::Unreadable => self.needs(&RuleNeed::Unknown, id),
                Loaded::Nothing => {}
            }
        }
        Ok(())
    }
}

/// Makes rules again that are needed and gone or disabled, and removes those that no invocation needs.
///
/// A failure of the bus is counted: the next round tries again.
pub(crate) async fn keep_rules(
    harness: &Harness,
    sleepers: &dyn Sleepers,
    round: &mut Round,
    time: TimeLimit<'_>,
    summary: &mut SweepSummary,
) -> Result<(), TurnError> {
    // First the rules, then the entries: a process that made a rule of the list has made its entry before.
    let listed = match harness.rules().list().await {
        Ok(listed) => listed,
        Err(error) => {
            summary.bus_failed(&error);
            return Ok(());
        }
    };
    let entries = match harness.engine().ports().store.rules.rule_entries().await {
        // Which rule it names is not known: none is removed, and none made, until it can be read.
        Err(error @ StoreError::Corrupt(_)) => {
            summary.failed += 1;
            tracing::warn!(%error, "the sweep leaves the rules for events as they are");
            return Ok(());
        }
        entries => by_shape(entries.map_err(store_failed)?),
    };
    let declared = harness.graphs().declared_events();
    let is_known = |shape| round.needed.contains_key(shape) || declared.contains_key(shape);
    if round.sure && !entries.keys().chain(listed.iter().map(|rule| &rule.name.shape)).all(is_known) {
        round.needs_of_aside(harness, sleepers, summary).await?;
    }
    let mut keeping = RuleRound { harness, rules: harness.rules(), round, time, listed: &listed, declared, entries };
    keeping.restore(summary).await?;
    let mut unused = keeping.old_editions().await?;
    if keeping.forget_unneeded().await? {
        keeping.entries = self::entries(harness).await?;
    }
    unused.extend(keeping.unnamed());
    for rule in unused {
        if time.is_over() {
            summary.unfinished = true;
            break;
        }
        match keeping.rules.remove(rule).await {
            Ok(()) => {
                tracing::info!(%rule, "the sweep removed a rule that nothing waits for");
                summary.collected += 1;
            }
            Err(error) => summary.bus_failed(&error),
        }
    }
    Ok(())
}

/// What the store has of an invocation.
enum Loaded {
    Nothing,
    Record(Box<InvocationRecord>),
    /// It is damaged, or was written by another version.
    Unreadable,
}

/// Loads the invocation `id`. One that cannot be read is counted, and ends no round.
async fn load(harness: &Harness, id: &InvocationId, summary: &mut SweepSummary) -> Result<Loaded, TurnError> {
    match harness.engine().ports().store.invocations.load_invocation(id).await {
        Ok(Some(record)) => Ok(Loaded::Record(Box::new(record))),
        Ok(None) => Ok(Loaded::Nothing),
        Err(error @ StoreError::Corrupt(_)) => {
            summary.row_failed(id, &store_failed(error));
            Ok(Loaded::Unreadable)
        }
        Err(error) => Err(store_failed(error)),
    }
}

/// Entries of the store for rules.
async fn entries(harness: &Harness) -> Result<BTreeMap<ShapeId, RuleEntry>, TurnError> {
    harness.engine().ports().store.rules.rule_entries().await.map(by_shape).map_err(store_failed)
}

fn by_shape(entries: Vec<RuleEntry>) -> BTreeMap<ShapeId, RuleEntry> {
    entries.into_iter().map(|entry| (entry.shape.clone(), entry)).collect()
}

/// The end of a round: what it has seen beside what there is.
struct RuleRound<'r> {
    harness: &'r Harness,
    rules: &'r StandingRules,
    round: &'r Round,
    time: TimeLimit<'r>,
    /// The rules that are on the bus.
    listed: &'r [ListedRule],
    /// The events for which graphs declare rules.
    declared: BTreeMap<ShapeId, EventShape>,
    entries: BTreeMap<ShapeId, RuleEntry>,
}

impl<'r> RuleRound<'r> {
    /// Makes the rules that are needed and not there, and enables those that are disabled. Where no rule of the shape
    /// carries events, some were lost.
    async fn restore(&self, summary: &mut SweepSummary) -> Result<(), TurnError> {
        for (id, shape) in self.declared.iter().filter(|(id, _)| !self.stands(id)) {
            let stood = self.entries.get(id).is_some_and(|entry| entry.stands_since.is_some());
            match self.rules.make(shape.clone(), self.listed).await {
                Ok(_) if stood => {
                    tracing::warn!(
                        shape = %id,
                        "the sweep restored the rule for events that a graph declares: it was gone or disabled"
                    );
                    summary.orphan_timers += 1;
                }
                Ok(_) => tracing::info!(shape = %id, "the sweep made the rule for events that a graph declares"),
                Err(error) => summary.bus_failed(&error),
            }
        }
        let needed = self.round.needed.iter().filter(|(shape, _)| !self.declared.contains_key(*shape));
        for (shape, id) in needed.filter(|(shape, _)| !self.stands(shape)) {
            if self.time.is_over() {
                summary.unfinished = true;
                break;
            }
            let was_lost = !self.listed.iter().any(|rule| rule.is_enabled && rule.name.shape == *shape);
            match self.make_again(shape, id, summary).await? {
                Ok(Some(Registration::Made)) if was_lost => {
                    tracing::warn!(
                        %shape, invocation_id = %id,
                        "the sweep restored the rule for an awaited event: it was gone or disabled"
                    );
                    summary.orphan_timers += 1;
                }
                Ok(_) => {}
                Err(error) => summary.bus_failed(&error),
            }
        }
        Ok(())
    }

    /// Makes the rule that the invocation `id` needs; `None` where it does not any more, or cannot be read.
    async fn make_again(
        &self,
        shape: &ShapeId,
        id: &InvocationId,
        summary: &mut SweepSummary,
    ) -> Result<Result<Option<Registration>, SubscriptionError>, TurnError> {
        let is_needed = |record: &InvocationRecord| {
            let is_awaited = matches!(
                record.status,
                InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_)
            ) || is_put_aside(record);
            is_awaited && RuleNeed::of(&record.paused) == RuleNeed::Shape(shape.clone())
        };
        Ok(match load(self.harness, id, summary).await? {
            Loaded::Record(record) if is_needed(&record) => self.rules.make_rule_of(&record.paused, self.listed).await,
            Loaded::Record(_) | Loaded::Unreadable | Loaded::Nothing => Ok(None),
        })
    }

    /// Notes which entries are idle, and removes those that have been for long; whether there are such.
    async fn forget_unneeded(&self) -> Result<bool, TurnError> {
        if !self.round.sure {
            return Ok(false);
        }
        let ports = self.harness.engine().ports();
        let mut forgotten = false;
        let is_needed = |shape| self.round.needed.contains_key(shape) || self.declared.contains_key(shape);
        for entry in self.entries.values().filter(|entry| !is_needed(&entry.shape)) {
            let upkeep = match entry.idle_since {
                None => RuleUpdate::Idle { entry: entry.clone(), since: ports.clock.now() },
                Some(since) if self.is_long_ago(since) => RuleUpdate::Unneeded(entry.clone()),
                Some(_) => continue,
            };
            forgotten |= matches!(upkeep, RuleUpdate::Unneeded(_));
            ports.store.rules.update_rule(&upkeep).await.map_err(store_failed)?;
        }
        Ok(forgotten)
    }

    /// The rules without an edition that may go: made by versions that relied on a rule for ever. There is an entry for
    /// their shape that is old enough for those to have ended, and no invocation needs the shape, or the rule of the
    /// entry is there. Where there is no entry, one is made, for the time to begin.
    async fn old_editions(&self) -> Result<Vec<&'r RuleName>, TurnError> {
        let mut unused = Vec::new();
        for rule in self.listed.iter().map(|rule| &rule.name).filter(|rule| rule.edition.is_none() && self.round.sure) {
            let is_needed = self.round.needed.contains_key(&rule.shape);
            match self.entries.get(&rule.shape) {
                Some(entry) if self.is_long_ago(entry.made_at) => {
                    if !is_needed || is_there(self.listed, entry) {
                        unused.push(rule);
                    }
                }
                None if !is_needed => {
                    self.rules.touch(&rule.shape).await.map_err(subscription_failed)?;
                }
                Some(_) | None => {}
            }
        }
        Ok(unused)
    }

    /// The rules on the bus that no entry names.
    fn unnamed(&self) -> Vec<&'r RuleName> {
        let named: BTreeSet<RuleName> = self.entries.values().map(RuleEntry::name).collect();
        let names = self.listed.iter().map(|rule| &rule.name);
        names.filter(|rule| rule.edition.is_some() && !named.contains(rule)).collect()
    }

    /// True if the rule for `shape` is on the bus, and that is noted.
    fn stands(&self, shape: &ShapeId) -> bool {
        let entry = self.entries.get(shape);
        entry.is_some_and(|entry| is_there(self.listed, entry) && entry.stands_since.is_some())
    }

    /// True if `at` lies so far before the round that no process still relies on a rule that was not touched since.
    fn is_long_ago(&self, at: Timestamp) -> bool {
        let kept = self.harness.config().rules.kept;
        Duration::try_from(self.round.began.duration_since(at)).is_ok_and(|span| span >= kept)
    }
}

/// True if the rule of `entry` is among `rules`, and carries events.
fn is_there(rules: &[ListedRule], entry: &RuleEntry) -> bool {
    let name = entry.name();
    rules.iter().any(|rule| rule.carries_for(&name))
}
