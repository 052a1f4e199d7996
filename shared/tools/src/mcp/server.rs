use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_json::{ENTRY, measure};
use dormouse_ports::Fetch;
use dormouse_ports::tool::{
    ToolCall, ToolContent, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec,
};
use rmcp::ServiceError;
use rmcp::model::{
    CallToolResult, CancelTaskParams, CustomResult, ErrorCode, GetTaskParams, ServerResult, UpdateTaskParams,
};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use super::asker::Asker;
use super::call::{Exchanged, exchange};
use super::config::{McpConfig, McpTransport};
use super::connection::{Beginning, Connection};
use super::failure::{is_expired, refused, too_large, unfinished};
use super::handler::Handler;
use super::heard::Heard;
use super::http::{AnnotatedTools, StandingStream};
use super::notice::{McpNotice, NoticeListener};
use super::oauth::Tokens;
use super::question::{Along, NextStep, before_call, next, next_read};
use super::task::{Followed, KnownTask};
use super::{list, output, specs};
use crate::Values;
use crate::mask::Mask;
use crate::text::cut;

/// Times that a server may ask for the same call again without asking a person.
const MOST_ROUNDS: u32 = 8;

/// How long a server that did not answer in time is not asked for its list again: otherwise every step of a run would
/// wait for it.
const REST: Duration = Duration::from_secs(60);

/// How long an address has to keep those waiting who ask for its list, and give up, to rest for those who only show it: a
/// little less than they wait. A process may have to be installed first.
const IN_VAIN: Duration = Duration::from_secs(8);

/// Tools of one list that are told one by one where they are not offered.
const MOST_TOLD: usize = 20;

/// The tools of one MCP server. The conversation begins with the first request and is begun again when it was lost; a
/// call that may have reached the server is never sent a second time.
pub struct McpServer {
    config: McpConfig,
    fetch: Arc<dyn Fetch>,
    values: Values,
    /// Takes the secrets that it was ever given out of what it answers.
    mask: Mask,
    handler: Handler,
    /// The access tokens of its client, over all conversations.
    tokens: Option<Arc<Tokens>>,
    connection: Mutex<Option<Arc<Connection>>>,
    listed: Mutex<Option<ListedTools>>,
    /// When it last did not list its tools in time, and what that was answered with.
    late: Mutex<Option<Late>>,
}

/// A list that was waited for in vain.
struct Late {
    at: Instant,
    error: ToolError,
    /// True if others may have the time for it: it is late for who only shows it.
    is_brief: bool,
}

impl Late {
    fn rests(&self, briefly: bool) -> bool {
        self.at.elapsed() < REST && (briefly || !self.is_brief)
    }
}

/// The wait for a list, which nobody else asks for meanwhile.
struct ListWait<'s> {
    late: MutexGuard<'s, Option<Late>>,
    /// When it began; `None` once it is over, and where it does not matter how long it is.
    since: Option<Instant>,
    /// The time that the server has for its list.
    limit: Duration,
}

impl ListWait<'_> {
    fn over(mut self, listed: &Result<Arc<Vec<ToolSpec>>, ToolError>) {
        self.since = None;
        *self.late = match listed {
            Err(error) if error.kind == ToolErrorKind::TimedOut => {
                Some(Late { at: Instant::now(), error: error.clone(), is_brief: false })
            }
            Ok(_) | Err(_) => None,
        };
    }
}

impl Drop for ListWait<'_> {
    fn drop(&mut self) {
        if let Some(waited) = self.since.map(|since| since.elapsed()).filter(|waited| *waited >= IN_VAIN) {
            let error = too_slow("list its tools", Duration::from_secs(waited.as_secs()));
            *self.late = Some(Late { at: Instant::now(), error, is_brief: waited < self.limit });
        }
    }
}

/// A list of tools, and how long it holds.
struct ListedTools {
    specs: Arc<Vec<ToolSpec>>,
    /// What stands in it and is not offered.
    left_out: Vec<specs::LeftOut>,
    at: Instant,
    /// [`Handler::changes`] when it was asked for.
    changes: u64,
    /// [`Connection::told_by`] when it was asked for.
    told_by: Option<u64>,
    /// The age that the server allows.
    holds: Option<Duration>,
    connection: Arc<Connection>,
}

impl ListedTools {
    fn is_fresh(&self, changes: u64, most_age: Duration) -> bool {
        let is_young = self.at.elapsed() < self.holds.unwrap_or(most_age);
        let is_told = self.told_by.is_some() && self.told_by == self.connection.told_by();
        self.changes == changes && (is_young || (self.holds.is_none() && is_told))
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer").field("config", &self.config).finish_non_exhaustive()
    }
}

impl McpServer {
    /// The server of `config`. Nothing is sent before it is asked for something.
    pub fn new(config: McpConfig, fetch: Arc<dyn Fetch>, values: Values, listener: NoticeListener) -> Self {
        let (values, mask) = values.watched();
        let handler = Handler::new(&config.name, listener, mask.clone());
        let tokens = match &config.transport {
            McpTransport::Http { oauth: Some(oauth), .. } => Some(Tokens::new((**oauth).clone(), fetch.clone())),
            McpTransport::Http { oauth: None, .. } | McpTransport::Stdio { .. } => None,
        };
        Self {
            config,
            fetch,
            values,
            mask,
            handler,
            tokens: tokens.map(Arc::new),
            connection: Mutex::default(),
            listed: Mutex::default(),
            late: Mutex::default(),
        }
    }

    /// The same server; its questions in the midst of calls are put to `asker`.
    #[must_use]
    pub fn with_asker(self, asker: Arc<dyn Asker>) -> Self {
        Self { handler: self.handler.with_asker(asker), ..self }
    }

    /// The same server, with the access tokens that others of the same client have.
    #[must_use]
    pub(super) fn with_tokens(self, tokens: Arc<Tokens>) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Configuration by which it is reached.
    pub fn config(&self) -> &McpConfig {
        &self.config
    }

    /// Ends the conversation, and the process where the server is one. The next request begins another.
    pub async fn close(&self) {
        self.listed.lock().await.take();
        if let Some(connection) = self.connection.lock().await.take().and_then(Arc::into_inner) {
            connection.close().await;
        }
    }

    /// The conversation, begun where there is none.
    async fn connection(&self) -> Result<Arc<Connection>, ToolError> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = &*held
            && connection.answers().await
        {
            return Ok(connection.clone());
        }
        if held.take().is_some() {
            // Changes of the time without a listener are not known.
            self.handler.doubted();
        }
        let heard = Heard::default();
        let beginning = Beginning {
            config: &self.config,
            fetch: &self.fetch,
            values: &self.values,
            tokens: self.tokens.as_ref(),
            handler: &self.handler,
            heard: &heard,
            standing: &StandingStream::default(),
            annotated: &AnnotatedTools::default(),
        };
        let opening = Connection::open(beginning);
        let connection = match timeout(self.config.connect_timeout, opening).await {
            Ok(Ok(opened)) => Arc::new(opened),
            Ok(Err(error)) => return Err(heard.last_words(error, &self.mask).await),
            Err(_) => {
                let late = too_slow("begin a conversation", self.config.connect_timeout);
                let message = match &self.config.transport {
                    McpTransport::Stdio { .. } => format!(
                        "{}. A server over standard output writes each message as one line of JSON, and flushes it",
                        late.message
                    ),
                    McpTransport::Http { .. } => late.message,
                };
                return Err(heard.explain(ToolError { message, ..late }, &self.mask));
            }
        };
        *held = Some(connection.clone());
        Ok(connection)
    }

    async fn forget(&self, lost: &Arc<Connection>) {
        let mut held = self.connection.lock().await;
        if held.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, lost)) {
            *held = None;
            self.handler.doubted();
        }
    }

    /// The tools, asked for where they are not known or have changed. A server that was late rests first; one that was so
    /// only for those who ask `briefly` is asked by the others.
    async fn specs(&self, briefly: bool) -> Result<Arc<Vec<ToolSpec>>, ToolError> {
        let late = self.late.lock().await;
        if let Some(Late { error, .. }) = late.as_ref().filter(|late| late.rests(briefly)) {
            return Err(error.clone());
        }
        let since = match &self.config.transport {
            McpTransport::Http { .. } => Some(Instant::now()),
            McpTransport::Stdio { .. } => None,
        };
        let wait = ListWait { late, since, limit: self.config.connect_timeout };
        let specs = self.asked_specs().await;
        wait.over(&specs);
        specs
    }

    async fn asked_specs(&self) -> Result<Arc<Vec<ToolSpec>>, ToolError> {
        let mut listed = self.listed.lock().await;
        let mut connection = match &*listed {
            Some(known) if known.is_fresh(self.handler.changes(), self.config.list_max_age) => {
                return Ok(known.specs.clone());
            }
            _ => self.connection().await?,
        };
        let mut known = (self.handler.changes(), connection.told_by());
        let mut asked = self.pages(&connection).await;
        if asked.as_ref().is_err_and(|failed| failed.is_expired) {
            // The server has done nothing, and is asked in another conversation.
            self.forget(&connection).await;
            connection = self.connection().await?;
            known = (self.handler.changes(), connection.told_by());
            asked = self.pages(&connection).await;
        }
        let list::Listing { tools, left_out: no_tools, holds } = asked.map_err(|failed| failed.error)?;
        let (changes, told_by) = known;
        connection.heard().settle();
        let (specs, mut left_out) = specs::read(tools);
        left_out.extend(no_tools);
        for (tool, reason) in left_out.iter().take(MOST_TOLD).cloned() {
            let reason = self.mask.text(reason);
            tracing::warn!(server = self.config.name, tool, reason, "a tool of an MCP server is not offered");
            self.handler.tell(McpNotice::ToolLeftOut { tool, reason });
        }
        let more = left_out.len().saturating_sub(MOST_TOLD);
        if more > 0 {
            tracing::warn!(server = self.config.name, more, "more tools of an MCP server are not offered");
        }
        let specs = Arc::new(specs);
        let at = Instant::now();
        *listed = Some(ListedTools { specs: specs.clone(), left_out, at, changes, told_by, holds, connection });
        Ok(specs)
    }

    async fn pages(&self, connection: &Connection) -> Result<list::Listing, list::NotListed> {
        match timeout(self.config.connect_timeout, list::pages(connection)).await {
            Ok(Err(failed)) if connection.is_closed() => {
                let error = connection.heard().last_words(failed.error, &self.mask).await;
                Err(list::NotListed { error, ..failed })
            }
            Ok(asked) => asked,
            Err(_) => {
                connection.doubt();
                let late = too_slow("list its tools", self.config.connect_timeout);
                Err(connection.heard().explain(late, &self.mask).into())
            }
        }
    }

    /// The tool `name` as it was listed last. The list is asked for where there is none, or where it has changed; its age
    /// alone is no reason to ask before a call.
    async fn spec(&self, name: &str) -> Result<ToolSpec, ToolError> {
        let changes = self.handler.changes();
        let known = self.listed.lock().await.as_ref().filter(|known| known.changes == changes).map(|l| l.specs.clone());
        let specs = match known {
            Some(specs) => specs,
            None => self.specs(false).await?,
        };
        let spec = specs.iter().find(|spec| spec.name == name).cloned();
        spec.ok_or_else(|| ToolError::new(ToolErrorKind::NotFound, format!("it has no tool `{name}` now")))
    }

    /// The tool `name` as it was listed last, if it was. A list that is under way is not waited for.
    fn known(&self, name: &str) -> Option<ToolSpec> {
        let listed = self.listed.try_lock().ok()?;
        listed.as_ref()?.specs.iter().find(|spec| spec.name == name).cloned()
    }

    async fn made(&self, call: &ToolCall, spec: &ToolSpec) -> Result<ToolReply, ToolError> {
        let mut along = Along::from_answer(call.input.as_ref())?;
        for round in 0..MOST_ROUNDS {
            let exchanged = self.exchanged(call, spec, &along).await?;
            match self.judged(spec, exchanged)? {
                NextStep::End(reply) => return Ok(reply),
                NextStep::Again(next) => along = next,
            }
            tokio::time::sleep(Duration::from_millis(100 << round)).await;
        }
        Err(ToolError::permanent("it asks for the same call again and again, and never answers it").maybe_done())
    }

    /// Sends the call. Where the server has forgotten the conversation it has done nothing, and is asked in another.
    async fn exchanged(&self, call: &ToolCall, spec: &ToolSpec, along: &Along) -> Result<Exchanged, ToolError> {
        let connection = self.connection().await?;
        let exchanged = exchange(&connection, &self.handler, call, spec, along).await;
        match &exchanged.result {
            Err(error) if is_expired(error) => {
                self.forget(&connection).await;
                let connection = self.connection().await?;
                Ok(exchange(&connection, &self.handler, call, spec, along).await)
            }
            Err(error @ (ServiceError::TransportClosed | ServiceError::TransportSend(_)))
                if exchanged.asked.is_none() =>
            {
                Err(connection.heard().last_words(unfinished(error), &self.mask).await)
            }
            Ok(_) | Err(_) => Ok(exchanged),
        }
    }

    /// Status of the work of an earlier attempt.
    async fn looked_at(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let known = KnownTask::read(call.pending.as_ref().unwrap_or(&Value::Null))?;
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return known.again(error),
        };
        if let Some(answers) = KnownTask::answers(call.input.as_ref())?
            && let Err(error) = connection.peer().update_task(UpdateTaskParams::new(&known.task, answers)).await
        {
            return Err(unfinished(&error).maybe_done());
        }
        let told = match connection.peer().get_task(GetTaskParams::new(&known.task)).await {
            Ok(told) => told,
            Err(error) => {
                if is_expired(&error) {
                    self.forget(&connection).await;
                }
                return known.unheard(&error);
            }
        };
        match known.clone().follow(told.task)? {
            Followed::Reply(reply) => Ok(reply),
            Followed::Result(result) => Ok(self.outcome(self.known(&call.name).as_ref(), output::read(*result), &[])),
            Followed::Told(answers) => {
                match connection.peer().update_task(UpdateTaskParams::new(&known.task, answers)).await {
                    Ok(()) => known.goes_on(None),
                    Err(error) => known.unheard(&error),
                }
            }
        }
    }

    fn judged(&self, spec: &ToolSpec, exchanged: Exchanged) -> Result<NextStep<ToolReply>, ToolError> {
        if let Some(asked) = exchanged.asked {
            return Ok(NextStep::End(ToolReply::InputRequired(asked)));
        }
        let result = match exchanged.result {
            Ok(ServerResult::InputRequiredResult(required)) => {
                return Ok(match next(required)? {
                    NextStep::End(request) => NextStep::End(ToolReply::InputRequired(request)),
                    NextStep::Again(along) => NextStep::Again(along),
                });
            }
            Ok(ServerResult::CreateTaskResult(created)) => return Ok(NextStep::End(KnownTask::begun(&created.task))),
            Ok(ServerResult::CustomResult(CustomResult(value))) => match next_read(&value)? {
                Some(NextStep::End(request)) => return Ok(NextStep::End(ToolReply::InputRequired(request))),
                Some(NextStep::Again(along)) => return Ok(NextStep::Again(along)),
                None => complete(ServerResult::CustomResult(CustomResult(value)))?,
            },
            Ok(result) => complete(result)?,
            Err(ServiceError::McpError(error)) => {
                if let Some(request) = before_call(&error) {
                    return Ok(NextStep::End(ToolReply::InputRequired(request)));
                }
                // The list may have changed without a word.
                if error.code == ErrorCode::INVALID_PARAMS {
                    self.handler.doubted();
                }
                return refused(&error).map(NextStep::End);
            }
            Err(error) => return Err(unfinished(&error)),
        };
        Ok(NextStep::End(self.outcome(Some(spec), output::read(result), &exchanged.declined)))
    }

    /// Takes `output` as that of the tool with `spec`, where that is known.
    fn outcome(&self, spec: Option<&ToolSpec>, mut output: ToolOutput, declined: &[String]) -> ToolReply {
        if output::size(&output) > self.config.most_bytes {
            return too_large(&format!("the answer is larger than {} bytes", self.config.most_bytes));
        }
        if let Some(Err(excess)) = output.structured.as_ref().map(|value| measure(value, ENTRY)) {
            output.structured = None;
            output.content.push(ToolContent::text(format!("[Note: its structured value cannot be taken: {excess}]")));
        }
        if let Some(spec) = spec
            && let Err(message) = output::keeps(&output, spec.output_schema.as_ref())
        {
            output.content.push(ToolContent::text(format!("[Note: {message}.]")));
            self.handler.tell(McpNotice::BrokenPromise { tool: spec.name.clone(), message });
        }
        for question in declined {
            output.content.push(ToolContent::text(format!(
                "[Note: the tool asked a person in the midst of the call, and nobody could be asked: {question}]"
            )));
        }
        ToolReply::Done(output)
    }

    /// The tools as they are offered, for who asks `briefly` or needs them.
    async fn shown(&self, briefly: bool) -> Result<Vec<ToolSpec>, ToolError> {
        let specs = self.specs(briefly).await.map_err(|error| self.told(error))?;
        Ok(specs.iter().map(|spec| self.offered(spec.clone())).collect())
    }

    /// `spec` as it is offered: without secrets in what it says.
    fn offered(&self, spec: ToolSpec) -> ToolSpec {
        ToolSpec {
            title: spec.title.map(|title| self.mask.text(title)),
            description: self.mask.text(spec.description),
            input_schema: self.mask.schema(spec.input_schema),
            output_schema: spec.output_schema.map(|schema| self.mask.schema(schema)),
            timeout: Some(self.config.timeout),
            ..spec
        }
    }

    /// `error` of this server, without secrets in it.
    fn told(&self, error: ToolError) -> ToolError {
        let error = self.named(error);
        ToolError { message: self.mask.text(error.message.clone()), ..error }
    }

    fn named(&self, error: ToolError) -> ToolError {
        ToolError { message: format!("MCP server `{}`: {}", self.config.name, error.message), ..error }
    }
}

fn too_slow(what: &str, limit: Duration) -> ToolError {
    let message = format!("it did not {what} within {} s; it is slow, or its time is too short", limit.as_secs_f64());
    ToolError::new(ToolErrorKind::TimedOut, message)
}

/// The result of a call that is complete. A server may leave everything out.
///
/// # Errors
/// It is the result of something else, or what it says stands in no field that a result has.
#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK may add variants, and all others mean the same")]
fn complete(result: ServerResult) -> Result<CallToolResult, ToolError> {
    match result {
        ServerResult::CallToolResult(result) => Ok(result),
        ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Ok(CallToolResult::success(Vec::new())),
        ServerResult::CustomResult(CustomResult(value)) => output::in_parts(&value).ok_or_else(|| {
            let missing = match value.get("content") {
                None => "it has no `content`",
                Some(_) => "its `content` is no list",
            };
            ToolError::permanent(format!(
                "what it answers is no result of a call: {missing}; a result has a list of blocks, such as `\"content\": \
                 [{{\"type\": \"text\", \"text\": \"done\"}}]`, and says {}",
                cut(&value.to_string(), 300)
            ))
            .maybe_done()
        }),
        _ => Err(ToolError::permanent("what it answers is no result of a call").maybe_done()),
    }
}

#[async_trait]
impl ToolSource for McpServer {
    fn lists_offline(&self) -> bool {
        false
    }

    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.shown(false).await
    }

    async fn list_briefly(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.shown(true).await
    }

    async fn left_out(&self) -> Vec<(String, String)> {
        let left_out = self.listed.lock().await.as_ref().map(|listed| listed.left_out.clone()).unwrap_or_default();
        let masked = |(tool, reason): (String, String)| (tool, self.told(ToolError::permanent(reason)).message);
        left_out.into_iter().map(masked).collect()
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let spec = match call.pending {
            // How its task stands is told without a list.
            Some(_) => None,
            None => Some(self.spec(&call.name).await.map_err(|error| self.told(error))?),
        };
        if let McpTransport::Http { url, .. } = &self.config.transport
            && let Ok(url) = self.values.address(url).await
        {
            call.effects.asked(url.expose());
        }
        let work = async {
            match &spec {
                Some(spec) => self.made(call, spec).await,
                None => self.looked_at(call).await,
            }
        };
        let made = match timeout(self.config.timeout, work).await {
            Ok(made) => made,
            Err(_) => {
                let late = too_slow(&format!("answer `{}`", call.name), self.config.timeout).maybe_done();
                // While another conversation is begun, nothing is said of this one.
                let late = match self.connection.try_lock().ok().and_then(|held| held.clone()) {
                    Some(connection) => connection.heard().explain(late, &self.mask),
                    None => late,
                };
                match call.pending.as_ref().filter(|_| call.input.is_none()) {
                    Some(state) => KnownTask::read(state).and_then(|known| known.again(late)),
                    None => Err(late),
                }
            }
        };
        self.mask.outcome(made.map_err(|error| self.named(error)))
    }

    async fn withdraw(&self, _: &str, state: &Value) -> Result<(), ToolError> {
        let known = KnownTask::read(state)?;
        let connection = self.connection().await.map_err(|error| self.told(error))?;
        let told = connection.peer().cancel_task(CancelTaskParams::new(known.task)).await;
        told.map_err(|error| self.named(unfinished(&error)))
    }
}

#[cfg(test)]
mod tests;
