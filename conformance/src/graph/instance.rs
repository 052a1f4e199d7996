//! Which fan-out instance runs: the engine tells its nodes nothing of it, so a layer around the fan-out node and one
//! around each instance work it out.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_engine::{Middleware, Next, NodeError, State, Update};
use serde_json::Value;

use crate::ledger::{InstanceRan, Ledger};
use crate::matching::equal;

tokio::task_local! {
    /// The fan-out whose instances are being run.
    static FAN_OUT: Arc<Seats>;
    /// The instances that are being run, the outermost first.
    static INSTANCES: Vec<usize>;
}

/// The indices of the fan-out instances around here, the outermost first; empty outside of any.
pub(super) fn instances() -> Vec<usize> {
    INSTANCES.try_with(Clone::clone).unwrap_or_default()
}

/// Which items of a fan-out have found their instance.
#[derive(Debug, Default)]
struct Seats {
    items: Vec<Value>,
    taken: Mutex<Vec<bool>>,
}

impl Seats {
    /// The first free index whose item is `item`; the first free one where items tell nothing.
    fn take(&self, item: Option<&Value>) -> usize {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = |index: usize, taken: &[bool]| !taken.get(index).copied().unwrap_or_default();
        let same = |index: &usize| item.is_some_and(|item| self.items.get(*index).is_some_and(|own| equal(own, item)));
        let index = (0..self.items.len()).find(|index| free(*index, &taken) && same(index));
        let index = index.or_else(|| (0..).find(|index| free(*index, &taken))).unwrap_or_default();
        let length = taken.len().max(index + 1);
        taken.resize(length, false);
        taken[index] = true;
        index
    }
}

/// Around a fan-out node: knows its items.
pub(super) struct AroundFanOut {
    pub(super) items_field: Option<String>,
}

#[async_trait]
impl Middleware for AroundFanOut {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let items = self.items_field.as_ref().and_then(|field| state.get(field)).and_then(Value::as_array);
        let seats = Seats { items: items.cloned().unwrap_or_default(), taken: Mutex::default() };
        FAN_OUT.scope(Arc::new(seats), next.run(state)).await
    }
}

/// Around each instance: finds its index and notes that it ran.
pub(super) struct AroundInstance {
    pub(super) ledger: Arc<Ledger>,
    pub(super) item_field: Option<String>,
}

#[async_trait]
impl Middleware for AroundInstance {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let item = self.item_field.as_ref().and_then(|field| state.get(field));
        let index = FAN_OUT.try_with(|seats| seats.take(item)).unwrap_or_default();
        let chain: Vec<usize> = instances().into_iter().chain([index]).collect();
        self.ledger.write(|pages| {
            pages.instances.push(InstanceRan { chain: chain.clone() });
            pages.in_flight += 1;
            pages.most_in_flight = pages.most_in_flight.max(pages.in_flight);
        });
        let _leaving = Leaving(&self.ledger);
        INSTANCES.scope(chain, next.run(state)).await
    }
}

/// Counts an instance out, also when it is cancelled.
struct Leaving<'l>(&'l Ledger);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.write(|pages| pages.in_flight = pages.in_flight.saturating_sub(1));
    }
}
