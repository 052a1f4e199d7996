use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_ports::{AttributeValue, Map, PayloadLimit};
use jiff::Timestamp;
use serde_json::Value;

use crate::ambient::{self, Identity};
use crate::observe::{
    CallOrigin, FrameworkEvent, Operation, OperationError, ToolCallEvent, ToolCallFailedEvent, ToolRequest,
};
use crate::run::Attempts;

/// Name of the span of a call of a tool (observability §5.5.11).
const TOOL_CALL: &str = "openarmature.tool.call";

/// Type of the error of a call that whoever made it gave up before it had an outcome.
pub const GIVEN_UP: &str = "given_up";

/// Tells the calls of this process apart.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Tells observers of an operation that has ended within the present node: spans show it inside of the node's.
///
/// What calls a model or a tool reports it so, once for each attempt. Outside of a node, and in invocations without
/// observers, nothing happens.
pub fn operation_ended(operation: Operation) {
    // Outside of an invocation there is no observer to tell.
    let _ = ambient::look(|scope| {
        if let Some(attempts) = &scope.attempts {
            attempts.operated(operation, scope.attempt_index);
        }
    });
}

/// True if an observer would be told of an operation that ends here: without one its attributes need not be made.
pub fn operations_are_observed() -> bool {
    let is_observed =
        ambient::look(|scope| scope.attempts.as_ref().is_some_and(|attempts| attempts.events().is_some()));
    is_observed.unwrap_or(false)
}

/// A call of a model or a tool on behalf of the node around it: what becomes of it is told to the observers that read calls
/// (graph-engine §6), as of the place where it began.
#[derive(Clone)]
pub struct ObservedCall {
    attempts: Arc<Attempts>,
    begun: BegunCall,
}

/// How a call was begun.
#[derive(Clone)]
pub(crate) struct BegunCall {
    pub(crate) call_id: Arc<str>,
    pub(crate) attempt_index: u32,
    /// The node that began it, where that is another than the one around.
    pub(crate) sibling: Option<Arc<str>>,
}

impl std::fmt::Debug for ObservedCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedCall").field("call_id", &self.begun.call_id).finish_non_exhaustive()
    }
}

impl ObservedCall {
    /// The call that begins here. `None` where nobody reads of it: outside of nodes, and where no observer
    /// [reads calls](crate::Observer::reads_calls).
    pub fn begin() -> Option<Self> {
        Self::from_here(|identity, attempts| {
            let number = CALLS.fetch_add(1, Ordering::Relaxed);
            let now = attempts.events().map_or(0, |events| events.now().as_nanosecond());
            format!("{}/{now}-{number}", identity.invocation_id)
        })
    }

    /// As [`begin`](Self::begin), of a call that may be told of from elsewhere too: `call_id` gives it the id that it has there,
    /// and that no other call has.
    pub fn known_as(call_id: impl FnOnce(&Identity) -> String) -> Option<Self> {
        Self::from_here(|identity, _| call_id(identity))
    }

    fn from_here(call_id: impl FnOnce(&Identity, &Attempts) -> String) -> Option<Self> {
        let here = |scope: &ambient::CallScope| {
            let attempts = scope.attempts.clone().filter(|attempts| attempts.has_readers_of_calls())?;
            let call_id = call_id(&scope.view.identity(), &attempts).into();
            Some(Self { attempts, begun: BegunCall { call_id, attempt_index: scope.attempt_index, sibling: None } })
        };
        ambient::look(here).flatten()
    }

    /// The same call, begun in another node of the graph, a while ago: what comes of it is told as of there.
    #[must_use]
    pub fn begun_in(self, node: &str) -> Self {
        let begun = BegunCall { sibling: Some(node.into()), attempt_index: 0, ..self.begun };
        Self { begun, ..self }
    }

    /// Tells of something that has become of it.
    pub fn tell<E: Into<FrameworkEvent>>(&self, event: impl FnOnce(CallOrigin) -> E) {
        self.attempts.called(&self.begun, |call| event(call).into());
    }
}

/// A call of a tool that has ended (graph-engine §6, observability §5.5.11).
#[derive(Clone, Copy, Debug)]
pub struct ToolCallRecord<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// The model's id of the call, where a model has asked for it.
    pub id: Option<&'a str>,
    /// Its arguments.
    pub arguments: &'a Map,
    /// Its result, or the type of its error and what is said of it.
    pub result: Result<&'a Value, (&'a str, &'a str)>,
    /// Instant at which it began.
    pub started: Timestamp,
    /// Instant at which it ended.
    pub ended: Timestamp,
}

impl ToolCallRecord<'_> {
    /// Tells the observers that read calls what came of `call`: of its arguments and its result everything.
    pub fn tell(self, call: &ObservedCall) {
        let elapsed = self.ended.duration_since(self.started).as_secs_f64() * 1000.0;
        let request = ToolRequest {
            tool_name: self.tool.to_owned(),
            tool_call_id: self.id.map(str::to_owned),
            arguments: self.arguments.clone(),
        };
        let latency_ms = Some(elapsed);
        call.tell(|call| match self.result {
            Ok(result) => FrameworkEvent::from(ToolCallEvent { call, request, result: result.clone(), latency_ms }),
            Err((kind, message)) => FrameworkEvent::from(ToolCallFailedEvent {
                call,
                request,
                error_type: (!kind.is_empty()).then(|| kind.to_owned()),
                error_message: message.to_owned(),
                latency_ms,
            }),
        });
    }

    /// The operation of which observers are told. Arguments, result and what is said of an error are content: they are in it up
    /// to that limit, and not at all without one.
    pub fn operation(self, content: Option<PayloadLimit>) -> Operation {
        let text = |name, text: &str| (name, AttributeValue::Text(text.to_owned()));
        let mut attributes = vec![text("openarmature.tool.name", self.tool)];
        attributes.extend(self.id.map(|id| text("openarmature.tool.call.id", id)));
        if let Some(limit) = content {
            let arguments = serde_json::to_string(self.arguments).unwrap_or_default();
            attributes.push(text("openarmature.tool.call.arguments", &limit.cut(arguments)));
            let result = self.result.ok().map(|result| limit.cut(result.to_string()));
            attributes.extend(result.map(|result| text("openarmature.tool.call.result", &result)));
        }
        let error = self.result.err().map(|(kind, message)| {
            attributes.push(text("error.type", kind));
            let message = content.map_or("it failed", |_| message).to_owned();
            OperationError { kind: kind.to_owned(), category: None, message }
        });
        // What a tool does, and where, is its own.
        let is_remote = false;
        Operation { name: TOOL_CALL, is_remote, attributes, error, started: self.started, ended: self.ended }
    }
}
