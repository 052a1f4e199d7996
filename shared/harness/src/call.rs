//! Calls for a worker, over the bus: for what was accepted, fell due, or was left by a worker that died.
//!
//! Whoever calls does not run what it calls for. A turn that kills its process kills a worker and nobody else, and is
//! counted with its [attempts](crate::HarnessConfig::most_attempts). A call may be lost or come twice: who comes claims
//! the work, and the sweep calls again as long as nobody has it.

use std::time::Duration;

use dormouse_ports::{BusError, Event, InvocationId, Map, PendingRow};
use jiff::Timestamp;
use serde::Deserialize;

use crate::{Harness, Transmission, Turn};

/// What kind of event calls for a worker; its source is `dormouse`, its detail a [`WorkCall`].
pub const WORK: &str = "Dormouse Work";

/// For which work a worker is called.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkCall {
    /// The invocation that has something to do.
    pub invocation_id: InvocationId,
    /// The pause that fell due. Absent where the work was accepted before, or claimed by a worker that died.
    #[serde(default)]
    pub generation: Option<u64>,
    /// The deadline of that pause that was seen.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// Whether the sweep calls, which calls again as long as there is something to do: a failure needs no other attempt.
    #[serde(default)]
    pub swept: bool,
}

impl WorkCall {
    /// A call for what the invocation `id` was given to do.
    pub fn new(id: InvocationId) -> Self {
        Self { invocation_id: id, generation: None, due_at: None, swept: false }
    }

    /// The sweep's call for what was claimed, or accepted, and nobody does.
    pub fn abandoned(id: InvocationId) -> Self {
        Self { swept: true, ..Self::new(id) }
    }

    /// The sweep's call for a pause that fell due.
    pub fn due(row: &PendingRow) -> Self {
        let (generation, due_at) = (Some(row.generation), row.due_at);
        Self { generation, due_at, ..Self::abandoned(row.invocation_id.clone()) }
    }

    fn event(&self) -> Event {
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

impl Harness {
    /// Calls for a worker that [takes up](Self::take_up) the invocation `id`.
    ///
    /// # Errors
    /// When the bus did not take the call. What was accepted is not lost by that: the sweep calls again.
    pub async fn call_for_work(&self, id: &InvocationId) -> Result<(), BusError> {
        self.bus().publish(WorkCall::new(id.clone()).event()).await
    }

    /// Makes all `calls`, and returns of each what became of it.
    pub async fn call_for_all(&self, calls: &[WorkCall]) -> Vec<Result<(), BusError>> {
        self.bus().publish_all(calls.iter().map(WorkCall::event).collect()).await
    }

    /// Does what `call` asks for, unless somebody has it or did it: [takes up](Self::take_up) the invocation, or does what
    /// its pause asks for that fell due.
    pub async fn answer_call(&self, call: &WorkCall, time_left: Option<Duration>) -> Turn {
        match call.generation {
            Some(generation) => {
                let due = Transmission::due(call.invocation_id.clone(), generation, call.due_at);
                self.turn(Transmission { time_left, ..due }).await
            }
            None => self.take_up(&call.invocation_id, time_left).await,
        }
    }
}
