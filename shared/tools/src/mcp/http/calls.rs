//! The stream on which a server says what belongs to no request, for the time of calls alone: where a process does not listen
//! between them, servers of older versions still ask in the midst of one on that stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use http::{HeaderName, HeaderValue};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpError};
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::FetchClient;

/// Time for which a call waits for the stream. What is asked before that stands is not heard.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause where the server has not closed the stream of the call before yet.
const SOON: Duration = Duration::from_millis(250);
/// Pause behind a failure.
const LATER: Duration = Duration::from_secs(5);

/// The calls that are under way, and whether the server is heard in them; the same for all that have a clone of it.
#[derive(Clone, Debug, Default)]
pub(super) struct CallStream(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    calls: watch::Sender<Calls>,
    hearing: watch::Sender<Hearing>,
    /// True if the stream has been waited for in vain.
    is_late: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    under_way: usize,
    /// Counts the times at which the first of them began: a stream of an earlier time may have been lost in a process that was
    /// frozen.
    turn: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hearing {
    /// Nobody hears the server here.
    #[default]
    Absent,
    /// The next call is waited for.
    Waiting,
    /// The stream stood in this turn.
    Open(u64),
    /// The server has no such stream.
    Refused,
    /// Somebody listens all the time, where there is a stream.
    Always,
}

impl Hearing {
    /// True if a call of `turn` need not wait any more.
    fn is_known(self, turn: u64) -> bool {
        match self {
            Self::Absent | Self::Refused | Self::Always => true,
            Self::Waiting => false,
            Self::Open(open) => open >= turn,
        }
    }
}

/// A call during which the server is heard; it ends when it is dropped.
#[derive(Debug)]
pub(in crate::mcp) struct HeardCall(CallStream);

impl Drop for HeardCall {
    fn drop(&mut self) {
        self.0.0.calls.send_modify(|calls| calls.under_way = calls.under_way.saturating_sub(1));
    }
}

impl CallStream {
    /// A call begins. It waits until the server is heard, where it is not by other means.
    pub(super) async fn begin(&self) -> HeardCall {
        let Shared { calls, hearing, is_late } = &*self.0;
        calls.send_modify(|calls| {
            calls.turn += u64::from(calls.under_way == 0);
            calls.under_way += 1;
        });
        let call = HeardCall(self.clone());
        let turn = calls.borrow().turn;
        if !is_late.load(Ordering::Relaxed) {
            let mut hearing = hearing.subscribe();
            let known = timeout(PATIENCE, hearing.wait_for(|hearing| hearing.is_known(turn)));
            let is_known = known.await.is_ok();
            is_late.store(!is_known, Ordering::Relaxed);
        }
        call
    }

    /// A conversation has begun in which somebody will hear the server: a call waits for that from now on.
    pub(super) fn expected(&self) {
        self.0.hearing.send_if_modified(|hearing| {
            let is_absent = *hearing == Hearing::Absent;
            if is_absent {
                *hearing = Hearing::Waiting;
            }
            is_absent
        });
    }

    /// The server has answered somebody who listens all the time: no call waits for it any more.
    pub(super) fn answered(&self) {
        self.0.hearing.send_replace(Hearing::Always);
    }

    /// True if the server may be heard now: on a stream that `stands` where somebody `listens` all the time, else in a call.
    pub(super) fn may_hear(&self, listens: bool, stands: bool) -> bool {
        let is_in_call = self.0.calls.borrow().under_way > 0;
        match *self.0.hearing.borrow() {
            Hearing::Absent | Hearing::Refused => false,
            Hearing::Waiting | Hearing::Open(_) => listens || is_in_call,
            Hearing::Always => stands,
        }
    }

    /// What the server says of itself while calls are under way. It does not end: between them, and where the server has no
    /// such stream, nothing comes.
    pub(super) fn events(
        &self,
        client: FetchClient,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        self.0.hearing.send_replace(Hearing::Waiting);
        let listener = Listener { calls: self.0.calls.subscribe(), shared: self.clone(), client, session, headers };
        let pieces = stream::unfold((listener, None), |(mut listener, open)| async move {
            let (event, open) = listener.next(open).await;
            Some((Ok::<Sse, SseError>(event), (listener, Some(open))))
        });
        pieces.boxed()
    }
}

/// A stream that stands, and the turn in which it was opened.
type Open = (u64, BoxStream<'static, Result<Sse, SseError>>);

/// Opens the stream when a call begins, and closes it behind the last one.
struct Listener {
    calls: watch::Receiver<Calls>,
    shared: CallStream,
    client: FetchClient,
    session: Option<Arc<str>>,
    headers: HashMap<HeaderName, HeaderValue>,
}

impl Listener {
    /// The next event, and the stream behind it.
    async fn next(&mut self, mut open: Option<Open>) -> (Sse, Open) {
        loop {
            let Some((turn, mut events)) = open.take() else {
                open = self.opened().await;
                continue;
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => return (event, (turn, events)),
                    Some(Err(_)) | None => sleep(SOON).await,
                },
                () = ended(&mut self.calls, turn) => (),
            }
        }
    }

    /// The stream, once a call is under way; `None` where it is to be tried again.
    async fn opened(&mut self) -> Option<Open> {
        until(&mut self.calls, |calls| calls.under_way > 0).await;
        let turn = self.calls.borrow().turn;
        let asked = self.client.listened(self.session.as_deref(), None, &self.headers);
        let response = tokio::select! {
            response = asked => response,
            () = ended(&mut self.calls, turn) => return None,
        };
        let hearing = &self.shared.0.hearing;
        match response {
            Ok(response) if FetchClient::is_stream(&response) => {
                hearing.send_replace(Hearing::Open(turn));
                Some((turn, self.client.events(response, None)))
            }
            Ok(response) if response.status == 409 => {
                drop(response);
                sleep(SOON).await;
                None
            }
            Ok(response) => {
                drop(response);
                hearing.send_replace(Hearing::Refused);
                future::pending().await
            }
            // Each further request would be shown a token of its own, and take that of the calls out of use.
            Err(StreamableHttpError::AuthRequired(_)) => {
                hearing.send_replace(Hearing::Refused);
                future::pending().await
            }
            Err(_) => {
                sleep(LATER).await;
                None
            }
        }
    }
}

/// The calls of `turn` are over.
async fn ended(calls: &mut watch::Receiver<Calls>, turn: u64) {
    until(calls, move |calls| calls.under_way == 0 || calls.turn != turn).await;
}

async fn until(calls: &mut watch::Receiver<Calls>, is_so: impl Fn(Calls) -> bool) {
    loop {
        let now = *calls.borrow_and_update();
        if is_so(now) {
            return;
        }
        if calls.changed().await.is_err() {
            future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Template;
    use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};

    use super::super::{AnnotatedTools, Reach, StandingStream};
    use super::*;
    use crate::Values;

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_until_the_server_is_heard_and_once_in_vain() {
        let stream = CallStream::default();
        let began = tokio::time::Instant::now();
        drop(stream.begin().await);
        assert!(began.elapsed().is_zero(), "nobody hears it");
        stream.0.hearing.send_replace(Hearing::Waiting);
        drop(stream.begin().await);
        let waited = began.elapsed();
        assert!(waited >= PATIENCE, "{waited:?}");
        drop(stream.begin().await);
        assert_eq!(began.elapsed(), waited, "it is not waited for any more");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_call_of_a_conversation_waits_although_nobody_listens_yet() {
        let stream = CallStream::default();
        stream.expected();
        let began = tokio::time::Instant::now();
        let listens = async {
            sleep(SOON).await;
            stream.0.hearing.send_replace(Hearing::Open(1));
        };
        let (call, ()) = future::join(stream.begin(), listens).await;
        let waited = began.elapsed();
        assert!((SOON..PATIENCE).contains(&waited), "{waited:?}");
        stream.expected();
        drop(call);
        assert_eq!(*stream.0.hearing.borrow(), Hearing::Open(1), "what is known stays so");
        stream.answered();
        let began = tokio::time::Instant::now();
        drop(stream.begin().await);
        assert!(began.elapsed().is_zero(), "somebody listens all the time");
    }

    #[test]
    fn a_server_may_be_heard_where_a_stream_is_open_or_about_to_be() {
        let stream = CallStream::default();
        assert!(!stream.may_hear(true, false), "there is no session, and none listens");
        stream.expected();
        assert!(stream.may_hear(true, false) && !stream.may_hear(false, false), "it is opened with the first call");
        stream.0.calls.send_modify(|calls| calls.under_way = 1);
        assert!(stream.may_hear(false, false));
        stream.0.hearing.send_replace(Hearing::Refused);
        assert!(!stream.may_hear(false, false));
        stream.answered();
        assert!(stream.may_hear(true, true) && !stream.may_hear(true, false));
    }

    #[test]
    fn a_stream_of_an_earlier_turn_is_none_of_this_one() {
        assert!(Hearing::Open(2).is_known(2) && !Hearing::Open(1).is_known(2));
        assert!(Hearing::Absent.is_known(1) && Hearing::Refused.is_known(1) && !Hearing::Waiting.is_known(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_lets_nobody_listen_is_asked_for_the_stream_once() {
        for status in [401, 403, 405] {
            let fetch = ScriptedFetch::default();
            fetch.answer(ScriptedAnswer::pieces(status, [""]));
            let (url, standing) = (Template::parse("http://h/mcp").expect("a template"), StandingStream::default());
            let reach = Reach {
                url: &url,
                headers: &[],
                tokens: None,
                timeout: PATIENCE,
                to_discover: PATIENCE,
                most_bytes: 1024,
                listen: false,
                standing: &standing,
                annotated: &AnnotatedTools::default(),
            };
            let client = FetchClient::new(&reach, Arc::new(fetch.clone()), Values::none());
            let stream = standing.calls.clone();
            let mut events = stream.events(client, None, HashMap::new());
            let began = tokio::time::Instant::now();
            for _ in 0..2 {
                let call = async {
                    let _call = stream.begin().await;
                    sleep(LATER * 2).await;
                };
                tokio::select! {
                    () = call => (),
                    _ = events.next() => panic!("{status}: it says nothing"),
                }
            }
            assert_eq!(began.elapsed(), LATER * 4, "{status}: no call waits");
            assert_eq!(fetch.requests().len(), 1, "{status}");
        }
    }
}
