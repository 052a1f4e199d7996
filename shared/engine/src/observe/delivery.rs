//! The delivery queue: one per invocation of an outermost graph, strictly serial, beside the execution.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_ports::{Clock, InvocationId, Spawner};
use futures::channel::{mpsc, oneshot};
use futures::future::{AbortHandle, Abortable, Shared};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;

use super::{InvocationEnd, InvocationResult, InvocationStart, QueuedEvent, Registrations};
use crate::CompiledGraph;
use crate::ambient::{self, CallScope, Identity, InvocationView, Scoped};

/// The deliveries of a graph's invocations that are not finished yet.
#[derive(Default)]
pub(crate) struct ObserverDeliveries(Mutex<Vec<Arc<ObserverDelivery>>>);

/// Progress of the delivery of one invocation's events.
pub(super) struct ObserverDelivery {
    pub(super) invocation_id: InvocationId,
    progress: Mutex<DeliveryProgress>,
    /// Resolves when the worker is over, finished or cancelled.
    pub(super) done: Shared<oneshot::Receiver<()>>,
    pub(super) abort: AbortHandle,
}

#[derive(Default)]
struct DeliveryProgress {
    sent: usize,
    delivered: usize,
    /// Waiters for the delivery of so many events.
    waiting: Vec<(usize, oneshot::Sender<()>)>,
}

impl ObserverDelivery {
    pub(super) fn sent(&self) -> usize {
        self.progress().sent
    }

    /// Number of the first `sent` events that did not reach every observer.
    pub(super) fn owed(&self, sent: usize) -> usize {
        sent.saturating_sub(self.progress().delivered)
    }

    /// Resolves when the first `sent` events have reached every observer.
    pub(super) fn reached(&self, sent: usize) -> oneshot::Receiver<()> {
        let (reached, receiver) = oneshot::channel();
        self.progress().waiting.push((sent, reached));
        self.wake();
        receiver
    }

    fn advance(&self) {
        self.progress().delivered += 1;
        self.wake();
    }

    fn wake(&self) {
        let mut progress = self.progress();
        let delivered = progress.delivered;
        for (_, waiter) in progress.waiting.extract_if(.., |(sent, _)| *sent <= delivered) {
            // A waiter that gave up needs no waking.
            let _ = waiter.send(());
        }
    }

    fn progress(&self) -> MutexGuard<'_, DeliveryProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One event on its way, with its observers and the invocation as it was seen where the event arose.
struct Letter {
    observers: Registrations,
    identity: Arc<Identity>,
    event: QueuedEvent,
}

/// The sending end. Dropping it lets the worker finish what is queued and end.
pub(crate) struct EventQueue {
    sender: mpsc::UnboundedSender<Letter>,
    pub(super) delivery: Arc<ObserverDelivery>,
    /// The observers that are notified how the call ends.
    observers: Registrations,
    identity: Arc<Identity>,
    clock: Arc<dyn Clock>,
    ended: AtomicBool,
}

impl EventQueue {
    /// Starts the worker of one call of `graph` and notifies `observers` that it begins.
    pub(crate) fn open(
        graph: &CompiledGraph,
        start: InvocationStart,
        observers: Registrations,
        clock: Arc<dyn Clock>,
        spawner: &dyn Spawner,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded();
        let (finished, done) = oneshot::channel();
        let (abort, registration) = AbortHandle::new_pair();
        let identity = start.identity.clone();
        let progress = Mutex::default();
        let invocation_id = identity.invocation_id.clone();
        let delivery = Arc::new(ObserverDelivery { invocation_id, progress, done: done.shared(), abort });
        graph.deliveries.add(delivery.clone());
        let work = Abortable::new(deliver_all(receiver, delivery.clone()), registration);
        let owner = identity.clone();
        spawner.spawn(
            async move {
                if ambient::within(&owner, Box::pin(work)).await.is_err() {
                    tracing::warn!("observer delivery was cancelled by a drain timeout");
                }
                let _ = finished.send(());
            }
            .boxed(),
        );
        let queue = Self { sender, delivery, observers, identity, clock, ended: AtomicBool::new(false) };
        queue.dispatch(&queue.observers, queue.identity.clone(), QueuedEvent::Began(Box::new(start)));
        queue
    }

    /// The instant at which an event arises.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn dispatch(&self, observers: &Registrations, identity: Arc<Identity>, event: QueuedEvent) {
        if event.is_owed() {
            self.delivery.progress().sent += 1;
        }
        if self.sender.unbounded_send(Letter { observers: observers.clone(), identity, event }).is_err() {
            tracing::debug!("an event came after its delivery was cancelled");
        }
    }

    /// Reports the end of the call. Only the first report counts.
    pub(crate) fn end(&self, result: InvocationResult) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            let end = InvocationEnd { identity: self.identity.clone(), at: self.clock.now(), result };
            self.dispatch(&self.observers, self.identity.clone(), QueuedEvent::Ended(Box::new(end)));
        }
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.end(InvocationResult::Abandoned);
    }
}

async fn deliver_all(mut queue: mpsc::UnboundedReceiver<Letter>, delivery: Arc<ObserverDelivery>) {
    while let Some(Letter { observers, identity, event }) = queue.next().await {
        let scope = CallScope::outside_nodes(InvocationView::new(identity));
        Scoped::new(scope, pin!(deliver(&observers, &event))).await;
        if event.is_owed() {
            delivery.advance();
        }
    }
}

async fn deliver(observers: &Registrations, event: &QueuedEvent) {
    for registered in observers.iter() {
        match AssertUnwindSafe(registered.tell(event)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, %event, "an observer failed"),
            Err(_) => tracing::warn!(%event, "an observer panicked"),
        }
    }
}

impl ObserverDeliveries {
    fn add(&self, delivery: Arc<ObserverDelivery>) {
        let mut active = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|other| other.done.peek().is_none());
        active.push(delivery);
    }

    pub(super) fn snapshot(&self) -> Vec<Arc<ObserverDelivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
