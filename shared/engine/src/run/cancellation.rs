//! Learning that the invocation was canceled while it runs.
//!
//! The store refuses the commits of a canceled invocation: only then does the engine ask for the reason, so that a turn
//! that is never canceled pays nothing. A node that wants to know earlier waits for [`CancellationWatch::canceled`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dormouse_ports::{Cancellation, Category, Clock, CommitError, InvocationId, Invocations, StoreError};

use super::engine::Engine;
use super::pause::SuspendRefusal;
use crate::{EngineError, ambient};

/// Interval at which the store is asked while a node waits for a cancellation.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Knowledge about the cancellation of one run.
pub(crate) struct Watch {
    invocations: Arc<dyn Invocations>,
    clock: Arc<dyn Clock>,
    invocation_id: InvocationId,
    known: OnceLock<Cancellation>,
    /// True if it is not known what a commit in the midst of the run has published.
    doubt: AtomicBool,
}

impl Watch {
    pub(super) fn new(engine: &Engine, invocation_id: InvocationId) -> Self {
        let ports = engine.ports();
        Self {
            invocations: ports.store.invocations.clone(),
            clock: ports.clock.clone(),
            invocation_id,
            known: OnceLock::new(),
            doubt: AtomicBool::new(false),
        }
    }

    /// It is not known whether what a node saved was written and published: a run that goes on from here may publish it
    /// again.
    pub(super) fn note_doubt(&self) {
        self.doubt.store(true, Ordering::Relaxed);
    }

    /// True if it is not known whether what a node saved was written.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.load(Ordering::Relaxed)
    }

    async fn look(&self) -> Result<Option<&Cancellation>, StoreError> {
        if self.known.get().is_none()
            && let Some(cancellation) = self.invocations.cancellation(&self.invocation_id).await?
        {
            let _ = self.known.set(cancellation);
        }
        Ok(self.known.get())
    }

    /// The refusal to go on, once it is known that the invocation was canceled, or not known what it has published.
    /// Nothing on its way out catches it (pipeline-utilities §6.1).
    pub(super) fn refusal(&self) -> Option<Arc<SuspendRefusal>> {
        if let Some(cancellation) = self.known.get() {
            return Some(Arc::new(SuspendRefusal::new(Category::InvocationCanceled, cancellation.message())));
        }
        let reason =
            "the store did not answer a save in the midst of the turn, and what nodes had recorded may be told";
        self.is_in_doubt().then(|| Arc::new(SuspendRefusal::new(Category::OutcomeUnknown, reason).transient_if(true)))
    }

    /// The error of a commit that was refused: a cancellation where that is the reason, else the error that `otherwise`
    /// makes of it.
    pub(super) async fn explain(
        &self,
        error: CommitError,
        otherwise: impl FnOnce(CommitError) -> EngineError,
    ) -> EngineError {
        if !matches!(error, CommitError::InvocationConflict) {
            return otherwise(error);
        }
        match self.look().await {
            Ok(Some(cancellation)) => canceled(cancellation),
            Ok(None) => otherwise(error),
            Err(unknown) => otherwise(error).transient_if(super::engine::is_transient(&unknown)),
        }
    }
}

fn canceled(cancellation: &Cancellation) -> EngineError {
    EngineError::new(Category::InvocationCanceled, cancellation.message())
}

/// Lets a node learn that its invocation was canceled. Cheap to clone.
#[derive(Clone)]
pub struct CancellationWatch(Arc<Watch>);

impl CancellationWatch {
    /// The cancellation, as far as this run has learned of it. Makes no request.
    pub fn known(&self) -> Option<&Cancellation> {
        self.0.known.get()
    }

    /// The cancellation by now: one strongly consistent read of one item where this run knows of none. `None` too where the
    /// store does not answer.
    pub async fn by_now(&self) -> Option<Cancellation> {
        self.0.look().await.ok().flatten().cloned()
    }

    /// Waits until the invocation is canceled, to be selected against the node's work. While it is awaited it reads
    /// the record at once and then once a second, one strongly consistent read of one item each time; a store that
    /// does not answer is asked again.
    ///
    /// The node should then clean up and return: what it returns does not matter, since the run ends behind it,
    /// canceled, past every middleware and error policy.
    pub async fn canceled(&self) -> Cancellation {
        loop {
            match self.0.look().await {
                Ok(Some(cancellation)) => return cancellation.clone(),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "it is not known whether the invocation was canceled"),
            }
            self.0.clock.sleep(ASK_AGAIN).await;
        }
    }
}

impl fmt::Debug for CancellationWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancellationWatch").field(&self.known()).finish()
    }
}

/// The watch of the invocation that runs here; `None` outside of a node's own body.
pub fn cancellation() -> Option<CancellationWatch> {
    ambient::look(|scope| scope.body.as_ref().map(|body| CancellationWatch(body.watch.clone()))).flatten()
}
