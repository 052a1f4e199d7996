//! What a request to the database is for: the call on the store that it belongs to. A witness who knows that can judge a
//! request as it judges a call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dormouse_ports::{BufferedSignal, ClaimRequest, Commit, LeaseRequest, SessionId, SignalId};

use super::world::World;

/// A call on the store that changes something.
#[derive(Clone, Debug)]
pub(crate) enum Intent {
    Lease { session: SessionId, request: LeaseRequest },
    Claim { request: ClaimRequest },
    Commit { commit: Box<Commit> },
    Buffer { id: SignalId, signal: BufferedSignal },
}

/// Does `work` so that every request it sends is known to be for `intent`.
pub(crate) struct Within<F> {
    world: World,
    intent: Arc<Intent>,
    work: Pin<Box<F>>,
}

impl<F: Future> Within<F> {
    pub(crate) fn new(world: World, intent: Intent, work: F) -> Self {
        Self { world, intent: Arc::new(intent), work: Box::pin(work) }
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let intent = Some(self.intent.clone());
        let before = std::mem::replace(&mut self.world.lock().intent, intent);
        let poll = self.work.as_mut().poll(context);
        self.world.lock().intent = before;
        poll
    }
}
