use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_protocol::{ErrorCode, ProtocolError};

use crate::Actor;

/// Number of seconds after which a stream that found no permit may be asked for again.
const LATER: u32 = 5;

/// Counts the streams that run.
#[derive(Debug)]
pub(super) struct StreamLimiter {
    at_once: usize,
    each: usize,
    of_tenant: usize,
    /// Number of streams of each actor, by tenant and name.
    taken: Mutex<HashMap<(String, String), usize>>,
}

/// The right to run one stream; given back when it is dropped.
#[derive(Debug)]
pub(super) struct StreamPermit {
    limiter: Arc<StreamLimiter>,
    who: (String, String),
}

impl StreamLimiter {
    /// `at_once` in all, `each` of one actor, `of_tenant` of all actors of a tenant.
    pub(super) fn new(at_once: usize, each: usize, of_tenant: usize) -> Self {
        Self { at_once, each, of_tenant, taken: Mutex::default() }
    }

    /// A permit for `actor`.
    ///
    /// # Errors
    /// `rate_limited` when there is none left.
    pub(super) fn take(limiter: &Arc<Self>, actor: &Actor) -> Result<StreamPermit, ProtocolError> {
        let who = (actor.tenant.clone(), actor.name.clone());
        let mut taken = limiter.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let full = taken.values().sum::<usize>() >= limiter.at_once;
        let own = taken.get(&who).copied().unwrap_or_default();
        let of_tenant: usize = taken.iter().filter(|((tenant, _), _)| *tenant == who.0).map(|(_, count)| count).sum();
        if full || own >= limiter.each || of_tenant >= limiter.of_tenant {
            let refusal = ProtocolError::new(ErrorCode::RateLimited, "too many streams are open");
            return Err(refusal.retry_after(LATER));
        }
        taken.insert(who.clone(), own + 1);
        Ok(StreamPermit { limiter: limiter.clone(), who })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut taken = self.limiter.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.who) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => {
                taken.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn actor(tenant: &str, name: &str) -> Actor {
        Actor {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            workspaces: None,
            scopes: BTreeSet::new(),
            quota_id: None,
            proof: crate::Proof::Key,
            credential: name.to_owned(),
            until: None,
        }
    }

    #[test]
    fn a_namesake_of_another_tenant_has_seats_of_its_own() {
        let limiter = Arc::new(StreamLimiter::new(3, 1, 3));
        let _first = StreamLimiter::take(&limiter, &actor("acme", "ada")).expect("a permit");
        assert_eq!(StreamLimiter::take(&limiter, &actor("acme", "ada")).expect_err("her second").status(), 429);
        StreamLimiter::take(&limiter, &actor("evil", "ada")).expect("another one");
    }

    #[test]
    fn a_tenant_with_many_actors_leaves_seats_to_others() {
        let limiter = Arc::new(StreamLimiter::new(1_000, 100, 500));
        let noisy =
            (0..10_000).map(|one| StreamLimiter::take(&limiter, &actor("noisy", &format!("actor-{}", one % 50))));
        let held: Vec<_> = noisy.filter_map(Result::ok).collect();
        assert_eq!(held.len(), 500);
        let quiet: Vec<_> = (0..100).map(|_| StreamLimiter::take(&limiter, &actor("quiet", "ada"))).collect();
        assert!(quiet.iter().all(Result::is_ok), "as many as if nobody else were there");
    }

    #[test]
    fn seats_are_counted_for_each_and_for_all_and_come_back() {
        let limiter = Arc::new(StreamLimiter::new(3, 2, 3));
        let take = |name| StreamLimiter::take(&limiter, &actor("acme", name));
        let first = take("ada").expect("a permit");
        let _second = take("ada").expect("a permit");
        assert_eq!(take("ada").expect_err("her third").status(), 429);
        let _third = take("bob").expect("a permit");
        assert_eq!(take("bob").expect_err("the fourth of all").header(), Some(("retry-after", "5")));
        drop(first);
        take("bob").expect("a permit again");
    }
}
