//! Waiting until observers have been notified (graph-engine §6).

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::{Clock, InvocationId};
use futures::future::{join_all, select};
use futures::{FutureExt, select_biased};

use super::delivery::ObserverDelivery;
use crate::{CompiledGraph, ambient};

/// Summary of a drain, with the events that it left undelivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainSummary {
    /// Number of events that did not reach every observer.
    pub undelivered_count: usize,
    /// True if the timeout ended the wait.
    pub timeout_reached: bool,
}

impl CompiledGraph {
    /// Waits until every event of the invocations that are active now has been delivered, or until `timeout`; then
    /// their workers are cancelled and the graph stays usable. A short-lived process must call it before it ends.
    ///
    /// It lasts as long as the slowest observer needs for all that is queued: give it a timeout.
    pub async fn drain(&self, clock: &dyn Clock, timeout: Option<Duration>) -> DrainSummary {
        let active = self.deliveries.snapshot();
        let all_done = join_all(active.iter().map(|delivery| delivery.done.clone()));
        if !expires(clock, timeout, all_done).await {
            return DrainSummary::default();
        }
        let undelivered_count = active.iter().map(|delivery| delivery.owed(delivery.sent())).sum();
        active.iter().for_each(|delivery| delivery.abort.abort());
        DrainSummary { undelivered_count, timeout_reached: true }
    }

    /// Waits until the events that `invocation_id` has emitted so far have been delivered, or until `timeout`. Later
    /// events are not waited for, so a node of the invocation may call it. Nothing is cancelled: after a timeout
    /// delivery goes on.
    ///
    /// It covers invocations of which this graph is the outermost one, and the one that calls. An observer must not
    /// wait for the invocation of which it is being notified.
    pub async fn drain_events_for(
        &self,
        clock: &dyn Clock,
        invocation_id: &InvocationId,
        timeout: Option<Duration>,
    ) -> DrainSummary {
        let mut covered = self.deliveries.snapshot();
        covered.extend(calling().filter(|own| !covered.iter().any(|delivery| Arc::ptr_eq(delivery, own))));
        covered.retain(|delivery| delivery.invocation_id == *invocation_id);
        settle(clock, covered, timeout).await
    }
}

/// As [`CompiledGraph::drain_events_for`] for the invocation that calls: a node reads what observers have gathered up
/// to now. Outside of an invocation there is nothing to wait for.
pub async fn drain_current_events(clock: &dyn Clock, timeout: Option<Duration>) -> DrainSummary {
    settle(clock, calling().into_iter().collect(), timeout).await
}

fn calling() -> Option<Arc<ObserverDelivery>> {
    ambient::look(|scope| scope.attempts.as_ref()?.events().map(|events| events.delivery.clone()))?
}

async fn settle(clock: &dyn Clock, deliveries: Vec<Arc<ObserverDelivery>>, timeout: Option<Duration>) -> DrainSummary {
    let emitted: Vec<(Arc<ObserverDelivery>, usize)> =
        deliveries.into_iter().map(|delivery| (delivery.clone(), delivery.sent())).collect();
    // A worker that was cancelled will never deliver what is left.
    let reached = emitted.iter().map(|(delivery, sent)| select(delivery.reached(*sent), delivery.done.clone()));
    let timeout_reached = expires(clock, timeout, join_all(reached)).await;
    let undelivered_count = emitted.iter().map(|(delivery, sent)| delivery.owed(*sent)).sum();
    DrainSummary { undelivered_count, timeout_reached }
}

/// True if `timeout` comes before `work` is done.
async fn expires(clock: &dyn Clock, timeout: Option<Duration>, work: impl Future) -> bool {
    let mut work = Box::pin(work.fuse());
    let Some(timeout) = timeout else {
        work.await;
        return false;
    };
    select_biased! {
        _ = work => false,
        () = clock.sleep(timeout).fuse() => true,
    }
}
