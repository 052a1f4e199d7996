//! Sockets that a gateway holds: it calls a function for whatever comes in, and no process lives as long as a connection.
//!
//! What is known of a socket is a record in the store, written under conditions. Its events are sent by a *follower*: a
//! call of the same function, made when the socket opens and by each frame that finds none at work. A follower renews a
//! lease on the record, so that of two that were called one works, and of one that died the next frame makes another. It
//! rests when neither side has said anything for [`AWAKE`]: a silent socket costs nothing then, and hears nothing until
//! its client sends a frame, a `ping` for example.
//!
//! # Where a process may die
//! - Behind the record and before the answer to the gateway: the connection does not open. Its seat is free again when
//!   the record has expired.
//! - Behind a command: it is done, and its answer is lost, as over HTTP. The client repeats it by its idempotency key.
//! - Behind an event and before the record says that it was sent: the next follower sends it again. A client knows
//!   events by their ids.
//! - Behind the record of a call and before the call: the next frame calls again, 10 seconds later at the earliest.

mod records;

use std::sync::Arc;
use std::time::Duration;

use dormouse_api::{Actor, StreamLimits};
use dormouse_ports::{Commits, ConnectionError, Connections, Event as BusEvent, EventBus, Records, StoreError};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::id::EventId;
use dormouse_protocol::{ErrorCode, Map, ProtocolError};
use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::BoxStream;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::records::Changed;
use super::record::{self, Follower, SocketRecord};
use super::{Frame, Socket, SocketReply, behind, frames, refusal, refused, told, with_credentials};
use crate::{Content, Request, Response, Server};

/// Type of the events that call a follower.
pub const FOLLOW: &str = "Dormouse Socket";

/// The largest frame that is sent, in bytes: API Gateway takes 128 KiB.
const LARGEST_SENT: usize = 120 * 1024;
/// Time without a word of either side after which a follower rests.
const AWAKE: SignedDuration = SignedDuration::from_secs(60);
/// Interval at which a follower renews its lease and looks whether it is still wanted.
const LOOKS: Duration = Duration::from_secs(15);
/// After which silence a follower is dead.
const LEASE: SignedDuration = SignedDuration::from_secs(60);
/// Time for a follower that was called to begin.
const BEGINS: SignedDuration = SignedDuration::from_secs(10);
/// Time that a follower works at most where nothing is said, and what it keeps back of what is said, to hand over.
const WORKS: Duration = Duration::from_secs(240);
const TO_HAND_OVER: Duration = Duration::from_secs(10);
/// Interval at which it is written that a client was heard.
const HEARD_EVERY: SignedDuration = SignedDuration::from_secs(15);
/// Seconds after which a client may resume again: each time another follower is called, and the one before may only see that when
/// it [looks](LOOKS), so that three of them are there beside it at most.
const RESUMES_EVERY: u32 = 5;
/// Number of frames that are sent before it is written that they were.
const AT_ONCE: usize = 20;
/// Time after the opening in which a connection that is not there may still come.
const OPENS: SignedDuration = SignedDuration::from_secs(10);
/// Pause before a frame is sent again, and number of attempts where the gateway does not answer.
const AGAIN: Duration = Duration::from_millis(250);
const ATTEMPTS: u32 = 4;
/// Seconds after which a socket that found no seat may be asked for again.
const LATER: u32 = 5;

/// The call for a follower.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowCall {
    /// The connection that it sends to.
    pub connection_id: String,
    /// Which following of the stream it is: a client that resumed has begun another one.
    pub generation: u64,
}

/// What sockets need that a gateway holds.
pub struct HeldParts {
    /// Serves the streams; commands go where it sends them.
    pub server: Server,
    /// Reads what `commits` write.
    pub records: Arc<dyn Records>,
    /// Writes the records of sockets.
    pub commits: Arc<dyn Commits>,
    /// Seals the keys with which sockets were opened.
    pub cursors: Cursors,
    /// The connections.
    pub connections: Arc<dyn Connections>,
    /// Takes calls for followers: each reaches [`HeldSockets::follow`] in a process of its own.
    pub calls: Arc<dyn EventBus>,
    /// How many sockets one actor and one tenant may have.
    pub limits: StreamLimits,
}

impl std::fmt::Debug for HeldParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldParts").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Sockets that a gateway holds.
pub struct HeldSockets(HeldParts);

impl std::fmt::Debug for HeldSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldSockets")
    }
}

/// How a batch was sent.
enum SendOutcome {
    All,
    /// The connection is closed.
    Gone,
    /// The gateway does not take more now.
    Stuck,
}

impl HeldSockets {
    /// The sockets of `parts`.
    pub fn new(parts: HeldParts) -> Self {
        Self(parts)
    }

    /// The server that serves their streams.
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// Opens the connection `id`, which `request` asks for at the path of a stream: authenticated, counted and recorded.
    /// An answer other than 200 refuses it. Nothing can be sent before the gateway has the answer; the follower that is
    /// called waits for that.
    pub async fn connect(&self, id: &str, request: Request) -> Response {
        let subprotocol = Socket::subprotocol(&request);
        let request = with_credentials(request);
        match self.open(id, request).await {
            Ok(()) => {
                let accepted = Response { status: 200, headers: Vec::new(), content: Content::Whole(Vec::new()) };
                let chosen = subprotocol.into_iter();
                chosen.fold(accepted, |response, name| response.header("sec-websocket-protocol", name))
            }
            Err(refusal) => refusal,
        }
    }

    async fn open(&self, id: &str, request: Request) -> Result<(), Response> {
        if !is_connection_id(id) {
            return Err(refusal(ProtocolError::invalid("connection", "expected the id of a connection")));
        }
        let socket = Socket::over(&self.0.server, request)?;
        let (Actor { tenant, name, .. }, _) = socket.follow(&socket.query).await?;
        let now = self.now();
        let opened = SocketRecord {
            sealed: record::sealed(&self.0.cursors, id, &socket.opened, now),
            tenant,
            actor: name,
            opened_at: now,
            generation: 1,
            query: socket.query,
            since: now,
            heard_at: now,
            told_at: now,
            unreadable: 0,
            follower: Some(Follower { owner: None, until: now + BEGINS }),
        };
        match self.seat(id, &opened).await {
            Ok(true) => {}
            Ok(false) => {
                let full = ProtocolError::new(ErrorCode::RateLimited, "too many sockets are open").retry_after(LATER);
                return Err(refusal(full));
            }
            Err(error) => return Err(refusal(unavailable(&error))),
        }
        self.call(id, 1).await;
        Ok(())
    }

    /// Takes what the client sent over the connection `id`: a frame of text, or none where it was binary. What comes back
    /// is the answer for the client.
    pub async fn frame(&self, id: &str, text: Option<&str>) -> Option<String> {
        let now = self.now();
        let found = match self.load(id, now).await {
            Ok(found) => found,
            Err(error) => return Some(refused(None, unavailable(&error))),
        };
        let Some((_, before)) = found else {
            // It has ended, and the gateway was not told.
            self.close(id).await;
            return None;
        };
        let Some(text) = text else { return self.end(id, Some("frames are text")).await };
        let Some(mut socket) = self.socket(id, &before, now) else {
            return self.end(id, Some("the server cannot read any more who opened the socket: open another one")).await;
        };
        let (said, resumed) = match Box::pin(socket.take(text)).await {
            SocketReply::Frame(said) => (Some(said), None),
            SocketReply::Resumed(_) if before.resumed_within(RESUMES_EVERY, now) => {
                let often = format!("a socket resumes once in {RESUMES_EVERY} seconds");
                let often = ProtocolError::new(ErrorCode::RateLimited, often).retry_after(RESUMES_EVERY);
                return Some(refused(id_of(text), often));
            }
            SocketReply::Resumed(_) => (None, Some(socket.query)),
            SocketReply::Closed(reason) => return self.end(id, Some(reason)).await,
        };
        let unreadable = socket.unreadable - before.unreadable;
        if let Err(error) = self.heard(id, unreadable, resumed.as_deref()).await {
            tracing::warn!(%error, "a frame of a socket is answered and not noted");
            return said.or_else(|| Some(refused(None, unavailable(&error)))).map(fitting);
        }
        said.map(fitting)
    }

    /// Notes that a client was heard, and calls a follower where there is none.
    async fn heard(&self, id: &str, unreadable: u32, resumed: Option<&str>) -> Result<(), StoreError> {
        let changed = self.change(id, |socket, now| {
            let is_due = now.duration_since(socket.heard_at) >= HEARD_EVERY;
            socket.unreadable += unreadable;
            if let Some(query) = resumed {
                (socket.generation, socket.since, socket.follower) = (socket.generation + 1, now, None);
                query.clone_into(&mut socket.query);
            }
            let calls = socket.is_unfollowed(now);
            if calls {
                socket.follower = Some(Follower { owner: None, until: now + BEGINS });
            }
            socket.heard_at = now;
            (is_due || unreadable > 0 || calls).then_some((calls, socket.generation))
        });
        if let Changed::Done((true, generation)) = changed.await? {
            self.call(id, generation).await;
        }
        Ok(())
    }

    /// The connection `id` is closed.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer: the record and the seat expire.
    pub async fn disconnect(&self, id: &str) -> Result<(), StoreError> {
        self.forget(id).await
    }

    /// Sends what happens over a connection, for as long as it is wanted and `left` says. A call that comes twice, or too
    /// late, does nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer: the call may be made again.
    pub async fn follow(&self, call: FollowCall, left: Option<Duration>) -> Result<(), StoreError> {
        let ports = self.0.server.app().engine().ports();
        let ends_at = ports.clock.monotonic() + left.map_or(WORKS, |left| left.saturating_sub(TO_HAND_OVER));
        let owner = ports.ids.fresh();
        let id = call.connection_id.as_str();
        let claimed = self.change(id, |socket, now| {
            let is_free = socket.follower.as_ref().is_none_or(|other| other.owner.is_none() || other.until <= now);
            if socket.generation != call.generation || !is_free {
                return None;
            }
            socket.follower = Some(Follower { owner: Some(owner.clone()), until: now + LEASE });
            Some(socket.clone())
        });
        let Changed::Done(record) = claimed.await? else { return Ok(()) };
        let Some(socket) = self.socket(id, &record, self.now()) else {
            self.end(id, Some("the server cannot read any more who opened the socket: open another one")).await;
            return Ok(());
        };
        let items = match socket.follow(&record.query).await {
            Ok((_, items)) => items,
            // Too much is asked, or the store is away: the next frame tries again.
            Err(refusal) if refusal.status == 429 || refusal.status >= 500 => {
                self.let_go(&call, &owner, None, None).await?;
                return Ok(());
            }
            Err(refusal) => {
                self.last_word(id, &told(None, refusal)).await;
                return Ok(());
            }
        };
        let frames = frames(items, record.since, Some(LARGEST_SENT)).boxed();
        self.send_all(&call, &owner, &record, frames.ready_chunks(AT_ONCE).boxed(), ends_at).await
    }

    /// Sends `batches` until they end, nobody wants more, or the time is over.
    async fn send_all(
        &self,
        call: &FollowCall,
        owner: &str,
        record: &SocketRecord,
        mut batches: BoxStream<'static, Vec<Frame>>,
        ends_at: Duration,
    ) -> Result<(), StoreError> {
        let clock = &self.0.server.app().engine().ports().clock;
        let id = call.connection_id.as_str();
        loop {
            let left = ends_at.saturating_sub(clock.monotonic());
            if left.is_zero() {
                let begins = Follower { owner: None, until: self.now() + BEGINS };
                if self.let_go(call, owner, None, Some(begins)).await? {
                    self.call(id, call.generation).await;
                }
                return Ok(());
            }
            let batch = match select(batches.next(), clock.sleep(left.min(LOOKS))).await {
                Either::Left((Some(batch), _)) => batch,
                // The task has ended some time ago, or the stream was refused in its last frame.
                Either::Left((None, _)) => {
                    self.end(id, None).await;
                    return Ok(());
                }
                Either::Right(_) => Vec::new(),
            };
            let (sent, last) = self.send(id, record, &batch).await;
            match sent {
                SendOutcome::All => {}
                SendOutcome::Gone => return self.forget(id).await,
                SendOutcome::Stuck => {
                    self.let_go(call, owner, last.as_ref(), None).await?;
                    return Ok(());
                }
            }
            if !self.goes_on(call, owner, last.as_ref()).await? {
                return Ok(());
            }
        }
    }

    /// Notes what was sent, and renews the lease; false where nobody wants more of this follower.
    async fn goes_on(&self, call: &FollowCall, owner: &str, last: Option<&EventId>) -> Result<bool, StoreError> {
        let changed = self.change(&call.connection_id, |socket, now| {
            own(socket, call, owner)?;
            note(socket, last, now);
            let rests = now.duration_since(socket.busy_at()) >= AWAKE;
            socket.follower = (!rests).then(|| Follower { owner: Some(owner.to_owned()), until: now + LEASE });
            Some(rests)
        });
        match changed.await? {
            Changed::Done(true) => {
                // Whoever does not hear it sends a frame before the gateway closes a silent connection.
                let _ = self.0.connections.send(&call.connection_id, &json!({ "type": "rest" }).to_string()).await;
                Ok(false)
            }
            Changed::Done(false) => Ok(true),
            Changed::Declined | Changed::Gone => Ok(false),
        }
    }

    /// Gives the lease up, for `next` if there is one; false where it was another's already.
    async fn let_go(
        &self,
        call: &FollowCall,
        owner: &str,
        last: Option<&EventId>,
        next: Option<Follower>,
    ) -> Result<bool, StoreError> {
        let changed = self.change(&call.connection_id, |socket, now| {
            own(socket, call, owner)?;
            note(socket, last, now);
            socket.follower.clone_from(&next);
            Some(())
        });
        Ok(matches!(changed.await?, Changed::Done(())))
    }

    /// Sends `batch`, and gives the last event of it that was sent.
    async fn send(&self, id: &str, record: &SocketRecord, batch: &[Frame]) -> (SendOutcome, Option<EventId>) {
        let clock = &self.0.server.app().engine().ports().clock;
        let mut last = None;
        for frame in batch {
            let mut attempts = 0;
            while let Err(error) = self.0.connections.send(id, &frame.text).await {
                attempts += 1;
                let opens = clock.now().duration_since(record.opened_at) < OPENS;
                match error {
                    ConnectionError::Gone if opens => {}
                    ConnectionError::Gone => return (SendOutcome::Gone, last),
                    error @ (ConnectionError::Unavailable(_) | ConnectionError::Refused(_)) => {
                        if attempts >= ATTEMPTS {
                            tracing::warn!(%error, "a follower of a socket stops until its client is heard");
                            return (SendOutcome::Stuck, last);
                        }
                    }
                }
                clock.sleep(AGAIN).await;
            }
            last = frame.event_id.clone().or(last);
        }
        (SendOutcome::All, last)
    }
}

/// Ends, calls and the gateway.
impl HeldSockets {
    /// Ends the connection `id`, which is told why.
    async fn end(&self, id: &str, reason: Option<&str>) -> Option<String> {
        match reason {
            Some(reason) => {
                self.last_word(id, &refused(None, ProtocolError::new(ErrorCode::InvalidRequest, reason))).await;
            }
            None => self.finish(id).await,
        }
        None
    }

    async fn last_word(&self, id: &str, frame: &str) {
        // Whoever is gone needs no reason.
        let _ = self.0.connections.send(id, frame).await;
        self.finish(id).await;
    }

    /// Forgets the socket before it is closed: one that is open without a record is closed by its next frame.
    async fn finish(&self, id: &str) {
        if let Err(error) = self.forget(id).await {
            tracing::warn!(%error, "the record of a socket that ends stays until it expires");
        }
        self.close(id).await;
    }

    async fn close(&self, id: &str) {
        if let Err(error) = self.0.connections.close(id).await {
            tracing::warn!(%error, "a socket that has ended stays open until its client or the gateway closes it");
        }
    }

    /// Calls a follower. Where the call is lost the next frame makes another one.
    async fn call(&self, id: &str, generation: u64) {
        let call = FollowCall { connection_id: id.to_owned(), generation };
        let published = match BusEvent::telling("dormouse", FOLLOW, &call) {
            Ok(event) => self.0.calls.publish(event).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = published {
            tracing::warn!(%error, "a follower of a socket was not called; the next frame of its client does it");
        }
    }

    /// The socket of `record`; `None` if it cannot be known any more who opened it.
    fn socket(&self, id: &str, record: &SocketRecord, now: Timestamp) -> Option<Socket> {
        let opened = record::unsealed(&self.0.cursors, id, &record.sealed, now)?;
        let socket = Socket::over(&self.0.server, opened).ok()?;
        Some(Socket { query: record.query.clone(), unreadable: record.unreadable, ..socket })
    }

    fn now(&self) -> Timestamp {
        self.0.server.app().now()
    }
}

/// The lease of `owner`, if it still follows `socket` as it was called to.
fn own(socket: &SocketRecord, call: &FollowCall, owner: &str) -> Option<()> {
    let is_own = socket.follower.as_ref().is_some_and(|follower| follower.is(owner));
    (is_own && socket.generation == call.generation).then_some(())
}

/// Notes that the event `last` was sent.
fn note(socket: &mut SocketRecord, last: Option<&EventId>, now: Timestamp) {
    if let Some(last) = last {
        socket.query = behind(&socket.query, last.as_str());
        socket.told_at = now;
    }
}

/// `said`, or that it is larger than what is carried here. What was asked is done all the same.
fn fitting(said: String) -> String {
    if said.len() <= LARGEST_SENT {
        return said;
    }
    let mut frame: Map = serde_json::from_str(&said).unwrap_or_default();
    frame.insert("body".to_owned(), Value::Null);
    frame.insert("too_large".to_owned(), true.into());
    if frame.get("id").is_some_and(|id| id.to_string().len() > LARGEST_SENT / 2) {
        frame.insert("id".to_owned(), Value::Null);
    }
    Value::Object(frame).to_string()
}

/// The id of the frame `text`.
fn id_of(text: &str) -> Option<Value> {
    serde_json::from_str::<Map>(text).ok()?.shift_remove("id")
}

fn unavailable(error: &StoreError) -> ProtocolError {
    tracing::warn!(%error, "a socket cannot be served: the store did not answer");
    ProtocolError::new(ErrorCode::ServiceUnavailable, "the store did not answer").retry_after(1)
}

/// True if `id` can be one of a gateway: they are short, and Base64.
fn is_connection_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-".contains(&byte);
    (1..=128).contains(&id.len()) && id.bytes().all(is_plain)
}
