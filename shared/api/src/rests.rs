//! Runs that rest, since their model could not be asked, and what is said to them meanwhile.

use std::time::Duration;

use dormouse_ports::{InvocationId, InvocationStatus, InvocationWrite, PausedInvocation};
use dormouse_protocol::resource::{Task, TaskStatus};
use dormouse_protocol::{Map, ProtocolError};
use jiff::Timestamp;
use serde_json::json;

use crate::api::Api;
use crate::change::SessionChange;
use crate::documents::Stored;
use crate::refusal::store;

/// What is left of a rest that nothing that is said cuts short: each attempt that fails makes the next rest longer.
const SHORT_REST: Duration = Duration::from_secs(60);

impl Api {
    /// The write by which `task` goes on at once, where it [rests](rests) and something is said to it: who says it may have
    /// mended what its model refused. Clients are told of it in `change`.
    pub(crate) async fn end_rest(
        &self,
        change: &mut SessionChange,
        task: &mut Stored<Task>,
    ) -> Result<Option<InvocationWrite>, ProtocolError> {
        if !task.kept.own.hears || !task.kept.resource.status.is_suspended() {
            return Ok(None);
        }
        let invocation_id = InvocationId::from(task.kept.resource.envelope.id.as_str());
        let harness = &self.parts().harness;
        let invocations = &harness.engine().ports().store.invocations;
        let record = invocations.load_invocation(&invocation_id).await.map_err(store)?;
        let asleep = record.filter(|record| record.status == InvocationStatus::Suspended);
        let Some(paused) = asleep.map(|record| record.paused).filter(|paused| rests(paused, change.now())) else {
            return Ok(None);
        };
        let payload = match harness.input(&paused, Map::new()).await {
            Ok(payload) => payload,
            // It is taken up by a version that knows it, when its time is over.
            Err(error) => {
                tracing::warn!(%invocation_id, reason = error.message, "what is said to a run does not end its rest");
                return Ok(None);
            }
        };
        change.advance(task, TaskStatus::Working, None, Map::new());
        change.note_answer(&paused, &payload);
        change.put_task(task)?;
        let generation = paused.generation;
        Ok(Some(InvocationWrite::Deliver { invocation_id, generation, answered: None, payload }))
    }
}

/// True if the model of the run that is `paused` could not be asked, and it does not try again almost at once by itself. Behind
/// what may have been paid it has few attempts, with the time of all its rests between them.
fn rests(paused: &PausedInvocation, now: Timestamp) -> bool {
    let of = |name: &str| paused.descriptor.metadata.as_ref()?.get(name);
    let holds = |name: &str| of(name) == Some(&json!(true));
    let is_long = paused.wake.due.as_ref().is_some_and(|due| due.at > now + SHORT_REST);
    of("kind") == Some(&json!("rest")) && (holds("needs_mending") || (is_long && !holds("may_be_paid")))
}
