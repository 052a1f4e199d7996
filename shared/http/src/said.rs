//! Answers as types: the schemas of the document are made from them.

use dormouse_harness::Bucket;
use dormouse_ports::{Map, Resolution, SignalDescriptor, WakePlan};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json};

use crate::fit::OMITTED;

/// Words that a field always has.
macro_rules! words {
    ($($word:ident)*) => {$(
        #[derive(Debug, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[schemars(inline)]
        pub(crate) enum $word {
            $word,
        }
    )*};
}

words! { Completed Suspended Errored Buffered Delivered Stale Answered Canceled }

/// An invocation that has ended.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(transform = may_be_too_large)]
pub(crate) struct TurnCompleted<'a> {
    pub(crate) status: Completed,
    pub(crate) invocation_id: &'a str,
    /// Its session, if it has one.
    pub(crate) session_id: Option<&'a str>,
    pub(crate) graph: &'a str,
    /// By what its last pause ended; null when it never slept.
    pub(crate) resolution: Option<Resolution>,
    /// True if this was answered before, to another request.
    pub(crate) repeated: bool,
    /// The final state; only for the starter of the invocation or the holder of the signal key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'a Map>,
    /// Address at which to look at it, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status_url: Option<String>,
}

/// An invocation that sleeps.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(transform = may_be_too_large)]
pub(crate) struct TurnSuspended<'a> {
    pub(crate) status: Suspended,
    pub(crate) invocation_id: &'a str,
    /// Its session, if it has one.
    pub(crate) session_id: Option<&'a str>,
    pub(crate) graph: &'a str,
    /// Number of this pause among its pauses, from 1.
    pub(crate) generation: u64,
    /// Signal that it waits for.
    pub(crate) waiting_for: &'a SignalDescriptor,
    /// Instant and means of its wake-up without a signal.
    pub(crate) wake: &'a WakePlan,
    /// The node in which it sleeps.
    pub(crate) suspending_node: &'a str,
    /// True if this was answered before, to another request.
    pub(crate) repeated: bool,
    /// The state; only for the starter of the invocation or the holder of the signal key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'a Map>,
    /// Of a pause for several signals: the part whose answer this request brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted: Option<Option<&'a str>>,
    /// Of a pause for several signals: the parts that have answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answered: Option<&'a [String]>,
    /// Of a pause for several signals: the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<&'a [String]>,
    /// Part of its wake-up that is not registered yet, and will be by a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) late: Option<&'a str>,
    #[serde(flatten)]
    pub(crate) links: Links,
}

/// The addresses of a pause.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Links {
    /// Address at which to wake it, for those who may.
    #[serde(rename = "callback_url", skip_serializing_if = "Option::is_none")]
    pub(crate) callback: Option<String>,
    /// Addresses at which to answer for each part, when it expects several signals.
    #[serde(rename = "callback_urls", skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "texts")]
    pub(crate) parts: Map,
    /// Page on which a person answers it, for those who may.
    #[serde(rename = "page_url", skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<String>,
    /// Pages on which a person answers for each part, when it expects several signals.
    #[serde(rename = "page_urls", skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "texts")]
    pub(crate) pages: Map,
    /// Address at which to end it, for those who may.
    #[serde(rename = "cancel_url", skip_serializing_if = "Option::is_none")]
    pub(crate) cancel: Option<String>,
    /// Address at which to look.
    #[serde(rename = "status_url")]
    pub(crate) status: String,
}

/// An invocation that ended with an error: a fact about it, and no failure of the request.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnErrored<'a> {
    pub(crate) status: Errored,
    pub(crate) invocation_id: Option<&'a str>,
    pub(crate) error: TurnProblem,
}

/// What the holder of the address of a signal is told.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignalDelivered<'a> {
    pub(crate) status: Delivered,
    pub(crate) signal_id: &'a str,
    /// True if it had come before.
    pub(crate) repeated: bool,
}

/// A signal that no invocation waits for yet; the invocation that will wait for it finds it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignalBuffered<'a> {
    pub(crate) status: Buffered,
    pub(crate) signal_id: &'a str,
    /// Until when it is kept.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) expires_at: String,
}

/// Something that an invocation was past already.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnStale<'a> {
    pub(crate) status: Stale,
    pub(crate) invocation_id: &'a str,
    pub(crate) repeated: bool,
}

/// What is told of an answer from a page, or of one of several, behind which the invocation sleeps again: nothing of that pause.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnAnswered<'a> {
    pub(crate) status: Answered,
    pub(crate) invocation_id: &'a str,
    /// True if it had come before.
    pub(crate) repeated: bool,
}

/// An invocation that was canceled for good.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnCanceled<'a> {
    pub(crate) status: Canceled,
    pub(crate) invocation_id: &'a str,
    #[schemars(extend("format" = "date-time"))]
    pub(crate) canceled_at: String,
    /// Reason that the first cancellation gave.
    pub(crate) reason: Option<&'a str>,
    /// True if it was canceled before.
    pub(crate) repeated: bool,
}

/// Reply to a message.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(transform = may_be_too_large)]
pub(crate) struct ChatCompleted<'a> {
    pub(crate) status: Completed,
    pub(crate) session_id: &'a str,
    #[schemars(with = "Vec<ChatMessage>")]
    pub(crate) replies: Vec<Value>,
    pub(crate) final_state: &'a Map,
    /// Address at which to look at it, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status_url: Option<String>,
}

/// A chat that sleeps.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(transform = may_be_too_large)]
pub(crate) struct ChatSuspended<'a> {
    pub(crate) status: Suspended,
    pub(crate) invocation_id: &'a str,
    pub(crate) session_id: &'a str,
    /// Signal that it waits for.
    pub(crate) waiting_for: &'a SignalDescriptor,
    /// Messages that the graph emitted before it fell asleep.
    #[schemars(with = "Vec<ChatMessage>")]
    pub(crate) pending_messages: Vec<Value>,
    #[serde(flatten)]
    pub(crate) links: Links,
}

/// A message that failed, with something to show to its sender.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChatErrored<'a> {
    pub(crate) status: Errored,
    pub(crate) session_id: &'a str,
    #[schemars(with = "ChatMessage")]
    pub(crate) reply: Value,
    pub(crate) error: TurnProblem,
}

/// Something that did not work.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnRefusal {
    pub(crate) error: TurnProblem,
}

/// Problem, and its remedy.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnProblem {
    /// Category of the problem: a name of the specification, or one of the graph's own.
    pub(crate) category: String,
    /// Remedy of the caller: send something else, send the same again later, or have a person look.
    #[schemars(schema_with = "buckets")]
    pub(crate) bucket: &'static str,
    /// Message for a person.
    pub(crate) message: String,
    /// True if a person has to look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) intervention_required: Option<bool>,
    /// True if the same request may be sent again: not where something may have been written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_safe: Option<bool>,
    /// The caller has to send something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_action_required: Option<bool>,
    /// The invocation that it concerns, if there is one to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) invocation_id: Option<String>,
    /// The answer that counts, where another one came before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decided: Option<Map>,
}

/// A message, as it is sent to a model: the fields depend on the role.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "messages are objects of any fields; this tells of those that all have")]
pub(crate) struct ChatMessage {
    #[schemars(schema_with = "roles")]
    role: String,
    /// A text, or a list of blocks.
    #[schemars(skip_serializing_if = "Option::is_none")]
    content: Option<Value>,
}

/// Index of the routes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Index<'a> {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// The graphs that can be run.
    pub(crate) graphs: Vec<&'a str>,
    pub(crate) routes: Vec<IndexLine>,
    /// Prefix of the paths of the protocol.
    pub(crate) protocol: &'static str,
    /// The page to read.
    pub(crate) docs: &'static str,
}

/// A line of the index.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct IndexLine {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) does: &'static str,
}

/// In the place of a field that is too large for one answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FieldOmitted {
    /// Size, as JSON.
    pub(crate) bytes: usize,
    /// Remedy.
    pub(crate) help: &'static str,
}

/// Any field that is no scalar may be left out of an answer; in its place stands one that reports so.
fn may_be_too_large(schema: &mut Schema) {
    let is_scalar = |name: &Value| {
        let kind = name.as_str().and_then(|name| schema.get("properties")?.get(name));
        let word = |word: &str| kind.is_some_and(|kind| kind["type"] == word || kind["type"] == json!([word, "null"]));
        word("string") || word("boolean") || word("integer") || kind.is_some_and(|kind| kind.get("anyOf").is_some())
    };
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: Vec<Value> = required.filter(|name| is_scalar(name)).cloned().collect();
    schema.insert("required".to_owned(), required.into());
    let omitted = json!({ "$ref": "#/components/schemas/FieldOmitted" });
    schema.insert("patternProperties".to_owned(), json!({ format!("^.+{OMITTED}$"): omitted }));
}

fn texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn buckets(_: &mut SchemaGenerator) -> Schema {
    let all = [Bucket::UserCorrectable, Bucket::RetryableTransient, Bucket::SessionTerminating];
    json_schema!({ "type": "string", "enum": all.map(Bucket::as_str) })
}

fn roles(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["system", "user", "assistant", "tool"] })
}
