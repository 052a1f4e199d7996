//! The ambient context of an invocation: readable from anywhere in its call tree, without threading it through
//! arguments (sessions §3, observability §3.1).
//!
//! The mechanism: [`Scoped`] puts the context into a thread-local for the duration of each poll and takes it out
//! again. It needs no runtime, and it does not cross a task that a node spawns by itself.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::thread::LocalKey;
use std::time::Duration;

use dormouse_ports::{InvocationId, JournalEntry, Map, SessionId};
use futures::future::BoxFuture;
use tracing::Instrument;

use crate::observe::Origin;
use crate::prompt::ActivePrompt;
use crate::run::{Attempts, NodeBody};

/// Identity of an invocation, which every part of it may read.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// The correlation that it belongs to.
    pub correlation_id: String,
    /// Its session, if it is bound to one.
    pub session_id: Option<SessionId>,
    /// Caller-supplied metadata as it is in scope here (observability §3.4).
    pub metadata: Map,
    /// The tenant in whose name it began, if somebody named one.
    pub begun_for: Option<String>,
    /// Position of the root span of this call in its trace, as a W3C `traceparent`; absent without tracing.
    pub trace_context: Option<String>,
}

impl Identity {
    /// The span around everything that this call logs: it gives each line the ids (observability §7).
    fn log_span(&self) -> tracing::Span {
        // Every log line carries the ids: a span is switched off by the level that is given to it.
        let span = tracing::error_span!(
            "invocation",
            invocation_id = %self.invocation_id,
            correlation_id = self.correlation_id,
            session_id = tracing::field::Empty,
        );
        if let Some(session_id) = &self.session_id {
            span.record("session_id", session_id.as_str());
        }
        span
    }
}

/// One execution of a node's body, as its events identify it (observability §4.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// Path from the outermost graph to the node, its own name last.
    pub namespace: Vec<Arc<str>>,
    /// Position in the order of executions of the invocation, from 0.
    pub step: u64,
    /// Index of the attempt among retries, from 0.
    pub attempt_index: u32,
}

/// The current invocation as it is seen from here, or `None` outside of one. What a node augments later does not
/// show in it.
pub fn current() -> Option<Arc<Identity>> {
    look(|scope| scope.view.identity())
}

/// The invocation as one line of execution sees it: code that runs one after the other shares a view, code that runs
/// beside it has a view of its own (observability §3.4).
#[derive(Clone, Debug)]
pub(crate) struct InvocationView(Arc<Mutex<Arc<Identity>>>);

impl InvocationView {
    pub(crate) fn new(identity: Arc<Identity>) -> Self {
        Self(Arc::new(Mutex::new(identity)))
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes all code that shares this view see `identity`.
    pub(crate) fn show(&self, identity: Arc<Identity>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

/// The body that runs here, or `None` outside of one (in middleware, in observers, between nodes) and in invocations
/// without observers.
pub fn position() -> Option<Arc<Position>> {
    look(|scope| scope.body.as_ref()?.position.clone()).flatten()
}

/// The innermost node around this place, with everything that was entered on the way there; `None` outside of nodes,
/// and in invocations without observers.
pub fn origin() -> Option<Origin> {
    look(|scope| scope.attempts.as_ref()?.origin(scope.attempt_index)).flatten()
}

/// The span that surrounds this place from outside of any invocation, as set by [`in_trace`].
pub fn surrounding_trace() -> Option<Arc<str>> {
    TRACE.with_borrow(Clone::clone)
}

/// Runs `work` inside the span that the W3C `traceparent` names: invocations that begin there become its children
/// (observability §4.6).
pub async fn in_trace<T>(traceparent: Arc<str>, work: impl Future<Output = T>) -> T {
    with(&TRACE, traceparent, work).await
}

/// The time of a turn, on the monotonic clock of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnTime {
    /// All of it.
    pub whole: Duration,
    /// As much as any turn has here; more than `whole` where a request waits for this one.
    pub longest: Duration,
    /// Instant at which it ends: what is under way then is dropped.
    pub ends: Duration,
}

impl TurnTime {
    /// What is left of it at `now`.
    pub fn left(self, now: Duration) -> Duration {
        self.ends.saturating_sub(now)
    }

    /// True if other turns have clearly more time.
    pub fn is_short(self) -> bool {
        self.whole < self.longest - self.longest / 4
    }

    /// True from the instant on at which a durable step leaves the rest to another worker, or a little before.
    pub fn is_half_over(self, now: Duration) -> bool {
        self.left(now) <= self.whole / 2
    }
}

/// The time of the turn around this place, as set by [`in_turn`]; `None` where nothing bounds it.
pub fn turn_time() -> Option<TurnTime> {
    TURN.with_borrow(|time| *time)
}

/// Runs `work` as a turn that has so much `time`. Who runs it drops it at its end; in here, it is only known.
pub async fn in_turn<T>(time: TurnTime, work: impl Future<Output = T>) -> T {
    with(&TURN, time, work).await
}

/// The prompt under which models are called around this place, as set by [`under_prompt`]; `None` where nobody named one.
pub fn active_prompt() -> Option<Arc<ActivePrompt>> {
    PROMPT.with_borrow(Clone::clone)
}

/// Runs `work`, which calls models with what was rendered of `prompt` (prompt-management §12): their spans and events name
/// it.
pub async fn under_prompt<T>(prompt: ActivePrompt, work: impl Future<Output = T>) -> T {
    with(&PROMPT, Arc::new(prompt), work).await
}

/// An answer on its way to a pause, of somebody who proved who they are.
#[derive(Clone, Debug, PartialEq)]
pub struct SignedAnswer {
    /// Name of who gives it.
    pub by: String,
    /// The answer.
    pub payload: Map,
}

/// The answer that is on its way around this place, as set by [`answering`]. What is committed there may be another one, which
/// was accepted before.
pub fn answer_under_way() -> Option<Arc<SignedAnswer>> {
    ANSWER.with_borrow(Clone::clone)
}

/// Runs `work`, which brings `answer` to its pause.
pub async fn answering<T>(answer: SignedAnswer, work: impl Future<Output = T>) -> T {
    with(&ANSWER, Arc::new(answer), work).await
}

/// Runs the whole of a call in the scope of `identity`, so that the work and its log lines know the invocation.
pub(crate) async fn within<T>(identity: &Arc<Identity>, work: BoxFuture<'_, T>) -> T {
    let scope = CallScope::outside_nodes(InvocationView::new(identity.clone()));
    Scoped::new(scope, work).instrument(identity.log_span()).await
}

/// The context in scope at a point of the call tree.
pub(crate) struct CallScope {
    pub(crate) view: InvocationView,
    /// The dispatch of the innermost node around this point; absent where observers run.
    pub(crate) attempts: Option<Arc<Attempts>>,
    /// Index of the running attempt of the innermost retry around this point.
    pub(crate) attempt_index: u32,
    /// Set around the innermost call only: the node's own body.
    pub(crate) body: Option<NodeBody>,
    /// Entries recorded in here, as far as they count: by the body itself, or by the latest attempt further in that
    /// succeeded. They go with the scope where that fails or is dropped.
    pub(crate) recorded: Vec<JournalEntry>,
}

impl CallScope {
    /// The scope of everything in an invocation that is no part of a node.
    pub(crate) fn outside_nodes(view: InvocationView) -> Self {
        Self { view, attempts: None, attempt_index: 0, body: None, recorded: Vec::new() }
    }

    /// The scope of the middleware around a node, in attempt `attempt_index`.
    pub(crate) fn around_node(attempts: &Arc<Attempts>, attempt_index: u32) -> Self {
        let view = attempts.view.clone();
        let attempts = Some(attempts.clone());
        Self { view, attempts, attempt_index, body: None, recorded: Vec::new() }
    }
}

thread_local! {
    static TRACE: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
    static TURN: RefCell<Option<TurnTime>> = const { RefCell::new(None) };
    static PROMPT: RefCell<Option<Arc<ActivePrompt>>> = const { RefCell::new(None) };
    static ANSWER: RefCell<Option<Arc<SignedAnswer>>> = const { RefCell::new(None) };
    static CURRENT: RefCell<Option<CallScope>> = const { RefCell::new(None) };
}

/// Looks at the scope here; `None` outside of an invocation.
pub(crate) fn look<T>(at: impl FnOnce(&CallScope) -> T) -> Option<T> {
    CURRENT.with_borrow(|scope| scope.as_ref().map(at))
}

/// Changes the scope here; `None` outside of an invocation.
pub(crate) fn change<T>(how: impl FnOnce(&mut CallScope) -> T) -> Option<T> {
    CURRENT.with_borrow_mut(|scope| scope.as_mut().map(how))
}

/// Adopts the entries that an attempt further in recorded, in the place of those of an attempt before it.
pub(crate) fn adopt(recorded: Vec<JournalEntry>) {
    // Outside of an invocation nothing is recorded.
    let _ = change(|scope| scope.recorded = recorded);
}

/// A future inside a scope.
pub(crate) struct Scoped<F> {
    scope: Option<CallScope>,
    future: F,
}

impl<F> Scoped<F> {
    pub(crate) fn new(scope: CallScope, future: F) -> Self {
        Self { scope: Some(scope), future }
    }
}

impl<F: Future + Unpin> Scoped<F> {
    /// Runs to its end; also gives the entries recorded inside.
    pub(crate) async fn recording(mut self) -> (F::Output, Vec<JournalEntry>) {
        let output = (&mut self).await;
        (output, self.scope.map(|scope| scope.recorded).unwrap_or_default())
    }
}

impl<F: Future + Unpin> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = AmbientGuard::new(&CURRENT, &mut this.scope);
        Pin::new(&mut this.future).poll(cx)
    }
}

/// Runs `work` with `value` at `place` for the duration of each poll.
async fn with<V, T>(place: &'static LocalKey<RefCell<Option<V>>>, value: V, work: impl Future<Output = T>) -> T {
    let mut own = Some(value);
    let mut work = pin!(work);
    poll_fn(move |cx| {
        let _entered = AmbientGuard::new(place, &mut own);
        work.as_mut().poll(cx)
    })
    .await
}

/// Swaps a value in, and back out when dropped, also by a panic.
struct AmbientGuard<'a, T: 'static> {
    place: &'static LocalKey<RefCell<Option<T>>>,
    own: &'a mut Option<T>,
}

impl<'a, T> AmbientGuard<'a, T> {
    fn new(place: &'static LocalKey<RefCell<Option<T>>>, own: &'a mut Option<T>) -> Self {
        place.with_borrow_mut(|current| std::mem::swap(current, own));
        Self { place, own }
    }
}

impl<T> Drop for AmbientGuard<'_, T> {
    fn drop(&mut self) {
        self.place.with_borrow_mut(|current| std::mem::swap(current, self.own));
    }
}
