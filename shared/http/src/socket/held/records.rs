//! The records of sockets and the seats of tenants, as the store has them.

use dormouse_api::{Race, SeatLimits, Seats, StreamLimits};
use dormouse_ports::{Commit, CommitError, Document, DocumentKey, DocumentWrite, Journal, StoreError};
use jiff::Timestamp;

use super::super::record::{self, SocketRecord};
use super::{HeldSockets, is_connection_id};

/// The kind of the documents that say which sockets a tenant has open.
const SEATS: &str = "socket_seats";

/// Number of attempts at a write that others were faster than.
const RACES: u32 = 10;

/// Outcome of a change of a record.
pub(super) enum Changed<T> {
    /// It is written.
    Done(T),
    /// The record is not as it would have to be; nothing is written.
    Declined,
    /// There is no record.
    Gone,
}

impl HeldSockets {
    pub(super) async fn load(&self, id: &str, now: Timestamp) -> Result<Option<(Document, SocketRecord)>, StoreError> {
        if !is_connection_id(id) {
            return Ok(None);
        }
        let found = self.0.records.document(&record::key(id), now).await?;
        found.map(|document| record::read(&document).map(|socket| (document, socket))).transpose()
    }

    /// Changes the record of the connection `id` as `to` says, which is asked again where others were faster.
    pub(super) async fn change<T: Send>(
        &self,
        id: &str,
        mut to: impl FnMut(&mut SocketRecord, Timestamp) -> Option<T> + Send,
    ) -> Result<Changed<T>, StoreError> {
        let mut race = self.race();
        while race.goes_on().await {
            let now = self.now();
            let Some((document, mut socket)) = self.load(id, now).await? else { return Ok(Changed::Gone) };
            let Some(outcome) = to(&mut socket, now) else { return Ok(Changed::Declined) };
            if self.commit(vec![socket.write(id, document.version)?]).await? {
                return Ok(Changed::Done(outcome));
            }
        }
        Err(StoreError::Unavailable(format!("the record of a socket was changed by others {RACES} times in a row")))
    }

    /// Records the socket, and takes a seat for it; false if there is none.
    pub(super) async fn seat(&self, id: &str, socket: &SocketRecord) -> Result<bool, StoreError> {
        let StreamLimits { each, of_tenant, .. } = self.0.limits;
        let mut race = self.race();
        while race.goes_on().await {
            let now = self.now();
            let (version, mut seats) = self.seats(&socket.tenant, now).await?;
            if !seats.take(id, &socket.actor, socket.expires_at(), now, SeatLimits { each, of_tenant }) {
                return Ok(false);
            }
            if self.commit(vec![socket.write(id, 0)?, written(&socket.tenant, version, &seats)?]).await? {
                return Ok(true);
            }
        }
        Err(StoreError::Unavailable(format!("others of the tenant were faster {RACES} times in a row")))
    }

    /// Removes the record of the connection `id`, and gives its seat back.
    pub(super) async fn forget(&self, id: &str) -> Result<(), StoreError> {
        let mut race = self.race();
        while race.goes_on().await {
            let now = self.now();
            let Some((document, socket)) = self.load(id, now).await? else { return Ok(()) };
            let (version, mut seats) = self.seats(&socket.tenant, now).await?;
            let mut writes = vec![record::removal(&document)];
            if seats.give_back(id) {
                writes.push(written(&socket.tenant, version, &seats)?);
            }
            if self.commit(writes).await? {
                return Ok(());
            }
        }
        Err(StoreError::Unavailable(format!("the record of a socket was changed by others {RACES} times in a row")))
    }

    async fn seats(&self, tenant: &str, now: Timestamp) -> Result<(u64, Seats), StoreError> {
        match self.0.records.document(&seats_of(tenant), now).await? {
            Some(document) => Ok((document.version, record::read(&document)?)),
            None => Ok((0, Seats::default())),
        }
    }

    /// True if `documents` are written, false if others were faster.
    async fn commit(&self, documents: Vec<DocumentWrite>) -> Result<bool, StoreError> {
        let ids = &self.0.server.app().engine().ports().ids;
        let journal = Journal::new(documents, Vec::new());
        match self.0.commits.commit(&Commit { journal, ..Commit::new(ids.fresh(), self.now()) }).await {
            Ok(()) => Ok(true),
            Err(CommitError::Journal(_)) => Ok(false),
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    fn race(&self) -> Race<'_> {
        let ports = self.0.server.app().engine().ports();
        Race::new(RACES, &*ports.ids, &*ports.clock)
    }
}

/// The name of the document of the sockets of `tenant`.
fn seats_of(tenant: &str) -> DocumentKey {
    DocumentKey::new(SEATS, tenant)
}

fn written(tenant: &str, version: u64, seats: &Seats) -> Result<DocumentWrite, StoreError> {
    match seats.until() {
        Some(until) => record::written(seats_of(tenant), version, seats, until),
        None => Ok(DocumentWrite::remove(seats_of(tenant), version)),
    }
}
