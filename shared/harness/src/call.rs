//! Calls for a worker, over the bus: for work that was accepted, fell due, or was left by a worker that died.
//!
//! A caller does not run the work that it calls for. A turn that kills its process kills a worker and nothing else, and
//! is counted with its [attempts](crate::HarnessConfig::most_attempts). A call may be lost or come twice: the worker
//! that receives it claims the work, and the sweep calls again as long as no worker has it.

use dormouse_ports::{BusError, Event, EventBus, InvocationId, Map, PendingRow, SignalId};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// Detail type of the event that calls for a worker; its source is `dormouse`, its detail a [`WorkCall`].
pub const WORK: &str = "Dormouse Work";

/// Detail type of the event that carries a signal of our own; its source is `dormouse`, its detail `signal_id` and
/// `payload`.
pub const SIGNAL: &str = "Dormouse Signal";

/// The work for which a worker is called.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkCall {
    /// The invocation that has work to do.
    pub invocation_id: InvocationId,
    /// The pause that fell due. Absent where the work was accepted before, or claimed by a worker that died.
    #[serde(default)]
    pub generation: Option<u64>,
    /// The deadline of that pause that was seen.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// True if the sweep calls, which calls again as long as there is work: a failure needs no other attempt.
    #[serde(default)]
    pub swept: bool,
}

impl WorkCall {
    /// A call for the work that the invocation `id` was given.
    pub fn new(id: InvocationId) -> Self {
        Self { invocation_id: id, generation: None, due_at: None, swept: false }
    }

    /// The sweep's call for work that was claimed, or accepted, and that no worker does.
    pub fn abandoned(id: InvocationId) -> Self {
        Self { swept: true, ..Self::new(id) }
    }

    /// The sweep's call for a pause that fell due.
    pub fn due(row: &PendingRow) -> Self {
        let generation = Some(row.generation);
        let due_at = row.due_at;
        Self { generation, due_at, ..Self::abandoned(row.invocation_id.clone()) }
    }

    /// The call as an event of the bus.
    pub fn event(&self) -> Event {
        let fields = [
            ("invocation_id", Some(self.invocation_id.as_str().into())),
            ("generation", self.generation.map(Into::into)),
            ("due_at", self.due_at.map(|at| at.to_string().into())),
            ("swept", self.swept.then_some(true.into())),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let detail: Map = fields.collect();
        Event { source: "dormouse".to_owned(), detail_type: WORK.to_owned(), detail }
    }
}

/// Sends the signal `id` over `bus`: a worker wakes the invocation that waits for it.
pub(crate) async fn send_signal(bus: &dyn EventBus, id: &SignalId, payload: Map) -> Result<(), BusError> {
    let fields = [("signal_id", Value::from(id.as_str())), ("payload", Value::Object(payload))];
    let detail = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    bus.publish(Event { source: "dormouse".to_owned(), detail_type: SIGNAL.to_owned(), detail }).await
}

/// Calls over `bus` for a worker that takes up the invocation `id`.
pub(crate) async fn call_for_work(bus: &dyn EventBus, id: &InvocationId) -> Result<(), BusError> {
    bus.publish(WorkCall::new(id.clone()).event()).await
}
