//! From the suspend request of a node to the form in which its surroundings see it (suspension §8).

use std::sync::Arc;

use dormouse_ports::SignalDescriptor;
use serde_json::Value;

use super::dispatch::Dispatch;
use super::pause::{DescriptorPart, NewPause, PauseEntries, Stop, SuspendRefusal};
use super::slot::SuspendRequest;
use crate::{EngineError, State};

impl Dispatch<'_> {
    /// Turns the request that stopped the node into the form in which its surroundings see it.
    pub(super) fn stop(&self, request: SuspendRequest, state: &State) -> Result<Stop, EngineError> {
        match request {
            SuspendRequest::Nested(pause) => {
                let mut pause = Arc::unwrap_or_clone(pause);
                pause.outer_attempts.insert(0, self.attempts.last());
                Ok(Stop::Pause(Arc::new(pause)))
            }
            SuspendRequest::Refused(refusal) => Ok(Stop::Refusal(self.refuse(&refusal, state))),
            SuspendRequest::Suspend { descriptor, node_completed, recorded } => {
                let recorded = PauseEntries { completed: Vec::new(), asking: recorded };
                let asked =
                    SuspendedHere { descriptor, node_completed, asked_by: self.walk.path_to(self.name), recorded };
                Ok(Stop::Pause(self.sleep(state, asked)))
            }
            SuspendRequest::Contained(contained) => {
                // The whole node sleeps, with what its finished parts have contributed, unless all of them run again
                // (suspension §8.2).
                let mut state = state.clone();
                let pause = &contained.pause;
                let mut recorded = pause.recorded.clone();
                if pause.node_completed {
                    self.walk
                        .merge(self.name, &mut state, contained.partial)
                        .inspect_err(|error| self.attempts.end(Err(error)))?;
                    recorded.completed.splice(0..0, contained.recorded);
                } else {
                    recorded.completed.clear();
                }
                let descriptor = annotate(pause.descriptor.clone(), contained.part);
                let node_completed = pause.node_completed;
                let asked_by = pause.asked_by.clone();
                let asked = SuspendedHere { descriptor, node_completed, asked_by, recorded };
                Ok(Stop::Pause(self.sleep(&state, asked)))
            }
        }
    }

    fn sleep(&self, state: &State, asked: SuspendedHere) -> Arc<NewPause> {
        self.attempts.suspended(&asked.descriptor);
        let attempt_index = self.attempts.last();
        if asked.node_completed {
            self.walk.complete(self.name, self.step, attempt_index);
        }
        Arc::new(NewPause {
            descriptor: asked.descriptor,
            node_completed: asked.node_completed,
            attempt_index,
            outer_attempts: Vec::new(),
            step: self.step,
            states: self.walk.parents.iter().chain([state]).cloned().collect(),
            namespace: self.walk.path_to(self.name),
            asked_by: asked.asked_by,
            recorded: asked.recorded,
        })
    }

    fn refuse(&self, refusal: &SuspendRefusal, state: &State) -> Arc<SuspendRefusal> {
        let refusal = Arc::new(refusal.clone().at(self.name, state));
        self.attempts.end(Err(&refusal.clone().into_error()));
        refusal
    }
}

/// The suspend request, as seen from the suspended node.
struct SuspendedHere {
    descriptor: SignalDescriptor,
    node_completed: bool,
    asked_by: Vec<Arc<str>>,
    recorded: PauseEntries,
}

/// Names the part that asked. Where parts are nested, the innermost keeps the plain key, and the chain lists all of
/// them, outermost first.
fn annotate(mut descriptor: SignalDescriptor, part: DescriptorPart) -> SignalDescriptor {
    let DescriptorPart { key, value } = part;
    let metadata = descriptor.metadata.get_or_insert_default();
    let chain_key = format!("{key}_chain");
    match metadata.get(key).cloned() {
        None => {
            metadata.insert(key.to_owned(), value);
        }
        Some(inner) => {
            let inner = metadata.get(&chain_key).and_then(Value::as_array).cloned().unwrap_or_else(|| vec![inner]);
            metadata.insert(chain_key, [vec![value], inner].concat().into());
        }
    }
    descriptor
}
