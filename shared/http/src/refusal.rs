use dormouse_engine::EngineError;
use dormouse_harness::{Overruled, TurnError, TurnOutcome};
use dormouse_ports::{Category, Map};
use serde_json::{Value, json};

use crate::encode::name;
use crate::reply::TurnReply;
use crate::said::{TurnProblem, TurnRefusal};
use crate::status::{retry_after, status_of};

/// Challenge that asks for a key, in `www-authenticate`.
pub(crate) const BEARER: &str = "Bearer realm=\"dormouse\"";
/// Longest message in an answer, in characters.
const MESSAGE: usize = 500;

/// A request that is answered with an error.
#[derive(Debug, PartialEq)]
pub(crate) struct RequestRefusal {
    error: Box<TurnError>,
    status: u16,
    headers: Vec<(&'static str, String)>,
    decided: Option<Box<Map>>,
}

impl RequestRefusal {
    /// A refusal of `category` with the status that belongs to it.
    pub(crate) fn new(category: Category, message: impl Into<String>) -> Self {
        TurnError::new(category, message).into()
    }

    /// The request cannot be read.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Category::RequestInvalid, message)
    }

    /// The one answer for what does not exist and for what the caller may not know of.
    pub(crate) fn no_invocation() -> Self {
        Self::new(Category::NotFound, "there is no such invocation, or the token is not for it")
    }

    /// The pause that an address was for has ended.
    pub(crate) fn pause_over() -> Self {
        let message = "the pause that this address is for is over";
        Self::new(Category::SuspensionRecordInvalid, message).status(410)
    }

    /// The time of an address is over.
    pub(crate) fn address_over() -> Self {
        let message = "this address was good for a time that is over; whoever began the invocation asks for it again, or \
            sends its request again with the same id, and gets a new one";
        Self::new(Category::SuspensionRecordInvalid, message).status(410)
    }

    /// The answer that led to `outcome` changed nothing, because another resolution of its pause counts.
    pub(crate) fn of_overruled(outcome: &TurnOutcome) -> Option<Self> {
        let (invocation_id, overruled, has_ended) = match outcome {
            TurnOutcome::Completed(done) => (&done.invocation_id, done.overruled.as_ref()?, true),
            TurnOutcome::Suspended(pause) => (&pause.invocation_id, pause.overruled.as_ref()?, false),
            TurnOutcome::Errored(_) | TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => return None,
        };
        let decided = match overruled {
            Overruled::Answered(decided) => decided.clone(),
            Overruled::Others | Overruled::Time => None,
            // What counts is not known: who asks is told where the invocation is.
            Overruled::Earlier if !has_ended => return None,
            Overruled::Earlier => return Some(Self::pause_over()),
        };
        let error = TurnError::new(Category::SuspensionRecordInvalid, overruled.message()).of(invocation_id);
        Some(Self { decided: decided.map(Box::new), ..error.into() })
    }

    /// Replaces the status, where HTTP has a more precise one than the category.
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The error as it is shown.
    pub(crate) fn body(error: &TurnError) -> TurnProblem {
        let payload = error.payload();
        let advice = |name: &str| payload.get(name).and_then(Value::as_bool);
        TurnProblem {
            category: error.category.as_str().to_owned(),
            bucket: error.bucket.as_str(),
            message: error.message.chars().take(MESSAGE).collect(),
            intervention_required: advice("intervention_required"),
            retry_safe: advice("retry_safe"),
            user_action_required: advice("user_action_required"),
            invocation_id: error.invocation_id.as_ref().map(|id| name(id).to_owned()),
            decided: None,
        }
    }
}

impl From<TurnError> for RequestRefusal {
    fn from(error: TurnError) -> Self {
        let wait = retry_after(&error).map(|seconds| ("retry-after", seconds.to_string()));
        let (status, headers) = (status_of(&error), wait.into_iter().collect());
        Self { error: Box::new(error), status, headers, decided: None }
    }
}

impl From<EngineError> for RequestRefusal {
    fn from(error: EngineError) -> Self {
        TurnError::from(error).into()
    }
}

impl From<RequestRefusal> for TurnReply {
    fn from(refusal: RequestRefusal) -> Self {
        let error =
            TurnProblem { decided: refusal.decided.map(|decided| *decided), ..RequestRefusal::body(&refusal.error) };
        let answer = Self::new(refusal.status, json!(TurnRefusal { error }));
        refusal.headers.into_iter().fold(answer, |answer, (name, value)| answer.header(name, value))
    }
}
