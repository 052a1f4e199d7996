//! The attempts at one node, and the events that report them (graph-engine §6).
//!
//! An attempt is reported exactly twice: when the node's body starts, and when its outcome is settled. A retry settles
//! every attempt that it sees fail. All others are settled by how the dispatch ends: an update that a middleware put in
//! the place of a failure is the node's update, and the engine never saw the failure (pipeline-utilities §6.3). Without
//! an attempt (a middleware answered for the node) nothing is reported.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_ports::{JournalEntry, Map, SignalDescriptor};
use futures::FutureExt;

use super::slot::SuspendSlot;
use crate::ambient::InvocationView;
use crate::observe::{
    CallOrigin, EventQueue, FailureIsolated, FanOutConfig, FrameworkEvent, MetadataAugmented, NodeEvent, ObservedError,
    Operation, OperationEnded, Origin, ParallelBranchesConfig, Phase, QueuedEvent, RegisteredObserver, Registrations,
};
use crate::operation::BegunCall;
use crate::{NodeError, State, Update};

/// The attempts of one dispatch, and what everything in it shares.
pub(crate) struct Attempts {
    pub(crate) view: InvocationView,
    /// Slot by which the dispatch is stopped.
    pub(crate) slot: SuspendSlot,
    /// The index of the attempt that paused, until it goes on.
    paused: AtomicU32,
    last: AtomicU32,
    /// Absent without observers: then nothing is written down, and no state is held.
    told: Option<Box<AttemptObservers>>,
}

/// Observers of the dispatch, and the common part of all its events.
pub(super) struct AttemptObservers {
    pub(super) events: Arc<EventQueue>,
    pub(super) observers: Registrations,
    /// Phase, index and states are filled in per event.
    pub(super) template: NodeEvent,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    open: Option<OpenAttempt>,
    config: AttemptConfig,
}

/// Configuration that a node with concurrent parts resolved for the latest attempt.
#[derive(Clone, Default)]
pub(super) struct AttemptConfig {
    pub(super) fan_out: Option<Arc<FanOutConfig>>,
    pub(super) branches: Option<Arc<ParallelBranchesConfig>>,
}

/// An attempt that was started and is not settled.
struct OpenAttempt {
    index: u32,
    pre_state: State,
    failure: Option<ObservedError>,
}

impl AttemptObservers {
    pub(super) fn new(events: Arc<EventQueue>, observers: Registrations, template: NodeEvent) -> Self {
        Self { events, observers, template, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    /// `paused` is the index of the attempt that goes on after a suspension, or 0; `around` that of what is around.
    pub(super) fn new(told: Option<Box<AttemptObservers>>, view: InvocationView, paused: u32, around: u32) -> Self {
        Self { view, slot: SuspendSlot::default(), paused: paused.into(), last: around.into(), told }
    }

    /// The index with which to begin.
    pub(crate) fn first(&self) -> u32 {
        self.paused.load(Ordering::Relaxed)
    }

    /// The index of the latest attempt.
    pub(crate) fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    /// A retry begins attempt `index`.
    pub(crate) fn enter(&self, index: u32) {
        self.last.store(index, Ordering::Relaxed);
    }

    /// The innermost point of the chain is reached: what paused goes on.
    pub(super) fn arrive(&self) {
        self.paused.store(0, Ordering::Relaxed);
    }

    /// Notes the configuration of the coming attempt.
    pub(super) fn resolved(&self, config: AttemptConfig) {
        if let Some(told) = &self.told {
            told.book().config = config;
        }
    }

    /// Runs attempt `index` at a node's own work on `pre_state`. A panic is a failure like any other.
    pub(super) async fn attempt<T>(
        &self,
        index: u32,
        pre_state: &State,
        work: impl Future<Output = Result<T, NodeError>> + Send,
    ) -> Result<T, NodeError> {
        self.start(index, pre_state);
        let result = flatten_panic(AssertUnwindSafe(work).catch_unwind().await);
        if let (Err(error), Some(told)) = (&result, &self.told)
            && let Some(open) = &mut told.book().open
        {
            open.failure = Some(error.into());
        }
        result
    }

    /// The node's body starts on `pre_state`. An attempt before it that was never settled ends with the error that it
    /// raised.
    fn start(&self, index: u32, pre_state: &State) {
        self.enter(index);
        let Some(told) = &self.told else { return };
        let open = OpenAttempt { index, pre_state: pre_state.clone(), failure: None };
        let before = told.book().open.replace(open);
        if let Some(OpenAttempt { failure, index, pre_state }) = before {
            let failure = failure.unwrap_or_else(|| ObservedError::from(&NodeError::new(DISCARDED)));
            self.settle(OpenAttempt { index, pre_state, failure: None }, Err(failure));
        }
        self.tell(index, |event| NodeEvent { phase: Phase::Started, pre_state: pre_state.clone(), ..event });
    }

    /// A retry saw the present attempt fail with `error`.
    pub(crate) fn failed(&self, error: &NodeError) {
        let open = self.take_open();
        if let Some(mut open) = open {
            let failure = open.failure.take().unwrap_or_else(|| error.into());
            self.settle(open, Err(failure));
        }
    }

    /// The dispatch ended: with the state after merge and edge, or with the error that ends the invocation.
    pub(super) fn end(&self, ended: Result<&State, impl Into<ObservedError>>) {
        let open = self.take_open();
        if let Some(open) = open {
            self.settle(open, ended.cloned().map_err(Into::into));
        }
    }

    /// The body called `suspend()`.
    pub(super) fn suspended(&self, descriptor: &SignalDescriptor) {
        let open = self.take_open();
        if let Some(OpenAttempt { index, pre_state, .. }) = open {
            let descriptor = Some(descriptor.clone());
            self.tell(index, |event| NodeEvent { phase: Phase::Suspended, pre_state, descriptor, ..event });
        }
    }

    /// A failure was replaced by a degraded update.
    pub(crate) fn isolated(&self, isolated: impl FnOnce(Origin) -> FailureIsolated) {
        self.announce(self.last(), |origin| FrameworkEvent::FailureIsolated(isolated(origin)));
    }

    /// Metadata was added during attempt `attempt_index`.
    pub(crate) fn augmented(&self, entries: Map, attempt_index: u32) {
        self.announce(attempt_index, |origin| FrameworkEvent::MetadataAugmented(MetadataAugmented { entries, origin }));
    }

    /// An operation has ended in attempt `attempt_index`.
    pub(crate) fn operated(&self, operation: Operation, attempt_index: u32) {
        self.announce(attempt_index, |origin| FrameworkEvent::OperationEnded(OperationEnded { operation, origin }));
    }

    /// Whether an observer wants the typed events of calls.
    pub(crate) fn has_readers_of_calls(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.observers.iter().any(RegisteredObserver::reads_calls))
    }

    /// Something has become of a call, which was begun as `begun` says.
    pub(crate) fn called(&self, begun: &BegunCall, event: impl FnOnce(CallOrigin) -> FrameworkEvent) {
        let identity = self.view.identity();
        self.announce(begun.attempt_index, |mut origin| {
            if let (Some(name), Some(last)) = (&begun.sibling, origin.namespace.last_mut()) {
                last.clone_from(name);
            }
            event(CallOrigin {
                invocation_id: identity.invocation_id.clone(),
                correlation_id: identity.correlation_id.clone(),
                origin,
                call_id: begun.call_id.clone(),
            })
        });
    }

    /// Origin of attempt `attempt_index`, where an observer is attached.
    pub(crate) fn origin(&self, attempt_index: u32) -> Option<Origin> {
        self.told.as_ref().map(|told| Origin { attempt_index, ..told.template.origin() })
    }

    /// The queue of the invocation, where an observer is attached.
    pub(crate) fn events(&self) -> Option<&Arc<EventQueue>> {
        self.told.as_ref().map(|told| &told.events)
    }

    fn settle(&self, open: OpenAttempt, ended: Result<State, ObservedError>) {
        let (post_state, error) = match ended {
            Ok(state) => (Some(state), None),
            Err(error) => (None, Some(error)),
        };
        let phase = Phase::Completed;
        let pre_state = open.pre_state;
        self.tell(open.index, |event| NodeEvent { phase, pre_state, post_state, error, ..event });
    }

    fn tell(&self, attempt_index: u32, fill: impl FnOnce(NodeEvent) -> NodeEvent) {
        if let Some(told) = &self.told {
            let AttemptConfig { fan_out: fan_out_config, branches: parallel_branches_config } =
                told.book().config.clone();
            let at = told.events.now();
            let template = told.template.clone();
            let event = NodeEvent { at, attempt_index, fan_out_config, parallel_branches_config, ..template };
            told.events.dispatch(&told.observers, self.view.identity(), QueuedEvent::Node(fill(event)));
        }
    }

    fn announce(&self, attempt_index: u32, event: impl FnOnce(Origin) -> FrameworkEvent) {
        if let (Some(told), Some(origin)) = (&self.told, self.origin(attempt_index)) {
            told.events.dispatch(&told.observers, self.view.identity(), QueuedEvent::Framework(event(origin)));
        }
    }

    fn take_open(&self) -> Option<OpenAttempt> {
        self.told.as_ref()?.book().open.take()
    }
}

/// Error of an attempt with an update that was never used.
const DISCARDED: &str = "a middleware discarded the update and ran the node again";

/// Update of work that succeeded, with the entries that it recorded.
pub(super) type RecordedUpdate = (Update, Vec<JournalEntry>);

/// Drops the entries of work that failed.
pub(super) async fn kept(
    work: impl Future<Output = (Result<Update, NodeError>, Vec<JournalEntry>)>,
) -> Result<RecordedUpdate, NodeError> {
    let (result, recorded) = work.await;
    result.map(|update| (update, recorded))
}

pub(super) fn flatten_panic<T>(result: Result<Result<T, NodeError>, Box<dyn Any + Send>>) -> Result<T, NodeError> {
    result.unwrap_or_else(|panic| Err(NodeError::new(format!("the node panicked: {}", panic_text(&*panic)))))
}

/// The words of a panic; nothing for one without.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
