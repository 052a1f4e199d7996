//! Rules on the bus: one for each shape of event that an invocation waits for, made when it is first needed and removed
//! when no invocation needs it any more.
//!
//! A rule stands before it is needed: those that a graph [declares](dormouse_engine::GraphBuilder::events) before a
//! turn of it begins, any other before the pause is written. A process that has not had to do with a rule yet reads in
//! its entry that it stands, and leaves the bus alone; the sweep looks whether that is so. Rules that a graph declares
//! are made by the first sweep of a deployment, and stay.
//!
//! # Why no rule goes that is needed
//! The store has an entry for each rule, which names its edition, a name that never comes again. Three things are so:
//!
//! 1. A pause is written, with the shape of its events on its row, and then its rule is looked after once more. A
//!    process that relies on a rule has touched its entry less than [`trusted`](crate::RulePolicy::trusted) ago (T),
//!    and made the rule within that time or read that it stands; then it touches again
//!    ([`WakeRegistrar::register`](crate::WakeRegistrar::register)).
//! 2. A round of the sweep sees every row that is there from its beginning to its end: a row moves only forward, to a
//!    later deadline, and a new pause has a row of its own.
//! 3. An entry goes at the end of a round that began at R if no row that the round saw needs it, if it was found idle
//!    before R − [`kept`](crate::RulePolicy::kept), and on the condition that no process has touched it since it was
//!    read idle. A touch ends idleness.
//!
//! Suppose a suspended invocation needs a rule of which the entry goes. By 2 its entry was written after R. If its
//! process touched the entry later, it found another edition, or the condition of 3 did not hold. If it relied on an
//! earlier touch, that touch was after R − T, thus after the entry was found idle, and ended that. So it has a rule of
//! another edition, or its registration is not through and will be repeated by the sweep.
//!
//! No process relies on a rule that no entry names, and none ever will: it can be removed at any later time. A process
//! that dies between the end of an entry and the removal of its rule leaves the rule to the next round. A rule whose
//! making takes effect late, after its entry is gone, goes the same way.
//!
//! A rule that an operator disabled carries nothing, and counts as gone: the next round enables it if it is needed, and
//! removes it if it is not.
//!
//! # What is assumed
//! A process measures T on its own clocks, on the one for elapsed time and on the one that is set: the larger result
//! counts. The clocks of sweeping processes agree to within `kept` − `trusted`. Nothing is assumed of clocks of
//! different processes otherwise.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::Ports;
use dormouse_ports::{
    Clock, EventRule, EventRules, EventShape, IdSource, ListedRule, PausePreparation, PausedInvocation, Registration,
    RuleEntries, RuleEntry, RuleIncarnation, RuleName, RuleUpdate, ShapeId, StoreError, SubscriptionError,
};
use jiff::Timestamp;

use crate::config::RulePolicy;

/// Number of times that a rule is made again when making it took longer than it may be relied on.
const TRIES: usize = 3;
/// Number of shapes of which a process remembers the rules that it made.
const REMEMBERED: usize = 1_000;

/// Rules that a process has made and may rely on.
#[derive(Debug, Default)]
pub(crate) struct RuleCache(Mutex<BTreeMap<ShapeId, CachedRule>>);

/// A rule that this process has made.
#[derive(Clone, Debug)]
struct CachedRule {
    edition: RuleIncarnation,
    /// Reading of the clocks when its entry was touched last.
    touched: ClockReading,
}

/// A moment on both clocks of a process.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    at: Timestamp,
    monotonic: Duration,
}

impl ClockReading {
    /// True if less than `span` has passed since, on both clocks. A clock that was set back proves nothing.
    fn is_within(self, span: Duration, now: Self) -> bool {
        let set = Duration::try_from(now.at.duration_since(self.at));
        let elapsed = now.monotonic.checked_sub(self.monotonic);
        set.is_ok_and(|set| set < span) && elapsed.is_some_and(|elapsed| elapsed < span)
    }
}

impl RuleCache {
    fn get(&self, shape: &ShapeId) -> Option<CachedRule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(shape).cloned()
    }

    fn put(&self, shape: ShapeId, made: CachedRule) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(shape, made);
    }
}

/// The rules on the bus: makes them, and remembers what a process may rely on.
pub struct StandingRules {
    entries: Arc<dyn RuleEntries>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    event_rules: Arc<dyn EventRules>,
    policy: RulePolicy,
    relied: RuleCache,
}

impl fmt::Debug for StandingRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandingRules")
            .field("policy", &self.policy)
            .field("relied", &self.relied)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl PausePreparation for StandingRules {
    async fn prepare(&self, paused: &PausedInvocation) -> Result<(), SubscriptionError> {
        let Some(wait) = &paused.wake.event else { return Ok(()) };
        let shape = wait.shape(&paused.descriptor.signal_id).map_err(SubscriptionError::Rejected)?;
        self.rely_on(shape).await.map(|_| ())
    }
}

impl StandingRules {
    pub(crate) fn new(ports: &Ports, event_rules: Arc<dyn EventRules>, policy: RulePolicy) -> Self {
        let entries = ports.store.rules.clone();
        let clock = ports.clock.clone();
        let ids = ports.ids.clone();
        Self { entries, clock, ids, event_rules, policy, relied: RuleCache::default() }
    }

    /// Makes sure that there is a rule for `shape`, and that it stays while it is needed.
    pub(crate) async fn rely_on(&self, shape: EventShape) -> Result<Registration, SubscriptionError> {
        let id = shape.id();
        let made = self.relied.get(&id);
        if made.as_ref().is_some_and(|made| self.is_young(made.touched)) {
            return Ok(Registration::Known);
        }
        // The sweep looks after a rule that is noted to stand: here the bus is left alone.
        let touched = self.moment();
        let entry = self.touch(&id).await?;
        let stands = made.as_ref().is_some_and(|made| made.edition == entry.edition) || entry.stands_since.is_some();
        if stands && self.is_young(touched) {
            if let Some(since) = entry.stands_since {
                self.settle(since).await;
            }
            self.relied.put(id, CachedRule { touched, edition: entry.edition });
            return Ok(Registration::Known);
        }
        let rules = self.event_rules.list_rules().await?;
        let registration = self.make(shape, &rules).await?;
        if registration == Registration::Made {
            self.settle(self.clock.now()).await;
        }
        Ok(registration)
    }

    /// Waits until a rule that was made at `since` is in effect.
    async fn settle(&self, since: Timestamp) {
        let stood = Duration::try_from(self.clock.now().duration_since(since)).unwrap_or_default();
        let left = self.policy.settling.saturating_sub(stood);
        if !left.is_zero() {
            self.clock.sleep(left).await;
        }
    }

    /// All rules that are on the bus.
    ///
    /// # Errors
    /// If the bus does not answer.
    pub async fn list(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        self.event_rules.list_rules().await
    }

    /// Removes a rule from the bus. The caller knows that nothing needs it.
    ///
    /// # Errors
    /// If the bus does not do it.
    pub async fn remove(&self, rule: &RuleName) -> Result<(), SubscriptionError> {
        self.event_rules.remove_rule(rule).await
    }

    /// Makes the rule that `paused` needs beside `rules`, which are there; `None` where it needs none.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub async fn make_rule_of(
        &self,
        paused: &PausedInvocation,
        rules: &[ListedRule],
    ) -> Result<Option<Registration>, SubscriptionError> {
        match paused.event_shape() {
            Some(shape) => self.make(shape, rules).await.map(Some),
            None => Ok(None),
        }
    }

    /// Makes the rule for `shape` beside `rules`, which are there.
    ///
    /// # Errors
    /// If there are as many rules as may be, or the bus or the store does not do it.
    pub async fn make(&self, shape: EventShape, rules: &[ListedRule]) -> Result<Registration, SubscriptionError> {
        let id = shape.id();
        let most = self.policy.most;
        // Before the entry is made: what is refused leaves nothing behind.
        if rules.len() >= most && !rules.iter().any(|rule| rule.name.shape == id) {
            self.forget_unmade(&id).await;
            let sentence =
                format!("the event bus has {most} rules of ours, which is the limit: let waits share a pattern");
            return Err(SubscriptionError::Rejected(sentence));
        }
        for _ in 0..TRIES {
            let touched = self.moment();
            let entry = self.touch(&id).await?;
            let name = entry.name();
            let is_known = rules.iter().any(|rule| rule.carries_for(&name));
            let registration = if is_known { Registration::Known } else { Registration::Made };
            self.event_rules.put_rule(&EventRule { name, shape: shape.clone() }).await?;
            if registration == Registration::Made || entry.stands_since.is_none() {
                let stands = RuleUpdate::Stands { entry: entry.clone(), since: self.clock.now() };
                self.entries.update_rule(&stands).await.map_err(unavailable)?;
            }
            if self.is_young(touched) {
                self.relied.put(id, CachedRule { edition: entry.edition, touched });
                return Ok(registration);
            }
        }
        Err(SubscriptionError::Unavailable("the event bus takes too long to make a rule".to_owned()))
    }

    /// Removes the entry of a rule that was never made. Where that fails, a round of the sweep does it.
    async fn forget_unmade(&self, id: &ShapeId) {
        let Ok(entries) = self.entries.rule_entries().await else { return };
        if let Some(entry) = entries.into_iter().find(|entry| entry.shape == *id && entry.stands_since.is_none())
            && let Err(error) = self.entries.update_rule(&RuleUpdate::Unneeded(entry)).await
        {
            tracing::warn!(%error, "the table keeps the entry of a rule that could not be made; the sweep removes it");
        }
    }

    /// Ends the idleness of the entry of `shape`, or makes one.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn touch(&self, shape: &ShapeId) -> Result<RuleEntry, SubscriptionError> {
        let touched = self.entries.touch_rule(shape, &RuleIncarnation::of(&self.ids.fresh()), self.clock.now()).await;
        touched.map_err(unavailable)
    }

    fn is_young(&self, touched: ClockReading) -> bool {
        touched.is_within(self.policy.trusted, self.moment())
    }

    fn moment(&self) -> ClockReading {
        ClockReading { at: self.clock.now(), monotonic: self.clock.monotonic() }
    }
}

fn unavailable(error: StoreError) -> SubscriptionError {
    match error {
        StoreError::Denied(_) => SubscriptionError::Denied(error.to_string()),
        StoreError::Unavailable(_)
        | StoreError::Corrupt(_)
        | StoreError::TooLarge { .. }
        | StoreError::TooComplex { .. }
        | StoreError::LeaseHeld { .. }
        | StoreError::Invalid(_) => SubscriptionError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: i64, monotonic: u64) -> ClockReading {
        let at = Timestamp::from_second(1_000_000 + at).expect("an instant");
        ClockReading { at, monotonic: Duration::from_secs(monotonic) }
    }

    #[test]
    fn whichever_clock_says_more_counts() {
        let span = Duration::from_secs(10);
        let touched = moment(0, 0);
        assert!(touched.is_within(span, moment(9, 9)));
        for (what, now) in [
            ("both say so", moment(10, 10)),
            ("the process was frozen", moment(10, 1)),
            ("the clock was set back a little", moment(9, 10)),
            ("the clock was set back", moment(-1, 1)),
        ] {
            assert!(!touched.is_within(span, now), "{what}");
        }
    }
}
