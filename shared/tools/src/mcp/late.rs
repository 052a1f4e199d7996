//! Answers that come when nobody waits for them any more.

use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// The messages of a conversation, without answers to the newer way to begin it where that was given up. The SDK begins in the
/// older way when there is no answer within ten seconds, and takes what comes then for a wrong answer to that: a server that is
/// installed or woken first answers both.
pub(super) struct WithoutLate<T> {
    messages: T,
    asked: Vec<RequestId>,
    given_up: Vec<RequestId>,
}

impl<T> WithoutLate<T> {
    pub(super) fn new(messages: T) -> Self {
        Self { messages, asked: Vec::new(), given_up: Vec::new() }
    }

    fn is_late(&self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        // Some servers write a number as a text.
        id.is_some_and(|id| self.given_up.iter().any(|late| late.to_string() == id.to_string()))
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for WithoutLate<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(sent) = &message {
            if matches!(sent.request, ClientRequest::DiscoverRequest(_)) {
                self.asked.push(sent.id.clone());
            } else if matches!(sent.request, ClientRequest::InitializeRequest(_)) {
                self.given_up.append(&mut self.asked);
            }
        }
        self.messages.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.messages.receive().await?;
            if !self.is_late(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.messages.close().await
    }
}
