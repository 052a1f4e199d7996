use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;

use super::event::QueuedEvent;
use super::{FrameworkEvent, InvocationEnd, InvocationStart, NodeEvent, Phases};
use crate::{CompiledGraph, NodeError};

/// Looks at executions as they happen; it cannot change them.
#[async_trait]
pub trait Observer: Send + Sync {
    /// Receives one event. Events of an invocation arrive one after the other.
    ///
    /// # Errors
    /// An error is logged and changes nothing else.
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError>;

    /// Receives the engine's events besides node events, in the same order and regardless of the phases. Ignored where
    /// it is not implemented.
    ///
    /// # Errors
    /// As for [`observe`](Self::observe).
    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        let _ = event;
        Ok(())
    }

    /// False if the typed events of calls of models and tools ([`LlmCompletionEvent`](crate::LlmCompletionEvent) and its
    /// like) are of no use to it. They carry whole conversations, and are not made where no observer wants them.
    fn reads_calls(&self) -> bool {
        true
    }

    /// Hears that a call begins; of the observers of the outermost graph and of the call only.
    ///
    /// # Errors
    /// An error is logged and changes nothing else.
    async fn invocation_started(&self, start: &InvocationStart) -> Result<(), NodeError> {
        let _ = start;
        Ok(())
    }

    /// Hears how a call ended; of the same observers, after all their events.
    ///
    /// # Errors
    /// An error is logged and changes nothing else.
    async fn invocation_ended(&self, end: &InvocationEnd) -> Result<(), NodeError> {
        let _ = end;
        Ok(())
    }

    /// Decides the root span of a call that is about to begin: a W3C `traceparent`, inside of the span `surrounding` if
    /// there is one. Called once, in the caller's own task. The first answer counts: it becomes
    /// [`Identity::trace_context`](crate::Identity::trace_context) and is kept with a pause.
    fn trace_context(&self, surrounding: Option<&str>) -> Option<String> {
        let _ = surrounding;
        None
    }
}

/// An observer with the phases that it wants to see.
#[derive(Clone)]
pub(crate) struct RegisteredObserver {
    observer: Arc<dyn Observer>,
    phases: Phases,
    id: u64,
}

impl RegisteredObserver {
    pub(crate) fn new(observer: Arc<dyn Observer>, phases: Phases) -> Self {
        Self { observer, phases, id: 0 }
    }

    /// Whether the typed events of calls are of use to it.
    pub(crate) fn reads_calls(&self) -> bool {
        self.observer.reads_calls()
    }

    /// Notifies the observer, if it is registered for such events.
    pub(super) async fn tell(&self, event: &QueuedEvent) -> Result<(), NodeError> {
        match event {
            QueuedEvent::Framework(event) if event.is_of_call() && !self.reads_calls() => Ok(()),
            QueuedEvent::Node(event) if !self.phases.contains(event.phase) => Ok(()),
            QueuedEvent::Node(event) => self.observer.observe(event).await,
            QueuedEvent::Framework(event) => self.observer.observe_framework(event).await,
            QueuedEvent::Began(start) => self.observer.invocation_started(start).await,
            QueuedEvent::Ended(end) => self.observer.invocation_ended(end).await,
        }
    }
}

pub(crate) type Registrations = Arc<[RegisteredObserver]>;

/// Takes a graph-attached observer off its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserverHandle(u64);

/// The observers attached to a graph. An invocation uses the set as it was when it began.
pub(crate) struct Observers(RwLock<(Registrations, u64)>);

impl Default for Observers {
    fn default() -> Self {
        Self(RwLock::new((Arc::new([]), 0)))
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.snapshot().len())
    }
}

impl Observers {
    pub(crate) fn snapshot(&self) -> Registrations {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn attach(&self, observer: Arc<dyn Observer>, phases: Phases) -> ObserverHandle {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = guard.1 + 1;
        let added = RegisteredObserver { observer, phases, id };
        *guard = (guard.0.iter().cloned().chain([added]).collect(), id);
        ObserverHandle(id)
    }

    fn detach(&self, handle: ObserverHandle) {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        guard.0 = guard.0.iter().filter(|registered| registered.id != handle.0).cloned().collect();
    }
}

/// The observers of a graph and of all graphs inside of it, as they are when an invocation begins. An observer that is
/// attached or detached meanwhile counts from the next one on (graph-engine §6).
pub(crate) struct Attached(BTreeMap<usize, Registrations>);

impl Attached {
    pub(crate) fn of(graph: &CompiledGraph) -> Self {
        let mut attached = Self(BTreeMap::new());
        attached.visit(graph);
        attached
    }

    fn visit(&mut self, graph: &CompiledGraph) {
        if self.0.insert(address(graph), graph.observers.snapshot()).is_none() {
            graph.inner_graphs().for_each(|inner| self.visit(inner));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(|observers| observers.is_empty())
    }

    /// Those of `graph` itself.
    pub(crate) fn to(&self, graph: &CompiledGraph) -> &[RegisteredObserver] {
        self.0.get(&address(graph)).map_or(&[], |observers| observers)
    }
}

/// Distinguishes graphs while the outermost one, and so all of them, are borrowed.
fn address(graph: &CompiledGraph) -> usize {
    std::ptr::from_ref(graph).addr()
}

impl CompiledGraph {
    /// Attaches `observer` for every later invocation, also those in which this graph runs as a subgraph.
    pub fn attach_observer(&self, observer: Arc<dyn Observer>, phases: Phases) -> ObserverHandle {
        self.observers.attach(observer, phases)
    }

    /// The root span of a call, as decided by the first observer that answers. One that panics does not.
    pub(crate) fn trace_context(&self, of_the_call: &[RegisteredObserver]) -> Option<String> {
        let surrounding = crate::ambient::surrounding_trace();
        let attached = self.observers.snapshot();
        let answer = |one: &RegisteredObserver| {
            let asked = catch_unwind(AssertUnwindSafe(|| one.observer.trace_context(surrounding.as_deref())));
            asked.unwrap_or_else(|_| {
                tracing::warn!("an observer panicked when it was asked for the trace of a call");
                None
            })
        };
        attached.iter().chain(of_the_call).find_map(answer)
    }

    /// Takes an attached observer off again; invocations that run already keep it.
    pub fn detach_observer(&self, handle: ObserverHandle) {
        self.observers.detach(handle);
    }
}
