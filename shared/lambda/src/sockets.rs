//! What WebSocket APIs of API Gateway send, and the calls of the function that holds sockets to itself.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_aws::Function;
use dormouse_harness::store_failed;
use dormouse_http::{FOLLOW, FollowCall, HeldSockets, Request, TriggerError, percent};
use dormouse_ports::{BusError, Event, EventBus};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::gateway;

/// The parameter that names the path of the stream: a WebSocket API has one path.
const PATH: &str = "path";

const SHAPES: &str = "expected an event of a WebSocket API, or an event of source `dormouse` and detail-type `Dormouse \
    Socket` with detail {\"connection_id\",\"generation\"}";

/// As much of an event of a WebSocket API as is looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SocketEvent {
    request_context: SocketContext,
    headers: Option<BTreeMap<String, Option<String>>>,
    query_string_parameters: Option<BTreeMap<String, Option<String>>>,
    body: Option<String>,
    is_base64_encoded: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SocketContext {
    event_type: ConnectionChange,
    connection_id: String,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum ConnectionChange {
    Connect,
    Message,
    Disconnect,
}

/// Handles an event, for which there is `left`.
///
/// # Errors
/// [`TriggerError`]: of a call for a follower that failed, which Lambda makes again, and of what is no event at all.
pub(crate) async fn handle(sockets: &HeldSockets, event: Value, left: Duration) -> Result<Value, TriggerError> {
    if event.get("detail-type").is_some_and(|kind| kind == FOLLOW) {
        let call = event.get("detail").cloned().unwrap_or_default();
        let call: FollowCall = serde_json::from_value(call).map_err(unreadable)?;
        let followed = Box::pin(sockets.follow(call, Some(left))).await;
        return followed.map(|()| Value::Null).map_err(|error| TriggerError::Turn(Box::new(store_failed(error))));
    }
    let event: SocketEvent = serde_json::from_value(event).map_err(unreadable)?;
    let id = event.request_context.connection_id.clone();
    match event.request_context.event_type {
        ConnectionChange::Connect => Ok(gateway::encode(Box::pin(sockets.connect(&id, request(event))).await).await),
        ConnectionChange::Message => {
            // What is no text comes as Base64.
            let text = event.body.filter(|_| !event.is_base64_encoded.unwrap_or(false));
            Ok(match Box::pin(sockets.frame(&id, text.as_deref())).await {
                Some(said) => json!({ "statusCode": 200, "body": said }),
                None => json!({ "statusCode": 200 }),
            })
        }
        ConnectionChange::Disconnect => {
            if let Err(error) = sockets.disconnect(&id).await {
                tracing::warn!(%error, "the record of a closed socket stays until it expires");
            }
            Ok(json!({ "statusCode": 200 }))
        }
    }
}

fn unreadable(error: serde_json::Error) -> TriggerError {
    TriggerError::Unreadable(format!("an event that nobody here understands: {error}; {SHAPES}"))
}

/// The request for a stream that the opening of a socket is.
fn request(event: SocketEvent) -> Request {
    let named = event.headers.unwrap_or_default().into_iter();
    let headers = named.filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value?))).collect();
    let mut parameters = event.query_string_parameters.unwrap_or_default();
    let path = parameters.remove(PATH).flatten().unwrap_or_default();
    let pairs = parameters.iter().map(|(name, value)| {
        format!("{}={}", percent::encode(name), percent::encode(value.as_deref().unwrap_or_default()))
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    Request { method: "GET".to_owned(), path, query, headers, ..Request::default() }
}

/// A bus that calls a function with each event.
#[derive(Debug)]
pub(crate) struct FunctionCalls(pub(crate) Function);

#[async_trait]
impl EventBus for FunctionCalls {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        self.0.send(&json!(event)).await.map_err(|error| BusError::Unavailable(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(event: &str) -> SocketEvent {
        serde_json::from_str(event).expect("an event")
    }

    #[test]
    fn the_opening_of_a_socket_is_a_request_for_a_stream() {
        let event = read(include_str!("../../http/tests/events/apigw-socket-connect.json"));
        let SocketContext { event_type, connection_id } = &event.request_context;
        assert_eq!((*event_type, connection_id.as_str()), (ConnectionChange::Connect, "L0SM9cOFvHcCIhw="));
        let request = request(event);
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/v1/tasks/task_1/stream"));
        assert_eq!(request.query, "after_event_id=event_session_1_0000000000000003&workspace_id=a%26b");
        assert_eq!(request.header("authorization"), Some("Bearer dm_key"));
        assert_eq!(request.header("sec-websocket-protocol"), Some("agents-protocol-2026-04-25, bearer.dm_key"));
    }

    #[test]
    fn frames_and_the_end_are_told_apart() {
        let event = read(include_str!("../../http/tests/events/apigw-socket-message.json"));
        assert_eq!(event.request_context.event_type, ConnectionChange::Message);
        assert_eq!((event.body.as_deref(), event.is_base64_encoded), (Some(r#"{"type":"ping"}"#), Some(false)));
        let event = read(include_str!("../../http/tests/events/apigw-socket-disconnect.json"));
        assert_eq!(event.request_context.event_type, ConnectionChange::Disconnect);
    }

    #[test]
    fn what_names_no_stream_asks_for_none() {
        let bare = r#"{ "requestContext": { "eventType": "CONNECT", "connectionId": "c" } }"#;
        let request = request(read(bare));
        assert_eq!((request.path.as_str(), request.query.as_str(), request.headers.len()), ("", "", 0));
        for other in [
            include_str!("../../http/tests/events/apigw-turn.json"),
            include_str!("../../http/tests/events/eventbridge-dormouse-work.json"),
            r#"{ "requestContext": { "eventType": "AUTHORIZE", "connectionId": "c" } }"#,
            "[]",
            "null",
        ] {
            assert!(serde_json::from_str::<SocketEvent>(other).is_err(), "{other}");
        }
    }
}
