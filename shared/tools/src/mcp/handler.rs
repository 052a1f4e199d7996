use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_json::misfit;
use dormouse_ports::Map;
use dormouse_ports::tool::{InputAnswer, InputRequest};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, ErrorData, Extensions, FormElicitationCapability,
    Implementation, JsonObject, NumberOrString, ProgressNotificationParam, ProtocolVersion, TASKS_EXTENSION_ID,
    UrlElicitationCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, RoleClient};
use serde_json::{Value, json};

use super::asker::{Asker, Present};
use super::notice::{McpNotice, NoticeListener};
use super::progress::CallProgress;
use super::question::{self, Question};
use crate::mask::Mask;

/// How often the one who is present is asked again for an answer that did not fit.
const MOST_UNFIT: usize = 3;

/// Answers what the server asks outside of calls, and what it asks in the midst of a call.
///
/// A question in the midst of a call (servers before the version 2026-07-28) cannot be slept through. Where the call
/// may be made twice, it is broken off (`cancel`), a person is asked, and the call is made again with the answer in
/// hand. Where it must not, it is put to the one who is present; where no person is, the server is told so (`decline`),
/// and the model is told of the question.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    shared: Arc<Shared>,
    present: Present,
}

#[derive(Debug)]
struct Shared {
    server: String,
    listener: NoticeListener,
    /// Takes secrets out of what people and listeners are told.
    mask: Mask,
    calls: Mutex<Vec<InFlight>>,
    progress: Mutex<CallProgress>,
    /// Counts the changes of the list of tools.
    changes: AtomicU64,
}

/// A call that the server works on.
#[derive(Debug)]
struct InFlight {
    /// Tells it from the other calls; counts up.
    number: u64,
    call: String,
    request: Option<NumberOrString>,
    may_repeat: bool,
    answers: Vec<Value>,
    answered: usize,
    asked: Option<InputRequest>,
    declined: Vec<String>,
}

/// A call that is registered until it is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    shared: Arc<Shared>,
    number: u64,
}

impl Handler {
    pub(super) fn new(server: &str, listener: NoticeListener, mask: Mask) -> Self {
        let shared = Shared {
            server: server.to_owned(),
            listener,
            mask,
            calls: Mutex::default(),
            progress: Mutex::default(),
            changes: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), present: Present::default() }
    }

    pub(super) fn with_asker(self, asker: Arc<dyn Asker>) -> Self {
        Self { present: Present(Some(asker)), ..self }
    }

    /// Number of changes of the list so far.
    pub(super) fn changes(&self) -> u64 {
        self.shared.changes.load(Ordering::SeqCst)
    }

    /// The list of tools has changed.
    pub(super) fn changed(&self) {
        self.shared.changes.fetch_add(1, Ordering::SeqCst);
        self.tell(McpNotice::ListChanged);
    }

    /// It is not known whether the list has changed.
    pub(super) fn doubted(&self) {
        self.shared.changes.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn tell(&self, notice: McpNotice) {
        self.shared.tell(notice);
    }

    /// Registers the call `call`, which had `answers` to questions in its midst before.
    pub(super) fn register(&self, call: &str, may_repeat: bool, answers: Vec<Value>) -> Registered {
        let mut calls = self.shared.calls();
        let number = calls.iter().map(|call| call.number).max().map_or(0, |most| most + 1);
        calls.push(InFlight {
            number,
            call: call.to_owned(),
            request: None,
            may_repeat,
            answers,
            answered: 0,
            asked: None,
            declined: Vec::new(),
        });
        Registered { shared: self.shared.clone(), number }
    }

    /// What can be said to `question` at once; else what a person is to be asked, and how to go on.
    fn elicited(&self, question: &Question, origin: Option<&InboundStreamOrigin>) -> Elicited {
        let mut calls = self.shared.calls();
        let Some(call) = asking(&mut calls, origin) else { return Elicited::Unasked };
        if let Some(known) = call.answers.get(call.answered) {
            call.answered += 1;
            return Elicited::Known(known.clone());
        }
        if !call.may_repeat && self.present.0.is_none() {
            call.declined.push(question.message.clone());
            return Elicited::Unasked;
        }
        let asked = question::in_call(question.clone(), &call.answers);
        if !call.may_repeat {
            return Elicited::Now(asked);
        }
        call.asked.get_or_insert(asked);
        Elicited::Known(json!({ "action": "cancel" }))
    }

    /// The answer to `question`, in the form for the server.
    async fn answered(&self, question: Question, extensions: &Extensions) -> Value {
        let elicited = self.elicited(&question, extensions.get::<InboundStreamOrigin>());
        match (elicited, &self.present.0) {
            (Elicited::Known(result), _) => result,
            (Elicited::Now(asked), Some(asker)) => {
                let state = asked.state.clone();
                let asked = self.shared.mask.question(asked);
                let content = asked_till_it_fits(&**asker, &self.shared.server, asked).await;
                question::answered_now(&InputAnswer { content, state })
            }
            (Elicited::Now(_) | Elicited::Unasked, _) => {
                self.tell(McpNotice::Declined { message: question.message });
                json!({ "action": "decline" })
            }
        }
    }
}

/// What the one who is present says to `asked`. For an answer that does not fit it is asked again, with what is wrong.
async fn asked_till_it_fits(asker: &dyn Asker, server: &str, asked: InputRequest) -> Option<Map> {
    let mut question = asked.clone();
    for _ in 0..=MOST_UNFIT {
        let content = asker.ask(server, question.clone()).await?;
        let Some(mistakes) = misfit(&asked.schema, &content) else { return Some(content) };
        question.message = format!("{}\nThe answer does not fit, and was not taken: {mistakes}", asked.message);
    }
    None
}

/// Outcome of a question in the midst of a call.
enum Elicited {
    /// The server is told this.
    Known(Value),
    /// The one who is present is asked.
    Now(InputRequest),
    /// No person is asked.
    Unasked,
}

/// The call in the midst of which the server asks: the one with whose answer the question came; the only one of which
/// it is not known yet under which id it was sent; the only one there is.
fn asking<'c>(calls: &'c mut [InFlight], origin: Option<&InboundStreamOrigin>) -> Option<&'c mut InFlight> {
    if let Some(InboundStreamOrigin::OutboundRequest(id)) = origin
        && let Some(at) = calls.iter().position(|call| call.request.as_ref() == Some(id))
    {
        return calls.get_mut(at);
    }
    if let [only] = calls {
        return Some(only);
    }
    let mut unknown = calls.iter_mut().filter(|call| origin.is_some() && call.request.is_none());
    unknown.next().filter(|_| unknown.next().is_none())
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Vec<InFlight>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progressed(&self, call: &str, notice: ProgressNotificationParam) {
        let ProgressNotificationParam { progress, total, message, .. } = notice;
        let call = call.to_owned();
        self.tell(McpNotice::Progress { call, progress, total, message });
    }

    fn tell(&self, notice: McpNotice) {
        self.listener.tell(&self.server, notice.masked(&self.mask));
    }

    fn progress(&self) -> MutexGuard<'_, CallProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// The request is sent under `request`, and tells its progress under `progress`.
    pub(super) fn sent(&self, request: &NumberOrString, progress: &NumberOrString) {
        let call = self.with(|call| {
            call.request = Some(request.clone());
            call.call.clone()
        });
        let Some(call) = call else { return };
        let early = self.shared.progress().begin(progress, &call);
        early.into_iter().for_each(|notice| self.shared.progressed(&call, notice));
    }

    /// The question for which the call was broken off.
    pub(super) fn asked(&self) -> Option<InputRequest> {
        self.with(|call| call.asked.take()).flatten()
    }

    /// The questions that were declined.
    pub(super) fn declined(&self) -> Vec<String> {
        self.with(|call| std::mem::take(&mut call.declined)).unwrap_or_default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut InFlight) -> T) -> Option<T> {
        self.shared.calls().iter_mut().find(|call| call.number == self.number).map(act)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.calls().retain(|call| call.number != self.number);
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let elicitation = ElicitationCapability::new().with_form(FormElicitationCapability::new());
        capabilities.elicitation = Some(elicitation.with_url(UrlElicitationCapability::new()));
        capabilities.extensions = Some([(TASKS_EXTENSION_ID.to_owned(), JsonObject::new())].into());
        let client = Implementation::new("dormouse", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, client).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let question = question::question(request).map_err(|error| ErrorData::invalid_params(error.message, None))?;
        let answer = self.answered(question, &context.extensions).await;
        Ok(serde_json::from_value(answer).unwrap_or_else(|_| ElicitResult::new(ElicitationAction::Decline)))
    }

    /// A question with a schema that the SDK does not read comes here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != question::ASKS {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None));
        }
        let question = question::read(&request.params.unwrap_or_default());
        let question = question.map_err(|reason| ErrorData::invalid_params(reason, None))?;
        Ok(CustomResult(self.answered(question, &context.extensions).await))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let call = self.shared.progress().call_of(&params);
        if let Some(call) = call {
            self.shared.progressed(&call, params);
        }
    }

    #[expect(deprecated, reason = "servers still log; the protocol keeps it until another one replaces it")]
    async fn on_logging_message(
        &self,
        params: rmcp::model::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let level = serde_json::to_value(params.level).ok().and_then(|level| level.as_str().map(str::to_owned));
        let level = level.unwrap_or_default();
        self.tell(McpNotice::Log { level, logger: params.logger, data: params.data });
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody who gives these answers, one after the other, and keeps what they were asked.
    struct Slipping(Mutex<(Vec<Value>, Vec<String>)>);

    #[async_trait::async_trait]
    impl Asker for Slipping {
        async fn ask(&self, _: &str, question: InputRequest) -> Option<Map> {
            let mut kept = self.0.lock().expect("not poisoned");
            kept.1.push(question.message);
            kept.0.pop()?.as_object().cloned()
        }
    }

    #[tokio::test]
    async fn who_is_present_is_asked_again_for_an_answer_that_does_not_fit() {
        let schema = json!({ "type": "object", "properties": { "color": { "enum": ["red", "blue"] } } });
        let schema = schema.as_object().cloned().expect("an object");
        let asked = InputRequest { message: "Which?".to_owned(), schema, state: Value::Null };
        let green = json!({ "color": "green" });
        let asker = Slipping(Mutex::new((vec![json!({ "color": "red" }), green.clone()], Vec::new())));
        let said = asked_till_it_fits(&asker, "paint", asked.clone()).await.expect("an answer");
        assert_eq!(said["color"], "red");
        let heard = asker.0.lock().expect("not poisoned").1.clone();
        assert_eq!((heard.len(), heard[0].as_str()), (2, "Which?"));
        assert!(heard[1].starts_with("Which?\nThe answer does not fit, and was not taken: /color"), "{}", heard[1]);
        let asker = Slipping(Mutex::new((vec![green; 9], Vec::new())));
        assert_eq!(asked_till_it_fits(&asker, "paint", asked).await, None, "and at last no more");
        assert_eq!(asker.0.lock().expect("not poisoned").1.len(), 4);
    }
}
