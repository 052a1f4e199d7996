//! A scripted model and tools that keep count.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of the cast")]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::graph::{AgentLimits, AgentParts, ModelPart, ToolPart};
use dormouse_agent::workspace::{FileContent, Files, Platform, Prices, ToolOrigin, Workspace, load};
use dormouse_harness::{Harness, TurnOutcome};
use dormouse_ports::model::{
    AssistantMessage, CallOptions, CompletionRequest, FinishReason, Message, ModelError, ModelIdentity, ModelProvider,
    Response, RuntimeConfig, ToolCall as AskedCall, Usage,
};
use dormouse_ports::tool::{
    ActionDefinition, ActionEntry, ActionExposure, Effect, ToolCall, ToolError, ToolReply, ToolSource, ToolSpec,
};
use dormouse_ports::{ClaimOutcome, ClaimRequest, Clock, Commit, CommitError, Commits, StoreError};
use dormouse_testkit::CountingIds;
use serde_json::{Map, Value, json};

/// The state of the run `id`, once it has completed. One that failed fails the test.
pub async fn completed(harness: &Harness, id: &str) -> Option<Map<String, Value>> {
    match harness.look_up(&id.into()).await {
        Ok(TurnOutcome::Completed(turn)) => Some(turn.state),
        Ok(TurnOutcome::Errored(error)) => panic!("it failed: {error:?}"),
        Ok(_) | Err(_) => None,
    }
}

/// Lets whoever polls look, once.
pub async fn breathe() {
    let mut breathed = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut breathed, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

type Answer = Box<dyn Fn(&CompletionRequest) -> Result<Response, ModelError> + Send + Sync>;

/// A model that answers by the number of results that it sees, so that the same request gets the same answer.
pub struct ScriptedModel {
    answer: Answer,
    pub requests: Mutex<Vec<CompletionRequest>>,
}

impl ScriptedModel {
    pub fn new(
        answer: impl Fn(&CompletionRequest) -> Result<Response, ModelError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { answer: Box::new(answer), requests: Mutex::default() })
    }

    /// Plays `turns` in order, however the requests look.
    pub fn playing(turns: Vec<Result<Response, ModelError>>) -> Arc<Self> {
        let turns = Mutex::new(VecDeque::from(turns));
        Self::new(move |_| {
            turns.lock().expect("not poisoned").pop_front().unwrap_or_else(|| Ok(says("(the script is over)")))
        })
    }

    pub fn calls(&self) -> usize {
        self.requests.lock().expect("not poisoned").len()
    }

    pub fn last(&self) -> CompletionRequest {
        self.requests.lock().expect("not poisoned").last().cloned().expect("a request")
    }
}

#[async_trait]
impl ModelProvider for ScriptedModel {
    fn identity(&self) -> ModelIdentity {
        ModelIdentity { system: "scripted".to_owned(), model: "script-1".to_owned(), server: "nowhere".to_owned() }
    }

    async fn ready(&self) -> Result<(), ModelError> {
        Ok(())
    }

    async fn complete(&self, request: &CompletionRequest, _: &CallOptions) -> Result<Response, ModelError> {
        breathe().await;
        self.requests.lock().expect("not poisoned").push(request.clone());
        let answer = (self.answer)(request);
        breathe().await;
        answer
    }
}

/// An answer in words.
pub fn says(text: &str) -> Response {
    response(AssistantMessage { content: text.into(), ..AssistantMessage::default() }, FinishReason::Stop)
}

/// An answer that calls tools: `(id, name, arguments)`.
pub fn calls(calls: &[(&str, &str, Value)]) -> Response {
    let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let tool_calls = calls.iter().map(|(id, name, arguments)| AskedCall::new(*id, *name, object(arguments)));
    let message = AssistantMessage { tool_calls: tool_calls.collect(), ..AssistantMessage::default() };
    response(message, FinishReason::ToolCalls)
}

fn response(message: AssistantMessage, finish_reason: FinishReason) -> Response {
    let usage = Usage { prompt_tokens: Some(100), completion_tokens: Some(10), ..Usage::default() };
    Response { message, finish_reason, usage, raw: Value::Null, parsed: None }
}

/// Results of tools in `request`, in order.
pub fn results(request: &CompletionRequest) -> Vec<String> {
    let result = |message: &Message| match message {
        Message::Tool { content, .. } => Some(content.clone()),
        Message::System { .. } | Message::User { .. } | Message::Assistant(_) => None,
    };
    request.messages.iter().filter_map(result).collect()
}

type Act = Box<dyn Fn(&ToolCall) -> Result<ToolReply, ToolError> + Send + Sync>;

/// Tools that keep every call that had an effect.
pub struct Toolbox {
    /// What it lists.
    pub specs: Mutex<Vec<ToolSpec>>,
    act: Act,
    pub made: Mutex<Vec<ToolCall>>,
    /// True while nobody can ask it for its tools.
    pub unlisted: AtomicBool,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Toolbox")
    }
}

impl Toolbox {
    pub fn new(
        specs: Vec<ToolSpec>,
        act: impl Fn(&ToolCall) -> Result<ToolReply, ToolError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (specs, made, unlisted) = (Mutex::new(specs), Mutex::default(), AtomicBool::default());
        Arc::new(Self { specs, act: Box::new(act), made, unlisted })
    }

    pub fn made(&self) -> Vec<(String, Value)> {
        let made = self.made.lock().expect("not poisoned");
        made.iter().map(|call| (call.name.clone(), Value::Object(call.arguments.clone()))).collect()
    }
}

#[async_trait]
impl ToolSource for Toolbox {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        match self.unlisted.load(Ordering::SeqCst) {
            true => Err(ToolError::transient("no connection")),
            false => Ok(self.specs.lock().expect("not poisoned").clone()),
        }
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        breathe().await;
        self.made.lock().expect("not poisoned").push(call.clone());
        let reply = (self.act)(call);
        breathe().await;
        reply
    }
}

/// A tool whose argument `to` is a text.
pub fn tool(name: &str, effect: Effect) -> ToolSpec {
    let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } }, "required": ["to"] });
    let Value::Object(input_schema) = schema else { panic!("an object") };
    ToolSpec { input_schema, effect, description: format!("{name}s"), ..ToolSpec::new(name) }
}

/// Makes the first source of tools in `parts` one of actions; clients may run its tool `offered`.
pub fn offer_as_action(parts: &mut AgentParts, offered: ToolSpec) {
    parts.tools[0].origin = ToolOrigin::Action;
    parts.actions = vec![ActionDefinition {
        file: format!("actions/{}/ACTION.yaml", offered.name),
        description: offered.description,
        entry: ActionEntry {
            command: offered.name.clone(),
            environment: Vec::new(),
            folder: ".".to_owned(),
            timeout_seconds: None,
        },
        expose: ActionExposure::ALL,
        input_schema: offered.input_schema,
        safe: false,
        name: offered.name,
    }];
}

/// A workspace with one agent, whose front matter is `matter`.
pub fn workspace(matter: &str) -> Workspace {
    let bytes = |text: String| FileContent::Bytes(text.into_bytes());
    let files = Files::from([
        ("AGENTS.md".to_owned(), bytes("Project rules.".to_owned())),
        (
            ".openharness/models/m.yaml".to_owned(),
            bytes("m:\n  provider: openai\n  name: x\n  metadata: {prices: {prompt: 1, completion: 2}}\n".to_owned()),
        ),
        (".openharness/agents/helper.md".to_owned(), bytes(format!("---\n{matter}\n---\nYou help.\n"))),
    ]);
    let workspace = load(&files, &Platform::default());
    assert!(workspace.is_sound(), "{:#?}", workspace.problems);
    workspace
}

/// The parts of the agent of [`workspace`].
pub fn parts(
    matter: &str,
    model: Arc<dyn ModelProvider>,
    tools: Arc<dyn ToolSource>,
    clock: Arc<dyn Clock>,
) -> AgentParts {
    let workspace = workspace(matter);
    AgentParts {
        agent: workspace.agents["helper"].clone(),
        name: "helper".to_owned(),
        bundle: workspace.digest.clone(),
        instructions: workspace.instructions_of(&workspace.agents["helper"]),
        environment: None,
        approval: workspace.settings.approval.clone(),
        model: ModelPart {
            reference: "workspace/main".to_owned(),
            provider: model,
            background: None,
            config: RuntimeConfig::default(),
            prices: Some(Prices { prompt: 1.0, completion: 2.0, cached: Some(0.5), written: Some(1.25) }),
            takes_images: false,
            context_window: None,
            timeout: Duration::from_secs(60),
        },
        tools: vec![ToolPart {
            name: "box".to_owned(),
            origin: ToolOrigin::External,
            expose: Default::default(),
            source: tools,
        }],
        disabled: Vec::new(),
        remembers: false,
        compacts: true,
        colleagues: Default::default(),
        successors: Vec::new(),
        actions: Vec::new(),
        hooks: Vec::new(),
        clock,
        ids: Arc::new(CountingIds::default()),
        deltas: None,
        images: None,
        callbacks: None,
        limits: AgentLimits::default(),
        schemas: Default::default(),
    }
}

/// The state of a run with the message `text`.
pub fn message(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }] })
}

/// Contents of the messages of `role` in `state`.
pub fn contents(state: &Map<String, Value>, role: &str) -> Vec<String> {
    let messages = state["messages"].as_array().expect("messages");
    let of_role = messages.iter().filter(|message| message["role"] == role);
    of_role.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect()
}

/// A store on which every commit and claim takes two breaths. `seen` is told of each commit and its outcome, before who
/// committed is.
pub struct Breathing<F> {
    pub inner: Arc<dyn Commits>,
    pub seen: F,
}

#[async_trait]
impl<F: Fn(&Commit, &Result<(), CommitError>) + Send + Sync> Commits for Breathing<F> {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        breathe().await;
        let outcome = self.inner.claim(request).await;
        breathe().await;
        outcome
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        breathe().await;
        let outcome = self.inner.commit(commit).await;
        (self.seen)(commit, &outcome);
        breathe().await;
        outcome
    }
}
