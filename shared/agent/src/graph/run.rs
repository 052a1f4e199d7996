mod messages;

use std::sync::Arc;

use dormouse_engine::{Votes, state};
use dormouse_ports::model::{BackgroundJob, Block, Usage};
use dormouse_ports::tool::{Effect, InputRequest, Pending};
use dormouse_ports::{ChildLink, Map, ParentLink, Shortfall, SignalId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::messages::{as_shown, read, result_message};
use super::compact::Compaction;
use super::weight::Measured;
use crate::memory;
use crate::workspace::ToolOrigin;

state! {
    /// State of a run of an agent. A session keeps `messages`, `notes`, `compaction`, `waiting` and `last_agent`; everything
    /// else begins anew with each run.
    #[derive(Clone, Debug, Default)]
    pub struct AgentRun {
        /// The conversation, oldest first, each message in the shape of llm-provider §3; those of calls and results with the
        /// mark of the run that added them as `run`.
        pub messages: Arc<Vec<Value>>,
        /// What the user says to this run alone, behind its last message.
        pub confided: String,
        /// The older part of the conversation in short, as the model is shown it.
        pub compaction: Option<Compaction>,
        /// True for a run that makes the conversation shorter, and does nothing else.
        pub compact: bool,
        /// The action that this run runs; it does nothing else.
        pub action: Option<AskedAction>,
        /// What agents are told of the place where they work, since the first step.
        pub environment: String,
        /// What models are told of the calls of the session's runs that have no result yet, by run and id of the call.
        pub waiting: Map,
        /// The same of the other runs of the session when this one began, by the mark of the run and the id of the call.
        pub unanswered: Map,
        /// What the session remembered when the run began.
        pub remembered: Map,
        /// The agent that runs.
        pub agent: String,
        /// The agent of the session's last step.
        pub last_agent: String,
        /// The same when this run began.
        pub agent_before: String,
        /// True once an agent goes on with a conversation in which another one spoke before.
        pub takes_over: bool,
        /// The agent to which the run is handed over before its next step; empty when it stays.
        pub next_agent: String,
        /// What hooks said around the last step, for the next request to the model.
        pub hook_context: Vec<String>,
        /// The run that asked for this one.
        pub dormouse_parent: Option<ParentLink>,
        /// The runs that this one asked for.
        pub dormouse_children: Vec<ChildLink>,
        /// True while nothing is left to do but to wait for agents that were asked.
        pub awaits_children: bool,
        /// Digest of the definitions that it began with.
        pub bundle: String,
        /// Model calls so far.
        pub steps: u64,
        /// Usage of their runs.
        pub usage: RunUsage,
        /// The calls of tools of the last step that have no result in the conversation yet.
        pub calls: Vec<PlannedCall>,
        /// Answer to a pause that asks about one call.
        pub reply: Reply,
        /// Answers to a pause that asks about several.
        pub replies: Votes<Reply>,
        /// Outcome of the one call that went on elsewhere.
        pub outcome: Map,
        /// Outcomes of several.
        pub outcomes: Votes<Map>,
        /// Tool output that was too long for the model, whole.
        pub outputs: Arc<Vec<KeptOutput>>,
        /// Bytes of images that tools gave; they are kept beside the state, and its messages name them.
        pub image_bytes: u64,
        /// The model whose provider refused the images of this run: it is told of them in words.
        pub images_refused: String,
        /// Notes of sources of tools in this session, by their names.
        pub notes: Map,
        /// What the model counted of its last request: it tells how much room its window has.
        pub measured: Option<Measured>,
        /// The model could not be asked: the rest before the next attempt.
        pub rest: Option<ModelRest>,
        /// The model works while the run sleeps.
        pub thinking: Option<Thinking>,
        /// Reason for the end of the run.
        pub reason: String,
        /// The same where the run did not come to an answer.
        pub dormouse_shortfall: Option<Shortfall>,
        /// How the last pause ended.
        pub dormouse_resolution: String,
    }
}

/// An action that a person or a client runs, without asking the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedAction {
    /// The action.
    pub name: String,
    /// Its input.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub input: Map,
    /// True if a person runs it by hand, and not a client by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// Id of its call, where a replay says which it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Progress of it; absent before it is begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ActionProgress>,
}

/// Progress of an action that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionProgress {
    /// It is under way.
    Begun,
    /// It has ended well.
    Done,
    /// It has failed, or was not run, as this says.
    Failed(String),
}

/// Reason for the end of a run, as its state and its events say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminalReason {
    /// The model answered and called no tool.
    Completed,
    /// It still called tools after the last step that it may take, or agents that it asked work in the background.
    MaxSteps,
    /// It used up its tokens or its money.
    Budget,
    /// It worked longer than it may.
    Time,
    /// A person denied a call, and the run with it.
    Denied,
    /// The answer was cut at the most tokens of one answer.
    Length,
    /// The provider's filter stepped in.
    ContentFilter,
    /// The model stopped without an answer, for a reason that only its provider knows.
    NoAnswer,
    /// A hook ended it.
    Hook,
    /// It was to make the conversation shorter, and there is no summary.
    NotCompacted,
    /// It was to run one action, which failed or was not run.
    ActionFailed,
}

impl TerminalReason {
    /// Its name in states and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::MaxSteps => "max_steps",
            Self::Budget => "budget",
            Self::Time => "time",
            Self::Denied => "denied",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::NoAnswer => "no_answer",
            Self::Hook => "hook",
            Self::NotCompacted => "not_compacted",
            Self::ActionFailed => "action_failed",
        }
    }

    /// What is said of a run that it ended before it came to an answer; `None` of one that came to it.
    pub(crate) fn shortfall(self) -> Option<Shortfall> {
        let message = match self {
            Self::Completed => return None,
            Self::MaxSteps => "the run took as many steps as it may (`max_steps`), and did not come to an answer",
            Self::Budget => "the run used up its budget before it came to an answer",
            Self::Time => "the run worked as long as it may (`run_timeout_seconds`), and did not come to an answer",
            Self::Denied => "a person denied a call and ended the run",
            Self::Length => "the answer was cut: it is as long as an answer of the model may be",
            Self::ContentFilter => "the provider's filter stopped the answer",
            Self::NoAnswer => {
                "the model stopped without an answer, for a reason of its provider's own (`stop_word` of the call)"
            }
            Self::Hook => "a hook ended the run",
            Self::NotCompacted => "the conversation stays as it is: there is no summary of it",
            Self::ActionFailed => "the action failed",
        };
        Some(Shortfall { code: self.as_str().to_owned(), message: message.to_owned() })
    }
}

/// Usage of the model calls of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunUsage {
    /// Tokens of requests.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub completion_tokens: u64,
    /// Money, in the currency of the model's prices.
    pub cost: f64,
    /// Milliseconds in which models and tools worked, and agents that were asked.
    pub active_ms: u64,
    /// Instant since which nothing is left to do but to wait for agents in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_since: Option<Timestamp>,
    /// Tokens of a request from which on a summary is asked for again: there was none the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_from: Option<u64>,
}

impl RunUsage {
    /// All tokens.
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// The same and one call more.
    #[must_use]
    pub(crate) fn and(self, usage: Usage, cost: f64, active_ms: u64) -> Self {
        self.with(Self {
            prompt_tokens: usage.prompt_tokens.unwrap_or_default(),
            completion_tokens: usage.completion_tokens.unwrap_or_default(),
            cost,
            active_ms,
            ..Self::default()
        })
    }

    /// The same and `more`, which is of calls alone.
    #[must_use]
    pub(crate) fn with(self, more: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(more.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(more.completion_tokens),
            cost: self.cost + more.cost,
            active_ms: self.active_ms + more.active_ms,
            ..self
        }
    }
}

/// A call of a tool that a model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// Its name among the calls of its step: `call-1` and so on.
    pub part: String,
    /// The model's id of it.
    pub id: String,
    /// The tool, with the prefix of its source.
    pub tool: String,
    /// Origin of the tool.
    pub origin: ToolOrigin,
    /// Effect, which says if it may run again when it is not known if it ran.
    pub effect: Effect,
    /// The arguments that it runs with.
    pub arguments: Map,
    /// SHA-256 of the arguments in canonical form.
    pub digest: String,
    /// Number of times that it was begun, or marked to be.
    #[serde(default)]
    pub attempts: u32,
    /// What its source wants back when it is asked how the call stands, which goes on elsewhere.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub polled: Value,
    /// Number of times that its source was asked how it stands.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub polls: u32,
    /// The name of its source, which alone makes it; empty where it was planned before that was kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Number of questions of its tool that people have answered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub questions: u32,
    /// Why the arguments that people gave instead, and their answers to its tool, were not taken, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<String>,
    /// True if a person gave other arguments than the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// Images of its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Block>,
    /// True if a person said that it happened and not what came of it, which its tool may have told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub happened: bool,
    /// Next thing to do about it.
    pub status: CallStatus,
}

#[cfg(test)]
impl PlannedCall {
    /// The call of a safe tool that stands so, in a step with others.
    pub(crate) fn numbered(number: u32, status: CallStatus) -> Self {
        Self {
            part: format!("call-{number}"),
            id: format!("c{number}"),
            tool: "look".to_owned(),
            origin: ToolOrigin::External,
            effect: Effect::Safe,
            arguments: Map::new(),
            digest: String::new(),
            attempts: 0,
            polled: Value::Null,
            polls: 0,
            source: String::new(),
            questions: 0,
            unfit: Vec::new(),
            edited: false,
            images: Vec::new(),
            happened: false,
            status,
        }
    }
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl PlannedCall {
    /// The server or HTTP tool that makes it, as people are told of it; `None` of a call that Dormouse makes itself.
    pub(crate) fn server(&self) -> Option<&str> {
        (self.origin == ToolOrigin::External && !self.source.is_empty()).then_some(self.source.as_str())
    }

    /// True if making it may have an effect that must not happen twice.
    pub(crate) fn must_run_once(&self) -> bool {
        self.effect == Effect::Manual && self.polled.is_null()
    }
}

/// Next thing to do about a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum CallStatus {
    /// A person has to approve it.
    NeedsApproval,
    /// It may run.
    Ready {
        /// Digest that a person approved; absent where no person was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved_digest: Option<String>,
        /// Answer of a person to the tool's question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<GivenInput>,
    },
    /// It is about to run, or it runs, and must not run twice.
    Begun {
        /// Names this beginning of it: only the process that knows the name may start it.
        marker: String,
        /// As it was when it was ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved_digest: Option<String>,
        /// As it was when it was ready.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<GivenInput>,
    },
    /// It was begun and not recorded: a person has to say whether it happened.
    Uncertain {
        /// What is known.
        message: String,
        /// As it was when it was begun.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<GivenInput>,
    },
    /// It goes on elsewhere.
    Pending {
        /// The signal that brings its outcome.
        signal_id: SignalId,
        /// Reply of the tool.
        pending: Pending,
        /// Time of that reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Its tool asks a person something.
    Asking {
        /// The question.
        request: InputRequest,
        /// Number of answers to it that did not fit.
        #[serde(default, skip_serializing_if = "is_zero")]
        unfit: usize,
    },
    /// Its result is known.
    Answered {
        /// Text that the model is shown.
        text: String,
        /// True if it is an error.
        is_error: bool,
    },
}

impl CallStatus {
    /// The answer of a person to its tool with which a call is made, or was.
    pub(crate) fn input(&self) -> Option<&GivenInput> {
        match self {
            Self::Ready { input, .. } | Self::Begun { input, .. } | Self::Uncertain { input, .. } => input.as_ref(),
            Self::NeedsApproval | Self::Pending { .. } | Self::Asking { .. } | Self::Answered { .. } => None,
        }
    }

    /// Text that the model is shown of a call whose result is known, and whether it is an error.
    pub(crate) fn answer(&self) -> Option<(&str, bool)> {
        match self {
            Self::Answered { text, is_error } => Some((text, *is_error)),
            Self::NeedsApproval
            | Self::Ready { .. }
            | Self::Begun { .. }
            | Self::Uncertain { .. }
            | Self::Pending { .. }
            | Self::Asking { .. } => None,
        }
    }
}

/// Answer of a person to a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenInput {
    /// The fields; absent when the person declined.
    pub content: Option<Map>,
    /// What the tool wants back.
    #[serde(default)]
    pub state: Value,
}

dormouse_engine::record! {
    /// Decision of a person about a call.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Reply {
        /// The choice.
        pub decision: Choice,
        /// Reason; the model is shown it.
        pub reason: String,
        /// Arguments to run with instead.
        pub arguments: Option<Map>,
        /// Digest of the arguments that the person saw.
        pub digest: String,
        /// Result of a call that happened.
        pub result: String,
        /// Answer to the question of a tool.
        pub content: Option<Map>,
        /// Name of the person.
        pub by: String,
    }
}

/// Choice of a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// None: no person answered.
    #[default]
    #[serde(rename = "")]
    Open,
    /// The call may run.
    Approve,
    /// It may not.
    Deny,
    /// It may not, and the run ends.
    Stop,
    /// It happened.
    Happened,
    /// It did not happen, and is to run now.
    Repeat,
    /// It is unknown or did not happen, and is not to run.
    Skip,
    /// The question of a tool is answered.
    Answer,
    /// The question of a tool is not answered.
    Decline,
}

/// Tool output that was too long for the model; an artifact of the task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// The model's id of the call.
    pub call: String,
    /// The whole text.
    pub text: String,
}

/// A rest between two attempts at asking a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelRest {
    /// Attempts that failed, and may have been paid.
    pub attempts: u32,
    /// Attempts for which the provider was away, and made nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub away: u32,
    /// Attempts that fail until somebody mends what the provider refuses.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mending: u32,
    /// Whether the last one is such.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_mending: bool,
    /// Whether the last one may have been paid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_paid: bool,
    /// Instant at which the first attempt at this step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Seconds to rest.
    pub seconds: u32,
    /// The last error.
    pub message: String,
    /// Jobs of the provider that ended without an answer.
    #[serde(default)]
    pub jobs: u32,
    /// What the model is told with the next attempt: why its last answer could not be used.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

/// A model call that the provider works on in the background.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thinking {
    /// The provider's job.
    pub job: BackgroundJob,
    /// Digest of the request that began it.
    pub request_digest: String,
    /// Time when it was begun.
    pub since: Timestamp,
    /// Number of times that the provider was asked how it stands.
    pub polls: u32,
    /// Number of times in a row that the provider did not tell.
    pub failures: u32,
    /// What it said the last time that it did not tell; empty once it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Attempts at this step that failed before it, and may have been paid.
    pub attempts: u32,
    /// Those for which the provider was away, and made nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub away: u32,
    /// Those that failed until somebody mended what the provider refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mending: u32,
    /// Instant at which the first attempt at this step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Jobs of this step that ended without an answer before it.
    pub jobs: u32,
}

impl AgentRun {
    /// The agent of the next step.
    pub(crate) fn acting(&self) -> &str {
        if self.next_agent.is_empty() { &self.agent } else { &self.next_agent }
    }

    /// The agent that made the last step, with these calls.
    pub(crate) fn planner(&self) -> &str {
        &self.agent
    }

    /// What the session remembers now.
    pub(crate) fn remembered_now(&self) -> Map {
        self.notes.get(memory::SOURCE).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// Number of runs above this one.
    pub(crate) fn depth(&self) -> u32 {
        self.dormouse_parent.as_ref().map_or(0, |parent| parent.depth)
    }

    /// The runs in the background whose end is not known.
    pub(crate) fn in_background(&self) -> impl Iterator<Item = &ChildLink> {
        self.dormouse_children.iter().filter(|child| child.background && !child.ended)
    }

    /// True if `matching` holds for a call.
    pub(crate) fn has_call(&self, matching: impl Fn(&CallStatus) -> bool) -> bool {
        self.calls.iter().any(|call| matching(&call.status))
    }
}
