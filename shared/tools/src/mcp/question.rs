//! Questions of a server to a person (MCP "Elicitation"), and what is sent back.
//!
//! A server of the protocol version 2026-07-28 ends the call with its questions, and takes the call again with the
//! answers: nothing waits meanwhile. An older one asks in the midst of a call, which cannot be slept through: see
//! [`Handler`](super::handler::Handler).

use std::collections::BTreeMap;

use dormouse_ports::Map;
use dormouse_ports::tool::{InputAnswer, InputRequest, ToolError};
use rmcp::model::{
    ElicitRequestParams, ErrorCode, ErrorData, InputRequest as Request, InputRequiredResult, InputResponses,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::specs;
use crate::text::cut;

/// Method of a question to a person.
pub(super) const ASKS: &str = "elicitation/create";

/// Code with which a server refuses a call until a person has been at an address.
const GO_FIRST: ErrorCode = ErrorCode(-32042);

/// State that is kept between a question and the call that is made again with its answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct QuestionState {
    /// Wants of each question of the last answer, by the server's key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    wants: BTreeMap<String, Want>,
    /// Values of the fields that a person leaves out, by the server's key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    defaults: BTreeMap<String, Map>,
    /// State that the server wants back verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_state: Option<String>,
    /// Question of the server in the midst of an attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_call: Option<InCall>,
    /// True where a person is to go somewhere before the server does anything with the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    goes_first: bool,
}

/// A question in the midst of an attempt, and the answers to those before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct InCall {
    want: Want,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    defaults: Map,
    answers: Vec<Value>,
}

/// Kind of answer that a question wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Want {
    /// Fields.
    Form,
    /// That a person has been at an address.
    Visit,
    /// The folders that the client shares: there are none.
    Roots,
}

/// Answers that a call that is made again takes along.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Along {
    pub(super) responses: Option<InputResponses>,
    pub(super) request_state: Option<String>,
    /// Results for questions in the midst of the call.
    pub(super) in_call: Vec<Value>,
}

/// Next step after an answer of a server.
#[derive(Debug, PartialEq)]
pub(super) enum NextStep<R> {
    /// The call ends for now.
    End(R),
    /// No person needs to be asked: the call goes on with these.
    Again(Along),
}

impl Along {
    /// The answer of a person, in the form for the server.
    ///
    /// # Errors
    /// The answer does not belong to a question of this source, or the call is not made again after it.
    pub(super) fn from_answer(answer: Option<&InputAnswer>) -> Result<Self, ToolError> {
        let Some(answer) = answer else { return Ok(Self::default()) };
        let kept: QuestionState = serde_json::from_value(answer.state.clone())
            .map_err(|error| ToolError::permanent(format!("the answer belongs to another question: {error}")))?;
        if kept.goes_first {
            let refusal = "the person does not go to the address that the server asks for before it does this";
            return answer.content.as_ref().map(|_| Self::default()).ok_or_else(|| ToolError::permanent(refusal));
        }
        if let Some(InCall { want, defaults, mut answers }) = kept.in_call {
            answers.push(result(want, answer.content.clone(), Some(&defaults)));
            return Ok(Self { in_call: answers, ..Self::default() });
        }
        let is_one = kept.wants.values().filter(|want| **want != Want::Roots).count() == 1;
        let content = |key: &str| match (&answer.content, is_one) {
            (Some(content), true) => Some(content.clone()),
            (Some(content), false) => Some(content.get(key).and_then(Value::as_object).cloned().unwrap_or_default()),
            (None, _) => None,
        };
        let responses =
            kept.wants.iter().map(|(key, want)| (key.clone(), result(*want, content(key), kept.defaults.get(key))));
        Ok(Self { responses: Some(responses.collect()), request_state: kept.request_state, in_call: Vec::new() })
    }
}

fn result(want: Want, content: Option<Map>, defaults: Option<&Map>) -> Value {
    match (want, content) {
        (Want::Roots, _) => json!({ "roots": [] }),
        (Want::Form, Some(mut content)) => {
            for (field, value) in defaults.into_iter().flatten() {
                content.entry(field.clone()).or_insert_with(|| value.clone());
            }
            json!({ "action": "accept", "content": content })
        }
        (Want::Visit, Some(_)) => json!({ "action": "accept" }),
        (Want::Form | Want::Visit, None) => json!({ "action": "decline" }),
    }
}

/// The answer of the person who is present, in the form for the server.
pub(super) fn answered_now(answer: &InputAnswer) -> Value {
    let along = Along::from_answer(Some(answer)).unwrap_or_default();
    along.in_call.last().cloned().unwrap_or_else(|| json!({ "action": "decline" }))
}

/// The values that `schema` gives to fields that are left out.
fn defaults(schema: &Map) -> Map {
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(field, schema)| Some((field.clone(), schema.get("default")?.clone()))).collect()
}

/// A question in words, with the schema of its answer.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) message: String,
    schema: Map,
    want: Want,
}

/// # Errors
/// A question of a kind that this client did not offer to answer.
pub(super) fn question(params: ElicitRequestParams) -> Result<Question, ToolError> {
    match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema).ok().and_then(|schema| schema.as_object().cloned());
            Ok(Question { message, schema: schema.unwrap_or_else(nothing), want: Want::Form })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            Ok(Question { message: format!("{message}\n{url}"), schema: nothing(), want: Want::Visit })
        }
        _ => Err(ToolError::permanent("the MCP server asks a person in a way that is not known here").maybe_done()),
    }
}

/// The question in `params` that is none as the SDK reads them, such as one with a field that may be null: SDKs of servers write
/// what JSON Schema has.
///
/// # Errors
/// Reason why nobody can be asked it.
pub(super) fn read(params: &Value) -> Result<Question, String> {
    if let Some(mode) = params.get("mode").and_then(Value::as_str).filter(|mode| *mode != "form") {
        return Err(format!("a question with the mode `{}` and these parameters cannot be asked", cut(mode, 100)));
    }
    let message = params.get("message").and_then(Value::as_str).ok_or("a question has a text as its `message`")?;
    let schema = params.get("requestedSchema").and_then(Value::as_object).cloned();
    let schema = specs::object(schema.ok_or("the `requestedSchema` of a question is an object")?);
    let schema = schema.map_err(|reason| format!("the `requestedSchema` of a question {reason}"))?;
    Ok(Question { message: message.to_owned(), schema, want: Want::Form })
}

fn nothing() -> Map {
    Map::from_iter([("type".to_owned(), Value::from("object"))])
}

/// A request of a server that ends a call for now.
enum Wanted {
    Answer(Question),
    Roots,
}

/// Next step after `result`.
///
/// # Errors
/// The server asks for what this client did not offer.
pub(super) fn next(result: InputRequiredResult) -> Result<NextStep<InputRequest>, ToolError> {
    let mut wanted = Vec::new();
    for (key, request) in result.input_requests.unwrap_or_default() {
        let request = match request {
            Request::Elicitation(request) => Wanted::Answer(question(request.params)?),
            Request::ListRoots(_) => Wanted::Roots,
            Request::CreateMessage(_) | _ => return Err(no_model()),
        };
        wanted.push((key, request));
    }
    Ok(step(wanted, result.request_state))
}

/// The same after a result that is none as the SDK reads them; `None` where it asks for nothing.
///
/// # Errors
/// As [`next`]; and a question that nobody can be asked.
pub(super) fn next_read(result: &Value) -> Result<Option<NextStep<InputRequest>>, ToolError> {
    let requests = result.get("inputRequests").and_then(Value::as_object);
    let Some(requests) = requests.filter(|_| result["resultType"] == "input_required") else { return Ok(None) };
    let mut wanted = Vec::new();
    for (key, request) in requests {
        let request = match request["method"].as_str() {
            Some(ASKS) => {
                let question = read(&request["params"]);
                Wanted::Answer(question.map_err(|reason| ToolError::permanent(reason).maybe_done())?)
            }
            Some("roots/list") => Wanted::Roots,
            Some(_) | None => return Err(no_model()),
        };
        wanted.push((key.clone(), request));
    }
    Ok(Some(step(wanted, result["requestState"].as_str().map(str::to_owned))))
}

fn no_model() -> ToolError {
    ToolError::permanent("the MCP server asks for a model, which it was not offered").maybe_done()
}

fn step(wanted: Vec<(String, Wanted)>, request_state: Option<String>) -> NextStep<InputRequest> {
    let mut questions = Vec::new();
    let mut kept = QuestionState { request_state, ..QuestionState::default() };
    for (key, request) in wanted {
        let want = match request {
            Wanted::Answer(question) => {
                let want = question.want;
                kept.defaults.insert(key.clone(), defaults(&question.schema));
                questions.push((key.clone(), question));
                want
            }
            Wanted::Roots => Want::Roots,
        };
        kept.wants.insert(key, want);
    }
    if questions.is_empty() {
        let responses = kept.wants.iter().map(|(key, want)| (key.clone(), result(*want, None, None)));
        let responses = Some(responses.collect::<InputResponses>()).filter(|responses| !responses.is_empty());
        return NextStep::Again(Along { responses, request_state: kept.request_state, in_call: Vec::new() });
    }
    NextStep::End(asked(questions, &kept))
}

/// The question of a server in the midst of a call that had `answers` before.
pub(super) fn in_call(question: Question, answers: &[Value]) -> InputRequest {
    let in_call = InCall { want: question.want, defaults: defaults(&question.schema), answers: answers.to_vec() };
    asked(vec![(String::new(), question)], &QuestionState { in_call: Some(in_call), ..QuestionState::default() })
}

/// The question of a server that refuses a call until a person has been at the addresses in `error` (version 2025-11-25);
/// `None` where it names none.
pub(super) fn before_call(error: &ErrorData) -> Option<InputRequest> {
    if error.code != GO_FIRST {
        return None;
    }
    let places = error.data.as_ref()?.get("elicitations")?.as_array()?;
    let told = |place: &Value| {
        let text = |name: &str| place.get(name).and_then(Value::as_str);
        let url = text("url")?;
        Some(format!("{}\n{url}", text("message").unwrap_or(&error.message)))
    };
    let told: Vec<String> = places.iter().filter_map(told).collect();
    let state =
        serde_json::to_value(QuestionState { goes_first: true, ..QuestionState::default() }).unwrap_or_default();
    (!told.is_empty()).then(|| InputRequest { message: told.join("\n"), schema: nothing(), state })
}

/// One question for all of `questions`: where there are several, each has a field of its own.
fn asked(mut questions: Vec<(String, Question)>, kept: &QuestionState) -> InputRequest {
    let state = serde_json::to_value(kept).unwrap_or_default();
    if questions.len() == 1
        && let Some((_, question)) = questions.pop()
    {
        return InputRequest { message: question.message, schema: question.schema, state };
    }
    let message = questions.iter().map(|(_, question)| question.message.as_str()).collect::<Vec<_>>().join("\n");
    let required: Vec<_> = questions.iter().map(|(key, _)| key.clone()).collect();
    let fields: Map = questions.into_iter().map(|(key, question)| (key, Value::Object(question.schema))).collect();
    let schema = Map::from_iter([
        ("type".to_owned(), Value::from("object")),
        ("properties".to_owned(), Value::Object(fields)),
        ("required".to_owned(), Value::from(required)),
    ]);
    InputRequest { message, schema, state }
}

#[cfg(test)]
mod tests;
