//! The order of all events of a tenant: what `/v1/events` reads, over many streams.
//!
//! Each append stands in two feeds, at the instant at which it was sent: in that of its tenant, and in that of its
//! workspace, for keys that are bound to some: what happens elsewhere neither costs them anything nor shows in their
//! cursors. What belongs to no workspace has a feed of its own, which every key of the tenant reads.
//!
//! Appends take effect a little after they were sent, and not in that order. So what came last is published only after
//! the store reports that the feed is [complete](Records::settled) so far: then nothing can come to stand before what
//! was published, and a client that reads on behind its cursor misses nothing. The order of one stream is exact,
//! independently of clocks.

use dormouse_ports::{FeedRow, Map, Records, StoreError};
use dormouse_protocol::id::{EventId, WorkspaceId};
use futures::future::try_join_all;
use jiff::Timestamp;

use crate::Actor;

/// Number of rows of a feed that are read at once.
const ROWS: usize = 25;

/// The feeds of what belongs to `tenant` and is in `workspace`.
pub(crate) fn names(tenant: &str, workspace: Option<&WorkspaceId>) -> Vec<String> {
    vec![whole(tenant), part(tenant, workspace)]
}

/// The feeds of all that `actor` sees, each append once.
pub(crate) fn seen_by(actor: &Actor) -> Vec<String> {
    let tenant = &actor.tenant;
    match &actor.workspaces {
        None => vec![whole(tenant)],
        Some(mine) => mine.iter().map(Some).chain([None]).map(|workspace| part(tenant, workspace)).collect(),
    }
}

fn whole(tenant: &str) -> String {
    format!("{tenant}/event")
}

fn part(tenant: &str, workspace: Option<&WorkspaceId>) -> String {
    format!("{tenant}/event/{}", workspace.map_or("-", WorkspaceId::as_str))
}

/// A stretch of feeds.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// The events, as they are stored.
    pub(crate) events: Vec<(EventId, Map)>,
    /// True if the feeds go on behind them, as far as they are complete.
    pub(crate) more: bool,
    /// True if they go on behind that.
    pub(crate) fresh: bool,
}

/// The events of `feeds` behind `after` that were sent by `until`, in order: at least one if there is any, and all of
/// each append that was looked at. `None`: there is no event `after`.
///
/// # Errors
/// If the store did not answer.
pub(crate) async fn read(
    records: &dyn Records,
    feeds: &[String],
    after: Option<&EventId>,
    until: Timestamp,
) -> Result<Option<Stretch>, StoreError> {
    let (mut events, mut behind) = (Vec::new(), None);
    if let Some((stream, position)) = after.and_then(EventId::place) {
        let Some(row) = records.append_of(stream, position).await? else { return Ok(None) };
        let rest = FeedRow { first: position + 1, count: row.first + row.count - position - 1, ..row.clone() };
        events.extend(entries(records, &rest).await?);
        behind = Some(row.order());
    }
    let (mut rows, more) = merged(records, feeds, behind.as_deref()).await?;
    let fresh = rows.iter().any(|row| row.at > until);
    rows.retain(|row| row.at <= until);
    for told in try_join_all(rows.iter().map(|row| entries(records, row))).await? {
        events.extend(told);
    }
    Ok(Some(Stretch { events, more: more && !fresh, fresh }))
}

/// The next rows of `feeds` behind the place `after`, in one order, and whether there are more.
async fn merged(
    records: &dyn Records,
    feeds: &[String],
    after: Option<&str>,
) -> Result<(Vec<FeedRow>, bool), StoreError> {
    let pages = try_join_all(feeds.iter().map(|feed| records.feed(feed, after, ROWS))).await?;
    // Behind the end of a full page may come what stands before the rows of another one.
    let full = pages.iter().filter(|page| page.len() == ROWS);
    let upto = full.filter_map(|page| page.last()).map(FeedRow::order).min();
    let placed = pages.into_iter().flatten().map(|row| (row.order(), row));
    let mut rows: Vec<_> = placed.filter(|(order, _)| upto.as_ref().is_none_or(|upto| order <= upto)).collect();
    rows.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok((rows.into_iter().map(|(_, row)| row).collect(), upto.is_some()))
}

/// The events of `row`, by their ids.
async fn entries(records: &dyn Records, row: &FeedRow) -> Result<Vec<(EventId, Map)>, StoreError> {
    let count = usize::try_from(row.count).unwrap_or(usize::MAX);
    if count == 0 {
        return Ok(Vec::new());
    }
    let found = records.entries(&row.stream, row.first.saturating_sub(1), count).await?;
    Ok(found.into_iter().map(|one| (EventId::at(&row.stream, one.position), one.entry)).collect())
}
