//! Rules on the bus: one for each shape of event that somebody waits for, made when it is first needed and removed when
//! nobody needs it any more.
//!
//! # Why no rule goes that somebody needs
//! The store has an entry for each rule, which names its edition, a name that never comes again. Three things are so:
//!
//! 1. A pause is written, with the shape of its events on its row, before its rule is looked after. Whoever relies on a
//!    rule has touched its entry less than [`trusted`](crate::RulePolicy::trusted) ago (T), and made the rule within that
//!    time; then it touches again ([`Harness::register_wake`]).
//! 2. A round of the sweep sees every row that is there from its beginning to its end: a row moves only forward, to a later
//!    deadline, and a new pause has a row of its own.
//! 3. An entry goes at the end of a round that began at R if no row that the round saw needs it, if it was found idle before
//!    R − [`kept`](crate::RulePolicy::kept), and on the condition that nobody has touched it since it was read idle.
//!    A touch ends idleness.
//!
//! Suppose somebody sleeps whose rule's entry goes. By 2 it was written after R. If it touched the entry later, it found
//! another edition, or the condition of 3 did not hold. If it relied on an earlier touch, that touch was after R − T, thus
//! after the entry was found idle, and ended that. So it has a rule of another edition, or its registration is not through
//! and will be repeated by the sweep.
//!
//! A rule that no entry names is relied on by nobody, and never will be: it can be removed at any later time. A process
//! that dies between the end of an entry and the removal of its rule leaves the rule to the next round. A rule whose
//! making takes effect late, after its entry is gone, goes the same way.
//!
//! A rule that somebody disabled carries nothing, and counts as gone: the next round enables it if it is needed, and
//! removes it if it is not.
//!
//! # What is assumed
//! A process measures T on its own clocks, on the one for elapsed time and on the one that is set: whichever says more
//! counts. The clocks of those who sweep agree to within `kept` − `trusted`. Nothing is assumed of clocks of different
//! processes otherwise.

mod round;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dormouse_ports::{
    Edition, EventRule, EventShape, ListedRule, PausedInvocation, Registration, RuleName, ShapeId, StoreError,
    Subscription, SubscriptionError,
};
use jiff::Timestamp;

use crate::Harness;
pub(crate) use round::{ROUND, Round};

/// How often a rule is made again when making it took longer than it may be relied on.
const TRIES: usize = 3;
/// Of how many shapes a process remembers what it has made.
const REMEMBERED: usize = 1_000;

/// What a process has made and may rely on.
#[derive(Debug, Default)]
pub(crate) struct Relied(Mutex<BTreeMap<ShapeId, Made>>);

/// A rule that this process has made.
#[derive(Clone, Debug)]
struct Made {
    edition: Edition,
    /// When its entry was touched last.
    touched: Moment,
}

/// A moment on both clocks of a process.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Timestamp,
    monotonic: Duration,
}

impl Moment {
    /// Whether less than `span` has passed since, on both clocks. A clock that was set back says nothing.
    fn is_within(self, span: Duration, now: Self) -> bool {
        let set = Duration::try_from(now.at.duration_since(self.at));
        let elapsed = now.monotonic.checked_sub(self.monotonic);
        set.is_ok_and(|set| set < span) && elapsed.is_some_and(|elapsed| elapsed < span)
    }
}

impl Relied {
    fn get(&self, shape: &ShapeId) -> Option<Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(shape).cloned()
    }

    fn put(&self, shape: ShapeId, made: Made) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(shape, made);
    }
}

impl Harness {
    /// Makes sure that `subscription` wakes its invocation, and says whether it would have without.
    pub(crate) async fn register_wake(&self, subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        let mut registration = Registration::Known;
        if let Some(wait) = &subscription.wake.event {
            let shape = wait.shape(&subscription.descriptor.signal_id).map_err(SubscriptionError::Rejected)?;
            registration = self.rely_on(shape).await?;
        }
        Ok(registration.and(self.subscriptions().subscribe(subscription).await?))
    }

    /// Makes sure that there is a rule for `shape`, and that it stays while it is needed.
    async fn rely_on(&self, shape: EventShape) -> Result<Registration, SubscriptionError> {
        let id = shape.id();
        let made = self.relied().get(&id);
        if made.as_ref().is_some_and(|made| self.is_young(made.touched)) {
            return Ok(Registration::Known);
        }
        if let Some(made) = made {
            let touched = self.moment();
            if self.touch(&id).await? == made.edition && self.is_young(touched) {
                self.relied().put(id, Made { touched, ..made });
                return Ok(Registration::Known);
            }
        }
        let rules = self.subscriptions().list_rules().await?;
        self.make(shape, &rules).await
    }

    /// Makes the rule that `paused` needs beside `rules`, which are there; `None` where it needs none.
    pub(crate) async fn make_rule_of(
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
    async fn make(&self, shape: EventShape, rules: &[ListedRule]) -> Result<Registration, SubscriptionError> {
        let (id, most) = (shape.id(), self.config().rules.most);
        // Before the entry is made: what is refused leaves nothing behind.
        if rules.len() >= most && !rules.iter().any(|rule| rule.name.shape == id) {
            let sentence =
                format!("the event bus has {most} rules of ours, which is the limit: let waits share a pattern");
            return Err(SubscriptionError::Rejected(sentence));
        }
        for _ in 0..TRIES {
            let touched = self.moment();
            let edition = self.touch(&id).await?;
            let name = RuleName { shape: id.clone(), edition: Some(edition.clone()) };
            let is_known = rules.iter().any(|rule| rule.carries_for(&name));
            let registration = if is_known { Registration::Known } else { Registration::Made };
            self.subscriptions().put_rule(&EventRule { name, shape: shape.clone() }).await?;
            if self.is_young(touched) {
                self.relied().put(id, Made { edition, touched });
                return Ok(registration);
            }
        }
        Err(SubscriptionError::Unavailable("the event bus takes too long to make a rule".to_owned()))
    }

    async fn touch(&self, shape: &ShapeId) -> Result<Edition, SubscriptionError> {
        let ports = self.engine().ports();
        let touched = ports.store.touch_rule(shape, &Edition::of(&ports.ids.fresh()), self.now()).await;
        touched.map(|entry| entry.edition).map_err(|error| match error {
            StoreError::Denied(_) => SubscriptionError::Denied(error.to_string()),
            StoreError::Unavailable(_)
            | StoreError::Corrupt(_)
            | StoreError::TooLarge { .. }
            | StoreError::TooComplex { .. }
            | StoreError::LeaseHeld { .. }
            | StoreError::Invalid(_) => SubscriptionError::Unavailable(error.to_string()),
        })
    }

    fn is_young(&self, touched: Moment) -> bool {
        touched.is_within(self.config().rules.trusted, self.moment())
    }

    fn moment(&self) -> Moment {
        Moment { at: self.now(), monotonic: self.engine().ports().clock.monotonic() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: i64, monotonic: u64) -> Moment {
        let at = Timestamp::from_second(1_000_000 + at).expect("an instant");
        Moment { at, monotonic: Duration::from_secs(monotonic) }
    }

    #[test]
    fn whichever_clock_says_more_counts() {
        let (span, touched) = (Duration::from_secs(10), moment(0, 0));
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
