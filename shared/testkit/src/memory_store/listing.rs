use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use dormouse_ports::{Page, ParkedRow, PendingRow, SessionFilter, SessionRecord, SessionSummary, StoreError};
use jiff::Timestamp;

use super::tables::Tables;

const SESSIONS: &str = "session:";
const PENDING: &str = "pending:";
const PARKED: &str = "parked:";

/// A page of the sessions that pass `filter`, ordered by id.
pub(super) fn sessions(
    tables: &Tables,
    filter: &SessionFilter,
    cursor: Option<&str>,
    size: usize,
) -> Result<Page<SessionSummary>, StoreError> {
    let rows = after(&tables.sessions, SESSIONS, cursor)?
        .filter_map(|(key, row)| Some((key.as_str(), row.record.as_ref()?)))
        .filter(|(_, record)| passes(record, filter))
        .map(|(key, record)| (key, summary(record)));
    Ok(page(rows, SESSIONS, size))
}

/// A page of suspended invocations, ordered by the instant at which they fall due.
pub(super) fn pending(
    tables: &Tables,
    due_by: Option<Timestamp>,
    cursor: Option<&str>,
    size: usize,
) -> Result<Page<PendingRow>, StoreError> {
    let in_time = |row: &PendingRow| match due_by {
        Some(limit) => row.due_at.is_some_and(|due| due <= limit),
        None => true,
    };
    let rows = after(&tables.pending, PENDING, cursor)?
        .filter(|(_, row)| in_time(row))
        .map(|(key, row)| (key.as_str(), row.clone()));
    Ok(page(rows, PENDING, size))
}

/// A page of parked signals, the oldest first.
pub(super) fn parked(tables: &Tables, cursor: Option<&str>, size: usize) -> Result<Page<ParkedRow>, StoreError> {
    let rows = after(&tables.parked, PARKED, cursor)?.map(|(key, row)| (key.as_str(), row.clone()));
    Ok(page(rows, PARKED, size))
}

fn after<'a, T>(
    rows: &'a BTreeMap<String, T>,
    kind: &str,
    cursor: Option<&str>,
) -> Result<impl Iterator<Item = (&'a String, &'a T)>, StoreError> {
    let last = match cursor {
        None => None,
        Some(cursor) => Some(cursor.strip_prefix(kind).ok_or_else(|| foreign(cursor))?.to_owned()),
    };
    Ok(rows.range((last.map_or(Unbounded, Excluded), Unbounded)))
}

fn foreign(cursor: &str) -> StoreError {
    StoreError::Invalid(format!("{cursor:?} is not a cursor of this listing"))
}

fn page<'a, T>(rows: impl Iterator<Item = (&'a str, T)>, kind: &str, size: usize) -> Page<T> {
    let mut rows = rows.peekable();
    let mut items = Vec::new();
    let mut next = None;
    while let Some((key, item)) = rows.next() {
        items.push(item);
        if items.len() == size {
            next = rows.peek().map(|_| format!("{kind}{key}"));
            break;
        }
    }
    Page { items, next }
}

fn passes(record: &SessionRecord, filter: &SessionFilter) -> bool {
    filter.updated_after.is_none_or(|after| record.updated_at > after)
        && filter.created_after.is_none_or(|after| record.created_at > after)
        && filter.schema_version.as_ref().is_none_or(|version| *version == record.schema_version)
}

fn summary(record: &SessionRecord) -> SessionSummary {
    SessionSummary {
        session_id: record.session_id.clone(),
        schema_version: record.schema_version.clone(),
        updated_at: record.updated_at,
        created_at: record.created_at,
    }
}
