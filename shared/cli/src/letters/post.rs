//! Where dead letters lie, and the way back for them: the queues, the functions and the bus of a stack.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::config::{BehaviorVersion, Region};
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_sqs::types::{ChangeMessageVisibilityBatchRequestEntry, MessageSystemAttributeName};
use dormouse_aws::{AwsAccess, EventBridgeBus, Function, with_remedy};
use dormouse_fetch::NetworkFetch;
use dormouse_ports::{Event, EventBus};
use dormouse_system::SystemClock;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::letter::{Queue, QueuedMessage, Taker};

/// Number of messages that SQS gives out or takes back at once.
const BATCH: i32 = 10;
/// For how long a letter that is looked at is hidden from others who look.
const HIDDEN: Duration = Duration::from_secs(120);

/// Reason for which a letter cannot be had, or not handed back. It stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action}: {sentence}")]
pub(crate) struct PostError {
    /// What was asked of AWS, as permissions name it.
    pub(crate) action: String,
    pub(crate) sentence: String,
}

/// The queues of a stack, and what takes events there.
#[async_trait]
pub(crate) trait Post: Send + Sync {
    /// Some letters of `queue` that no other reader has; none when there are no more.
    async fn receive(&self, queue: Queue) -> Result<Vec<QueuedMessage>, PostError>;

    /// Shows letters again that were received.
    async fn release(&self, queue: Queue, messages: &[&QueuedMessage]) -> Result<(), PostError>;

    /// Removes a letter for good.
    async fn remove(&self, queue: Queue, message: &QueuedMessage) -> Result<(), PostError>;

    /// Has `taker` called with `event`, with the attempts that every event has.
    async fn call(&self, taker: Taker, event: &Value) -> Result<(), PostError>;

    /// Publishes `event`, as the bus delivered it, once more.
    async fn publish(&self, event: &Value) -> Result<(), PostError>;
}

/// Those of a stack on AWS.
pub(crate) struct AwsPost {
    stack: String,
    queues: aws_sdk_sqs::Client,
    access: AwsAccess,
    bus: EventBridgeBus,
    /// Addresses of the queues, in the order of [`Queue::ALL`].
    addresses: [String; 2],
}

fn queues(access: &AwsAccess) -> aws_sdk_sqs::Client {
    let mut config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(access.region.clone()))
        .credentials_provider(access.credentials.clone());
    let own = std::env::var("AWS_ENDPOINT_URL_SQS").ok().filter(|url| !url.is_empty());
    config.set_endpoint_url(own.or_else(|| access.endpoints.all.clone()));
    aws_sdk_sqs::Client::from_conf(config.build())
}

impl AwsPost {
    /// Those of `stack`, as `access` reaches them.
    ///
    /// # Errors
    /// If the stack has no such queues.
    pub(crate) async fn open(stack: String, access: AwsAccess) -> Result<Self, PostError> {
        let queues = queues(&access);
        let bus = EventBridgeBus::new(access.clone().clients().eventbridge, stack.clone());
        let [failed, undelivered] = Queue::ALL.map(|queue| address(&queues, &stack, queue));
        let addresses = [failed.await?, undelivered.await?];
        Ok(Self { stack, queues, access, bus, addresses })
    }

    fn address(&self, queue: Queue) -> &str {
        match queue {
            Queue::Failed => &self.addresses[0],
            Queue::Undelivered => &self.addresses[1],
        }
    }
}

async fn address(queues: &aws_sdk_sqs::Client, stack: &str, queue: Queue) -> Result<String, PostError> {
    let name = format!("{stack}-{}", queue.as_str());
    let found = queues.get_queue_url().queue_name(&name).send().await;
    Ok(found.map_err(|error| no_address(stack, &error))?.queue_url.unwrap_or_default())
}

/// The refusal to tell the address of a queue of `stack`. What SQS says about the caller is no question of names.
fn no_address<E: ProvideErrorMetadata + std::error::Error>(stack: &str, error: &E) -> PostError {
    let PostError { action, sentence } = failure("sqs:GetQueueUrl", error);
    let is_of_caller = error.code().is_some_and(|code| !code.contains("NonExistent") && !code.contains("DoesNotExist"));
    let sentence = match is_of_caller {
        true => sentence,
        false => format!("{sentence}; is `{stack}` the name of the stack, and this its region?"),
    };
    PostError { action, sentence }
}

#[async_trait]
impl Post for AwsPost {
    async fn receive(&self, queue: Queue) -> Result<Vec<QueuedMessage>, PostError> {
        let request = self.queues.receive_message().queue_url(self.address(queue)).max_number_of_messages(BATCH);
        let hidden = i32::try_from(HIDDEN.as_secs()).unwrap_or(i32::MAX);
        let request = request.visibility_timeout(hidden).wait_time_seconds(1).message_attribute_names("All");
        let request = request.message_system_attribute_names(MessageSystemAttributeName::SentTimestamp);
        let request = request.message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount);
        let found = request.send().await.map_err(|error| failure("sqs:ReceiveMessage", &error))?;
        Ok(found.messages.unwrap_or_default().into_iter().map(message).collect())
    }

    async fn release(&self, queue: Queue, messages: &[&QueuedMessage]) -> Result<(), PostError> {
        for batch in messages.chunks(BATCH.unsigned_abs() as usize) {
            let entries = batch.iter().enumerate().map(|(at, message)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(at.to_string());
                entry.receipt_handle(&message.receipt).visibility_timeout(0).build()
            });
            let entries = entries.collect::<Result<Vec<_>, _>>().map_err(|error| PostError {
                action: "sqs:ChangeMessageVisibility".to_owned(),
                sentence: error.to_string(),
            })?;
            let request = self.queues.change_message_visibility_batch().queue_url(self.address(queue));
            let shown = request.set_entries(Some(entries)).send().await;
            shown.map_err(|error| failure("sqs:ChangeMessageVisibility", &error))?;
        }
        Ok(())
    }

    async fn remove(&self, queue: Queue, message: &QueuedMessage) -> Result<(), PostError> {
        let request = self.queues.delete_message().queue_url(self.address(queue)).receipt_handle(&message.receipt);
        request.send().await.map(drop).map_err(|error| failure("sqs:DeleteMessage", &error))
    }

    async fn call(&self, taker: Taker, event: &Value) -> Result<(), PostError> {
        let name = format!("{}-{}", self.stack, taker.as_str());
        let fetch = Arc::new(NetworkFetch::new());
        let function = Function::new(&self.access, &name, "live", fetch, Arc::new(SystemClock::default()));
        let sent = function.send(event).await;
        sent.map_err(|error| PostError { action: "lambda:InvokeFunction".to_owned(), sentence: error.to_string() })
    }

    async fn publish(&self, event: &Value) -> Result<(), PostError> {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let detail = event["detail"].as_object().cloned().unwrap_or_default().into_iter().collect();
        let again = Event { source: text("source"), detail_type: text("detail-type"), detail };
        let published = self.bus.publish(again).await;
        published.map_err(|error| PostError { action: "events:PutEvents".to_owned(), sentence: error.to_string() })
    }
}

fn message(message: aws_sdk_sqs::types::Message) -> QueuedMessage {
    let told = |name| message.attributes.as_ref().and_then(|all| all.get(&name)?.parse().ok());
    let sent = told(MessageSystemAttributeName::SentTimestamp).and_then(|at| Timestamp::from_millisecond(at).ok());
    let looks = told(MessageSystemAttributeName::ApproximateReceiveCount).and_then(|count| count.try_into().ok());
    let notes = message.message_attributes.unwrap_or_default().into_iter();
    let notes: Map<String, Value> =
        notes.filter_map(|(name, value)| Some((name, value.string_value?.into()))).collect();
    QueuedMessage {
        id: message.message_id.unwrap_or_default(),
        receipt: message.receipt_handle.unwrap_or_default(),
        body: message.body.unwrap_or_default(),
        notes,
        sent: sent.unwrap_or(Timestamp::UNIX_EPOCH),
        looks,
    }
}

fn failure<E: ProvideErrorMetadata + std::error::Error>(action: &str, error: &E) -> PostError {
    let sentence = match (error.code(), error.message()) {
        (Some(code), Some(message)) => format!("{code}: {}", with_remedy(code, message)),
        (Some(code), None) => code.to_owned(),
        (None, _) => DisplayErrorContext(error).to_string(),
    };
    PostError { action: action.to_owned(), sentence }
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::error::ErrorMetadata;

    use super::*;

    #[test]
    fn names_are_asked_about_where_there_is_no_queue_and_not_where_credentials_have_expired() {
        let told = |code: &str| {
            let error = ErrorMetadata::builder().code(code).message("so it is").build();
            no_address("dormouse-dev", &error).to_string()
        };
        for code in ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"] {
            assert!(told(code).ends_with("is `dormouse-dev` the name of the stack, and this its region?"), "{code}");
        }
        let expired = told("ExpiredToken");
        assert!(expired.contains("new credentials") && !expired.contains("the name of the stack"), "{expired}");
        assert!(told("AccessDenied").ends_with("AccessDenied: so it is"), "{}", told("AccessDenied"));
        assert!(no_address("dormouse-dev", &ErrorMetadata::builder().build()).to_string().contains("its region?"));
    }
}
