//! Checks of answers against the rules of their pause.

use dormouse_ports::{AnswerRule, Category, Map, PausedInvocation};

use crate::EngineError;

/// `answer` as `paused` accepts it, or as it accepts the answer of one of its parts: without fields that are to be
/// dropped. It changes nothing.
///
/// # Errors
/// `suspension_resume_payload_invalid` with the field that is wrong and the fields that are accepted.
pub fn admit_answer(paused: &PausedInvocation, answer: Map) -> Result<Map, EngineError> {
    let invalid = |reason| EngineError::new(Category::SuspensionResumePayloadInvalid, reason);
    rule_of(paused).admit(answer).map_err(invalid)
}

/// The state fields that `answer` sets when it resumes `paused`.
///
/// # Errors
/// As [`admit_answer`].
pub(super) fn placed(paused: &PausedInvocation, answer: Map) -> Result<Map, EngineError> {
    admit_answer(paused, answer).map(|answer| rule_of(paused).placed(answer))
}

/// The rule of the pause. One that cannot be read was written by a version that knew no rules, and restricts nothing.
fn rule_of(paused: &PausedInvocation) -> AnswerRule {
    AnswerRule::of(&paused.descriptor).unwrap_or_default()
}
