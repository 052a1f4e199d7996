//! The children of a run as they were asked and as they ended.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::{ChildError, ChildLink, ChildRuns, ChildStanding, ChildStart, InvocationId, Map};
use serde_json::{Value, json};

use super::super::agents::Colleagues;
use super::super::children::{ASKED, frame};
use super::past::{Past, text};

/// The agents that a run asked. None of them is asked again.
pub(super) fn colleagues(past: &Arc<Past>) -> Colleagues {
    let recorded: Arc<[ChildLink]> = past.vendor_entries(ASKED).filter_map(|entry| link(&entry.payload)).collect();
    let runs = Arc::new(RecordedRuns { children: recorded.clone(), past: past.clone() });
    Colleagues { runs: Some(runs), recorded: Some(recorded), ..Colleagues::default() }
}

fn link(payload: &Map) -> Option<ChildLink> {
    Some(ChildLink {
        invocation_id: text(payload, "invocation_id")?.into(),
        session_id: text(payload, "session_id")?.into(),
        graph: text(payload, "agent")?.to_owned(),
        signal_id: "".into(),
        background: payload.get("background").and_then(Value::as_bool).unwrap_or_default(),
        ended: false,
    })
}

/// Children in the background whose parent found their end by itself: it told its model, so that the conversation has it.
#[derive(Debug)]
struct RecordedRuns {
    children: Arc<[ChildLink]>,
    past: Arc<Past>,
}

impl RecordedRuns {
    fn ended(&self, id: &InvocationId) -> Option<Map> {
        let child = self.children.iter().find(|child| child.invocation_id == *id)?;
        let (before, behind) = frame(child);
        let said = self.past.messages_at_end().iter().filter_map(|message| message["content"].as_str());
        let mut results = said.filter_map(|said| said.strip_prefix(before.as_str())?.strip_suffix(behind));
        let output = json!({ "content": [{ "type": "text", "text": results.next()? }] });
        output.as_object().cloned()
    }
}

#[async_trait]
impl ChildRuns for RecordedRuns {
    async fn begin(&self, _: ChildStart) -> Result<(), ChildError> {
        Err(ChildError { message: "a replay begins no other run".to_owned(), transient: false })
    }

    async fn look(&self, id: &InvocationId) -> Result<ChildStanding, ChildError> {
        match self.children.iter().any(|child| child.invocation_id == *id) {
            true => Ok(match self.ended(id) {
                Some(payload) => ChildStanding::Ended(payload),
                // It worked on when the time of the run was over.
                None if self.past.is_over() => ChildStanding::Open,
                None => ChildStanding::Missing,
            }),
            // The run that asked for this one: it waited.
            false => Ok(ChildStanding::Open),
        }
    }

    async fn cancel(&self, _: &InvocationId, _: &str) -> Result<(), ChildError> {
        Ok(())
    }
}
