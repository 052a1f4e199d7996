use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_json::Schemas;
use dormouse_ports::model::{BackgroundProvider, DeltaKind, ModelProvider, RuntimeConfig};
use dormouse_ports::tool::{ActionDefinition, CallbackAddresses, SHOWN_OUTPUT, ToolSource};
use dormouse_ports::{Clock, IdSource, Images, InvocationId, PayloadLimit, SessionId};

use super::agents::{Colleagues, SOURCE};
use super::entries::calls_with;
use super::environment::EnvironmentPart;
use super::hooks::HookPart;
use crate::workspace::{AgentDefinition, ApprovalPolicy, Exposure, HookEvent, Prices, ToolOrigin};

/// Everything of which the graph of one agent is made.
#[derive(Clone)]
pub struct AgentParts {
    /// The agent.
    pub agent: AgentDefinition,
    /// Name of its graph; that of the agent, unless the agent takes over a run of another one.
    pub name: String,
    /// Digest of the definitions.
    pub bundle: String,
    /// The instructions: those of the workspace and the agent's own, in their order.
    pub instructions: String,
    /// Where it works, if it is told; `instructions` are those before it.
    pub environment: Option<EnvironmentPart>,
    /// True if its sessions remember what [`SessionMemory`](crate::SessionMemory) notes.
    pub remembers: bool,
    /// True if conversations that fill the window of the model are made shorter.
    pub compacts: bool,
    /// Approvals that all agents of the workspace need.
    pub approval: ApprovalPolicy,
    /// The model.
    pub model: ModelPart,
    /// Its tools, in the order in which names are given.
    pub tools: Vec<ToolPart>,
    /// The servers of tools that it does without since a mistake disables them, each with what is wrong.
    pub disabled: Vec<(String, String)>,
    /// The actions that people and clients may run.
    pub actions: Vec<ActionDefinition>,
    /// The agents that it may call.
    pub colleagues: Colleagues,
    /// The agents to which its runs may be handed over, directly or by others, with their own parts.
    pub successors: Vec<Arc<AgentParts>>,
    /// Its hooks, in the order in which they run.
    pub hooks: Vec<HookPart>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Names of what happens once.
    pub ids: Arc<dyn IdSource>,
    /// Receives pieces of answers while they arrive.
    pub deltas: Option<Arc<dyn DeltaSink>>,
    /// Keeps the images of its tools; `None` where they are told in words.
    pub images: Option<Arc<dyn Images>>,
    /// Makes the addresses at which outcomes of pending calls arrive.
    pub callbacks: Option<Arc<dyn CallbackAddresses>>,
    /// Limits that the agent does not set itself.
    pub limits: AgentLimits,
    /// The schemas of its tools, as they are checked against.
    pub schemas: Schemas,
}

impl AgentParts {
    /// The same, with the tools by which it calls other agents, and those by which its successors do.
    pub(crate) fn calling_others(mut self) -> Self {
        let calls = !self.colleagues.switch.is_empty() || !self.colleagues.ask.is_empty();
        if calls {
            let (name, source) = (SOURCE.to_owned(), Arc::new(self.colleagues.clone()));
            self.tools.push(ToolPart { name, origin: ToolOrigin::Agent, expose: Exposure::default(), source });
        }
        let successors = std::mem::take(&mut self.successors).into_iter();
        self.successors = successors.map(|other| Arc::new(Self::clone(&other).calling_others())).collect();
        self
    }

    /// Number of hooks that may run at `event`.
    pub(crate) fn hooks_at(&self, event: HookEvent) -> usize {
        self.hooks.iter().filter(|hook| hook.definition.events.contains(&event)).count()
    }

    /// Number of entries that the hooks at `event` leave at most: one that asks a model leaves one of that, too.
    pub(crate) fn entries_at(&self, event: HookEvent) -> usize {
        let hooks = self.hooks.iter().map(|hook| &hook.definition).filter(|hook| hook.events.contains(&event));
        hooks.map(|hook| if hook.handler.asks_model() { 2 } else { 1 }).sum()
    }

    /// Time that the hooks at `events` may take, one after the other.
    pub(crate) fn time_of_hooks(&self, events: &[HookEvent]) -> Duration {
        let seconds = |event: &HookEvent| -> u64 {
            let hooks = self.hooks.iter().map(|hook| &hook.definition);
            hooks.filter(|hook| hook.events.contains(event)).map(|hook| hook.timeout_seconds).sum()
        };
        Duration::from_secs(events.iter().map(seconds).sum())
    }

    /// The longest that a call may take whose tool says nothing of that.
    pub(crate) fn time_of_tools(&self) -> Duration {
        self.agent.policy.tool_timeout_seconds.map_or(self.limits.tool_timeout, Duration::from_secs)
    }

    /// The calls of which what came of them, and of the hooks behind them, is recorded in one commit.
    pub(crate) fn calls_at_once(&self) -> usize {
        calls_with(self.entries_at(HookEvent::AfterToolDispatch))
    }

    /// The parts of the agent called `name`, to which a run of this one was handed over; its own where it was not.
    pub(crate) fn of<'p>(self: &'p Arc<Self>, name: &str) -> &'p Arc<Self> {
        let is_other = !name.is_empty() && name != self.agent.name;
        let other = self.successors.iter().find(|other| is_other && other.agent.name == name);
        other.unwrap_or(self)
    }
}

impl fmt::Debug for AgentParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentParts")
            .field("agent", &self.agent.name)
            .field("tools", &self.tools)
            .finish_non_exhaustive()
    }
}

/// The model of an agent.
#[derive(Clone)]
pub struct ModelPart {
    /// Reference by which agents name it, such as `workspace/NAME`.
    pub reference: String,
    /// Asks it.
    pub provider: Arc<dyn ModelProvider>,
    /// Has it work in the background: the run then sleeps till it has an answer.
    pub background: Option<Arc<dyn BackgroundProvider>>,
    /// Sampling.
    pub config: RuntimeConfig,
    /// Prices of the model.
    pub prices: Option<Prices>,
    /// True if it takes images.
    pub takes_images: bool,
    /// Tokens that a request and its answer may have together, where that is known.
    pub context_window: Option<u64>,
    /// Time for one attempt.
    pub timeout: Duration,
}

impl fmt::Debug for ModelPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelPart")
            .field("model", &self.provider.identity())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// A source of tools, and how its tools are called.
#[derive(Clone, Debug)]
pub struct ToolPart {
    /// Name of the source, as the agent selects it.
    pub name: String,
    /// Origin of its tools.
    pub origin: ToolOrigin,
    /// Tools of it that are offered.
    pub expose: Exposure,
    /// The source.
    pub source: Arc<dyn ToolSource>,
}

/// Limits of a run where the agent sets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// Model calls.
    pub max_steps: u64,
    /// Time of one call of a tool.
    pub tool_timeout: Duration,
    /// Bytes of a tool's output that the model is shown.
    pub shown_output: usize,
    /// Bytes of whole outputs that a run keeps beside that, all together.
    pub kept_output: usize,
    /// Bytes of images of tools that a run keeps, all together.
    pub kept_images: usize,
    /// Bytes of arguments and of results that the span of a call of a tool shows; nothing of them without it.
    pub shown_in_spans: Option<PayloadLimit>,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_steps: 50,
            tool_timeout: Duration::from_secs(120),
            shown_output: SHOWN_OUTPUT,
            kept_output: 3 * 1024 * 1024,
            kept_images: 32 * 1024 * 1024,
            shown_in_spans: None,
        }
    }
}

/// An answer of a model that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerUnderWay {
    /// The run that it is for.
    pub invocation: InvocationId,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// Which call of the model by that run it answers, from 1.
    pub step: u64,
}

/// Receives pieces of answers in the process in which they arrive. They are for the eye: what counts is recorded.
pub trait DeltaSink: Send + Sync {
    /// A new attempt at a model call begins: pieces of an earlier one are void.
    fn began(&self, answer: &AnswerUnderWay);

    /// A piece has arrived, behind so many characters of its kind. It must return at once.
    fn delta(&self, answer: &AnswerUnderWay, kind: DeltaKind, from: u64, text: &str);
}

/// Calls that this process has marked as begun, and not yet started: only here they may start. What another worker
/// finds marked may have run.
#[derive(Debug, Default)]
pub(crate) struct Markers(Mutex<VecDeque<String>>);

/// Markers that are kept; those of runs that were dropped go at last.
const MOST_MARKERS: usize = 4096;

impl Markers {
    pub(crate) fn put(&self, marker: String) {
        let mut markers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        markers.truncate(MOST_MARKERS - 1);
        markers.push_front(marker);
    }

    /// True once for each marker that was put.
    pub(crate) fn take(&self, marker: &str) -> bool {
        let mut markers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = markers.iter().position(|known| known == marker);
        found.and_then(|at| markers.remove(at)).is_some()
    }
}
