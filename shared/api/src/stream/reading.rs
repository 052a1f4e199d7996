use std::sync::Arc;
use std::time::Duration;

use dormouse_protocol::{Event, ProtocolError, sse};
use futures::future::{Either, select};

use super::limiter::StreamPermit;
use super::source::Source;
use super::{AppendSignal, Shared};

/// Kept back from the life of the worker, to end the response in order.
const TO_END: Duration = Duration::from_secs(2);

/// What is known of the request for a stream.
#[derive(Debug)]
pub(super) struct Asked {
    /// The event that the client has; empty if none.
    pub(super) cursor: String,
    /// By which id it goes in the log.
    pub(super) request_id: String,
    /// How long the worker lives.
    pub(super) time_left: Option<Duration>,
}

/// A stream that is being taken: what it tells of and how far it is.
pub(super) struct Reading {
    shared: Arc<Shared>,
    source: Source,
    /// Given back with the stream.
    _seat: StreamPermit,
    /// By which id its request goes in the log.
    request_id: String,
    /// The event that the client has.
    cursor: String,
    /// Whether it has told of an event: heartbeats come only then.
    begun: bool,
    /// How many bytes were told.
    bytes: usize,
    /// When something was told last; monotonic, as all times here.
    told_at: Duration,
    ends_at: Duration,
    pause: Duration,
    over: bool,
}

impl Reading {
    pub(super) fn new(shared: Arc<Shared>, source: Source, permit: StreamPermit, asked: Asked) -> Self {
        let (now, limits) = (shared.clock.monotonic(), &shared.limits);
        let left = asked.time_left.map_or(limits.life, |left| left.saturating_sub(TO_END).min(limits.life));
        let pause = limits.poll_soonest;
        let Asked { cursor, request_id, .. } = asked;
        let (begun, bytes, over) = (false, 0, false);
        let (told_at, ends_at) = (now, now + left);
        Self { source, _seat: permit, request_id, cursor, begun, bytes, told_at, ends_at, pause, over, shared }
    }

    /// The next piece of the stream, and what goes on behind it.
    pub(super) async fn next(mut self) -> Option<(Vec<u8>, Self)> {
        loop {
            if self.over || self.shared.clock.monotonic() >= self.ends_at {
                return None;
            }
            // Listens before it looks: what is appended in between rings.
            let ring = self.shared.notifier.listen(self.source.name());
            let piece = match self.source.look(self.shared.limits.page).await {
                Ok(glance) if glance.events.is_empty() && glance.more => continue,
                Ok(glance) => self.emit(&glance.events, glance.more),
                Err(error) => Some(self.fail(error)),
            };
            if let Some(piece) = piece {
                self.bytes += piece.len();
                self.told_at = self.shared.clock.monotonic();
                return Some((piece, self));
            }
            if let Some(heartbeat) = self.wait(ring).await {
                self.told_at = self.shared.clock.monotonic();
                return Some((heartbeat, self));
            }
        }
    }

    /// The blocks of `events`; nothing if there are none.
    fn emit(&mut self, events: &[Event], more: bool) -> Option<Vec<u8>> {
        let limits = &self.shared.limits;
        if events.is_empty() {
            self.over = limits.whole.is_some() && (self.begun || self.source.has_ended());
            if self.source.has_ended() && !more {
                self.ends_at = self.ends_at.min(self.shared.clock.monotonic() + limits.linger);
            }
            return None;
        }
        self.begun = true;
        self.pause = limits.poll_soonest;
        let mut piece = String::new();
        for event in events {
            piece.push_str(&sse::event(event));
            event.envelope.id.as_str().clone_into(&mut self.cursor);
            if self.source.ends_with(event) {
                self.ends_at = self.ends_at.min(self.shared.clock.monotonic() + limits.linger);
            }
            if limits.whole.is_some_and(|most| self.bytes + piece.len() >= most) {
                self.over = true;
                return Some(piece.into_bytes());
            }
        }
        self.over = limits.whole.is_some() && !more;
        Some(piece.into_bytes())
    }

    /// The last block: why it does not go on. The client keeps its cursor.
    fn fail(&mut self, error: ProtocolError) -> Vec<u8> {
        self.over = true;
        sse::error(&self.cursor, &error.into_response(&*self.request_id)).into_bytes()
    }

    /// Waits until it is worth to look again; a heartbeat if one is due.
    async fn wait(&mut self, ring: AppendSignal) -> Option<Vec<u8>> {
        if self.over {
            return None;
        }
        let (clock, limits) = (&self.shared.clock, &self.shared.limits);
        let now = clock.monotonic();
        let silent_until = self.told_at + limits.heartbeat;
        let until = (now + self.pause).min(self.ends_at);
        let until = if self.begun { until.min(silent_until) } else { until };
        match select(ring, clock.sleep(until.saturating_sub(now))).await {
            Either::Left(_) => self.pause = limits.poll_soonest,
            Either::Right(_) => self.pause = (self.pause * 2).min(limits.poll_latest),
        }
        let due = self.begun && self.shared.clock.monotonic() >= silent_until;
        due.then(|| sse::HEARTBEAT.as_bytes().to_vec())
    }
}
