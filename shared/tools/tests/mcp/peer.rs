//! A server of tools, made with the official SDK.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData as McpError, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Text of two megabytes.
pub(crate) const BIG: usize = 2 << 20;

/// What the server has done, and how it behaves.
#[derive(Clone, Default)]
pub(crate) struct Peer {
    /// Speaks no version later than 2025-11-25.
    pub(crate) is_older: bool,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<String>>,
    lists: AtomicUsize,
    has_changed: AtomicBool,
    change: Notify,
    /// Answers of a person to the question of the task.
    told: Mutex<Option<InputResponses>>,
}

impl Peer {
    pub(crate) fn older(is_older: bool) -> Self {
        Self { is_older, ..Self::default() }
    }

    /// What happened, in order.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.state.seen.lock().expect("a lock").clone()
    }

    /// How often the first page of the list was asked for.
    pub(crate) fn lists(&self) -> usize {
        self.state.lists.load(Ordering::SeqCst)
    }

    fn saw(&self, what: impl Into<String>) {
        self.state.seen.lock().expect("a lock").push(what.into());
    }

    fn tools(&self) -> Vec<Tool> {
        let mut tools = vec![
            json!({ "name": "echo", "description": "Says it again", "annotations": { "readOnlyHint": true },
                "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
                "outputSchema": { "type": "object", "properties": { "said": { "type": "string" } }, "required": ["said"] } }),
            json!({ "name": "slow", "inputSchema": { "type": "object" } }),
            json!({ "name": "fail", "inputSchema": { "type": "object" } }),
            json!({ "name": "refuse", "inputSchema": { "type": "object" } }),
            json!({ "name": "change", "inputSchema": { "type": "object" } }),
            json!({ "name": "big", "inputSchema": { "type": "object" } }),
            json!({ "name": "lie", "inputSchema": { "type": "object" },
                "outputSchema": { "type": "object", "properties": { "n": { "type": "integer" } } } }),
            json!({ "name": "ask", "inputSchema": { "type": "object" } }),
            json!({ "name": "ask_safely", "inputSchema": { "type": "object" }, "annotations": { "idempotentHint": true } }),
            json!({ "name": "long", "inputSchema": { "type": "object" } }),
            json!({ "name": "work", "inputSchema": { "type": "object" } }),
            json!({ "name": "die", "inputSchema": { "type": "object" } }),
            json!({ "name": "hang", "inputSchema": { "type": "object" } }),
            json!({ "name": "environment", "inputSchema": { "type": "object" } }),
            json!({ "name": "seen", "inputSchema": { "type": "object" } }),
            json!({ "name": "two words", "inputSchema": { "type": "object" } }),
            json!({ "name": "wrong", "inputSchema": { "type": "array" } }),
        ];
        if self.state.has_changed.load(Ordering::SeqCst) {
            tools.push(json!({ "name": "new", "inputSchema": { "type": "object" } }));
        }
        serde_json::from_value(Value::Array(tools)).expect("tools")
    }

    async fn change(&self, context: &RequestContext<RoleServer>) {
        self.state.has_changed.store(true, Ordering::SeqCst);
        self.state.change.notify_one();
        if self.is_older {
            context.peer.notify_tool_list_changed().await.expect("a notification");
        }
    }

    async fn slow(&self, context: &RequestContext<RoleServer>) -> CallToolResult {
        self.saw("slow began");
        tokio::select! {
            () = context.ct.cancelled() => self.saw("slow canceled"),
            () = tokio::time::sleep(Duration::from_secs(600)) => self.saw("slow ended"),
        }
        CallToolResult::success(Vec::new())
    }

    #[expect(deprecated, reason = "what clients still take is sent")]
    async fn work(&self, context: &RequestContext<RoleServer>) -> CallToolResult {
        if let Some(token) = context.meta.get_progress_token() {
            let progress = ProgressNotificationParam::new(token, 1.0).with_total(2.0).with_message("half");
            context.peer.notify_progress(progress).await.expect("a notification");
        }
        let line = LoggingMessageNotificationParam::new(LoggingLevel::Warning, json!("careful"));
        context.peer.notify_logging_message(line).await.expect("a notification");
        let key = context.meta.get("dormouse/idempotency-key").cloned().unwrap_or_default();
        CallToolResult::success(vec![ContentBlock::text(key.as_str().unwrap_or("no key"))])
    }

    /// Asks for a name: in the midst of the call where the client is an older one, else by ending the call.
    async fn ask(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        self.saw("ask began");
        let params: ElicitRequestParams = serde_json::from_value(json!({ "mode": "form", "message": "Who are you?",
            "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] },
        }))
        .expect("params");
        let answer = match (self.is_older, request.input_responses) {
            (true, _) => {
                let result = context.peer.create_elicitation(params).await;
                let result = result.map_err(|error| McpError::internal_error(error.to_string(), None))?;
                serde_json::to_value(result).expect("a value")
            }
            (false, Some(mut responses)) if request.request_state.as_deref() == Some("sealed") => {
                responses.remove("who").unwrap_or_default()
            }
            (false, _) => {
                let request = InputRequest::Elicitation(ElicitRequest::new(params));
                let requests = InputRequests::from([("who".to_owned(), request)]);
                return Ok(InputRequiredResult::new(Some(requests), Some("sealed".to_owned())).into());
            }
        };
        let text = match (answer["action"].as_str(), answer["content"]["name"].as_str()) {
            (Some("accept"), Some(name)) => format!("Hello {name}"),
            (action, _) => format!("Nobody: {}", action.unwrap_or("no action")),
        };
        self.saw(text.clone());
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

fn said(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_tasks().build();
        ServerConfig::new(capabilities)
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        let known = ProtocolVersion::KNOWN_VERSIONS;
        let known: Vec<_> =
            known.iter().filter(|version| !self.is_older || version.has_initialize()).cloned().collect();
        known.into()
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), McpError> {
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.state.change.notified() => {
                    context.sink().notify_tool_list_changed().await.expect("a notification");
                }
            }
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        let mut tools = self.tools();
        // An hour: the list holds until it changes.
        let ttl_ms = (!self.is_older).then_some(3_600_000);
        let mut page = ListToolsResult { ttl_ms, ..ListToolsResult::default() };
        match request.and_then(|request| request.cursor) {
            Some(cursor) => page.tools = tools.split_off(cursor.parse().expect("a cursor of ours")),
            None => {
                self.state.lists.fetch_add(1, Ordering::SeqCst);
                tools.truncate(5);
                page.tools = tools;
                page.next_cursor = Some("5".to_owned());
            }
        }
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        let result = match request.name.as_ref() {
            "echo" => {
                let text = request.arguments.as_ref().and_then(|arguments| arguments.get("text")).cloned();
                CallToolResult::structured(json!({ "said": text }))
            }
            "slow" => self.slow(&context).await,
            "fail" => CallToolResult::error(vec![ContentBlock::text("out of paper")]),
            "refuse" => return Err(McpError::internal_error("the printer burns", None)),
            "change" => {
                self.change(&context).await;
                said("changed")
            }
            "big" => said("x".repeat(BIG)),
            "lie" => CallToolResult::structured(json!({ "n": "one" })),
            "ask" | "ask_safely" => return self.ask(request, &context).await,
            "long" => {
                self.saw("long began");
                return Ok(CreateTaskResult::new(task(TaskStatus::Working)).into());
            }
            "work" => self.work(&context).await,
            "die" => std::process::exit(3),
            "hang" => {
                std::thread::sleep(Duration::from_secs(60));
                said("too late".to_owned())
            }
            "environment" => {
                let names = std::env::vars().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
                said(format!("{names} token={}", std::env::var("TOKEN").unwrap_or_default()))
            }
            "seen" => said(self.seen().join(",")),
            "new" => said("new"),
            other => return Err(McpError::invalid_params(format!("there is no tool {other}"), None)),
        };
        Ok(result.into())
    }

    /// It works, then asks a person something, and ends with the answer.
    async fn get_task(&self, request: GetTaskParams, _: RequestContext<RoleServer>) -> Result<GetTaskResult, McpError> {
        if request.task_id != "task-7" {
            return Err(McpError::invalid_params("there is no such task", None));
        }
        let looks = self.seen().iter().filter(|seen| *seen == "long looked at").count();
        self.saw("long looked at");
        let told = self.state.told.lock().expect("a lock").clone();
        let payload = match (looks, told) {
            (0, _) => TaskPayload::Working,
            (_, None) => {
                let params: ElicitRequestParams =
                    serde_json::from_value(json!({ "mode": "form", "message": "Which room?",
                    "requestedSchema": { "type": "object", "properties": { "room": { "type": "string" } } } }))
                    .expect("params");
                let request = InputRequest::Elicitation(ElicitRequest::new(params));
                TaskPayload::InputRequired { input_requests: InputRequests::from([("room".to_owned(), request)]) }
            }
            (_, Some(told)) => {
                let said = said(format!("booked {}", told["room"]["content"]["room"]));
                let Ok(Value::Object(result)) = serde_json::to_value(said) else { panic!("an object") };
                TaskPayload::Completed { result }
            }
        };
        Ok(GetTaskResult::new(DetailedTask::new(task(TaskStatus::Working), payload)))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: RequestContext<RoleServer>) -> Result<(), McpError> {
        self.saw("long told");
        *self.state.told.lock().expect("a lock") = Some(request.input_responses);
        Ok(())
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), McpError> {
        self.saw(format!("{} canceled", request.task_id));
        Ok(())
    }
}

fn task(status: TaskStatus) -> Task {
    Task::new("task-7", status, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z").with_poll_interval_ms(3_000)
}
