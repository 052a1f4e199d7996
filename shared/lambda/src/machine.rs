//! The same on a machine of one's own: no Lambda, and as much of EventBridge and the Scheduler as is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dormouse_api::{Agents, StreamLimits};
use dormouse_aws::EventBridgeBus;
use dormouse_fetch::NetworkFetch;
use dormouse_harness::{SIGNAL, WORK};
use dormouse_http::Server;
use dormouse_otel::Telemetry;
use dormouse_ports::{
    BusError, Event, EventBus, EventRule, EventRules, ListedRule, Registration, RuleName, Sleepers, Subscription,
    SubscriptionError, Timers,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::boot::{BootError, Joined, ServerShape, joined, templates};
use crate::config::Config;
use crate::workspaces::joined_by;

/// Calls for work that this process may take itself, and signals of our own that it delivers where there is no bus.
pub type WorkQueue = mpsc::UnboundedReceiver<Value>;

/// Parts that a process on a machine of one's own serves.
#[derive(Debug)]
pub struct Machine {
    /// The server.
    pub server: Server,
    /// The table, as one that knows what falls due.
    pub sleepers: MachineStore,
    /// Calls for work that were made in this process: one that takes none drops them, and workers find the work in the table.
    /// Without a bus also its signals, which it delivers whatever it does.
    pub work: WorkQueue,
}

/// A table that knows what falls due.
#[derive(Clone)]
pub struct MachineStore(pub Arc<dyn Sleepers>);

impl std::fmt::Debug for MachineStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MachineStore")
    }
}

/// The server of `agents` with `config`, and what a worker beside it needs.
///
/// # Errors
/// If a secret cannot be had, or an agent is wrong.
pub async fn machine(config: Config, telemetry: Option<Telemetry>, agents: &Agents) -> Result<Machine, BootError> {
    if config.base_url.is_none() {
        tracing::warn!(
            "DORMOUSE_BASE_URL is not set: addresses that are given out name no host, tools have none at which to report, and \
             nobody is notified"
        );
    }
    let (calls, work) = mpsc::unbounded_channel();
    let clients = config.access.clone().clients();
    let elsewhere = match config.bus.is_empty() {
        true => None,
        false => Some(EventBridgeBus::new(clients.eventbridge.clone(), config.bus.clone())),
    };
    let bus = Arc::new(MachineBus { elsewhere, calls });
    let fetch = Arc::new(NetworkFetch::new());
    let streams = StreamLimits::default();
    let templates = Some(templates());
    let shape = ServerShape { streams, reads_only: false, workspaces: Some(joined_by), templates, clients, bus, fetch };
    let Joined { app, wire, sleepers, .. } = joined(shape, config, telemetry, agents).await?;
    Ok(Machine { server: Server::new(app, wire), sleepers: MachineStore(sleepers), work })
}

/// EventBridge, where there is a bus of it; calls for work also reach the worker of this process, and so do signals of our
/// own where there is none.
struct MachineBus {
    elsewhere: Option<EventBridgeBus>,
    calls: mpsc::UnboundedSender<Value>,
}

#[async_trait]
impl EventBus for MachineBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let is_work = event.detail_type == WORK;
        if is_work {
            // Without a worker in this process others find the work in the table.
            let _ = self.calls.send(json!(event));
        }
        match &self.elsewhere {
            Some(bus) => bus.publish(event).await,
            None if is_work => Ok(()),
            None if event.source == "dormouse" && event.detail_type == SIGNAL => {
                let ending = |_| BusError::Unavailable("the process ends".to_owned());
                self.calls.send(json!(event)).map_err(ending)
            }
            None => Err(BusError::Rejected("there is no event bus: set DORMOUSE_BUS to its name".to_owned())),
        }
    }
}

/// Nothing is registered: workers look at the table for what falls due. Events of others do not come here, which is told
/// once.
#[derive(Debug, Default)]
pub(crate) struct LookedFor {
    was_told: AtomicBool,
}

#[async_trait]
impl Timers for LookedFor {
    async fn schedule(&self, _: &Subscription) -> Result<Registration, SubscriptionError> {
        Ok(Registration::Known)
    }

    async fn cancel(&self, _: &Subscription) -> Result<(), SubscriptionError> {
        Ok(())
    }
}

#[async_trait]
impl EventRules for LookedFor {
    async fn put_rule(&self, _: &EventRule) -> Result<(), SubscriptionError> {
        if !self.was_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "nobody takes events of the bus here, and pauses that wait for them go on by signals only: set \
                 DORMOUSE_SCHEDULER_GROUP and the variables with it"
            );
        }
        Ok(())
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        Ok(Vec::new())
    }

    async fn remove_rule(&self, _: &RuleName) -> Result<(), SubscriptionError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Map;

    use super::*;

    #[tokio::test]
    async fn without_a_bus_signals_of_our_own_are_delivered_here_and_other_events_are_refused() {
        let (calls, mut queue) = mpsc::unbounded_channel();
        let bus = MachineBus { elsewhere: None, calls };
        let event = |source: &str, kind: &str| Event {
            source: source.to_owned(),
            detail_type: kind.to_owned(),
            detail: Map::from_iter([("signal_id".to_owned(), "s-1".into())]),
        };
        let own = event("dormouse", SIGNAL);
        bus.publish(own.clone()).await.expect("it is taken");
        assert_eq!(queue.try_recv().expect("a signal"), json!(own));
        for foreign in [event("exporter", SIGNAL), event("exporter", "Export Finished")] {
            let refusal = bus.publish(foreign).await.expect_err("nobody carries it");
            assert!(refusal.to_string().contains("DORMOUSE_BUS"), "{refusal}");
        }
        assert!(queue.try_recv().is_err(), "nothing else is delivered");
        drop(queue);
        assert!(matches!(bus.publish(own).await, Err(BusError::Unavailable(_))), "nobody delivers it any more");
    }
}
