//! A round of the sweep through all that sleeps: which rules are needed, and what follows from that at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dormouse_ports::{
    InvocationId, InvocationStatus, ListedRule, Registration, RuleEntry, RuleName, RuleNeed, ShapeId,
    SubscriptionError, Upkeep,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::harness::subscription_failed;
use crate::signal::store_failed;
use crate::sweep::{Allowance, SweepSummary};
use crate::{Harness, TurnError};

/// The lane under whose name a round is kept between two sweeps.
pub(crate) const ROUND: &str = "rules";
/// Of how many shapes a round remembers that they are needed; with more of them it removes nothing.
const MOST_NEEDED: usize = 1_000;

/// What a round has seen so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Up to where the listing was looked at.
    cursor: Option<String>,
    began: Timestamp,
    /// The shapes that rows need, each with an invocation that needs it.
    needed: BTreeMap<ShapeId, InvocationId>,
    /// Whether these are all of them.
    sure: bool,
}

impl Round {
    /// A round that begins now, at the first row.
    pub(crate) fn beginning(now: Timestamp) -> Self {
        Self { cursor: None, began: now, needed: BTreeMap::new(), sure: true }
    }

    /// The round that was `kept`, if it is the one that got as far as `cursor`; otherwise one that is not sure of itself.
    pub(crate) fn going_on(kept: Option<&str>, cursor: &str, now: Timestamp) -> Self {
        let kept: Option<Self> = kept.and_then(|kept| serde_json::from_str(kept).ok());
        let kept = kept.filter(|kept| kept.cursor.as_deref() == Some(cursor));
        kept.unwrap_or_else(|| Self { sure: false, ..Self::beginning(now) })
    }

    /// What is kept of it until the next sweep goes on behind `cursor`. It is kept before the sweep's own position: a
    /// crash between the two leaves a round that is not sure of itself.
    pub(crate) fn kept(self, cursor: &str) -> Upkeep {
        let kept = serde_json::to_string(&Self { cursor: Some(cursor.to_owned()), ..self });
        Upkeep::Position { lane: ROUND.to_owned(), position: kept.ok() }
    }

    /// Somebody sleeps who needs that.
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

    /// Whether `at` lies so far before the round that nobody has relied since on what was not touched since.
    fn is_long_after(&self, at: Timestamp, kept: Duration) -> bool {
        Duration::try_from(self.began.duration_since(at)).is_ok_and(|span| span >= kept)
    }
}

impl Harness {
    /// Makes rules again that are needed and gone or disabled, and removes those that nobody needs.
    ///
    /// What the bus does not do is counted as failed: the next round tries it again.
    pub(crate) async fn keep_rules(
        &self,
        round: &Round,
        allowance: &Allowance,
        summary: &mut SweepSummary,
    ) -> Result<(), TurnError> {
        // First the rules, then the entries: whoever made a rule of the list has made its entry before.
        let rules = match self.event_rules().list_rules().await {
            Ok(rules) => rules,
            Err(error) => {
                summary.bus_failed(&error);
                return Ok(());
            }
        };
        let entries = self.entries().await?;
        self.restore(round, &rules, &entries, allowance, summary).await?;
        let mut unused = self.old_editions(round, &rules, &entries).await?;
        let entries = if self.forget_unneeded(round, &entries).await? { self.entries().await? } else { entries };
        let named: BTreeSet<RuleName> = entries.values().map(RuleEntry::name).collect();
        let names = rules.iter().map(|rule| &rule.name);
        unused.extend(names.filter(|rule| rule.edition.is_some() && !named.contains(rule)));
        for rule in unused {
            if self.has_no_time(allowance) {
                summary.unfinished = true;
                break;
            }
            match self.event_rules().remove_rule(rule).await {
                Ok(()) => {
                    tracing::info!(%rule, "a rule went that nobody needs");
                    summary.collected += 1;
                }
                Err(error) => summary.bus_failed(&error),
            }
        }
        Ok(())
    }

    async fn entries(&self) -> Result<BTreeMap<ShapeId, RuleEntry>, TurnError> {
        let entries = self.engine().ports().store.rule_entries().await.map_err(store_failed)?;
        Ok(entries.into_iter().map(|entry| (entry.shape.clone(), entry)).collect())
    }

    /// Makes the rules that are needed and not there, and enables those that are disabled. Where no rule of the shape
    /// carries events, some were lost.
    async fn restore(
        &self,
        round: &Round,
        rules: &[ListedRule],
        entries: &BTreeMap<ShapeId, RuleEntry>,
        allowance: &Allowance,
        summary: &mut SweepSummary,
    ) -> Result<(), TurnError> {
        let has_rule =
            |shape| entries.get(shape).is_some_and(|entry| is_there(rules, entry) && entry.stands_since.is_some());
        let declared = self.declared_shapes();
        for (id, shape) in declared.iter().filter(|(id, _)| !has_rule(*id)) {
            let stood = entries.get(id).is_some_and(|entry| entry.stands_since.is_some());
            match self.rules().make(shape.clone(), rules).await {
                Ok(_) if stood => {
                    tracing::warn!(shape = %id, "the rule for events that a graph declares was gone or disabled");
                    summary.orphan_timers += 1;
                }
                Ok(_) => tracing::info!(shape = %id, "the rule for events that a graph declares stands"),
                Err(error) => summary.bus_failed(&error),
            }
        }
        let needed = round.needed.iter().filter(|(shape, _)| !declared.contains_key(*shape));
        for (shape, id) in needed.filter(|(shape, _)| !has_rule(*shape)) {
            if self.has_no_time(allowance) {
                summary.unfinished = true;
                break;
            }
            let was_lost = !rules.iter().any(|rule| rule.is_enabled && rule.name.shape == *shape);
            match self.make_again(shape, id, rules).await? {
                Ok(Some(Registration::Made)) if was_lost => {
                    tracing::warn!(%shape, invocation_id = %id, "the rule for an awaited event was gone or disabled");
                    summary.orphan_timers += 1;
                }
                Ok(_) => {}
                Err(error) => summary.bus_failed(&error),
            }
        }
        Ok(())
    }

    /// Makes the rule that the invocation `id` needs; `None` where it does not any more.
    async fn make_again(
        &self,
        shape: &ShapeId,
        id: &InvocationId,
        rules: &[ListedRule],
    ) -> Result<Result<Option<Registration>, SubscriptionError>, TurnError> {
        let record = self.load_invocation(id).await?;
        let asleep = record.filter(|record| {
            matches!(record.status, InvocationStatus::Suspended | InvocationStatus::Resuming(_))
                && RuleNeed::of(&record.paused) == RuleNeed::Shape(shape.clone())
        });
        Ok(match asleep {
            Some(record) => self.rules().make_rule_of(&record.paused, rules).await,
            None => Ok(None),
        })
    }

    /// Notes which entries are idle, and removes those that have been for long; whether there are such.
    async fn forget_unneeded(&self, round: &Round, entries: &BTreeMap<ShapeId, RuleEntry>) -> Result<bool, TurnError> {
        if !round.sure {
            return Ok(false);
        }
        let (store, kept, mut forgotten) = (&self.engine().ports().store, self.config().rules.kept, false);
        let declared = self.declared_shapes();
        let is_needed = |shape| round.needed.contains_key(shape) || declared.contains_key(shape);
        for entry in entries.values().filter(|entry| !is_needed(&entry.shape)) {
            let upkeep = match entry.idle_since {
                None => Upkeep::RuleIdle { entry: entry.clone(), since: self.now() },
                Some(since) if round.is_long_after(since, kept) => Upkeep::RuleUnneeded(entry.clone()),
                Some(_) => continue,
            };
            forgotten |= matches!(upkeep, Upkeep::RuleUnneeded(_));
            store.upkeep(&upkeep).await.map_err(store_failed)?;
        }
        Ok(forgotten)
    }

    /// The rules without an edition that may go: made by versions that relied on a rule for ever. There is an entry for
    /// their shape that is old enough for those to have ended, and nobody needs the shape, or the rule of the entry is there.
    /// Where there is no entry, one is made, for the time to begin.
    async fn old_editions<'r>(
        &self,
        round: &Round,
        rules: &'r [ListedRule],
        entries: &BTreeMap<ShapeId, RuleEntry>,
    ) -> Result<Vec<&'r RuleName>, TurnError> {
        let mut unused = Vec::new();
        for rule in rules.iter().map(|rule| &rule.name).filter(|rule| rule.edition.is_none() && round.sure) {
            let is_needed = round.needed.contains_key(&rule.shape);
            match entries.get(&rule.shape) {
                Some(entry) if round.is_long_after(entry.made_at, self.config().rules.kept) => {
                    if !is_needed || is_there(rules, entry) {
                        unused.push(rule);
                    }
                }
                None if !is_needed => {
                    self.rules().touch(&rule.shape).await.map_err(subscription_failed)?;
                }
                Some(_) | None => {}
            }
        }
        Ok(unused)
    }
}

/// Whether the rule of `entry` is among `rules`, and carries events.
fn is_there(rules: &[ListedRule], entry: &RuleEntry) -> bool {
    let name = entry.name();
    rules.iter().any(|rule| rule.carries_for(&name))
}
