//! `POST /chat/{graph}/sessions/{session_id}/messages`

use dormouse_engine::EngineError;
use dormouse_harness::TurnError;
use dormouse_harness::chat::{ChatHarness, ChatMessage, ChatTurnOutcome, SendOptions};
use dormouse_ports::{Category, InvocationId};
use serde_json::{Value, json};

use crate::encode::{AnsweredCaller, name};
use crate::refusal::RequestRefusal;
use crate::repeat::Repeatable;
use crate::reply::TurnReply;
use crate::routes::OF_MESSAGES;
use crate::said::{ChatCompleted, ChatErrored, ChatSuspended, Completed, Errored, Suspended};
use crate::status::{retry_after, status_of};
use crate::{App, Request, body, log};

impl App {
    pub(super) async fn post_message(
        &self,
        graph: &str,
        session_id: &str,
        request: &Request,
    ) -> Result<TurnReply, RequestRefusal> {
        let principal = self.principal(request, &OF_MESSAGES).await?;
        let chat = ChatHarness::new(self.harness().clone(), graph).map_err(with_other_ways)?;
        let stored_as = principal.session(session_id)?;
        let said = body::object(request, self.limits().body)?;
        let repeatable = Repeatable::of(request, &principal, &said, None)?;
        let invocation_id = repeatable.invocation_id.clone();
        let request_digest = repeatable.request_digest.clone();
        let tenant = principal.tenant().map(str::to_owned);
        let sending = SendOptions { invocation_id, request_digest, tenant, time_left: request.time_left };
        let message = ChatMessage::unchecked(Value::Object(said));
        let (path, mut outcome) = chat.send_as(&stored_as, message, sending).await;
        if let ChatTurnOutcome::Errored { error_category, .. } = &mut outcome {
            *error_category = repeatable.refused(error_category.clone());
        }
        log::message(&stored_as, path, &outcome);
        Ok(self.chat_answer(session_id, outcome, repeatable.invocation_id.as_ref()))
    }

    /// Answers for a message. Its outcome is kept under the id `kept`, where it was sent with an idempotency key.
    fn chat_answer(&self, session_id: &str, outcome: ChatTurnOutcome, kept: Option<&InvocationId>) -> TurnReply {
        match outcome {
            ChatTurnOutcome::Completed { replies, final_state, .. } => {
                let told = ChatCompleted {
                    status: Completed::Completed,
                    session_id,
                    replies: values(replies),
                    final_state: &final_state,
                    status_url: kept.map(|id| self.status_url(id)),
                };
                TurnReply::new(200, json!(told))
            }
            ChatTurnOutcome::Suspended {
                signal_descriptor,
                pending_messages,
                invocation_id,
                generation,
                tally,
                ..
            } => {
                let links = self.links(&invocation_id, generation, tally.as_ref(), &AnsweredCaller::Operator);
                let location = links.status.clone();
                let told = ChatSuspended {
                    status: Suspended::Suspended,
                    invocation_id: name(&invocation_id),
                    session_id,
                    waiting_for: &signal_descriptor,
                    pending_messages: values(pending_messages),
                    links,
                };
                TurnReply::new(202, json!(told)).header("location", location)
            }
            ChatTurnOutcome::Errored { error_bucket, error_category, reply, in_doubt, retry_after: wait, .. } => {
                let message = reply.as_map().get("content").and_then(Value::as_str).unwrap_or_default();
                let error = TurnError::new(error_category, message);
                let error = TurnError { bucket: error_bucket, in_doubt, retry_after: wait, ..error };
                let status = Errored::Errored;
                let reply = reply.into_value();
                let problem = RequestRefusal::body(&error);
                let told = ChatErrored { status, session_id, reply, error: problem };
                let answer = TurnReply::new(status_of(&error), json!(told));
                match retry_after(&error) {
                    Some(seconds) => answer.header("retry-after", seconds.to_string()),
                    None => answer,
                }
            }
        }
    }
}

/// The refusal of a chat. Agents of a workspace are no graphs of the program: who names one here is told where it is
/// spoken to.
fn with_other_ways(error: EngineError) -> RequestRefusal {
    if *error.category() != Category::GraphUnknown {
        return error.into();
    }
    let message = error.message();
    let ways = "agents of a workspace take no messages here: give them tasks over /v1, or turns at /graphs/NAME/turns";
    RequestRefusal::new(Category::GraphUnknown, format!("{message}; {ways}"))
}

fn values(messages: Vec<ChatMessage>) -> Vec<Value> {
    messages.into_iter().map(ChatMessage::into_value).collect()
}
