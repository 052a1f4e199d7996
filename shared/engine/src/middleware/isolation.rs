use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Category;

use super::{OnError, Told};
use crate::cause::{Classification, classify};
use crate::observe::FailureIsolated;
use crate::{Middleware, Next, NodeError, State, Update};

/// Puts a degraded update in the place of a failure (pipeline-utilities §6.3).
///
/// The engine goes on as if the node had returned that update. Observers are notified by
/// [`FrameworkEvent::FailureIsolated`](crate::FrameworkEvent::FailureIsolated). Both gates must let a failure in; left
/// out, a gate lets everything in.
pub struct FailureIsolation {
    event_name: Arc<str>,
    degrade: Degrade,
    catch: Option<Vec<Category>>,
    predicate: Option<Predicate>,
    on_caught: Option<OnError<()>>,
}

type Predicate = Arc<dyn Fn(&NodeError) -> bool + Send + Sync>;
type DegradedUpdate = Arc<dyn Fn(&State) -> Result<Update, NodeError> + Send + Sync>;

enum Degrade {
    Always(Update),
    Computed(DegradedUpdate),
}

impl fmt::Debug for FailureIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureIsolation")
            .field("event_name", &self.event_name)
            .field("catch", &self.catch)
            .finish_non_exhaustive()
    }
}

impl FailureIsolation {
    /// Degrades to `update`. The name distinguishes this place from all others that degrade.
    pub fn with(event_name: impl Into<Arc<str>>, update: Update) -> Self {
        Self::new(event_name.into(), Degrade::Always(update))
    }

    /// Degrades to the update that `update` makes of the state that the wrapped chain received.
    pub fn computed<F>(event_name: impl Into<Arc<str>>, update: F) -> Self
    where
        F: Fn(&State) -> Result<Update, NodeError> + Send + Sync + 'static,
    {
        Self::new(event_name.into(), Degrade::Computed(Arc::new(update)))
    }

    fn new(event_name: Arc<str>, degrade: Degrade) -> Self {
        Self { event_name, degrade, catch: None, predicate: None, on_caught: None }
    }

    /// Catches only failures with one of these derived categories, also through carriers. A failure without a category
    /// is not caught then.
    #[must_use]
    pub fn catch(mut self, categories: impl IntoIterator<Item = Category>) -> Self {
        self.catch = Some(categories.into_iter().collect());
        self
    }

    /// Catches only what this accepts. It is given the error on the surface, which may be a mere carrier:
    /// [`classify`] looks through it.
    #[must_use]
    pub fn predicate(mut self, accepts: impl Fn(&NodeError) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(accepts));
        self
    }

    /// Called with every error that is caught.
    #[must_use]
    pub fn on_caught<F>(mut self, told: F) -> Self
    where
        F: for<'e> Fn(&'e NodeError) -> Told<'e> + Send + Sync + 'static,
    {
        self.on_caught = Some(Arc::new(move |error, ()| told(error)));
        self
    }

    fn catches(&self, error: &NodeError, caught: &Classification) -> bool {
        let named = |categories: &Vec<Category>| caught.derived.as_ref().is_some_and(|own| categories.contains(own));
        self.catch.as_ref().is_none_or(named) && self.predicate.as_ref().is_none_or(|accepts| accepts(error))
    }

    fn degraded(&self, state: &State) -> Result<Update, NodeError> {
        match &self.degrade {
            Degrade::Always(update) => Ok(update.clone()),
            Degrade::Computed(update) => update(state),
        }
    }
}

#[async_trait]
impl Middleware for FailureIsolation {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let error = match next.run(state.clone()).await {
            Ok(update) => return Ok(update),
            Err(error) => error,
        };
        let caught = classify(&error);
        if !self.catches(&error, &caught) {
            return Err(error);
        }
        let update = self.degraded(&state)?;
        next.isolated(|origin| FailureIsolated {
            event_name: self.event_name.clone(),
            origin,
            pre_state: state,
            post_state: update.clone(),
            caught,
        });
        if let Some(told) = &self.on_caught {
            told(&error, ()).await?;
        }
        Ok(update)
    }

    fn static_degraded_update(&self) -> Option<&Update> {
        match &self.degrade {
            Degrade::Always(update) => Some(update),
            Degrade::Computed(_) => None,
        }
    }
}
