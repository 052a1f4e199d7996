//! The order of all events of a tenant: what `/v1/events` reads, over many streams.
//!
//! Each append stands in the feed of its tenant once, at the time of its commit. Clocks of workers differ by a little,
//! so an append can come to stand before one that was told already: the order of one stream is exact, that of all of
//! them best effort, as the narrative allows.

use dormouse_ports::{Listed, Map, Records, StoreError};
use dormouse_protocol::id::EventId;
use jiff::Timestamp;
use serde_json::Value;

/// The most entries that one append can have, as far as the feed is concerned.
const MOST_OF_AN_APPEND: usize = 100;

/// How many rows of the feed are read at once.
const ROWS: usize = 25;

/// The name of the feed of `tenant`.
pub(crate) fn name(tenant: &str) -> String {
    format!("{tenant}/event")
}

/// The place in the feed of what is appended to `stream` at `at`, from position `first` on.
pub(crate) fn place(tenant: &str, at: Timestamp, stream: &str, first: u64) -> Listed {
    Listed { list: name(tenant), order: order(at, stream, first) }
}

fn order(at: Timestamp, stream: &str, first: u64) -> String {
    format!("{:020}-{stream}-{first:016x}", at.as_nanosecond().max(0))
}

/// A stretch of the feed.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// The events, as they are stored.
    pub(crate) events: Vec<Map>,
    /// Whether the feed goes on behind them.
    pub(crate) more: bool,
}

/// The events of `tenant` behind `after`, in order: at least one if there is any, and all of each append that was
/// looked at. `None`: there is no event `after`.
///
/// # Errors
/// When the store did not answer.
pub(crate) async fn read(
    records: &dyn Records,
    tenant: &str,
    after: Option<&EventId>,
) -> Result<Option<Stretch>, StoreError> {
    let (mut events, mut behind) = (Vec::new(), None);
    if let Some((stream, position)) = after.and_then(EventId::place) {
        let found = records.entries(stream, position.saturating_sub(1), MOST_OF_AN_APPEND).await?;
        let Some(cursor) = found.first().filter(|first| first.position == position) else { return Ok(None) };
        let Some(at) = time_of(&cursor.entry) else { return Ok(None) };
        let rest = found.iter().skip(1).take_while(|one| time_of(&one.entry) == Some(at));
        let rest: Vec<_> = rest.collect();
        let last = rest.last().map_or(position, |one| one.position);
        behind = Some(order(at, stream, last));
        events.extend(rest.into_iter().map(|one| one.entry.clone()));
    }
    let rows = records.feed(&name(tenant), behind.as_deref(), ROWS).await?;
    let more = rows.len() == ROWS;
    let reads = rows.iter().map(|row| {
        let count = usize::try_from(row.count).unwrap_or(usize::MAX);
        records.entries(&row.stream, row.first.saturating_sub(1), count)
    });
    for entries in futures::future::try_join_all(reads).await? {
        events.extend(entries.into_iter().map(|one| one.entry));
    }
    Ok(Some(Stretch { events, more }))
}

/// When the stored event happened.
fn time_of(event: &Map) -> Option<Timestamp> {
    event.get("created_at").and_then(Value::as_str).and_then(|at| at.parse().ok())
}
