//! Answers that are kept to compare later ones with: a sender that repeats its own is told so, one that says otherwise is
//! told that another answer stands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{FanIn, Map, PausedInvocation, RESOLUTION, Resolution, SignalId};

/// An answer that ended a pause, to compare later ones with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// SHA-256 of the answer, in hexadecimal digits; the order of fields does not matter.
    pub digest: String,
    /// The answer itself, where it is small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Map>,
    /// Of a pause that expected several signals: the answer of each part that had answered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Answered>,
}

impl Answered {
    /// The most bytes of JSON of an answer that is kept.
    const MOST: usize = 2048;

    /// The kept part of `payload`, without the fields that only the harness sets.
    pub fn with(payload: &Map) -> Self {
        Self::within(payload, Self::MOST)
    }

    /// The kept part of `payload`, which holds under the field `into` the answers of several parts, each with its share
    /// of the bytes.
    pub fn by_parts(payload: &Map, into: &str) -> Self {
        let answers = payload.get(into).and_then(|all| all.get("answers")).and_then(serde_json::Value::as_object);
        let share = Self::MOST / answers.map_or(1, Map::len).max(1);
        let answers = answers.into_iter().flatten();
        let answers =
            answers.filter_map(|(part, answer)| Some((part.clone(), Self::within(answer.as_object()?, share))));
        let parts = answers.collect();
        Self { payload: None, parts, ..Self::with(payload) }
    }

    fn within(payload: &Map, most: usize) -> Self {
        let mut payload = payload.clone();
        payload.shift_remove(RESOLUTION);
        payload.sort_keys();
        payload.values_mut().for_each(serde_json::Value::sort_all_objects);
        // A map of JSON can be written.
        let bytes = serde_json::to_vec(&payload).unwrap_or_default();
        let digest = hex::encode(Sha256::digest(&bytes));
        Self { digest, payload: (bytes.len() <= most).then_some(payload), parts: BTreeMap::new() }
    }
}

/// End of a pause after which the invocation slept again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PauseEnd {
    /// Number of the pause in its invocation.
    pub generation: u64,
    /// Cause of the end.
    pub resolution: Resolution,
    /// [Digest](Answered::digest) of the answer, where the pause waited for one and got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Field of an answer that received the [name](crate::SignalDescriptor::signed) of who gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// Of a pause that expected several signals: each part that it expected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartEnd>,
}

/// One of the parts of a pause that expected several signals, when that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEnd {
    /// Its name.
    pub part: String,
    /// Its correlation token.
    pub signal_id: SignalId,
    /// [Digest](Answered::digest) of its answer, where it had given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

impl PauseEnd {
    /// The end of `paused`. `None` if it had not paused, or is not over.
    pub fn of(paused: &PausedInvocation) -> Option<Self> {
        let resolution = paused.resolution.filter(|_| paused.has_paused())?;
        let answered = paused.answered.as_ref();
        let part_end = |fan_in: &FanIn| -> Vec<PartEnd> {
            let digest = |part: &str| answered?.parts.get(part).map(|answer| answer.digest.clone());
            let ends = fan_in.expected.iter();
            let ends = ends.map(|one| (one.part.clone(), one.signal_id.clone(), digest(&one.part)));
            ends.map(|(part, signal_id, answer)| PartEnd { part, signal_id, answer }).collect()
        };
        Some(Self {
            generation: paused.generation,
            resolution,
            answer: answered.filter(|_| paused.fan_in.is_none()).map(|answered| answered.digest.clone()),
            answered_by: paused.descriptor.answered_by().map(str::to_owned),
            parts: paused.fan_in.as_ref().map(part_end).unwrap_or_default(),
        })
    }
}
