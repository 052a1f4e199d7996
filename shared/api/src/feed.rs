//! The order of all events of a tenant: what `/v1/events` reads, over many streams.
//!
//! Each append stands in the feed of its tenant, at the instant at which it was sent, with its workspace as the label:
//! keys that are bound to workspaces read only what has one of theirs, or none. So what happens elsewhere does not show
//! in their cursors.
//!
//! Appends take effect a little after they were sent, and not in that order. So what came last is published only after
//! the store reports that the feed is [complete](Records::settled) so far: then nothing can come to stand before what
//! was published, and a client that reads on behind its cursor misses nothing. The order of one stream is exact,
//! independently of clocks.
//!
//! Durable steps of a run are [reported later](dormouse_ports::EndOfStream::later), several at once: their place is that of the
//! append that reports them.

use std::ops::RangeInclusive;

use dormouse_ports::{Fed, FeedRequest, FeedRow, Map, Records, StoreError, StreamEntry};
use dormouse_protocol::id::{EventId, WorkspaceId};
use jiff::Timestamp;

use crate::Actor;

/// The fewest and the most appends that are read at once. Each read asks every partition of the feed, however few it wants.
const APPENDS: RangeInclusive<usize> = 25..=100;

/// The feed that reports what belongs to `tenant` and is in `workspace`.
pub(crate) fn fed(tenant: &str, workspace: Option<&WorkspaceId>) -> Fed {
    Fed { feed: name(tenant), label: workspace.map(ToString::to_string) }
}

/// The feed of `tenant`.
pub(crate) fn name(tenant: &str) -> String {
    format!("{tenant}/event")
}

/// A reader of the feed of its tenant, and how far it has read.
#[derive(Debug)]
pub(crate) struct FeedReader {
    feed: String,
    labels: Option<Vec<String>>,
    /// The events that were reported together with the one behind which it began.
    rest: Vec<(EventId, Map)>,
    /// The stream of that one, and the position up to which its events stand before the place, or have been reported later.
    known: Option<(String, u64)>,
    /// The place behind which it goes on.
    behind: Option<String>,
}

/// A stretch of a feed.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    /// The events, as they are stored.
    pub(crate) events: Vec<(EventId, Map)>,
    /// True if the feed may go on behind them, as far as it is complete.
    pub(crate) more: bool,
    /// True if it goes on behind that.
    pub(crate) fresh: bool,
}

impl FeedReader {
    /// A reader of all that `actor` sees behind the event `after`. `None`: there is no event `after`.
    ///
    /// # Errors
    /// If the store did not answer.
    pub(crate) async fn open(
        records: &dyn Records,
        actor: &Actor,
        after: Option<&EventId>,
    ) -> Result<Option<Self>, StoreError> {
        let labels = actor.workspaces.as_ref().map(|mine| mine.iter().map(ToString::to_string).collect());
        let reader = Self { feed: name(&actor.tenant), labels, rest: Vec::new(), known: None, behind: None };
        let Some((stream, position)) = after.and_then(EventId::place) else { return Ok(Some(reader)) };
        let Some(row) = records.append_of(stream, position).await? else { return Ok(None) };
        let last = (row.first + row.count).saturating_sub(1);
        let rest = usize::try_from(last.saturating_sub(position)).unwrap_or(usize::MAX);
        let entries = if rest == 0 { Vec::new() } else { records.entries(stream, position, rest).await? };
        let (rest, behind) = (events_of(&row, entries).collect(), Some(row.order()));
        Ok(Some(Self { rest, known: Some((row.stream, last)), behind, ..reader }))
    }

    /// A reader of all that `actor` sees from `since` on.
    pub(crate) fn since(actor: &Actor, since: Timestamp) -> Self {
        Self::behind(actor, FeedRow::since(since))
    }

    /// A reader of all that `actor` sees behind the `place` that [another](Self::place) has reached.
    pub(crate) fn behind(actor: &Actor, place: String) -> Self {
        let labels = actor.workspaces.as_ref().map(|mine| mine.iter().map(ToString::to_string).collect());
        Self { feed: name(&actor.tenant), labels, rest: Vec::new(), known: None, behind: Some(place) }
    }

    /// The place that it has reached: all that was looked at is before it. It may name what `actor` may not see.
    pub(crate) fn place(&self) -> Option<&str> {
        self.behind.as_deref()
    }

    /// The next events that were sent by `until`, in order: all of each append that was looked at, which may be fewer
    /// than `wanted`, or more. There may be none although the feed goes on. It must not be asked again after an error.
    ///
    /// # Errors
    /// If the store did not answer.
    pub(crate) async fn next(
        &mut self,
        records: &dyn Records,
        until: Timestamp,
        wanted: usize,
    ) -> Result<Stretch, StoreError> {
        let request = FeedRequest {
            feed: self.feed.clone(),
            labels: self.labels.clone(),
            after: self.behind.clone(),
            until,
            limit: wanted.clamp(*APPENDS.start(), *APPENDS.end()),
        };
        let page = records.feed(&request).await?;
        self.behind = page.upto.or_else(|| self.behind.take());
        let mut events = std::mem::take(&mut self.rest);
        for mut append in page.appends {
            if let Some((_, last)) = self.known.as_ref().filter(|(stream, _)| *stream == append.row.stream) {
                // What it began behind may be reported now.
                append.entries.retain(|one| one.position > *last);
            }
            events.extend(events_of(&append.row, append.entries));
        }
        Ok(Stretch { events, more: page.more, fresh: page.is_fresh })
    }
}

/// `entries` that `row` reports, by their ids.
fn events_of(row: &FeedRow, entries: Vec<StreamEntry>) -> impl Iterator<Item = (EventId, Map)> {
    entries.into_iter().map(|one| (EventId::at(&row.stream, one.position), one.entry))
}
