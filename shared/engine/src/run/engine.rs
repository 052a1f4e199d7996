use std::fmt;
use std::sync::Arc;

use dormouse_json::Part;
use dormouse_ports::{
    Category, ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, IdSource, InvocationLimits,
    InvocationWrite, Map, PausePreparation, PausedInvocation, SharedMap, Spawner, StepWritten, StoreError,
    SubscriptionError, TurnStore, WakePlanner, limits,
};
use serde::Serialize;

use crate::EngineError;
use crate::sending::ReportingCommits;

/// Everything that the engine needs from outside.
#[derive(Clone)]
pub struct Ports {
    /// Store of sessions and pauses.
    pub store: TurnStore,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Identity.
    pub ids: Arc<dyn IdSource>,
    /// Spawner of the tasks that serve observers.
    pub spawner: Arc<dyn Spawner>,
    /// Reads the wake-up that a descriptor requests.
    pub planner: Arc<dyn WakePlanner>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ports")
    }
}

/// Runs graphs on ports. Cheap to clone; it holds no state of its own.
#[derive(Clone, Debug)]
pub struct Engine {
    ports: Ports,
    limits: InvocationLimits,
    preparation: Option<Arc<dyn PausePreparation>>,
}

impl Engine {
    /// An engine on `ports`, with a store that reports its commits ([`Sending`](crate::Sending)).
    pub fn new(ports: Ports) -> Self {
        let commits = Arc::new(ReportingCommits(ports.store.commits.clone()));
        let ports = Ports { store: TurnStore { commits, ..ports.store }, ..ports };
        Self { ports, limits: InvocationLimits::default(), preparation: None }
    }

    /// The same with other limits.
    #[must_use]
    pub fn limited(self, limits: InvocationLimits) -> Self {
        Self { limits, ..self }
    }

    /// The same on what `wrap` makes of the commits of its store.
    #[must_use]
    pub fn committing_through(self, wrap: impl FnOnce(Arc<dyn Commits>) -> Arc<dyn Commits>) -> Self {
        let store = TurnStore { commits: wrap(self.ports.store.commits.clone()), ..self.ports.store };
        Self { ports: Ports { store, ..self.ports }, ..self }
    }

    /// The same, with a hook that prepares what pauses need before they are written.
    #[must_use]
    pub fn prepared_by(self, preparation: Arc<dyn PausePreparation>) -> Self {
        Self { preparation: Some(preparation), ..self }
    }

    /// Makes the rules that must stand before `paused` is written.
    pub(super) async fn prepare(&self, paused: &PausedInvocation) -> Result<(), EngineError> {
        let Some(preparation) = &self.preparation else { return Ok(()) };
        preparation.prepare(paused).await.map_err(|error| {
            let message = format!("the wait for signal `{}` cannot be arranged: {error}", paused.descriptor.signal_id);
            let is_passing = matches!(error, SubscriptionError::Unavailable(_));
            EngineError::new(Category::HarnessSignalSubscriptionFailed, message).transient_if(is_passing)
        })
    }

    /// Limits on the pauses of one invocation, and on the size of its states.
    pub fn limits(&self) -> InvocationLimits {
        self.limits
    }

    /// The ports it runs on.
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// Claims a paused invocation. A claim of another owner that lasts longer than any turn needs was made by a clock
    /// that is wrong, and is passed over; it is compared with the present once it was read.
    ///
    /// # Errors
    /// As [`Commits::claim`](dormouse_ports::Commits::claim).
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        let store = &self.ports.store;
        let clock = &self.ports.clock;
        let outcome = store.commits.claim(request).await?;
        let now = clock.now();
        let ClaimOutcome::Held { until: past } = outcome else { return Ok(outcome) };
        if !limits::lasts_too_long(past, now) {
            return Ok(outcome);
        }
        let until = now + request.until.duration_since(request.now);
        store.commits.claim(&ClaimRequest { now, until, past: Some(past), ..request.clone() }).await
    }

    /// A commit of now that changes nothing yet.
    pub(super) fn blank_commit(&self) -> Commit {
        Commit::new(self.ports().ids.fresh(), self.ports().clock.now())
    }

    /// Writes `commit`, unless a state in it is larger, or nested more deeply, than any may be, even if the store would
    /// take it.
    pub(super) async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        self.check(commit)?;
        self.ports().store.commits.commit(commit).await
    }

    /// The same with `commit`, a durable step.
    pub(super) async fn write_step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        self.check(commit)?;
        self.ports().store.commits.step(commit).await
    }

    fn check(&self, commit: &Commit) -> Result<(), StoreError> {
        let limit = self.limits().state;
        let (shared, whole) = states(commit);
        for (what, state) in shared {
            check(limit, what, state, state.fields())?;
        }
        for (what, state) in whole {
            check(limit, what, state, dormouse_json::fields_of(state))?;
        }
        Ok(())
    }
}

/// Checks that `state`, which has these `fields`, is no larger than `limit`, and not nested too deeply.
fn check<'f>(
    limit: usize,
    what: &'static str,
    state: &impl Serialize,
    fields: impl Iterator<Item = (&'f str, Part<'f>)> + Clone,
) -> Result<(), StoreError> {
    dormouse_json::measure_fields(fields.clone(), dormouse_json::STATE)
        .map_err(|excess| StoreError::TooComplex { what, excess })?;
    // Most states are far from it: then nobody has to look at each character.
    if dormouse_json::most_bytes(fields) <= limit {
        return Ok(());
    }
    let size = dormouse_json::length(state).map_err(|error| StoreError::Invalid(error.to_string()))?;
    if size > limit { Err(StoreError::TooLarge { what, size, limit }) } else { Ok(()) }
}

/// A state, and what it is called.
type Named<'c, S> = (&'static str, &'c S);

/// The states that `commit` writes: those that others may share, and the others.
fn states(commit: &Commit) -> (impl Iterator<Item = Named<'_, SharedMap>>, impl Iterator<Item = Named<'_, Map>>) {
    let saved = commit.session.iter().filter_map(|session| session.save.as_ref());
    let (paused, ended) = match &commit.invocation {
        Some(InvocationWrite::Suspend { paused, .. } | InvocationWrite::Progress { paused, .. }) => {
            (Some(paused), None)
        }
        Some(InvocationWrite::Complete { state, .. } | InvocationWrite::Conclude { state, .. }) => (None, Some(state)),
        Some(_) | None => (None, None),
    };
    let saved = saved.map(|(state, _)| ("the session state", state));
    let shared = saved.chain(paused.map(|paused| ("the paused state", &paused.state)));
    let around = paused.into_iter().flat_map(|paused| &paused.parent_states);
    let whole = around.map(|state| ("the paused state", state)).chain(ended.map(|state| ("the final state", state)));
    (shared, whole)
}

pub(super) fn is_transient(error: &dormouse_ports::StoreError) -> bool {
    use dormouse_ports::StoreError as E;
    match error {
        E::Unavailable(_) | E::LeaseHeld { .. } => true,
        E::Denied(_) | E::Corrupt(_) | E::TooLarge { .. } | E::TooComplex { .. } | E::Invalid(_) => false,
    }
}
