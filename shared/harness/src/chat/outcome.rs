use dormouse_ports::{Category, InvocationId, Map, SignalDescriptor};
use serde_json::Value;

use super::history::MESSAGES;
use super::message::ChatMessage;
use crate::bucket::Bucket;
use crate::error::TurnError;
use crate::outcome::{Tally, TurnOutcome};

/// Outcome of a message (harness-chat §5.2).
#[derive(Clone, Debug, PartialEq)]
pub enum ChatTurnOutcome {
    /// The turn is done.
    Completed {
        /// The messages that the turn added after the user's, in order; may be empty.
        replies: Vec<ChatMessage>,
        /// The whole state after the turn.
        final_state: Map,
        /// The invocation.
        invocation_id: InvocationId,
        /// The correlation that it belongs to.
        correlation_id: String,
    },
    /// The turn failed.
    Errored {
        /// Remedy of the user.
        error_bucket: Bucket,
        /// Category of the error.
        error_category: Category,
        /// A message from the system that can be shown as it is (§10).
        reply: ChatMessage,
        /// True if the message may have been taken in all the same ([`TurnError::in_doubt`]).
        in_doubt: bool,
        /// Number of seconds after which there should be room, where that is known.
        retry_after: Option<u32>,
        /// The invocation, if there is one to look at.
        invocation_id: Option<InvocationId>,
        /// The correlation that it belongs to, where it is known.
        correlation_id: Option<String>,
        /// What happened, in the words for who operates it: the user has `reply`.
        message: String,
    },
    /// The turn waits for a signal; the replies behind it go to the listeners of the session.
    Suspended {
        /// Descriptor of the wait.
        signal_descriptor: SignalDescriptor,
        /// The messages that the turn added before it went to sleep, in order; may be empty.
        pending_messages: Vec<ChatMessage>,
        /// The paused invocation.
        invocation_id: InvocationId,
        /// The correlation that it belongs to.
        correlation_id: String,
        /// Number of the pause among those of the invocation, from 1.
        generation: u64,
        /// Progress of the pause, when it expects several signals.
        tally: Option<Tally>,
    },
}

impl ChatTurnOutcome {
    pub(crate) fn errored(error: &TurnError) -> Self {
        let error_bucket = chat_bucket(error);
        let reply = match error_bucket {
            Bucket::SessionTerminating => "This conversation can't continue. Please start a new one.".to_owned(),
            Bucket::RetryableTransient if error.in_doubt => {
                "Your message may have arrived. Please look at the conversation before you send it again.".to_owned()
            }
            Bucket::RetryableTransient => "I had trouble responding. Try again in a moment.".to_owned(),
            Bucket::UserCorrectable => format!(
                "That request couldn't be processed: {}. Please adjust your message and try again.",
                error.message.trim_end_matches('.')
            ),
        };
        let reply = ChatMessage::text("system", reply);
        Self::Errored {
            error_bucket,
            error_category: error.category.clone(),
            reply,
            in_doubt: error.in_doubt,
            retry_after: error.retry_after,
            invocation_id: error.invocation_id.clone(),
            correlation_id: error.correlation_id.clone(),
            message: error.message.clone(),
        }
    }

    /// The outcome of a turn that began with `history` messages, the user's included.
    pub(crate) fn of(outcome: &TurnOutcome, history: usize) -> Self {
        match outcome {
            TurnOutcome::Completed(turn) => Self::Completed {
                replies: tail(&turn.state, history),
                final_state: turn.state.clone(),
                invocation_id: turn.invocation_id.clone(),
                correlation_id: turn.correlation_id.clone(),
            },
            TurnOutcome::Suspended(turn) => Self::Suspended {
                signal_descriptor: turn.descriptor.clone(),
                pending_messages: tail(&turn.state, history),
                invocation_id: turn.invocation_id.clone(),
                correlation_id: turn.correlation_id.clone(),
                generation: turn.generation,
                tally: turn.tally.clone(),
            },
            TurnOutcome::Errored(error) => Self::errored(error),
            TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => {
                Self::errored(&TurnError::new(Category::SuspensionRecordInvalid, "the turn is over already"))
            }
        }
    }
}

/// Harness §7 with the one difference of harness-chat §10.1: a conversation that could not be saved cannot go on.
fn chat_bucket(error: &TurnError) -> Bucket {
    let cannot_go_on = [Category::SessionSaveFailed, Category::HarnessSessionIdUnresolved].contains(&error.category);
    if cannot_go_on { Bucket::SessionTerminating } else { error.bucket }
}

/// The messages of `state` behind the first `history`, by index (§7).
fn tail(state: &Map, history: usize) -> Vec<ChatMessage> {
    let messages = state.get(MESSAGES).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    messages.get(history..).unwrap_or_default().iter().cloned().map(ChatMessage::unchecked).collect()
}
