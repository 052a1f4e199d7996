//! What is done to a pause: answered, canceled, repaired. The sender names the pause that they saw.

use dormouse_api::answer_payload;
use dormouse_harness::{Bucket, Callback, Transmission, TurnError, TurnOutcome};
use dormouse_maintenance::doctor::repair;
use dormouse_ports::{Category, InvocationId, InvocationStatus, Map};
use dormouse_protocol::envelope::Object;
use dormouse_protocol::resource::{MessageInput, Part, TaskMessageKind};
use dormouse_protocol::{ErrorCode, ProtocolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::told::{AnswerTaken, Pause, PauseStatus, Repaired};
use super::{AdmittedRequest, Extensions};

/// Number of seconds after which a request that found the server busy may come again.
const SOON: u32 = 1;
/// The answer of others, or of time, stands.
const PASSED: &str = "it was answered otherwise, or goes on already: look again";

/// An answer to a pause.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseAnswer {
    /// The pause that its sender saw; another one is not answered.
    generation: u64,
    /// For whom it answers, of a pause for several answers.
    #[serde(default)]
    part: Option<String>,
    /// A plain yes or no, where the pause says what these mean.
    #[serde(default)]
    approved: Option<bool>,
    /// Fields that the answer sets, beside those of a plain yes or no.
    #[serde(default)]
    payload: Map,
}

/// The end of a pause without an answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseCancel {
    /// The pause that its sender saw; another one is not ended.
    generation: u64,
    /// Reason; reported to all who ask for the invocation from then on.
    #[serde(default)]
    reason: Option<String>,
}

/// A repair of a pause.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseRepair {
    /// The pause that its sender saw; another one is left alone.
    generation: u64,
}

impl Extensions {
    /// Takes the answer in the body, and goes on with the invocation that waits for it.
    ///
    /// # Errors
    /// 409 for another pause than the one that is named, or when another answer was first; 400 for an answer that does
    /// not fit. Nothing is changed then.
    pub(super) async fn take_answer(
        &self,
        admitted: &AdmittedRequest<'_>,
        id: &str,
    ) -> Result<AnswerTaken, ProtocolError> {
        let answer: PauseAnswer = self.body(admitted)?;
        let record = self.diagnosis(admitted, id).await?.record;
        if record.paused.generation != answer.generation {
            return Err(conflict("it waits for something else by now: look again"));
        }
        if let InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) = record.status {
            return Err(conflict("it has ended: look again"));
        }
        if answer.part.is_some() && record.paused.fan_in.is_none() {
            return Err(ProtocolError::invalid(
                "part",
                "it waits for one answer, which has no parts: leave `part` out",
            ));
        }
        let kind = match answer.approved {
            Some(_) => TaskMessageKind::ToolConfirmation,
            None => TaskMessageKind::Input,
        };
        let mut fields = answer.payload;
        fields.extend(answer.approved.map(|approved| ("approved".to_owned(), Value::Bool(approved))));
        let message = MessageInput { parts: vec![Part::json(Value::Object(fields))], ..MessageInput::user("") };
        let payload = answer_payload(&record.paused, kind, &message, &admitted.actor.name)?;
        let id = record.paused.invocation_id.clone();
        let callback = Callback { part: answer.part, ..Callback::new(id.clone(), Some(answer.generation), payload) };
        let time_left = admitted.request.time_left;
        let turn = self.app.harness().turn(Transmission { time_left, ..callback.into() }).await;
        outcome(&id, answer.generation, turn.outcome)
    }

    /// Ends the invocation that sleeps, for good.
    ///
    /// # Errors
    /// 409 for another pause than the one that is named, or when it has ended otherwise.
    pub(super) async fn cancel(&self, admitted: &AdmittedRequest<'_>, id: &str) -> Result<Pause, ProtocolError> {
        let PauseCancel { generation, reason } = self.body(admitted)?;
        let found = self.diagnosis(admitted, id).await?.record.paused.invocation_id;
        let canceled = self.app.harness().cancel(&found, Some(generation), reason).await;
        canceled.map_err(|error| refusal("generation", error))?;
        self.pause(admitted, id).await
    }

    /// Does what helps against everything that the doctor finds, where something does.
    ///
    /// # Errors
    /// 409 for another pause than the one that is named; 501 where this process may not repair.
    pub(super) async fn repair(&self, admitted: &AdmittedRequest<'_>, id: &str) -> Result<Repaired, ProtocolError> {
        let PauseRepair { generation } = self.body(admitted)?;
        let diagnosis = self.diagnosis(admitted, id).await?;
        if diagnosis.record.paused.generation != generation {
            return Err(conflict("it waits for something else by now: look again"));
        }
        if !self.may_repair {
            let message = "this server may not repair: run `dormouse doctor --repair` with the id and the table";
            return Err(ProtocolError::new(ErrorCode::PolicyViolation, message));
        }
        let mut done = Vec::new();
        for remark in diagnosis.remarks.iter().filter(|remark| remark.finding.remedy().is_some()) {
            let (harness, store) = (self.app.harness(), self.app.maintenance());
            match repair(harness, store, &diagnosis.record, remark.finding).await {
                Ok(sentence) => done.extend(sentence),
                Err(error) => done.push(format!("not repaired: {}", error.message)),
            }
        }
        Ok(Repaired { object: Object::new(), done, pause: self.pause(admitted, id).await? })
    }

    fn body<T: DeserializeOwned>(&self, admitted: &AdmittedRequest<'_>) -> Result<T, ProtocolError> {
        let request = admitted.request;
        let is_json = request.header("content-type").is_some_and(|given| {
            given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
        });
        let limit = self.app.limits().signal_payload;
        match request.body.as_slice() {
            body if body.len() > limit => Err(ProtocolError::too_large(limit)),
            _ if !is_json => Err(ProtocolError::unsupported_media_type()),
            body => dormouse_json::read_distinct(body, dormouse_json::ENTRY)
                .and_then(|body| Ok(serde_json::from_value(body)?))
                .map_err(|error| ProtocolError::invalid("body", error.to_string())),
        }
    }
}

/// What came of the turn that took the answer to the pause `generation`.
fn outcome(id: &InvocationId, generation: u64, outcome: TurnOutcome) -> Result<AnswerTaken, ProtocolError> {
    let taken = |status, repeated, missing| AnswerTaken {
        object: Object::new(),
        id: id.to_string(),
        status,
        repeated,
        missing,
    };
    match outcome {
        TurnOutcome::Completed(done) => match done.overruled {
            Some(overruled) => Err(conflict(overruled.message())),
            None => Ok(taken(PauseStatus::Completed, done.repeated, Vec::new())),
        },
        TurnOutcome::Suspended(pause) if pause.repeated && pause.generation > generation => Err(conflict(PASSED)),
        TurnOutcome::Suspended(pause) => {
            let missing = pause.tally.map(|tally| tally.missing).unwrap_or_default();
            Ok(taken(PauseStatus::Asleep, pause.repeated, missing))
        }
        TurnOutcome::Errored(error) => Err(refusal("payload", *error)),
        TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => Err(conflict(PASSED)),
    }
}

fn conflict(message: &str) -> ProtocolError {
    ProtocolError::new(ErrorCode::Conflict, message)
}

/// The harness did not take what a client sent in `param`.
pub(super) fn refusal(param: &str, error: TurnError) -> ProtocolError {
    let is_past = [
        Category::SuspensionRecordInvalid,
        Category::SuspensionTimedOut,
        Category::InvocationCanceled,
        Category::HarnessSignalCorrelationFailed,
    ];
    if error.category == Category::NotFound {
        return ProtocolError::not_found("x-pause");
    }
    if is_past.contains(&error.category) {
        return conflict(&error.message);
    }
    match error.bucket {
        Bucket::UserCorrectable => ProtocolError::invalid(param, error.message),
        Bucket::RetryableTransient => {
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the server is busy").retry_after(SOON)
        }
        Bucket::SessionTerminating => {
            tracing::warn!(%error.message, "a pause could not be acted upon");
            ProtocolError::new(ErrorCode::InternalError, error.message)
        }
    }
}
