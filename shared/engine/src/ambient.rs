//! The ambient context of an invocation: readable from anywhere in its call tree, without threading it through
//! arguments (sessions §3, observability §3.1).
//!
//! The mechanism: [`Scoped`] puts the context into a thread-local for the duration of each poll and takes it out
//! again. It needs no runtime, and it does not cross a task that a node spawns by itself.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};

use dormouse_ports::{InvocationId, Map, SessionId};

use crate::run::{Attempts, Body, Slot};

/// What every part of an invocation may know of it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This invocation.
    pub invocation_id: InvocationId,
    /// What it belongs to.
    pub correlation_id: String,
    /// Its session, if it is bound to one.
    pub session_id: Option<SessionId>,
    /// Caller-supplied metadata as it is in scope here (observability §3.4).
    pub metadata: Map,
}

/// The current invocation as it is seen from here, or `None` outside of one. What a node augments later does not
/// show in it.
pub fn current() -> Option<Arc<Identity>> {
    CURRENT.with_borrow(|scope| scope.as_ref().map(|scope| scope.view.identity()))
}

/// The invocation as one line of execution sees it: code that runs one after the other shares a view, whatever runs
/// beside it has a view of its own (observability §3.4).
#[derive(Clone, Debug)]
pub(crate) struct View(Arc<Mutex<Arc<Identity>>>);

impl View {
    pub(crate) fn new(identity: Arc<Identity>) -> Self {
        Self(Arc::new(Mutex::new(identity)))
    }

    pub(crate) fn identity(&self) -> Arc<Identity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes everybody who shares this view see `identity`.
    pub(crate) fn show(&self, identity: Arc<Identity>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = identity;
    }
}

/// What is in scope at a point of the call tree.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) view: View,
    /// Where a suspension is put down; absent where observers run.
    pub(crate) slot: Option<Arc<Slot>>,
    /// Set around the innermost call only: the node's own body.
    pub(crate) body: Option<Arc<Body>>,
    /// Which attempt of the innermost retry around this point runs.
    pub(crate) attempt_index: u32,
    /// The dispatch of the innermost node around this point; absent where observers run.
    pub(crate) attempts: Option<Arc<Attempts>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

pub(crate) fn scope() -> Option<Scope> {
    CURRENT.with_borrow(Clone::clone)
}

/// A future inside a scope.
pub(crate) struct Scoped<F> {
    scope: Option<Scope>,
    future: F,
}

impl<F> Scoped<F> {
    pub(crate) fn new(scope: Scope, future: F) -> Self {
        Self { scope: Some(scope), future }
    }
}

impl<F: Future + Unpin> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = Entered::new(&mut this.scope);
        Pin::new(&mut this.future).poll(cx)
    }
}

/// Swaps the scope in, and back out when dropped, also by a panic.
struct Entered<'a>(&'a mut Option<Scope>);

impl<'a> Entered<'a> {
    fn new(own: &'a mut Option<Scope>) -> Self {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, own));
        Self(own)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.0));
    }
}
