//! Artifacts of tasks, as one caller of A2A is shown them.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_api::{CallAnswer, Operations, StreamItem};
use dormouse_ports::Clock;
use dormouse_protocol::id::TaskId;
use dormouse_protocol::{EventKind, ProtocolError, Scope};
use serde_json::Value;

use super::asked::{Ask, call_of, value_of};
use super::shown::{self, ROOM_OF_ARTIFACTS};
use super::{Caller, Protocol};

/// Reads artifacts for a caller.
#[derive(Clone)]
pub(super) struct ArtifactReader {
    operations: Arc<dyn Operations>,
    clock: Arc<dyn Clock>,
    base_url: String,
    caller: Caller,
}

impl Protocol {
    pub(super) fn artifacts_for(&self, caller: &Caller) -> ArtifactReader {
        ArtifactReader {
            operations: self.streaming.operations.clone(),
            clock: self.streaming.admission.clock.clone(),
            base_url: self.about.base_url.clone(),
            caller: caller.clone(),
        }
    }
}

impl ArtifactReader {
    /// Those of `task`, with their content as far as it is JSON and an answer has room for it; none for who may not read
    /// them.
    pub(super) async fn of(&self, task: &TaskId) -> Result<Vec<Value>, ProtocolError> {
        if !self.caller.actor.scopes.contains(&Scope::ArtifactsRead) {
            return Ok(Vec::new());
        }
        let list = value_of(self.answer("/v1/artifacts", &format!("task_id={task}")).await?);
        let (mut shown, mut room) = (Vec::new(), ROOM_OF_ARTIFACTS);
        for artifact in list["data"].as_array().into_iter().flatten() {
            shown.extend(self.shown(artifact, &mut room).await);
        }
        Ok(shown)
    }

    /// Those that `item` tells of, by their ids; none for who may not read them.
    pub(super) async fn made_in(&self, item: &StreamItem) -> BTreeMap<String, Value> {
        let mut made = BTreeMap::new();
        let StreamItem::Events(events) = item else { return made };
        let mut room = ROOM_OF_ARTIFACTS;
        for event in events.iter().filter(|event| event.event == EventKind::ArtifactCreated) {
            let id = &event.resource.id;
            let Ok(artifact) = self.answer(&format!("/v1/artifacts/{id}"), "").await else { continue };
            if let Some(shown) = self.shown(&value_of(artifact), &mut room).await {
                made.insert(id.clone(), shown);
            }
        }
        made
    }

    /// `artifact` as A2A has it, if its content is anywhere. What is no JSON, and what `room` does not hold, is a file.
    async fn shown(&self, artifact: &Value, room: &mut usize) -> Option<Value> {
        let path = format!("/v1/artifacts/{}/content", artifact["id"].as_str().unwrap_or_default());
        let bytes = match self.answer(&path, "").await {
            Ok(CallAnswer::Bytes { bytes, .. }) => Some(bytes),
            // Content that is elsewhere has an address only.
            Ok(CallAnswer::Json(..) | CallAnswer::Repeated(..) | CallAnswer::Empty) | Err(_) => None,
        };
        let read = |bytes: &Vec<u8>| serde_json::from_slice::<Value>(bytes).ok();
        let data = bytes.as_ref().and_then(read).filter(Value::is_object);
        let fitting = data.as_ref().and_then(|data| room.checked_sub(shown::size(data)));
        let is_here_alone = data.is_some() || (bytes.is_some() && artifact["uri"].is_null());
        let own = (is_here_alone && fitting.is_none()).then(|| format!("{}{path}", self.base_url));
        *room = fitting.unwrap_or(*room);
        shown::artifact(artifact, data.unwrap_or_default(), own)
    }

    async fn answer(&self, path: &str, query: &str) -> Result<CallAnswer, ProtocolError> {
        let caller = self.caller.at(self.clock.now());
        self.operations.serve(call_of(&caller, &Ask::get(path, query))?).await
    }
}
