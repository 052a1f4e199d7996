use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse_protocol::{ErrorCode, Event, ProtocolError};
use futures::future::{Either, pending, select};

use super::limiter::StreamPermit;
use super::live::LiveListener;
use super::seated::TakenSeat;
use super::source::{Batch, EventSource};
use super::{AppendSignal, StreamItem, StreamShared, TextDelta};

/// Details of the request for a stream.
#[derive(Debug)]
pub(super) struct StreamRequest {
    /// The event that the client has; empty if none.
    pub(super) cursor: String,
    /// By which id it goes in the log.
    pub(super) request_id: String,
    /// Time that it lasts at most.
    pub(super) life: Duration,
    /// True if the client asks for the text of answers while it comes.
    pub(super) deltas: bool,
}

/// A stream that is being taken: its source and its position.
pub(super) struct StreamReading {
    shared: Arc<StreamShared>,
    source: EventSource,
    /// Text of answers under way, where the client asks for it.
    live: Option<LiveListener>,
    /// Events that follow the pieces that were yielded before them.
    held: Option<Batch>,
    /// Notifies of what is appended behind the last look, where that found nothing.
    appended: Option<AppendSignal>,
    /// The same, once the pause behind that look is over: it has not notified so far.
    listening: Option<AppendSignal>,
    /// When the read began that the last look saw.
    looked_at: Duration,
    /// True if the next look has to see a newer one.
    newer: bool,
    /// Given back with the stream.
    _permit: (StreamPermit, Option<TakenSeat>),
    /// By which id its request goes in the log.
    request_id: String,
    /// The event that the client has.
    cursor: String,
    /// True if it has yielded an event: heartbeats come only then.
    begun: bool,
    /// Number of bytes of JSON that were yielded, where that ends the stream.
    bytes: usize,
    /// Instant of the last item; monotonic, as all times here.
    told_at: Duration,
    ends_at: Duration,
    pause: Duration,
    over: bool,
}

/// What ends the wait of a stream.
enum WokenBy {
    Append,
    Text,
    Time,
}

impl StreamReading {
    pub(super) fn new(
        shared: Arc<StreamShared>,
        source: EventSource,
        permit: (StreamPermit, Option<TakenSeat>),
        asked: StreamRequest,
    ) -> Self {
        let now = shared.clock.monotonic();
        let limits = &shared.limits;
        let pause = limits.poll_soonest;
        let StreamRequest { cursor, request_id, life, deltas } = asked;
        let place = source.place().filter(|_| deltas);
        let live = place.map(|(session, task)| shared.live.listen(session, task));
        Self {
            source,
            live,
            held: None,
            appended: None,
            listening: None,
            looked_at: now,
            newer: false,
            _permit: permit,
            request_id,
            cursor,
            begun: false,
            bytes: 0,
            told_at: now,
            ends_at: now + life,
            pause,
            over: false,
            shared,
        }
    }

    /// The next item of the stream, and what goes on behind it.
    pub(super) async fn next(mut self) -> Option<(StreamItem, Self)> {
        loop {
            if self.over || self.shared.clock.monotonic() >= self.ends_at {
                return None;
            }
            let item = match self.appended.take() {
                Some(appended) => self.wait(appended).await,
                None => self.look().await,
            };
            if let Some(item) = item {
                self.told_at = self.shared.clock.monotonic();
                return Some((item, self));
            }
        }
    }

    /// What has been appended, behind the text that came before that.
    async fn look(&mut self) -> Option<StreamItem> {
        // Listens before it looks, so that what is appended in between completes the signal.
        let listening = self.listening.take();
        let appended = listening.unwrap_or_else(|| self.shared.notifier.listen(&self.source.name()));
        let now = self.shared.clock.monotonic();
        let looked = match self.held.take() {
            Some(batch) => Ok(batch),
            None => self.source.look(self.shared.limits.page, std::mem::take(&mut self.newer)).await,
        };
        let batch = match looked {
            Ok(batch) if batch.events.is_empty() && batch.more => return None,
            Ok(batch) => batch,
            Err(error) => return Some(self.fail(error)),
        };
        // It looks again when a stream that is alone would, whoever made the read.
        self.looked_at = batch.began.unwrap_or(now);
        let pieces = self.pieces();
        if !pieces.is_empty() {
            self.held = Some(batch).filter(|batch| !batch.events.is_empty());
            return Some(StreamItem::Text(pieces));
        }
        let item = self.emit(batch.events, batch.more);
        if item.is_none() {
            self.appended = Some(appended);
        }
        item
    }

    /// Pieces of answers that have come since.
    fn pieces(&self) -> Vec<TextDelta> {
        self.live.as_ref().map(LiveListener::take).unwrap_or_default()
    }

    /// `events`, or as many of them as the stream may still have; nothing if there are none.
    fn emit(&mut self, mut events: Vec<Event>, more: bool) -> Option<StreamItem> {
        let limits = &self.shared.limits;
        if events.is_empty() {
            self.over = limits.whole.is_some() && (self.begun || self.source.has_ended());
            if self.source.has_ended() && !more {
                self.ends_at = self.ends_at.min(self.shared.clock.monotonic() + limits.linger);
            }
            return None;
        }
        self.begun = true;
        self.newer = true;
        self.pause = limits.poll_soonest;
        let mut taken = 0;
        let mut is_enough = false;
        for event in &events {
            taken += 1;
            event.envelope.id.as_str().clone_into(&mut self.cursor);
            if self.source.ends_with(event) {
                self.ends_at = self.ends_at.min(self.shared.clock.monotonic() + limits.linger);
            }
            if let Some(most) = limits.whole {
                // The types of the protocol always are JSON.
                self.bytes += dormouse_json::length(event).unwrap_or_default();
                is_enough = self.bytes >= most;
            }
            if is_enough {
                break;
            }
        }
        events.truncate(taken);
        self.over = is_enough || (limits.whole.is_some() && !more);
        Some(StreamItem::Events(events))
    }

    /// The last item: why it does not go on. The client keeps its cursor, unless it is refused with that each time.
    fn fail(&mut self, error: ProtocolError) -> StreamItem {
        self.over = true;
        let is_kept = error.code() != ErrorCode::CursorExpired;
        let cursor = if is_kept { self.cursor.clone() } else { String::new() };
        StreamItem::Failed { cursor, error: error.into_response(&*self.request_id) }
    }

    /// Waits until it is worth to look again; text that comes meanwhile, or a heartbeat if one is due.
    async fn wait(&mut self, mut appended: AppendSignal) -> Option<StreamItem> {
        if self.over {
            return None;
        }
        let clock = &self.shared.clock;
        let limits = &self.shared.limits;
        let now = clock.monotonic();
        let silent_until = self.told_at + limits.heartbeat;
        let until = (self.looked_at + self.pause).min(self.ends_at);
        let until = if self.begun { until.min(silent_until) } else { until };
        let live = self.live.as_ref();
        let text = pin!(async {
            match live {
                // It ends with its listener, which is here.
                Some(live) => drop(live.signal().await),
                None => pending().await,
            }
        });
        let happens = select(&mut appended, text);
        let woken = match select(happens, clock.sleep(until.saturating_sub(now))).await {
            Either::Left((Either::Left(_), _)) => WokenBy::Append,
            Either::Left((Either::Right(_), _)) => WokenBy::Text,
            Either::Right(_) => WokenBy::Time,
        };
        match woken {
            WokenBy::Append => self.pause = limits.poll_soonest,
            WokenBy::Text => {
                // Nothing was appended: the store is not asked for the sake of a word.
                self.appended = Some(appended);
                let pieces = self.pieces();
                return (!pieces.is_empty()).then_some(StreamItem::Text(pieces));
            }
            WokenBy::Time => {
                self.pause = (self.pause * 2).min(limits.poll_latest);
                self.listening = Some(appended);
                self.newer = true;
            }
        }
        let due = self.begun && self.shared.clock.monotonic() >= silent_until;
        due.then_some(StreamItem::Heartbeat)
    }
}
