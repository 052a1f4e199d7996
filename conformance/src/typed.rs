//! Collectors of typed events (conformance-adapter §5.5).

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{
    CallOrigin, FrameworkEvent, LlmRequest, LlmResponse, NodeError, NodeEvent, Observer, Origin, Phases, ToolRequest,
    current,
};
use dormouse_ports::Map;
use serde_json::{Value, json};

use crate::Failure;
use crate::directives::Directives;
use crate::expect::events::event_map;
use crate::graph::BuiltGraph;
use crate::ledger::Ledger;

/// The types of events that there are, and those that a fixture may say are not there.
const TYPES: [&str; 11] = [
    "LlmCompletionEvent",
    "LlmFailedEvent",
    "LlmTokenEvent",
    "LlmTokenFailedEvent",
    "EmbeddingEvent",
    "EmbeddingFailedEvent",
    "RerankEvent",
    "RerankFailedEvent",
    "ToolCallEvent",
    "ToolCallFailedEvent",
    NODE_EVENT,
];
const NODE_EVENT: &str = "NodeEvent";

/// Field of a collected event that has its type.
pub(crate) const TYPE: &str = "event_type";

/// The name of a type of events, if it is one.
pub(crate) fn type_of(name: &str) -> Result<&str, Failure> {
    let known = TYPES.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| Failure::missing(format!("events of the type `{name}`")))
}

/// A collector that a case declares.
#[derive(Clone, Debug)]
pub(crate) struct CollectorSpec {
    pub(crate) name: String,
    /// The only type that it keeps.
    only: Option<String>,
    /// Whether it reads the metadata of the caller with each event.
    reads_metadata: bool,
}

impl CollectorSpec {
    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let name = given.required_text("name")?.to_owned();
        match given.required_text("kind")? {
            "typed_event_collector" => {}
            other => return Err(Failure::missing(format!("observers of the kind `{other}`"))),
        }
        let only = given.text("filter_event_type")?.map(type_of).transpose()?.map(str::to_owned);
        let reads_metadata = given.flag("include_caller_metadata")?.unwrap_or_default();
        // Every collector keeps the order.
        given.flag("retains_arrival_order")?;
        given.done()?;
        Ok(Self { name, only, reads_metadata })
    }

    /// Attaches the collector to the outermost graph.
    pub(crate) fn attach(&self, built: &BuiltGraph, ledger: &Arc<Ledger>) {
        let collector = Collector { spec: self.clone(), ledger: ledger.clone() };
        built.graph.attach_observer(Arc::new(collector), Phases::default());
    }
}

struct Collector {
    spec: CollectorSpec,
    ledger: Arc<Ledger>,
}

impl Collector {
    fn keep(&self, kind: &str, mut event: Map) {
        if self.spec.only.as_deref().is_some_and(|only| only != kind) {
            return;
        }
        if kind != NODE_EVENT {
            let metadata = current().filter(|_| self.spec.reads_metadata);
            let metadata = metadata.map(|identity| Value::Object(identity.metadata.clone()));
            event.insert("caller_invocation_metadata".to_owned(), metadata.unwrap_or_default());
        }
        event.insert(TYPE.to_owned(), kind.into());
        let name = self.spec.name.clone();
        self.ledger.write(|pages| pages.typed.entry(name).or_default().push(event));
    }
}

#[async_trait]
impl Observer for Collector {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        self.keep(NODE_EVENT, event_map(event));
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        let (kind, event) = match event {
            FrameworkEvent::LlmCompletion(event) => {
                let calls = event.output_tool_calls.as_ref().map(|calls| {
                    let call = |call: &dormouse_ports::model::ToolCall| json!({ "id": call.id, "name": call.name, "arguments": call.arguments });
                    calls.iter().map(call).collect::<Value>()
                });
                let own = json!({ "output_tool_calls": calls, "latency_ms": event.latency_ms });
                let parts = [of_call(&event.call), of_request(&event.request), of_response(Some(&event.response)), own];
                ("LlmCompletionEvent", joined(parts))
            }
            FrameworkEvent::LlmFailed(event) => {
                let own = json!({
                    "error_category": event.error_category, "error_type": event.error_type,
                    "error_message": event.error_message, "latency_ms": event.latency_ms,
                });
                let response = of_response(event.response.as_ref());
                ("LlmFailedEvent", joined([of_call(&event.call), of_request(&event.request), response, own]))
            }
            FrameworkEvent::LlmToken(event) => {
                let own = json!({
                    "provider": event.provider, "model": event.model, "chunk_index": event.chunk_index,
                    "delta_kind": event.delta_kind, "delta": event.delta,
                });
                ("LlmTokenEvent", joined([of_call(&event.call), own]))
            }
            FrameworkEvent::ToolCall(event) => {
                let own = json!({ "result": event.result, "latency_ms": event.latency_ms });
                ("ToolCallEvent", joined([of_call(&event.call), of_tool(&event.request), own]))
            }
            FrameworkEvent::ToolCallFailed(event) => {
                let own = json!({
                    "error_type": event.error_type, "error_message": event.error_message,
                    "latency_ms": event.latency_ms,
                });
                ("ToolCallFailedEvent", joined([of_call(&event.call), of_tool(&event.request), own]))
            }
            FrameworkEvent::FailureIsolated(_)
            | FrameworkEvent::MetadataAugmented(_)
            | FrameworkEvent::CheckpointSaved(_)
            | FrameworkEvent::OperationEnded(_) => return Ok(()),
        };
        self.keep(kind, event);
        Ok(())
    }
}

fn joined(parts: impl IntoIterator<Item = Value>) -> Map {
    parts.into_iter().filter_map(|part| part.as_object().cloned()).flatten().collect()
}

/// The place of an event, as fixtures spell it.
pub(crate) fn of_origin(origin: &Origin) -> Map {
    let name = |name: &Arc<str>| Value::from(&**name);
    let names = |names: &[Arc<str>]| names.iter().map(name).collect::<Value>();
    let branches = origin.branch_name_chain.iter().map(|branch| branch.as_ref().map_or(Value::Null, name));
    joined([json!({
        "node_name": origin.namespace.last().map_or(Value::Null, name),
        "namespace": names(&origin.namespace),
        "attempt_index": origin.attempt_index,
        "fan_out_index": origin.fan_out_index,
        "branch_name": origin.branch_name.as_ref().map_or(Value::Null, name),
        "fan_out_index_chain": origin.fan_out_index_chain,
        "branch_name_chain": branches.collect::<Value>(),
    })])
}

fn of_call(call: &CallOrigin) -> Value {
    let mut map = of_origin(&call.origin);
    map.insert("invocation_id".to_owned(), call.invocation_id.as_str().into());
    map.insert("correlation_id".to_owned(), call.correlation_id.as_str().into());
    map.insert("call_id".to_owned(), (*call.call_id).into());
    map.into()
}

fn of_request(request: &LlmRequest) -> Value {
    let prompt = request.prompt.as_ref();
    let identity = prompt.map(|prompt| {
        json!({
            "name": prompt.name, "version": prompt.version, "label": prompt.label,
            "template_hash": prompt.template_hash, "rendered_hash": prompt.rendered_hash,
        })
    });
    let group = prompt.and_then(|prompt| prompt.group.as_ref()).map(|group| json!({ "group_name": group }));
    let budget = prompt.and_then(|prompt| prompt.token_budget);
    let budget = budget.map(
        |budget| json!({ "input_max_tokens": budget.input_max_tokens, "total_max_tokens": budget.total_max_tokens }),
    );
    json!({
        "provider": request.provider, "model": request.model, "input_messages": request.input_messages,
        "request_params": request.request_params, "request_extras": request.request_extras,
        "active_prompt": identity, "active_prompt_group": group, "token_budget": budget,
    })
}

fn of_response(response: Option<&LlmResponse>) -> Value {
    json!({
        "response_model": response.and_then(|response| response.response_model.as_deref()),
        "response_id": response.and_then(|response| response.response_id.as_deref()),
        "usage": response.map(|response| response.usage),
        "finish_reason": response.map(|response| response.finish_reason),
        "output_content": response.and_then(|response| response.output_content.as_deref()),
    })
}

fn of_tool(request: &ToolRequest) -> Value {
    json!({
        "tool_name": request.tool_name, "tool_call_id": request.tool_call_id, "arguments": request.arguments,
    })
}
