//! Streams of events, made from what the store holds. Each transport encodes them in its own way.
//!
//! A stream yields the whole history behind the cursor of the client, then what comes. It polls: an event is in the
//! store before any client is notified of it, so a poll can neither miss nor repeat one. While nothing happens it polls
//! less and less often; an [`AppendNotifier`], which commits of the same process notify, makes it look at once.
//!
//! A stream ends by itself before the platform would cut it ([`StreamLimits::life`]), and some time after its task has
//! ended ([`StreamLimits::linger`]). Streams of one session, and those of all sessions of a tenant, read together once they
//! have what came before (`tail.rs`): many of them ask the store as often as one. A stream ends between two events, so the
//! client has a cursor for every event that it has, and comes back with it. Nothing is made that no client takes: a client
//! that reads slowly slows down its own reads of the store only.
//!
//! A client that asks for it (`deltas=true`) is also shown the text of answers while it comes from a model ([`LiveText`]),
//! where the run and the stream are in one process.
//!
//! A key or token that has an end ends its streams then; who serves them ends those of a key that is revoked
//! ([`Keys::ended`](crate::Keys::ended)).

mod limiter;
mod live;
mod notifier;
mod reading;
mod seated;
mod source;
mod tail;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Clock, Records};
use dormouse_protocol::error::ErrorResponse;
use dormouse_protocol::request::resume_after;
use dormouse_protocol::{Event, ProtocolError};
use futures::StreamExt;
use futures::future::ready;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;

pub use live::{LiveText, TextDelta};
pub use notifier::{AppendNotifier, AppendSignal};
pub use seated::StreamSeats;

use crate::{Actor, Call, Operations};
use limiter::StreamLimiter;
use reading::{StreamReading, StreamRequest};
use source::EventSource;
use tail::Tails;

/// Name of the parameter by which a client asks for the text of answers while it comes.
const DELTAS: &str = "deltas";

/// Item of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem {
    /// The next events, at least one.
    Events(Vec<Event>),
    /// Pieces of answers under way, at least one, for a client that asked for them. They are no events: no cursor stands
    /// for one, and a client that comes back is not shown them again.
    Text(Vec<TextDelta>),
    /// Nothing happened for as long as a connection may be silent. Never before the first events.
    Heartbeat,
    /// The stream cannot go on; nothing follows.
    Failed {
        /// The event that the client has, so that it keeps its cursor; empty if it has none, or has to forget its
        /// cursor.
        cursor: String,
        /// Reason for the end.
        error: ErrorResponse,
    },
}

/// Limits of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// After which time a stream ends, so that its client comes back.
    pub life: Duration,
    /// Time for which a stream goes on after it yielded the end of its task, or after its start where the end had been
    /// yielded before.
    pub linger: Duration,
    /// Longest silence of a stream, once it has yielded an event.
    pub heartbeat: Duration,
    /// Interval at which the store is asked again after something happened.
    pub poll_soonest: Duration,
    /// Longest interval at which the store is asked again when nothing happens.
    pub poll_latest: Duration,
    /// Number of events that are read at once.
    pub page: usize,
    /// Number of streams that run at once.
    pub at_once: usize,
    /// Number of them that one actor may have.
    pub each: usize,
    /// Number of them that all actors of a tenant may have together.
    pub of_tenant: usize,
    /// Set where a stream ends as soon as it has yielded everything, and something at all: for transports that deliver
    /// a response only when it is whole. It then ends behind the event with which it has this many bytes of JSON or
    /// more; its client comes back for the others.
    pub whole: Option<usize>,
}

impl Default for StreamLimits {
    /// An hour of life, heartbeats every 15 seconds, polls from 100 milliseconds to 2 seconds, 1,000 streams of which
    /// 100 for one actor and 500 for one tenant.
    fn default() -> Self {
        Self {
            life: Duration::from_secs(3600),
            linger: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            poll_soonest: Duration::from_millis(100),
            poll_latest: Duration::from_secs(2),
            page: 100,
            at_once: 1000,
            each: 100,
            of_tenant: 500,
            whole: None,
        }
    }
}

impl StreamLimits {
    /// How long a stream of `actor` that is opened at `now` lasts at most in a worker that has `time_left`.
    fn lasts(&self, actor: &Actor, now: Timestamp, time_left: Option<Duration>) -> Duration {
        let worker = time_left.map(|left| left.saturating_sub(TO_END));
        let credential = actor.until.map(|end| Duration::try_from(end.duration_since(now)).unwrap_or_default());
        worker.into_iter().chain(credential).fold(self.life, Duration::min)
    }
}

/// Kept back from the life of the worker, to end the response in order.
const TO_END: Duration = Duration::from_secs(2);

/// Serves streams. Cheap to clone.
#[derive(Clone)]
pub struct Streams(Arc<StreamShared>);

struct StreamShared {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    notifier: AppendNotifier,
    live: LiveText,
    limits: StreamLimits,
    limiter: Arc<StreamLimiter>,
    /// What streams of one session, and those of all sessions, share; none where each ends as soon as it has told something.
    tails: Option<Arc<Tails>>,
    /// Counts the streams of a tenant over all processes, where somebody does.
    seats: Option<StreamSeats>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl Streams {
    /// Streams of what `records` hold. Committers in the same process may ring `notifier`; answers that come in it are in
    /// `live`. With `seats` the streams of a tenant are counted over all processes, too.
    pub fn new(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        (notifier, live): (AppendNotifier, LiveText),
        limits: StreamLimits,
        seats: Option<StreamSeats>,
    ) -> Self {
        let limiter = Arc::new(StreamLimiter::new(limits.at_once, limits.each, limits.of_tenant));
        let tails = limits.whole.is_none().then(|| Arc::new(Tails::new(clock.clone(), notifier.clone())));
        Self(Arc::new(StreamShared { records, clock, notifier, live, limits, limiter, tails, seats }))
    }

    /// The stream that `call` asks for; `time_left` is how long the worker lives.
    ///
    /// A cursor that is not, or no more, one of the stream gives a stream of one error.
    ///
    /// # Errors
    /// Errors of `operations` about the session or task; `rate_limited` when too many streams run.
    pub async fn open(
        &self,
        operations: &Arc<dyn Operations>,
        call: Call,
        resume: StreamOptions<'_>,
    ) -> Result<BoxStream<'static, StreamItem>, ProtocolError> {
        let permit = StreamLimiter::take(&self.0.limiter, &call.actor)?;
        let actor = call.actor.clone();
        let after = resume_after(resume.last_event_id, &call.query);
        let cursor = after.as_ref().ok().and_then(Option::as_ref).map(ToString::to_string).unwrap_or_default();
        let request_id = resume.request_id.to_owned();
        let life = self.0.limits.lasts(&actor, call.now, resume.time_left);
        let deltas = call.query.get(DELTAS) == Some("true");
        let opened = match after {
            Ok(after) => EventSource::open((&self.0.records, self.0.tails.as_ref()), operations, call, after).await?,
            Err(error) => Err(error),
        };
        match opened {
            Ok(source) => {
                let seat = match &self.0.seats {
                    Some(seats) => Some(seats.take(&actor, life).await?),
                    None => None,
                };
                let permit = (permit, seat);
                let asked = StreamRequest { cursor, request_id, life, deltas };
                Ok(stream::unfold(StreamReading::new(self.0.clone(), source, permit, asked), StreamReading::next)
                    .boxed())
            }
            // Without an id: a client that kept the cursor would be refused again and again.
            Err(error) => {
                let failed = StreamItem::Failed { cursor: String::new(), error: error.into_response(request_id) };
                Ok(stream::once(ready(failed)).boxed())
            }
        }
    }
}

/// Additions of a request for a stream to the call.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions<'a> {
    /// The header of a client that lost its stream.
    pub last_event_id: Option<&'a str>,
    /// By which id the request goes in the log.
    pub request_id: &'a str,
    /// Time that the worker has left.
    pub time_left: Option<Duration>,
}
