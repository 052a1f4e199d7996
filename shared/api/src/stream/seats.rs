use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_protocol::{ErrorCode, ProtocolError};

use crate::Actor;

/// How many seconds later a stream that found no seat may be asked for again.
const LATER: u32 = 5;

/// Counts the streams that run.
#[derive(Debug)]
pub(super) struct Seats {
    at_once: usize,
    each: usize,
    /// How many each actor has, by tenant and name.
    taken: Mutex<HashMap<(String, String), usize>>,
}

/// The right to run one stream; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    who: (String, String),
}

impl Seats {
    pub(super) fn new(at_once: usize, each: usize) -> Self {
        Self { at_once, each, taken: Mutex::default() }
    }

    /// A seat for `actor`.
    ///
    /// # Errors
    /// `rate_limited` when there is none left.
    pub(super) fn take(seats: &Arc<Self>, actor: &Actor) -> Result<Seat, ProtocolError> {
        let who = (actor.tenant.clone(), actor.name.clone());
        let mut taken = seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let full = taken.values().sum::<usize>() >= seats.at_once;
        let own = taken.get(&who).copied().unwrap_or_default();
        if full || own >= seats.each {
            let refusal = ProtocolError::new(ErrorCode::RateLimited, "too many streams are open");
            return Err(refusal.retry_after(LATER));
        }
        taken.insert(who.clone(), own + 1);
        Ok(Seat { seats: seats.clone(), who })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
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
        Actor { name: name.to_owned(), tenant: tenant.to_owned(), workspaces: None, scopes: BTreeSet::new() }
    }

    #[test]
    fn a_namesake_of_another_tenant_has_seats_of_its_own() {
        let seats = Arc::new(Seats::new(3, 1));
        let _first = Seats::take(&seats, &actor("acme", "ada")).expect("a seat");
        assert_eq!(Seats::take(&seats, &actor("acme", "ada")).expect_err("her second").status(), 429);
        Seats::take(&seats, &actor("evil", "ada")).expect("another one");
    }

    #[test]
    fn seats_are_counted_for_each_and_for_all_and_come_back() {
        let seats = Arc::new(Seats::new(3, 2));
        let take = |name| Seats::take(&seats, &actor("acme", name));
        let (first, _second) = (take("ada").expect("a seat"), take("ada").expect("a seat"));
        assert_eq!(take("ada").expect_err("her third").status(), 429);
        let _third = take("bob").expect("a seat");
        assert_eq!(take("bob").expect_err("the fourth of all").header(), Some(("retry-after", "5")));
        drop(first);
        take("bob").expect("a seat again");
    }
}
