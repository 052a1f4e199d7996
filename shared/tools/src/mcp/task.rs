//! Work of a server that outlives its request (MCP extension `io.modelcontextprotocol/tasks`): the call is pending, and the
//! server is asked now and then how it stands.

use std::time::Duration;

use dormouse_ports::tool::{InputAnswer, Pending, ToolError, ToolOutput, ToolReply};
use rmcp::ServiceError;
use rmcp::model::{
    CallToolResult, DetailedTask, ErrorCode, ErrorData, InputRequiredResult, InputResponses, JsonObject, Task,
    TaskPayload,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::{refused, too_large, unfinished};
use super::http::TOO_LARGE;
use super::output;
use super::question::{Along, NextStep, next};

/// Seconds from one question to the next where the server wants no longer ones; the last ones hold from then on.
const PAUSES: [u64; 7] = [1, 2, 5, 10, 20, 30, 60];
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);
/// Questions after which no run waits any more; more than a week, at the longest of the pauses above.
const MOST_POLLS: usize = 11_000;
/// Times in a row that the server may not tell how the work stands.
const MOST_FAILURES: u32 = 20;

/// Codes with which a server says that it does not know a task, or no tasks at all.
const OF_NO_TASK: [ErrorCode; 4] =
    [ErrorCode::INVALID_PARAMS, ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST, ErrorCode::RESOURCE_NOT_FOUND];

/// A task of the server, as it is kept while the run sleeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownTask {
    pub(super) task: String,
    polls: usize,
    failures: u32,
}

/// Next step after the state of a task.
pub(super) enum Followed {
    /// The call goes on, or asks a person something.
    Reply(ToolReply),
    /// It has ended with this result.
    Result(Box<CallToolResult>),
    /// The server asks for what needs no person.
    Told(InputResponses),
}

impl KnownTask {
    /// The task that the server has just made of a call.
    pub(super) fn begun(task: &Task) -> ToolReply {
        Self { task: task.task_id.clone(), polls: 0, failures: 0 }.pending(Some(task))
    }

    /// # Errors
    /// It belongs to another source.
    pub(super) fn read(state: &Value) -> Result<Self, ToolError> {
        Self::deserialize(state).map_err(|error| ToolError::permanent(format!("this is no task of it: {error}")))
    }

    /// Answers of a person to a question of the task, for the server.
    ///
    /// # Errors
    /// The answer does not belong to a question of this source.
    pub(super) fn answers(answer: Option<&InputAnswer>) -> Result<Option<InputResponses>, ToolError> {
        let Some(answer) = answer else { return Ok(None) };
        Along::from_answer(Some(answer)).map(|along| along.responses)
    }

    /// The server says that the work goes on.
    pub(super) fn goes_on(self, task: Option<&Task>) -> Result<ToolReply, ToolError> {
        if self.polls >= MOST_POLLS {
            let message = format!("its task `{}` does not come to an end; nobody waits for it any more", self.task);
            return Err(ToolError::permanent(message).maybe_done());
        }
        Ok(Self { polls: self.polls + 1, failures: 0, ..self }.pending(task))
    }

    /// The server does not tell how the work stands: it is asked again, also behind an error that says nothing of the
    /// task. An answer that is too large is an outcome.
    ///
    /// # Errors
    /// It has not told for too often, or does not know the task.
    pub(super) fn unheard(self, error: &ServiceError) -> Result<ToolReply, ToolError> {
        if let ServiceError::McpError(error) = error {
            if error.code == TOO_LARGE {
                return Ok(too_large(&error.message));
            }
            if OF_NO_TASK.contains(&error.code) {
                let message = format!("it does not know its task `{}` any more: {error}", self.task);
                return Err(ToolError::permanent(message).maybe_done());
            }
        }
        self.again(unfinished(error).maybe_done())
    }

    /// The same where it could not be asked.
    ///
    /// # Errors
    /// As [`Self::unheard`].
    pub(super) fn again(self, error: ToolError) -> Result<ToolReply, ToolError> {
        if self.failures >= MOST_FAILURES {
            return Err(error.maybe_done());
        }
        Ok(Self { polls: self.polls + 1, failures: self.failures + 1, ..self }.pending(None))
    }

    fn pending(self, task: Option<&Task>) -> ToolReply {
        let at = self.polls.max(self.failures as usize).min(PAUSES.len() - 1);
        let own = Duration::from_secs(PAUSES.get(at).copied().unwrap_or(60));
        let asked = task.and_then(|task| task.poll_interval_ms).map(Duration::from_millis).unwrap_or_default();
        let reference = Some(self.task.clone());
        let poll_after = Some(own.max(asked.min(LONGEST_PAUSE)));
        ToolReply::Pending(Pending { reference, timeout: None, poll_after, state: json!(self) })
    }

    /// Next step after what the server tells of the task.
    ///
    /// # Errors
    /// It tells what the protocol does not know, or asks for what it was not offered.
    pub(super) fn follow(self, told: DetailedTask) -> Result<Followed, ToolError> {
        match told.payload {
            TaskPayload::Working => self.goes_on(Some(&told.task)).map(Followed::Reply),
            TaskPayload::InputRequired { input_requests } => {
                Ok(match next(InputRequiredResult::from_input_requests(input_requests))? {
                    NextStep::End(request) => Followed::Reply(ToolReply::InputRequired(request)),
                    NextStep::Again(along) => Followed::Told(along.responses.unwrap_or_default()),
                })
            }
            TaskPayload::Completed { result } => {
                result_in(&Value::Object(result)).map(|result| Followed::Result(Box::new(result)))
            }
            TaskPayload::Failed { error } => refused(&read::<ErrorData>(error)?).map(Followed::Reply),
            TaskPayload::Cancelled => {
                let said = "The MCP server canceled its task; what it has done until then is not known.";
                Ok(Followed::Reply(ToolReply::Done(ToolOutput::error(said))))
            }
            _ => Err(ToolError::permanent("its task is in a state that is not known here").maybe_done()),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(told: JsonObject) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(told)).map_err(|error| no_outcome(&error))
}

/// The result that is `told`, also where a part of it is not as the protocol has it.
fn result_in(told: &Value) -> Result<CallToolResult, ToolError> {
    CallToolResult::deserialize(told).or_else(|error| output::in_parts(told).ok_or_else(|| no_outcome(&error)))
}

fn no_outcome(error: &serde_json::Error) -> ToolError {
    ToolError::permanent(format!("its task ended with something that is no outcome of a call: {error}")).maybe_done()
}

#[cfg(test)]
mod tests {
    use rmcp::model::TaskStatus;

    use super::*;

    fn told(code: ErrorCode) -> Result<ToolReply, ToolError> {
        let known = KnownTask { task: "t".to_owned(), polls: 0, failures: 0 };
        known.unheard(&ServiceError::McpError(ErrorData::new(code, "no", None)))
    }

    #[test]
    fn an_error_that_says_nothing_of_a_task_is_not_its_end() {
        let Ok(ToolReply::Pending(pending)) = told(ErrorCode::INTERNAL_ERROR) else { panic!("it is asked again") };
        assert_eq!(pending.state["failures"], 1);
        for code in OF_NO_TASK {
            let error = told(code).expect_err("it is not known");
            assert!(error.uncertain && error.message.contains("does not know its task `t`"), "{error}");
        }
        let Ok(ToolReply::Done(output)) = told(TOO_LARGE) else { panic!("it has ended") };
        assert!(output.is_error);
    }

    #[test]
    fn a_task_whose_outcome_has_a_block_that_is_none_has_ended() {
        let told = |result: Value| {
            let Value::Object(result) = result else { panic!("an object") };
            let task = Task::new("t", TaskStatus::Working, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
            let known = KnownTask { task: "t".to_owned(), polls: 0, failures: 0 };
            known.follow(DetailedTask::new(task, TaskPayload::Completed { result }))
        };
        let blocks = json!([{ "type": "text", "text": "booked" }, { "type": "resource_link", "uri": "file:///a" }]);
        let Ok(Followed::Result(result)) = told(json!({ "content": blocks })) else { panic!("it has ended") };
        assert_eq!(result.content.len(), 2);
        let error = told(json!({ "content": "booked" })).err().expect("it says nothing");
        assert!(error.uncertain && error.message.contains("no outcome of a call"), "{error}");
    }
}
