use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use dormouse_ports::{Category, JournalEntry, SignalDescriptor};

use super::pause::{Contained, NewPause, SuspendRefusal};
use crate::{NodeError, ambient};

/// Place for the suspend request of a node. Every dispatch has one.
#[derive(Default)]
pub(crate) struct SuspendSlot {
    request: OnceLock<Box<SuspendRequest>>,
    /// True if the node asked for another one beside it.
    asked_twice: AtomicBool,
}

/// Refusal of a node that waits for two things at once, as with `select!`: the second would be lost without a word.
const ASKED_TWICE: &str = "the node asked for two waits at once, and an invocation sleeps for one: a wait for an event may be \
                           answered by a person as well, and a wait for votes takes several answers";

/// Request made by calling `suspend()`.
#[derive(Clone)]
pub(crate) enum SuspendRequest {
    Suspend {
        descriptor: SignalDescriptor,
        node_completed: bool,
        /// Entries that the node had recorded before.
        recorded: Vec<JournalEntry>,
    },
    /// Nothing may go on.
    Refused(Arc<SuspendRefusal>),
    /// The graph inside of a subgraph node is pausing.
    Nested(Arc<NewPause>),
    /// A part of a fan-out or of parallel branches is pausing.
    Contained(Box<Contained>),
}

/// Pauses the invocation until the signal that `descriptor` names arrives; on resume it goes on BEHIND this node
/// (suspension §3, `mark_node_completed = true`).
///
/// The call does not return: the engine drops the node's future. A node therefore ends with
/// `Err(suspend(descriptor).await)`. Only outside of an invocation, where there is nothing to pause, an error comes
/// back: `suspension_in_unsupported_context`.
///
/// A task that the node itself spawned is outside of the invocation. A node that asks for two waits at once, as with `select!`,
/// ends the invocation with `suspension_in_unsupported_context`.
pub async fn suspend(descriptor: SignalDescriptor) -> NodeError {
    put_down(descriptor, true).await
}

/// As [`suspend`], but on resume this node runs AGAIN, on a state that holds the signal's payload
/// (`mark_node_completed = false`). Its attempt index stays the same.
pub async fn suspend_and_rerun(descriptor: SignalDescriptor) -> NodeError {
    put_down(descriptor, false).await
}

async fn put_down(descriptor: SignalDescriptor, node_completed: bool) -> NodeError {
    let asked = ambient::change(|scope| {
        let refused = match &scope.body {
            None => Some("suspend() was called by a middleware; move it into a node of its own"),
            Some(body) => body.unsupported,
        };
        let attempts = scope.attempts.clone()?;
        Some((attempts, refused, std::mem::take(&mut scope.recorded)))
    });
    let Some((attempts, refused, recorded)) = asked.flatten() else {
        return NodeError::new("suspend() was called outside of an invocation")
            .with_category(Category::SuspensionInUnsupportedContext);
    };
    attempts.slot.ask(match refused {
        Some(reason) => unsupported(reason),
        None => SuspendRequest::Suspend { descriptor, node_completed, recorded },
    });
    futures::future::pending().await
}

fn unsupported(reason: &'static str) -> SuspendRequest {
    SuspendRequest::Refused(Arc::new(SuspendRefusal::new(Category::SuspensionInUnsupportedContext, reason)))
}

impl SuspendSlot {
    pub(super) fn put(&self, request: SuspendRequest) {
        let _ = self.request.set(Box::new(request));
    }

    /// Puts the request of a node's own code.
    fn ask(&self, request: SuspendRequest) {
        if self.request.set(Box::new(request)).is_err() {
            self.asked_twice.store(true, Ordering::Relaxed);
        }
    }

    fn request(&self) -> Option<SuspendRequest> {
        let request = self.request.get()?;
        Some(match **request {
            SuspendRequest::Suspend { .. } if self.asked_twice.load(Ordering::Relaxed) => unsupported(ASKED_TWICE),
            SuspendRequest::Suspend { .. }
            | SuspendRequest::Refused(_)
            | SuspendRequest::Nested(_)
            | SuspendRequest::Contained(_) => (**request).clone(),
        })
    }
}

/// Runs a node until it ends or asks to suspend, whichever comes first; a request to suspend wins over a result.
pub(crate) struct UntilSuspended<'a, F> {
    pub(crate) future: F,
    pub(crate) slot: &'a SuspendSlot,
}

pub(crate) enum Ended<T> {
    Returned(T),
    Suspended(SuspendRequest),
}

impl<F: Future + Unpin> Future for UntilSuspended<'_, F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.future).poll(cx);
        match (self.slot.request(), polled) {
            (Some(request), _) => Poll::Ready(Ended::Suspended(request)),
            (None, Poll::Ready(value)) => Poll::Ready(Ended::Returned(value)),
            (None, Poll::Pending) => Poll::Pending,
        }
    }
}
