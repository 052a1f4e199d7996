//! The seat of a request among those that are worked on, and what becomes of it when its client leaves.
//!
//! A read is given up then: nobody is told what it finds. A write that has begun goes on to its end, as it does on AWS, and
//! sits among those that were left, so that whoever asks now finds the seat free. Where as many were left as there is room for,
//! it keeps the seat: what a client begins and leaves has an end, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_harness::{Admission, AdmissionWait, Admitted};
use dormouse_http::Findings;
use futures::FutureExt;
use tokio::task::AbortHandle;

use crate::lane::Lane;

/// The seat of one request. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    held: Arc<Mutex<Option<Admitted<Lane>>>>,
    lane: Lane,
    left: Admission<Lane>,
}

impl Seat {
    /// The seat that `admitted` is, of a request in `lane`; `left` has room for those that were left.
    pub(crate) fn new(admitted: Admitted<Lane>, lane: Lane, left: Admission<Lane>) -> Self {
        Self { held: Arc::new(Mutex::new(Some(admitted))), lane, left }
    }

    /// Gives it back: the request is answered.
    pub(crate) fn give_back(&self) {
        self.held().take();
    }

    /// Moves the request to those that were left, where there is room.
    fn leave(&self, wait: AdmissionWait) {
        let mut held = self.held();
        if held.is_some()
            && let Some(Ok(room)) = self.left.enter(self.lane.clone(), wait).now_or_never()
        {
            *held = Some(room);
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Admitted<Lane>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that waits for the answer to a request. Dropped before it has stayed to the end, it has left.
#[derive(Debug)]
pub(crate) struct WaitingClient {
    seat: Seat,
    work: AbortHandle,
    /// Facts about a request that changes nothing.
    read: Option<Findings>,
    wait: AdmissionWait,
    has_stayed: bool,
}

impl WaitingClient {
    /// The client of the request that `work` answers, on `seat`; of a read with its findings.
    pub(crate) fn new(seat: Seat, work: AbortHandle, read: Option<Findings>, wait: AdmissionWait) -> Self {
        Self { seat, work, read, wait, has_stayed: false }
    }

    /// It has its answer.
    pub(crate) fn has_its_answer(mut self) {
        self.has_stayed = true;
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        match &self.read {
            _ if self.has_stayed => {}
            // What is noted of an answer, a refusal for example, is noted.
            Some(findings) if !findings.is_answered() => self.work.abort(),
            Some(_) | None => self.seat.leave(self.wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dormouse_harness::AdmissionLimits;
    use dormouse_ports::Clock;
    use dormouse_system::SystemClock;
    use tokio::sync::oneshot;

    use super::*;

    const WAIT: AdmissionWait = AdmissionWait { longest: Duration::from_secs(60), refusable: true };

    fn seats(running: usize, waiting: usize) -> Admission<Lane> {
        let limits = AdmissionLimits { running, running_per_key: running, waiting, waiting_per_key: waiting };
        Admission::new(limits, Arc::new(SystemClock::default()) as Arc<dyn Clock>)
    }

    /// Work on one of `seats`, which ends when it is told to; and its client.
    async fn begun(
        (seats, left): (&Admission<Lane>, &Admission<Lane>),
        read: Option<Findings>,
    ) -> (WaitingClient, oneshot::Sender<()>) {
        let lane = Lane::Tenant("acme".into());
        let admitted = seats.enter(lane.clone(), WAIT).await.expect("a seat");
        let seat = Seat::new(admitted, lane, left.clone());
        let (end, ended) = oneshot::channel::<()>();
        let on = seat.clone();
        let work = tokio::spawn(async move {
            let _ = ended.await;
            on.give_back();
        });
        (WaitingClient::new(seat, work.abort_handle(), read, WAIT), end)
    }

    fn told(seats: &Admission<Lane>) -> String {
        format!("{seats:?}")
    }

    /// Until `seats` are taken by as many as that.
    async fn until(seats: &Admission<Lane>, running: usize) {
        let wanted = format!("Admission {{ running: {running}, waiting: 0 }}");
        while told(seats) != wanted {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_read_ends_with_its_client() {
        let (seats, left) = (seats(1, 0), seats(1, 0));
        let (client, end) = begun((&seats, &left), Some(Findings::default())).await;
        drop(client);
        until(&seats, 0).await;
        until(&left, 0).await;
        assert!(end.is_closed(), "nothing works on it any more");
    }

    #[tokio::test]
    async fn a_write_whose_client_has_left_goes_on_and_its_seat_is_free_at_once() {
        let (seats, left) = (seats(1, 0), seats(1, 0));
        let (client, end) = begun((&seats, &left), None).await;
        drop(client);
        until(&seats, 0).await;
        until(&left, 1).await;
        let (other, others_end) = begun((&seats, &left), None).await;
        drop(other);
        assert!(seats.enter(Lane::House, WAIT).await.is_err(), "no more are left than there is room for");
        end.send(()).expect("it works on");
        until(&left, 0).await;
        others_end.send(()).expect("it works on");
        until(&seats, 0).await;
    }

    #[tokio::test]
    async fn a_client_that_stays_frees_the_seat_with_its_answer() {
        let (seats, left) = (seats(1, 0), seats(1, 0));
        let (client, end) = begun((&seats, &left), None).await;
        end.send(()).expect("it works");
        until(&seats, 0).await;
        client.has_its_answer();
        until(&left, 0).await;
    }
}
