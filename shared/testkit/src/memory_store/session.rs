use dormouse_ports::{
    CommitError, Lease, LeaseRequest, Map, Owner, SessionExpectation, SessionRecord, SessionWrite, SharedMap,
    StoreError,
};
use jiff::Timestamp;

/// The head of a session: a record, a lease, both or neither.
#[derive(Debug, Default)]
pub(super) struct SessionRow {
    /// The record without its state.
    pub(super) record: Option<SessionRecord>,
    state: SharedMap,
    holder: Option<(Owner, Timestamp)>,
    fence: u64,
}

impl SessionRow {
    /// Grants or renews the lease; a renewed lease keeps its fence.
    pub(super) fn lease(&mut self, request: &LeaseRequest) -> Result<Lease, StoreError> {
        let counts = |until: Timestamp| request.now < until && request.past != Some(until);
        match &self.holder {
            Some((owner, until)) if counts(*until) && *owner != request.owner => {
                return Err(StoreError::LeaseHeld { until: *until });
            }
            Some((_, until)) if counts(*until) => {}
            _ => self.fence += 1,
        }
        self.holder = Some((request.owner.clone(), request.until));
        Ok(Lease { owner: request.owner.clone(), fence: self.fence })
    }

    /// The record, if there is one.
    pub(super) fn read(&self) -> Option<SessionRecord> {
        let record = self.record.clone()?;
        Some(SessionRecord { state: self.state.clone().into_map(), ..record })
    }

    pub(super) fn leased_until(&self) -> Option<Timestamp> {
        self.holder.as_ref().map(|(_, until)| *until)
    }

    pub(super) fn leased_by(&self) -> Option<Owner> {
        self.holder.as_ref().map(|(owner, _)| owner.clone())
    }

    fn is_held_by(&self, lease: &Lease) -> bool {
        self.fence == lease.fence && self.holder.as_ref().is_some_and(|(owner, _)| *owner == lease.owner)
    }

    fn version(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.version)
    }
}

/// Checks that `write` may happen to `row`.
pub(super) fn check(row: Option<&SessionRow>, write: &SessionWrite) -> Result<(), CommitError> {
    if let Some(lease) = &write.lease
        && !row.is_some_and(|row| row.is_held_by(lease))
    {
        return Err(CommitError::LeaseLost);
    }
    match write.expect {
        SessionExpectation::Any => Ok(()),
        SessionExpectation::Version(version) if version == row.map_or(0, SessionRow::version) => Ok(()),
        SessionExpectation::Version(_) => Err(CommitError::SessionConflict),
    }
}

/// Performs the write that [`check`] allowed.
pub(super) fn apply(row: &mut SessionRow, write: &SessionWrite, now: Timestamp) {
    if let Some((state, schema_version)) = &write.save {
        row.record = Some(SessionRecord {
            session_id: write.session_id.clone(),
            state: Map::new(),
            schema_version: schema_version.clone(),
            version: row.version() + 1,
            created_at: row.record.as_ref().map_or(now, |record| record.created_at),
            updated_at: now,
        });
        row.state = state.clone();
    }
    if write.release && write.lease.is_some() {
        row.holder = None;
    }
}
