//! Who has how many sockets open, over all processes: one document for each tenant.

use std::collections::BTreeMap;

use dormouse_ports::DocumentKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The kind of the documents.
const KIND: &str = "socket_seats";

/// The open sockets of a tenant, by their connections. A seat that nobody gave back is free when its time is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seats {
    seats: BTreeMap<String, Seat>,
}

/// An open socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seat {
    actor: String,
    until: Timestamp,
}

/// Numbers of sockets that may be open at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeatLimits {
    /// Of one actor.
    pub(super) each: usize,
    /// Of all actors of a tenant.
    pub(super) of_tenant: usize,
}

impl Seats {
    /// Takes one for `actor`; false if there is none left.
    pub(super) fn take(&mut self, id: &str, actor: &str, until: Timestamp, now: Timestamp, limits: SeatLimits) -> bool {
        self.seats.retain(|_, seat| now < seat.until);
        let own = self.seats.values().filter(|seat| seat.actor == actor).count();
        if own >= limits.each || self.seats.len() >= limits.of_tenant {
            return false;
        }
        self.seats.insert(id.to_owned(), Seat { actor: actor.to_owned(), until });
        true
    }

    /// Gives that of the connection `id` back; false if it has none.
    pub(super) fn give_back(&mut self, id: &str) -> bool {
        self.seats.remove(id).is_some()
    }

    /// Until when the document has to be kept; `None` when nobody is seated.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.seats.values().map(|seat| seat.until).max()
    }
}

/// The name of the document of `tenant`.
pub(super) fn key(tenant: &str) -> DocumentKey {
    DocumentKey::new(KIND, tenant)
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
