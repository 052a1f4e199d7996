//! One request of one call.

use dormouse_ports::Map;
use dormouse_ports::tool::{InputRequest, ToolCall, ToolSpec};
use rmcp::ServiceError;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject, ServerResult};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient};
use serde_json::Value;

use super::connection::Connection;
use super::handler::Handler;
use super::question::Along;

/// Field of a request's metadata with the key that stays the same when the call is made again.
const KEY: &str = "dormouse/idempotency-key";

/// End of a request.
#[derive(Debug)]
pub(super) struct Exchanged {
    pub(super) result: Result<ServerResult, ServiceError>,
    /// The question for which the call was broken off.
    pub(super) asked: Option<InputRequest>,
    /// Questions in its midst that no person was asked.
    pub(super) declined: Vec<String>,
}

/// Sends `call` and waits for what the server makes of it. Dropping the future tells the server that no caller waits
/// any more (`notifications/cancelled`).
pub(super) async fn exchange(
    connection: &Connection,
    handler: &Handler,
    call: &ToolCall,
    spec: &ToolSpec,
    along: &Along,
) -> Exchanged {
    let _heard = connection.call_begins().await;
    let may_repeat = spec.effect == dormouse_ports::tool::Effect::Safe;
    let registered = handler.register(&call.id, may_repeat, along.in_call.clone());
    let meta = Map::from_iter([(KEY.to_owned(), Value::from(call.idempotency_key.as_str()))]);
    let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject::from(meta));
    let result = match connection.peer().send_request_with_option(request(call, along), options).await {
        Ok(handle) => {
            registered.sent(&handle.id, &handle.progress_token.0);
            Cancelling { handle: Some(handle), connection }.wait().await
        }
        Err(error) => Err(error),
    };
    Exchanged { result, asked: registered.asked(), declined: registered.declined() }
}

fn request(call: &ToolCall, along: &Along) -> ClientRequest {
    let mut params = CallToolRequestParams::new(call.name.clone()).with_arguments(call.arguments.clone());
    params.input_responses = along.responses.clone();
    params.request_state = along.request_state.clone();
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

/// A request that is canceled when no caller waits for its answer any more. Its server is in doubt then.
struct Cancelling<'c> {
    handle: Option<RequestHandle<RoleClient>>,
    connection: &'c Connection,
}

impl Cancelling<'_> {
    async fn wait(mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = &mut self.handle else { return Err(ServiceError::TransportClosed) };
        let answer = (&mut handle.rx).await;
        self.handle = None;
        answer.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        self.connection.doubt();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(handle.cancel(Some("nobody waits for it any more".to_owned())));
        }
    }
}
