//! Rates: how many requests a key and a tenant may send in a minute, so that none of them takes what others need.
//!
//! Windows of a minute begin with the first request. A request takes from the window of its key and from that of its
//! tenant, or from neither. A process that serves alone counts in memory. Processes that serve side by side count in
//! the store, and each takes a twentieth of a window at a time, so that a request in twenty costs two requests to the
//! store and the others none; what a process took and did not use is lost with the window.

mod shared;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use dormouse_ports::Records;
use jiff::{SignedDuration, Timestamp};

use crate::Actor;
use crate::keys::Writes;

pub(crate) use shared::KIND;

/// The policy of one key, or of one subject of an issuer; a window of it is named `key/TENANT/CREDENTIAL`.
pub(crate) const OF_KEY: &str = "key";

/// The policy that all keys of a tenant share; a window of it is named `tenant/NAME`.
pub(crate) const OF_TENANT: &str = "tenant";

/// Length of a window.
pub(crate) const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// Number of windows that are kept before those that have ended are forgotten.
const KEPT: usize = 10_000;

/// Number of requests that may be sent in a minute; without a number any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// By one key, or by one subject of an issuer.
    pub key: Option<u32>,
    /// By all keys of a tenant together.
    pub tenant: Option<u32>,
}

/// Remainder of a limit, as the fields `RateLimit-Policy` and `RateLimit` tell it
/// (draft-ietf-httpapi-ratelimit-headers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Name of the limit: `key` or `tenant`.
    pub policy: &'static str,
    /// Requests of a whole window.
    pub quota: u32,
    /// Requests that are left of it.
    pub remaining: u32,
    /// Seconds until the next one begins.
    pub seconds: u32,
}

/// Whom a window is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) policy: &'static str,
    pub(crate) quota: u32,
    /// Unique among those of its policy.
    pub(crate) name: String,
}

/// A window as this process knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) ends_at: Timestamp,
    /// Requests that this process may still take.
    pub(crate) in_hand: u32,
    /// Requests that others may take beside.
    pub(crate) elsewhere: u32,
    /// True if no other process counts, so that all of it was in hand at first.
    pub(crate) is_whole: bool,
}

/// Counts the requests of keys and tenants.
#[derive(Debug)]
pub(crate) struct Rates {
    limits: RateLimits,
    windows: Mutex<BTreeMap<Subject, Window>>,
}

/// Outcome of a take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Remainders of each limit.
    pub standings: Vec<Standing>,
    /// The limit that has nothing left, if one has not: the request is refused until its window ends.
    pub refused: Option<Standing>,
}

impl Rates {
    pub(crate) fn new(limits: RateLimits) -> Self {
        Self { limits, windows: Mutex::default() }
    }

    /// Takes one request of `actor`. Windows are those of all processes where `writes` says how to reach them.
    pub(crate) async fn take(
        &self,
        records: &dyn Records,
        writes: Option<&Writes>,
        actor: &Actor,
        now: Timestamp,
    ) -> Taken {
        let subjects = self.subjects(actor);
        for subject in &subjects {
            if !self.needs_more(subject, now) {
                continue;
            }
            let more = match writes {
                Some(writes) => shared::more(records, writes, subject, now).await,
                None => Window::whole(subject, now),
            };
            self.add(subject, more, now);
        }
        self.taken(&subjects, now)
    }

    /// The refusal of a request of `actor`, where it is known without asking anybody: nothing is left of a window, here or
    /// elsewhere. Nothing is taken.
    pub(crate) fn spent(&self, actor: &Actor, now: Timestamp) -> Option<Taken> {
        let subjects = self.subjects(actor);
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let is_spent = |window: &&Window| window.ends_at > now && window.in_hand == 0 && window.elsewhere == 0;
        let refused =
            subjects.iter().find_map(|subject| Some(windows.get(subject).filter(is_spent)?.standing(subject, now)))?;
        let standings =
            subjects.iter().filter_map(|subject| Some(windows.get(subject)?.standing(subject, now))).collect();
        Some(Taken { standings, refused: Some(refused) })
    }

    fn subjects(&self, actor: &Actor) -> Vec<Subject> {
        let of_key = self.limits.key.map(|quota| {
            let name = format!("{}/{}", actor.tenant, actor.credential);
            Subject { policy: OF_KEY, quota, name }
        });
        let of_tenant =
            self.limits.tenant.map(|quota| Subject { policy: OF_TENANT, quota, name: actor.tenant.clone() });
        of_key.into_iter().chain(of_tenant).collect()
    }

    /// True if nothing is in hand of a window that may have more, or none has begun.
    fn needs_more(&self, subject: &Subject, now: Timestamp) -> bool {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.get(subject).is_none_or(|window| window.ends_at <= now || (window.in_hand == 0 && window.elsewhere > 0))
    }

    /// Puts `more` in hand. A window that another request has begun meanwhile stays: it is the whole one already where
    /// this process counts alone, and grows by what was taken where it does not.
    fn add(&self, subject: &Subject, more: Window, now: Timestamp) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= KEPT {
            windows.retain(|_, window| window.ends_at > now);
        }
        let before = windows.get(subject).filter(|window| window.ends_at > now).copied();
        let after = match before {
            Some(window) if more.is_whole => window,
            Some(window) => {
                let elsewhere = if window.ends_at == more.ends_at { more.elsewhere } else { window.elsewhere };
                Window { in_hand: window.in_hand.saturating_add(more.in_hand), elsewhere, ..window }
            }
            None => more,
        };
        windows.insert(subject.clone(), after);
    }

    /// Takes one request from each window, or from none of them.
    fn taken(&self, subjects: &[Subject], now: Timestamp) -> Taken {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |subject: &&Subject| windows.get(*subject).is_some_and(|window| window.in_hand == 0);
        let empty = subjects.iter().find(is_empty).cloned();
        if empty.is_none() {
            for subject in subjects {
                windows.entry(subject.clone()).and_modify(|window| window.in_hand = window.in_hand.saturating_sub(1));
            }
        }
        let standing = |subject: &Subject| windows.get(subject).map(|window| window.standing(subject, now));
        Taken { standings: subjects.iter().filter_map(standing).collect(), refused: empty.as_ref().and_then(standing) }
    }
}

impl Window {
    /// A window that begins, all of it in hand.
    fn whole(subject: &Subject, now: Timestamp) -> Self {
        Self {
            ends_at: now.saturating_add(WINDOW).unwrap_or(now),
            in_hand: subject.quota,
            elsewhere: 0,
            is_whole: true,
        }
    }

    fn standing(&self, subject: &Subject, now: Timestamp) -> Standing {
        let seconds = (self.ends_at.duration_since(now).as_millis() + 999) / 1_000;
        Standing {
            policy: subject.policy,
            quota: subject.quota,
            remaining: self.in_hand.saturating_add(self.elsewhere).min(subject.quota),
            seconds: u32::try_from(seconds.clamp(1, 60)).unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn actor(tenant: &str, credential: &str) -> Actor {
        Actor {
            name: "ada".to_owned(),
            tenant: tenant.to_owned(),
            workspaces: None,
            scopes: BTreeSet::new(),
            quota_id: None,
            proof: crate::Proof::Key,
            credential: credential.to_owned(),
            until: None,
        }
    }

    /// Requests of `actor` that were let in, of `count` at `now`.
    fn let_in(rates: &Rates, actor: &Actor, count: usize, now: Timestamp) -> usize {
        let one = |_: &usize| {
            let subjects = rates.subjects(actor);
            for subject in subjects.iter().filter(|subject| rates.needs_more(subject, now)) {
                rates.add(subject, Window::whole(subject, now), now);
            }
            rates.taken(&subjects, now).refused.is_none()
        };
        (0..count).filter(one).count()
    }

    #[test]
    fn a_noisy_tenant_takes_nothing_of_a_quiet_one() {
        let rates = Rates::new(RateLimits { key: Some(30), tenant: Some(50) });
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(let_in(&rates, &actor("noisy", "1"), 1_000, now), 30, "by its key");
        assert_eq!(let_in(&rates, &actor("noisy", "2"), 1_000, now), 20, "by its tenant");
        assert_eq!(let_in(&rates, &actor("noisy", "3"), 1_000, now), 0);
        assert_eq!(let_in(&rates, &actor("quiet", "1"), 30, now), 30, "all that it sends");
        let later = now + WINDOW;
        assert_eq!(let_in(&rates, &actor("noisy", "3"), 1_000, later), 30);
    }

    #[test]
    fn what_is_left_is_told() {
        let rates = Rates::new(RateLimits { key: Some(2), tenant: None });
        let now = Timestamp::UNIX_EPOCH;
        let ada = actor("acme", "1");
        assert_eq!(let_in(&rates, &ada, 2, now), 2);
        let refused = rates.taken(&rates.subjects(&ada), now + SignedDuration::from_millis(20_500)).refused;
        assert_eq!(refused, Some(Standing { policy: "key", quota: 2, remaining: 0, seconds: 40 }));
    }

    #[test]
    fn who_begins_a_window_at_the_same_time_begins_no_second_one() {
        let rates = Rates::new(RateLimits { key: Some(5), tenant: None });
        let ada = actor("acme", "1");
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(let_in(&rates, &ada, 3, now), 3);
        let subjects = rates.subjects(&ada);
        rates.add(&subjects[0], Window::whole(&subjects[0], now + SignedDuration::from_millis(1)), now);
        assert_eq!(let_in(&rates, &ada, 100, now), 2);
        // A part that was taken for a window that is known adds to it, also where the store did not answer.
        let part = Window { ends_at: now + SignedDuration::from_secs(1), in_hand: 1, elsewhere: 0, is_whole: false };
        rates.add(&subjects[0], part, now);
        assert_eq!(let_in(&rates, &ada, 100, now), 1);
    }

    #[test]
    fn windows_that_have_ended_are_forgotten() {
        let rates = Rates::new(RateLimits { key: Some(2), tenant: None });
        for one in 0..KEPT {
            let_in(&rates, &actor("acme", &one.to_string()), 1, Timestamp::UNIX_EPOCH);
        }
        let_in(&rates, &actor("acme", "the last"), 1, Timestamp::UNIX_EPOCH + WINDOW);
        assert_eq!(rates.windows.lock().expect("no panic").len(), 1);
    }
}
