//! Session heads: the record and the lease in one item.

use std::sync::Arc;

use dormouse_ports::{
    CommitError, Lease, LeaseRequest, LoadedSession, Owner, Page, SessionExpectation, SessionFilter, SessionId,
    SessionRecord, SessionSummary, SessionWrite, SharedMap, StoreError, StoredList,
};
use jiff::Timestamp;

use super::blobs::Bodies;
use super::encode::Encoder;
use super::item::{
    Item, number, number_value, optional_number, optional_text, optional_time, text, text_value, time, time_value,
};
use super::keys::{
    self, CREATED_AT, FENCE, HEAD, Key, LEASE_OWNER, LEASE_UNTIL, LIST_REFS, PK, SCHEMA_VERSION, SESSION_STATE,
    UPDATED_AT, VERSION,
};
use super::requests::Table;
use super::scan::ScanSelection;
use super::segments::{self, ToStore};
use super::write::{ItemWrite, WriteOutcome};

/// Heads of sessions, their leases and their states.
#[derive(Clone)]
pub(super) struct SessionItems {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
}

impl SessionItems {
    pub(super) async fn read(&self, id: &SessionId) -> Result<LoadedSession, StoreError> {
        match self.table.get_item(Key::session(id)).await? {
            Some(item) => self.loaded(id, &item, None).await,
            None => {
                Ok(LoadedSession { record: None, lease: None, leased_until: None, leased_by: None, stored: Vec::new() })
            }
        }
    }

    /// Takes the lease and loads the record in one update. A lease that the caller holds already is renewed in a
    /// second one and keeps its fence: that is also how a grant is found again when its answer was lost.
    pub(super) async fn lease(&self, id: &SessionId, request: &LeaseRequest) -> Result<LoadedSession, StoreError> {
        let item = match self.table.write_alone(&grant(id, request)).await? {
            WriteOutcome::Done(item) => item,
            WriteOutcome::Refused(Some(item)) if optional_text(&item, LEASE_OWNER) == Some(request.owner.as_str()) => {
                self.renew(id, request, &item).await?
            }
            WriteOutcome::Refused(item) => return Err(held(item.as_ref())),
        };
        let lease = Lease { owner: request.owner.clone(), fence: number(&item, FENCE)? };
        self.loaded(id, &item, Some(lease)).await
    }

    async fn renew(&self, id: &SessionId, request: &LeaseRequest, found: &Item) -> Result<Item, StoreError> {
        let renewal = ItemWrite::update(&Key::session(id), "SET lease_until = :until")
            .when("lease_owner = :owner AND fence = :fence")
            .with(":until", time_value(request.until))
            .with(":owner", text_value(request.owner.as_str()))
            .with(":fence", number_value(number(found, FENCE)?));
        match self.table.write_alone(&renewal).await? {
            WriteOutcome::Done(item) => Ok(item),
            WriteOutcome::Refused(item) => Err(held(item.as_ref())),
        }
    }

    /// Removes the whole head: a turn that still runs finds its lease lost. The pieces of its lists are left to the
    /// sweep (`collect`): a sleeping invocation may refer to them.
    pub(super) async fn remove(&self, id: &SessionId) -> Result<(), StoreError> {
        // A note of an earlier time without a head does not count for this one.
        self.table.write_alone(&ItemWrite::delete(&Key::headless(id))).await?;
        self.table.write_alone(&ItemWrite::delete(&Key::session(id))).await.map(|_| ())
    }

    /// The session whose head is `item`; one that was born by a lease has no record yet.
    async fn loaded(&self, id: &SessionId, item: &Item, lease: Option<Lease>) -> Result<LoadedSession, StoreError> {
        let stored = segments::referred(&Key::session(id).pk, item)?;
        let record = self.record(id, item, &stored).await?;
        let leased_until = optional_time(item, LEASE_UNTIL)?;
        let leased_by = optional_text(item, LEASE_OWNER).map(Owner::from);
        Ok(LoadedSession { record, lease, leased_until, leased_by, stored })
    }

    async fn record(
        &self,
        id: &SessionId,
        item: &Item,
        stored: &[StoredList],
    ) -> Result<Option<SessionRecord>, StoreError> {
        let Some(version) = optional_number(item, VERSION)? else { return Ok(None) };
        let mut state = self.bodies.body(item, SESSION_STATE).await?;
        self.bodies.refill(stored, &mut state).await?;
        Ok(Some(SessionRecord {
            session_id: id.clone(),
            state,
            schema_version: text(item, SCHEMA_VERSION)?.to_owned(),
            version,
            created_at: time(item, CREATED_AT)?,
            updated_at: time(item, UPDATED_AT)?,
        }))
    }

    pub(super) async fn list(
        &self,
        filter: &SessionFilter,
        cursor: Option<&str>,
    ) -> Result<Page<SessionSummary>, StoreError> {
        let (condition, values) = filter_expression(filter);
        let attributes = &[PK, SCHEMA_VERSION, CREATED_AT, UPDATED_AT];
        let (items, next) = self.table.scan(&ScanSelection { condition, values, attributes }, cursor).await?;
        Ok(Page { items: items.iter().map(summary).collect::<Result<_, _>>()?, next })
    }
}

fn grant(id: &SessionId, request: &LeaseRequest) -> ItemWrite {
    let change = "SET lease_owner = :owner, lease_until = :until, fence = if_not_exists(fence, :zero) + :one";
    let update = match &request.begun_for {
        Some(tenant) => ItemWrite::update(&Key::session(id), format!("{change}, begun_for = :tenant"))
            .with(":tenant", text_value(tenant)),
        None => ItemWrite::update(&Key::session(id), change),
    };
    update
        .when("attribute_not_exists(lease_owner) OR lease_until <= :now OR lease_until = :past")
        .with(":owner", text_value(request.owner.as_str()))
        .with(":until", time_value(request.until))
        .with(":now", time_value(request.now))
        .with(":past", time_value(request.past.unwrap_or(request.now)))
        .with(":zero", number_value(0))
        .with(":one", number_value(1))
}

fn held(item: Option<&Item>) -> StoreError {
    match item.and_then(|item| time(item, LEASE_UNTIL).ok()) {
        Some(until) => StoreError::LeaseHeld { until },
        None => StoreError::Unavailable("the session's lease changed hands meanwhile".to_owned()),
    }
}

/// The change that `write` makes to its head, without the part that every commit adds.
pub(super) fn session_write(
    encoder: &mut Encoder<'_>,
    write: &SessionWrite,
    now: Timestamp,
) -> Result<ItemWrite, StoreError> {
    let key = Key::session(&write.session_id);
    let mut set = vec!["commit_id = :commit"];
    let mut remove = Vec::new();
    let mut values = Vec::new();
    if let Some((state, schema_version)) = &write.save {
        set.push("session_state = :state, schema_version = :schema, updated_at = :now");
        set.push("created_at = if_not_exists(created_at, :now), version = if_not_exists(version, :zero) + :one");
        let (rest, lists) = encoder.cut(&key.pk, ToStore::Shared(state))?;
        let rest = rest.map_or_else(|| state.clone(), SharedMap::from);
        values.push((":state", encoder.body("the session state", &rest)?));
        match segments::references(&lists)? {
            Some(lists) => {
                set.push("list_refs = :lists");
                values.push((":lists", lists));
            }
            None => remove.push(LIST_REFS),
        }
        values.extend([(":schema", text_value(schema_version)), (":now", time_value(now))]);
        values.extend([(":zero", number_value(0)), (":one", number_value(1))]);
    }
    if write.release && write.lease.is_some() {
        remove.extend([LEASE_OWNER, LEASE_UNTIL]);
    }
    let mut expression = format!("SET {}", set.join(", "));
    if !remove.is_empty() {
        expression.push_str(&format!(" REMOVE {}", remove.join(", ")));
    }
    let change =
        values.into_iter().fold(ItemWrite::update(&key, expression), |write, (name, value)| write.with(name, value));
    Ok(expecting(leased(change, write), write.expect))
}

fn leased(change: ItemWrite, write: &SessionWrite) -> ItemWrite {
    match &write.lease {
        Some(lease) => change
            .when("lease_owner = :owner AND fence = :fence")
            .with(":owner", text_value(lease.owner.as_str()))
            .with(":fence", number_value(lease.fence)),
        None => change,
    }
}

fn expecting(change: ItemWrite, expectation: SessionExpectation) -> ItemWrite {
    match expectation {
        SessionExpectation::Any => change,
        SessionExpectation::Version(0) => change.when("attribute_not_exists(version)"),
        SessionExpectation::Version(version) => {
            change.when("version = :version").with(":version", number_value(version))
        }
    }
}

/// The error for which the head `found` refused `write`.
pub(super) fn refusal(write: &SessionWrite, found: Option<&Item>) -> CommitError {
    let Some(lease) = &write.lease else { return CommitError::SessionConflict };
    if found.is_some_and(|head| holds(head, lease)) { CommitError::SessionConflict } else { CommitError::LeaseLost }
}

/// True if an attempt at `write` that was not answered may have been written, and others have changed the head since,
/// as it was `found`. One that was written has taken the expected version away, and the lease that it gives back.
pub(super) fn may_be_beneath(write: &SessionWrite, found: Option<&Item>) -> bool {
    let Some(head) = found else { return write.save.is_some() };
    let is_expected = match write.expect {
        SessionExpectation::Any => false,
        SessionExpectation::Version(version) => {
            optional_number(head, VERSION).is_ok_and(|found| found.unwrap_or_default() == version)
        }
    };
    let is_held = write.release && write.lease.as_ref().is_some_and(|lease| holds(head, lease));
    write.save.is_some() && !is_expected && !is_held
}

fn holds(head: &Item, lease: &Lease) -> bool {
    optional_text(head, LEASE_OWNER) == Some(lease.owner.as_str())
        && number(head, FENCE).is_ok_and(|fence| fence == lease.fence)
}

fn filter_expression(filter: &SessionFilter) -> (String, Item) {
    let mut parts = vec!["begins_with(pk, :prefix) AND sk = :head AND attribute_exists(version)"];
    let mut values = Item::from([
        (":prefix".to_owned(), text_value(keys::session_prefix())),
        (":head".to_owned(), text_value(HEAD)),
    ]);
    if let Some(after) = filter.updated_after {
        parts.push("updated_at > :updated");
        values.insert(":updated".to_owned(), time_value(after));
    }
    if let Some(after) = filter.created_after {
        parts.push("created_at > :created");
        values.insert(":created".to_owned(), time_value(after));
    }
    if let Some(version) = &filter.schema_version {
        parts.push("schema_version = :schema");
        values.insert(":schema".to_owned(), text_value(version));
    }
    (parts.join(" AND "), values)
}

fn summary(item: &Item) -> Result<SessionSummary, StoreError> {
    let pk = text(item, PK)?;
    let session_id = keys::session_id(pk).ok_or_else(|| StoreError::Corrupt(format!("{pk:?} names no session")))?;
    Ok(SessionSummary {
        session_id,
        schema_version: text(item, SCHEMA_VERSION)?.to_owned(),
        updated_at: time(item, UPDATED_AT)?,
        created_at: time(item, CREATED_AT)?,
    })
}
