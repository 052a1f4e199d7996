//! Streams of a tenant over all processes: each has a seat in a document of the tenant, a lease that ends by itself where its
//! process dies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Clock, DocumentKey, DocumentWrite, DocumentWrites, IdSource, Records, Spawner, StoreError};
use dormouse_protocol::{ErrorCode, Map, ProtocolError};
use futures::channel::oneshot;
use jiff::Timestamp;
use serde_json::Value;

use super::source::unavailable;
use crate::Actor;
use crate::race::Race;
use crate::seats::{SeatLimits, Seats};

/// The kind of the documents.
const KIND: &str = "stream_seats";
/// Time for which the document of a tenant without streams is kept.
const EMPTY: Duration = Duration::from_secs(60);
/// Number of times that a seat is asked for while others are faster.
const RACES: u32 = 8;
/// Number of seconds after which a stream that found no seat may be asked for again.
const LATER: u32 = 5;

/// Counts the streams that a tenant has open, in the store: two requests as a stream opens and two as it ends.
#[derive(Clone)]
pub struct StreamSeats {
    /// Reads what `documents` write.
    pub records: Arc<dyn Records>,
    /// Writes the documents of tenants, each whole in its item.
    pub documents: Arc<dyn DocumentWrites>,
    /// Names seats and writes.
    pub ids: Arc<dyn IdSource>,
    /// Tells when leases end.
    pub clock: Arc<dyn Clock>,
    /// Gives seats back when streams end.
    pub spawner: Arc<dyn Spawner>,
    /// Number of streams that all actors of a tenant may have together.
    pub of_tenant: usize,
}

impl fmt::Debug for StreamSeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSeats").field("of_tenant", &self.of_tenant).finish_non_exhaustive()
    }
}

/// A seat that is taken; given back when it is dropped.
#[derive(Debug)]
pub(super) struct TakenSeat {
    seats: StreamSeats,
    tenant: String,
    id: String,
}

impl StreamSeats {
    /// A seat for a stream of `actor` that ends within `life`. It is taken in a task of its own: a request that is given up
    /// while the write is under way gives the seat back as soon as it is written.
    ///
    /// # Errors
    /// `rate_limited` when there is none left, `service_unavailable` when the store did not answer.
    pub(super) async fn take(&self, actor: &Actor, life: Duration) -> Result<TakenSeat, ProtocolError> {
        let (give, given) = oneshot::channel();
        let (seats, actor) = (self.clone(), actor.clone());
        self.spawner.spawn(Box::pin(async move {
            // What nobody waits for is dropped here, and a seat is given back as it is dropped.
            drop(give.send(seats.taken(&actor, life).await));
        }));
        let lost = || ProtocolError::new(ErrorCode::ServiceUnavailable, "the seat of the stream was not taken");
        given.await.unwrap_or_else(|_| Err(lost().retry_after(1)))
    }

    async fn taken(&self, actor: &Actor, life: Duration) -> Result<TakenSeat, ProtocolError> {
        let id = self.ids.fresh();
        let limits = SeatLimits { each: self.of_tenant, of_tenant: self.of_tenant };
        let take = |seats: &mut Seats, now: Timestamp| seats.take(&id, &actor.name, now + life, now, limits);
        let seat = || TakenSeat { seats: self.clone(), tenant: actor.tenant.clone(), id: id.clone() };
        match self.change(&actor.tenant, take).await {
            Ok(Some(true)) => Ok(seat()),
            Ok(Some(false)) => {
                let refusal = ProtocolError::new(ErrorCode::RateLimited, "the tenant has too many streams open");
                Err(refusal.retry_after(LATER))
            }
            Ok(None) => {
                let refusal = ProtocolError::new(ErrorCode::RateLimited, "the tenant opens many streams at once");
                Err(refusal.retry_after(1))
            }
            Err(error) => {
                // It may be written although the store did not say so.
                drop(seat());
                Err(unavailable(&error))
            }
        }
    }

    /// Changes the seats of `tenant`, where `change` says that there is something to write; what it said. `None` where
    /// others were faster each time.
    async fn change(
        &self,
        tenant: &str,
        change: impl Fn(&mut Seats, Timestamp) -> bool,
    ) -> Result<Option<bool>, StoreError> {
        let key = DocumentKey::new(KIND, tenant);
        let mut race = Race::new(RACES, &*self.ids, &*self.clock);
        while race.goes_on().await {
            let now = self.clock.now();
            let found = self.records.document(&key, now).await?;
            let version = found.as_ref().map_or(0, |document| document.version);
            let mut seats = found.map_or_else(Seats::default, |document| read(document.body));
            if !change(&mut seats, now) {
                return Ok(Some(false));
            }
            let Ok(Value::Object(body)) = serde_json::to_value(&seats) else {
                return Err(StoreError::Invalid(format!("{key} is no object")));
            };
            let until = seats.until().unwrap_or(now + EMPTY);
            let (listed, expires_at) = (Vec::new(), Some(until));
            let write = DocumentWrite { key: key.clone(), expect: version, body: Some(body), listed, expires_at };
            if self.documents.write_document(&write, &self.ids.fresh(), now).await? {
                return Ok(Some(true));
            }
        }
        Ok(None)
    }
}

impl Drop for TakenSeat {
    fn drop(&mut self) {
        let Self { seats, tenant, id } = self;
        let (seats, tenant, id) = (seats.clone(), std::mem::take(tenant), std::mem::take(id));
        let spawner = seats.spawner.clone();
        spawner.spawn(Box::pin(async move {
            match seats.change(&tenant, |seats, _| seats.give_back(&id)).await {
                Ok(Some(_)) => {}
                Ok(None) => tracing::debug!(tenant, "the seat of a stream is free again when its time is over"),
                Err(error) => tracing::debug!(%error, tenant, "the seat of a stream was not given back"),
            }
        }));
    }
}

/// What cannot be read seats nobody: it is written anew.
fn read(body: Map) -> Seats {
    serde_json::from_value(Value::Object(body)).unwrap_or_else(|_| {
        tracing::warn!("what was kept of the open streams of a tenant cannot be read");
        Seats::default()
    })
}
