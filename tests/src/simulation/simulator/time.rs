//! How time passes.

use std::time::Duration;

use dormouse_ports::limits;
use jiff::Timestamp;

use super::Simulator;

impl Simulator {
    /// Moves time to the next instant at which something happens, or by some amount.
    pub(super) fn let_time_pass(&mut self) {
        let elapsed = self.world.lock().elapsed;
        let leap = if self.stormy { self.chance(|chance| chance.u8(..100)) } else { 0 };
        let by = match leap {
            0..75 => return self.advance_to(self.next_instant()),
            75..88 => self.chance(|chance| chance.u64(1..1_000)),
            88..99 => self.chance(|chance| chance.u64(1_000..20_000)),
            _ => self.chance(|chance| chance.u64(20_000..7_200_000)),
        };
        self.advance_to(elapsed + Duration::from_millis(by));
    }

    fn next_instant(&self) -> Duration {
        let services = &self.outside.services;
        let history = &self.outside.history;
        let now = self.world.now();
        let elapsed = self.world.lock().elapsed;
        let in_time = |at: Timestamp| elapsed + Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let jobs = self.clients.jobs.iter().filter(|job| !job.told).map(|job| job.due);
        let parcels = services.parcels.values().map(|parcel| parcel.due);
        let announcements = services.announcements.iter().map(|(at, _)| *at);
        let schedules = services.schedules.values().map(|at| in_time(*at));
        // Nobody waits until the end of a claim that a wrong clock made.
        let ends = history.claims().map(|claim| claim.until).filter(|until| *until <= now + limits::LEASE);
        let expiries = ends.map(in_time);
        // Until it is removed, there is a sweep now and then.
        let round = self.outside.has_idle_rule().then(|| elapsed + Duration::from_secs(1));
        let instants = jobs.chain(parcels).chain(announcements).chain(schedules).chain(expiries);
        let mut world = self.world.lock();
        let waking = world.next_waking();
        let slow = world.pending_calls.iter().map(|pending_call| pending_call.not_before);
        let next = instants.chain(waking).chain(slow).chain(round).filter(|at| *at > elapsed).min();
        next.unwrap_or(elapsed + Duration::from_secs(1))
    }

    pub(super) fn advance_to(&mut self, instant: Duration) {
        self.world.lock().advance_to(instant);
        self.trace.note(format_args!("it is {:.3} s", instant.as_secs_f64()));
    }
}
