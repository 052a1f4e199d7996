//! The delivery queue: one per invocation of an outermost graph, strictly serial, beside the execution.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_ports::{Clock, Spawner};
use futures::channel::{mpsc, oneshot};
use futures::future::{AbortHandle, Abortable, Shared, join_all};
use futures::{FutureExt, StreamExt, select_biased};

use super::{NodeEvent, Registrations};
use crate::CompiledGraph;
use crate::ambient::{Scope, Scoped};

/// What a `drain` left undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// How many events did not reach every observer.
    pub undelivered_count: usize,
    /// Whether the timeout ended the wait.
    pub timeout_reached: bool,
}

/// The deliveries of a graph's invocations that are not finished yet.
#[derive(Default)]
pub(crate) struct Deliveries(Mutex<Vec<Arc<Delivery>>>);

struct Delivery {
    sent: AtomicUsize,
    delivered: AtomicUsize,
    done: Shared<oneshot::Receiver<()>>,
    abort: AbortHandle,
}

impl Delivery {
    fn undelivered(&self) -> usize {
        self.sent.load(Ordering::Acquire).saturating_sub(self.delivered.load(Ordering::Acquire))
    }
}

/// The sending end. Dropping it lets the worker finish what is queued and end.
pub(crate) struct EventQueue {
    sender: mpsc::UnboundedSender<(Registrations, NodeEvent)>,
    delivery: Arc<Delivery>,
}

impl EventQueue {
    /// Starts the worker of one invocation of `graph`.
    pub(crate) fn open(graph: &CompiledGraph, scope: Scope, spawner: &dyn Spawner) -> Self {
        let (sender, receiver) = mpsc::unbounded();
        let (finished, done) = oneshot::channel();
        let (abort, registration) = AbortHandle::new_pair();
        let delivery = Arc::new(Delivery {
            sent: AtomicUsize::new(0),
            delivered: AtomicUsize::new(0),
            done: done.shared(),
            abort,
        });
        graph.deliveries.add(delivery.clone());
        let work = Scoped::new(scope, Box::pin(deliver_all(receiver, delivery.clone())));
        let work = Abortable::new(work, registration);
        spawner.spawn(
            async move {
                if work.await.is_err() {
                    tracing::warn!("observer delivery was cancelled by a drain timeout");
                }
                let _ = finished.send(());
            }
            .boxed(),
        );
        Self { sender, delivery }
    }

    pub(crate) fn dispatch(&self, observers: &Registrations, event: NodeEvent) {
        self.delivery.sent.fetch_add(1, Ordering::AcqRel);
        if self.sender.unbounded_send((observers.clone(), event)).is_err() {
            tracing::debug!("an event came after its delivery was cancelled");
        }
    }
}

async fn deliver_all(mut queue: mpsc::UnboundedReceiver<(Registrations, NodeEvent)>, delivery: Arc<Delivery>) {
    while let Some((observers, event)) = queue.next().await {
        for registered in observers.iter().filter(|registered| registered.phases.contains(event.phase)) {
            let observed = AssertUnwindSafe(registered.observer.observe(&event)).catch_unwind().await;
            match observed {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, node = %event.node_name, "an observer failed"),
                Err(_) => tracing::warn!(node = %event.node_name, "an observer panicked"),
            }
        }
        delivery.delivered.fetch_add(1, Ordering::AcqRel);
    }
}

impl Deliveries {
    fn add(&self, delivery: Arc<Delivery>) {
        let mut active = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|other| other.done.peek().is_none());
        active.push(delivery);
    }

    fn snapshot(&self) -> Vec<Arc<Delivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CompiledGraph {
    /// Waits until every event of the invocations that are active now has been delivered, or until `timeout`; then
    /// their workers are cancelled and the graph stays usable. A short-lived process must call it before it ends.
    pub async fn drain(&self, clock: &dyn Clock, timeout: Option<Duration>) -> DrainSummary {
        let active = self.deliveries.snapshot();
        let mut all_done = join_all(active.iter().map(|delivery| delivery.done.clone())).fuse();
        let Some(timeout) = timeout else {
            all_done.await;
            return DrainSummary::default();
        };
        let mut expired = clock.sleep(timeout).fuse();
        select_biased! {
            _ = all_done => DrainSummary::default(),
            () = expired => {
                let undelivered_count = active.iter().map(|delivery| delivery.undelivered()).sum();
                active.iter().for_each(|delivery| delivery.abort.abort());
                DrainSummary { undelivered_count, timeout_reached: true }
            }
        }
    }
}
