//! Whole outputs of tools, where a model is shown only a part: they stay in the state, and clients fetch them as artifacts
//! of the task. Their images are kept beside the state.

use std::collections::BTreeSet;

use dormouse_ports::{ArtifactPlace, Map, StateArtifact};

use super::images;
use super::parts::AgentLimits;
use super::run::{AgentRun, KeptOutput, PlannedCall};

/// Outputs and images that become artifacts in one commit: each is written with its places in three lists, and a transaction has an
/// end.
const MOST_AT_ONCE: usize = 8;

/// The outputs that one commit adds to those that a run keeps.
pub(crate) struct Outputs {
    limits: AgentLimits,
    /// Outputs that are kept already.
    before: usize,
    /// Bytes that may still be kept.
    room: usize,
    kept: Vec<KeptOutput>,
    /// Artifacts so far.
    artifacts: usize,
    /// Bytes of images that the run has kept.
    image_bytes: u64,
    /// Digests of the images that its conversation names.
    images: BTreeSet<String>,
}

impl Outputs {
    pub(crate) fn of(run: &AgentRun, limits: &AgentLimits) -> Self {
        let taken = run.outputs.iter().map(|output| output.text.len()).sum();
        Self {
            limits: *limits,
            before: run.outputs.len(),
            room: limits.kept_output.saturating_sub(taken),
            kept: Vec::new(),
            artifacts: 0,
            image_bytes: run.image_bytes,
            images: images::contents(&run.messages).map(str::to_owned).collect(),
        }
    }

    /// True if an image with the digest `content` and so many `bytes` has room among those of the run; it then has it. One
    /// that the conversation names already takes no more.
    pub(crate) fn takes(&mut self, content: String, bytes: usize) -> bool {
        if self.images.contains(&content) {
            return true;
        }
        let most = u64::try_from(self.limits.kept_images).unwrap_or(u64::MAX);
        let with = self.image_bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if with <= most {
            self.image_bytes = with;
            self.images.insert(content);
        }
        with <= most
    }

    /// True if one more artifact has a place in this commit; it then has it.
    pub(crate) fn has_place(&mut self) -> bool {
        self.artifacts += 1;
        self.artifacts <= MOST_AT_ONCE
    }

    /// Bytes of images that the run keeps by now.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// Keeps the output of `call`, or its beginning where there is no room for all of it. `None` where that would be no more
    /// than the model was shown, and where there are too many at once.
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
        let place = ArtifactPlace::State(place);
        let artifact = StateArtifact { place, mime_type: "text/plain; charset=utf-8".to_owned(), metadata };
        self.has_place().then_some(artifact)
    }

    pub(crate) fn into_kept(self) -> Vec<KeptOutput> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::CallStatus;
    use super::*;

    #[test]
    fn what_is_kept_has_a_place_in_the_state_and_few_at_once_are_artifacts() {
        let call = |number| PlannedCall::numbered(number, CallStatus::NeedsApproval);
        let limits = AgentLimits { shown_output: 2, kept_output: 33, ..AgentLimits::default() };
        let before = KeptOutput { call: "c0".to_owned(), text: "before".to_owned() };
        let run = AgentRun { outputs: vec![before].into(), ..AgentRun::default() };
        let mut outputs = Outputs::of(&run, &limits);
        let artifacts: Vec<_> = (1..=9).map(|number| outputs.keep(&call(number), "äb".to_owned())).collect();
        let places: Vec<_> = artifacts.iter().flatten().map(|artifact| &artifact.place).collect();
        let place = |at: usize| ArtifactPlace::State(format!("/outputs/{at}/text"));
        assert_eq!((places.len(), places[0], places[7]), (8, &place(1), &place(8)));
        assert!(!outputs.has_place(), "images count with them");
        assert_eq!(outputs.kept.len(), 9);
        assert_eq!(outputs.keep(&call(10), "no room".to_owned()), None);
        let mut outputs = Outputs::of(&AgentRun::default(), &AgentLimits { kept_output: 4, ..limits });
        let cut = outputs.keep(&call(1), "abcä".to_owned()).expect("its beginning");
        assert_eq!((cut.metadata["bytes"].as_u64(), cut.metadata["kept_bytes"].as_u64()), (Some(5), Some(3)));
        assert_eq!(outputs.into_kept()[0].text, "abc");
    }
}
