//! Who has how many sockets or streams open, over all processes: one document of each for each tenant.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The open sockets or streams of a tenant, by their ids. A seat that nobody gave back is free when its time is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seats {
    seats: BTreeMap<String, Seat>,
}

/// One that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seat {
    actor: String,
    until: Timestamp,
}

/// Numbers of those that may be open at a time.
#[derive(Clone, Copy, Debug)]
pub struct SeatLimits {
    /// Of one actor.
    pub each: usize,
    /// Of all actors of a tenant.
    pub of_tenant: usize,
}

impl Seats {
    /// Takes one for `actor`; false if there is none left.
    pub fn take(&mut self, id: &str, actor: &str, until: Timestamp, now: Timestamp, limits: SeatLimits) -> bool {
        self.seats.retain(|_, seat| now < seat.until);
        let own = self.seats.values().filter(|seat| seat.actor == actor).count();
        if own >= limits.each || self.seats.len() >= limits.of_tenant {
            return false;
        }
        self.seats.insert(id.to_owned(), Seat { actor: actor.to_owned(), until });
        true
    }

    /// Gives that of `id` back; false if it has none.
    pub fn give_back(&mut self, id: &str) -> bool {
        self.seats.remove(id).is_some()
    }

    /// Until when the document has to be kept; `None` when nobody is seated.
    pub fn until(&self) -> Option<Timestamp> {
        self.seats.values().map(|seat| seat.until).max()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn seats_are_counted_for_each_and_for_all_come_back_and_run_out() {
        let limits = SeatLimits { each: 2, of_tenant: 3 };
        let now = Timestamp::UNIX_EPOCH;
        let until = now + SignedDuration::from_mins(1);
        let mut seats = Seats::default();
        let take = |seats: &mut Seats, id: &str, actor: &str, now| seats.take(id, actor, until, now, limits);
        assert!(take(&mut seats, "1", "ada", now) && take(&mut seats, "2", "ada", now));
        assert!(!take(&mut seats, "3", "ada", now), "her third");
        assert!(take(&mut seats, "3", "bob", now));
        assert!(!take(&mut seats, "4", "eve", now), "the fourth of all");
        assert!(seats.give_back("1") && !seats.give_back("1"));
        assert!(take(&mut seats, "4", "eve", now));
        assert!(take(&mut seats, "5", "ada", until), "the time of the others is over");
        assert_eq!(seats.seats.len(), 1);
    }
}
