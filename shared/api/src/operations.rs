use async_trait::async_trait;
use dormouse_protocol::resource::CreateWebhookRequest;
use dormouse_protocol::{Level, Operation, ProtocolError};
use jiff::Timestamp;

use crate::{Abilities, Api, Call, CallAnswer, ReceivedDelivery};

/// True if a server with `abilities` offers `operation`; what it does not offer is answered 501. Webhooks of the past are
/// listed and deleted by each.
pub fn is_offered(operation: Operation, abilities: Abilities) -> bool {
    match operation.spec().level {
        Level::Receipts | Level::Replay => abilities.receipts,
        Level::Core | Level::Extended | Level::Host | Level::Extension => {
            operation != Operation::CreateSessionWebhook || abilities.webhooks
        }
    }
}

/// Serves calls: requests that were found to be in order.
#[async_trait]
pub trait Operations: Send + Sync {
    /// Serves `call`. Of streams only that of all events comes here: a look at what there is behind its cursor.
    ///
    /// # Errors
    /// Error that the caller receives instead of an answer.
    async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError>;

    /// Takes a webhook that is proved by its signature.
    ///
    /// # Errors
    /// Error that the sender receives instead of an answer.
    async fn deliver(&self, _: ReceivedDelivery) -> Result<CallAnswer, ProtocolError> {
        Err(ProtocolError::not_implemented(Operation::DeliverToConnector))
    }

    /// Checks a webhook before there is that of which it tells, as far as it can be.
    ///
    /// # Errors
    /// That none is sent here, or what is wrong with its address, its events or its token.
    fn check_webhook(&self, _: CreateWebhookRequest) -> Result<(), ProtocolError> {
        Err(ProtocolError::not_implemented(Operation::CreateSessionWebhook))
    }
}

#[async_trait]
impl Operations for Api {
    async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError> {
        Self::serve(self, call).await
    }

    fn check_webhook(&self, request: CreateWebhookRequest) -> Result<(), ProtocolError> {
        self.checked_webhook(request, Timestamp::UNIX_EPOCH).map(drop)
    }

    async fn deliver(&self, delivery: ReceivedDelivery) -> Result<CallAnswer, ProtocolError> {
        Self::deliver(self, delivery).await
    }
}
