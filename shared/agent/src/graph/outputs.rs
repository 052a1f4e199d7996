//! Whole outputs of tools, where a model is shown only a part: they stay in the state, and clients fetch them as artifacts
//! of the task.

use dormouse_ports::{Map, StateArtifact};

use super::parts::AgentLimits;
use super::run::{AgentRun, KeptOutput, PlannedCall};

/// The outputs that one commit adds to those that a run keeps.
pub(crate) struct Outputs {
    limits: AgentLimits,
    /// Outputs that are kept already.
    before: usize,
    /// Bytes that may still be kept.
    room: usize,
    kept: Vec<KeptOutput>,
}

impl Outputs {
    pub(crate) fn of(run: &AgentRun, limits: &AgentLimits) -> Self {
        let taken = run.outputs.iter().map(|output| output.text.len()).sum();
        Self {
            limits: *limits,
            before: run.outputs.len(),
            room: limits.kept_output.saturating_sub(taken),
            kept: Vec::new(),
        }
    }

    /// Keeps the output of `call`, or its beginning where there is no room for all of it. `None` where that would be no more
    /// than the model was shown.
    pub(crate) fn keep(&mut self, call: &PlannedCall, mut text: String) -> Option<StateArtifact> {
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(self.room));
        if text.len() <= self.limits.shown_output {
            return None;
        }
        self.room -= text.len();
        let mut metadata = Map::new();
        metadata.insert("tool".to_owned(), call.tool.as_str().into());
        metadata.insert("tool_call_id".to_owned(), call.id.as_str().into());
        metadata.insert("bytes".to_owned(), bytes.into());
        if text.len() < bytes {
            metadata.insert("kept_bytes".to_owned(), text.len().into());
        }
        let place = format!("/outputs/{}/text", self.before + self.kept.len());
        self.kept.push(KeptOutput { call: call.id.clone(), text });
        Some(StateArtifact { place, mime_type: "text/plain; charset=utf-8".to_owned(), metadata })
    }

    pub(crate) fn into_kept(self) -> Vec<KeptOutput> {
        self.kept
    }
}
