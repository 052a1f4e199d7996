//! The delivery queue: one per invocation of an outermost graph, strictly serial, beside the execution.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_ports::{Clock, Spawner};
use futures::channel::{mpsc, oneshot};
use futures::future::{AbortHandle, Abortable, Shared, join_all};
use futures::{FutureExt, StreamExt, select_biased};

use super::observer::Registered;
use super::{InvocationEnd, InvocationResult, InvocationStart, NodeEvent, Registrations};
use crate::ambient::{self, Identity};
use crate::{CompiledGraph, NodeError};

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
    sender: mpsc::UnboundedSender<(Registrations, Message)>,
    delivery: Arc<Delivery>,
    /// Those who hear how the call ends.
    observers: Registrations,
    identity: Arc<Identity>,
    clock: Arc<dyn Clock>,
    ended: AtomicBool,
}

enum Message {
    Started(Box<InvocationStart>),
    Node(Box<NodeEvent>),
    Ended(Box<InvocationEnd>),
}

impl EventQueue {
    /// Starts the worker of one call of `graph` and tells `observers` that it begins.
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
        let delivery = Arc::new(Delivery {
            sent: AtomicUsize::new(0),
            delivered: AtomicUsize::new(0),
            done: done.shared(),
            abort,
        });
        graph.deliveries.add(delivery.clone());
        let identity = start.identity.clone();
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
        queue.send(&queue.observers, Message::Started(Box::new(start)));
        queue
    }

    pub(crate) fn dispatch(&self, observers: &Registrations, event: NodeEvent) {
        self.delivery.sent.fetch_add(1, Ordering::AcqRel);
        self.send(observers, Message::Node(Box::new(event)));
    }

    /// Tells how the call ended. Only the first word counts.
    pub(crate) fn end(&self, result: InvocationResult) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            let end = InvocationEnd { identity: self.identity.clone(), at: self.clock.now(), result };
            self.send(&self.observers, Message::Ended(Box::new(end)));
        }
    }

    fn send(&self, observers: &Registrations, message: Message) {
        if self.sender.unbounded_send((observers.clone(), message)).is_err() {
            tracing::debug!("an event came after its delivery was cancelled");
        }
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.end(InvocationResult::Abandoned);
    }
}

async fn deliver_all(mut queue: mpsc::UnboundedReceiver<(Registrations, Message)>, delivery: Arc<Delivery>) {
    while let Some((observers, message)) = queue.next().await {
        for registered in observers.iter() {
            match AssertUnwindSafe(tell(registered, &message)).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, event = %message, "an observer failed"),
                Err(_) => tracing::warn!(event = %message, "an observer panicked"),
            }
        }
        if let Message::Node(_) = message {
            delivery.delivered.fetch_add(1, Ordering::AcqRel);
        }
    }
}

async fn tell(registered: &Registered, message: &Message) -> Result<(), NodeError> {
    match message {
        Message::Started(start) => registered.observer.invocation_started(start).await,
        Message::Node(event) if !registered.phases.contains(event.phase) => Ok(()),
        Message::Node(event) => registered.observer.observe(event).await,
        Message::Ended(end) => registered.observer.invocation_ended(end).await,
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(_) => f.write_str("the start of the call"),
            Self::Node(event) => write!(f, "{} of node `{}`", event.phase.as_str(), event.node_name),
            Self::Ended(_) => f.write_str("the end of the call"),
        }
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
