//! Answers of the extensions as types: the schemas of the document are made from them.

use dormouse_api::{CatalogLine, asks_person};
use dormouse_engine::{GraphOutline, NextNode};
use dormouse_harness::is_put_aside;
use dormouse_maintenance::doctor::Diagnosis;
use dormouse_ports::{
    Due, DueAction, FanIn, InvocationId, InvocationRecord, InvocationStatus, Map, PausedInvocation, SignalDescriptor,
};
use dormouse_protocol::envelope::{Named, Object};
use dormouse_protocol::id::EventId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Characters of a question that a list shows.
const SHOWN: usize = 300;
/// Field of a request, and of the state of an agent, with the calls that are asked about.
const CALLS: &str = "calls";
/// Bytes of JSON of what a request shows; beyond it, fields are left out.
pub(super) const REQUEST_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of JSON of long arguments beside it.
const ARGUMENTS_BYTES: usize = 1024 * 1024;

/// What a pause does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum PauseStatus {
    /// It waits.
    Asleep,
    /// Its answer is accepted, or a worker goes on with it.
    Working,
    /// It ended well.
    Completed,
    /// It ended with an error.
    Failed,
    /// Every worker that took it up died: an operator has to look.
    PutAside,
    /// It was canceled.
    Canceled,
    /// Its record cannot be read.
    Unreadable,
}

impl PauseStatus {
    pub(super) fn of(record: &InvocationRecord) -> Self {
        match &record.status {
            InvocationStatus::Suspended => Self::Asleep,
            InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => Self::Working,
            InvocationStatus::Completed { .. } => Self::Completed,
            InvocationStatus::Errored(_) if is_put_aside(record) => Self::PutAside,
            InvocationStatus::Errored(_) => Self::Failed,
            InvocationStatus::Canceled(_) => Self::Canceled,
        }
    }
}

/// Word of a pause in `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PauseWord;

impl Named for PauseWord {
    const OBJECT: &'static str = "x-pause";
}

/// A pause as a list shows it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PauseSummary {
    /// The invocation that sleeps; of a task, its id.
    pub(crate) id: String,
    /// Always `x-pause`.
    pub(crate) object: Object<PauseWord>,
    /// Number of the pause among those of the invocation, from 1. Whoever acts on it names it.
    pub(crate) generation: u64,
    /// Status of the invocation.
    pub(crate) status: PauseStatus,
    /// True if the invocation is a task of the protocol.
    pub(crate) is_task: bool,
    /// True if a person is asked.
    pub(crate) asks_person: bool,
    /// The graph that runs.
    pub(crate) graph: String,
    /// Its session, if it has one.
    pub(crate) session_id: Option<String>,
    /// Path to the node that sleeps, with slashes.
    pub(crate) node: String,
    /// Kind of the wait: `approval`, `vote`, `job`, or a word of the author's.
    pub(crate) kind: Option<String>,
    /// What is asked, cut to some hundred characters.
    pub(crate) question: Option<String>,
    /// The agent that asks, where it says so.
    pub(crate) agent: Option<String>,
    /// How grave it is, where its author says so.
    pub(crate) risk: Option<String>,
    /// Who was asked and has not answered, of a pause for several answers that sleeps.
    pub(crate) missing: Vec<String>,
    /// Instant at which it fell asleep.
    pub(crate) since: Timestamp,
    /// Instant at which time does something next: a reminder or another step before the end, or the end.
    pub(crate) due_at: Option<Timestamp>,
    /// Instant at which it ends where nobody answers; null where it waits for as long as it takes.
    pub(crate) ends_at: Option<Timestamp>,
}

impl PauseSummary {
    pub(super) fn of(record: &InvocationRecord) -> Self {
        let paused = &record.paused;
        // A record that has gone on keeps its last pause, of which nobody is waited for any more.
        let waits_for = paused.fan_in.iter().filter(|_| matches!(record.status, InvocationStatus::Suspended));
        Self {
            id: paused.invocation_id.to_string(),
            object: Object::new(),
            generation: paused.generation,
            status: PauseStatus::of(record),
            is_task: is_task(&paused.invocation_id),
            asks_person: asks_person(paused),
            graph: paused.graph.clone(),
            session_id: paused.session_id.as_ref().map(ToString::to_string),
            node: paused.suspended_at_node.join("/"),
            kind: text(&paused.descriptor, "kind"),
            question: text(&paused.descriptor, "description").map(|text| text.chars().take(SHOWN).collect()),
            agent: text(&paused.descriptor, "agent"),
            risk: text(&paused.descriptor, "risk"),
            missing: waits_for.flat_map(FanIn::missing).map(str::to_owned).collect(),
            since: paused.suspended_at,
            due_at: paused.wake.due.as_ref().map(|due| due.at),
            ends_at: paused.wake.end().map(|end| end.at),
        }
    }

    /// What is left to say of a record that cannot be read.
    pub(super) fn unreadable(id: &InvocationId, generation: u64, since: Timestamp) -> Self {
        let paused = PausedInvocation::unreadable(id.clone(), generation, since);
        let status = InvocationStatus::Suspended;
        let record = InvocationRecord { status, paused, stored: Vec::new(), saved: None };
        Self { status: PauseStatus::Unreadable, asks_person: false, ..Self::of(&record) }
    }
}

/// True if `id` is that of a task of the protocol.
pub(super) fn is_task(id: &InvocationId) -> bool {
    id.as_str().starts_with("task_")
}

fn text(descriptor: &SignalDescriptor, name: &str) -> Option<String> {
    descriptor.metadata.as_ref()?.get(name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A pause with all that its keepers may know of it: what is asked, what may be answered, what time does. Of the
/// state nothing but the arguments of the calls that are asked about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Pause {
    #[serde(flatten)]
    pub(crate) summary: PauseSummary,
    /// Signal that ends it.
    pub(crate) signal_id: String,
    /// What its author says of it: `description`, and data of their own.
    pub(crate) request: Map,
    /// Names of fields of the request that are too large to be shown.
    pub(crate) left_out: Vec<String>,
    /// All arguments of the calls that are asked about and of which the request says no more than that they are long, by
    /// the parts that the calls are there.
    pub(crate) arguments: Map,
    /// JSON Schema of an answer; null where any is taken.
    pub(crate) accepts: Option<Value>,
    /// What a plain yes (`approved`) and a plain no (`denied`) set, and the fields that receive text and name.
    pub(crate) answers: Option<Value>,
    /// Those who are asked, of a pause for several answers.
    pub(crate) parts: Vec<PausePart>,
    /// Number of answers that are needed, of a pause for several answers.
    pub(crate) needed: Option<usize>,
    /// What time does, in order; the last line is what happens when nobody answers.
    pub(crate) ladder: Vec<LadderStep>,
    /// The event that ends it, if it waits for one: a pattern of EventBridge.
    pub(crate) event: Option<Map>,
    /// Nodes that have finished, in order.
    pub(crate) path: Vec<PathStep>,
    /// Remarks of the doctor; only for operators.
    pub(crate) remarks: Vec<Remark>,
    /// What became of it, if it has ended with an error.
    pub(crate) failure: Option<String>,
}

/// One who is asked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PausePart {
    /// Name of the part.
    pub(crate) part: String,
    /// Instant of the answer, once it has come.
    pub(crate) answered_at: Option<Timestamp>,
}

/// What time does at an instant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LadderStep {
    /// The instant.
    pub(crate) at: Timestamp,
    /// `remind`, `reassign`, `escalate`, `notify`, `resume` or `fail`.
    pub(crate) action: &'static str,
    /// Who is told.
    pub(crate) to: Option<String>,
    /// Fields that are set when it goes on by itself.
    pub(crate) sets: Option<Map>,
}

/// A node that has finished.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PathStep {
    /// Path of the graphs around it and its name, with slashes.
    pub(crate) node: String,
    /// Its place in the order of steps, from 0.
    pub(crate) step: u64,
}

/// A remark of the doctor.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Remark {
    /// Word for it.
    pub(crate) finding: String,
    /// True if somebody has to act.
    pub(crate) trouble: bool,
    /// The same in a sentence.
    pub(crate) sentence: String,
    /// What a repair does against it, where there is one.
    pub(crate) remedy: Option<String>,
}

impl Pause {
    pub(super) fn of(diagnosis: &Diagnosis, shows_remarks: bool) -> Self {
        let Diagnosis { record, remarks } = diagnosis;
        let paused = &record.paused;
        let metadata = paused.descriptor.metadata.clone().unwrap_or_default();
        let (request, left_out) = shown_request(metadata.clone());
        let (arguments, too_long) = whole_arguments(paused);
        let left_out = left_out.into_iter().chain(too_long).collect();
        let fan_in = paused.fan_in.as_ref();
        Self {
            summary: PauseSummary::of(record),
            signal_id: paused.descriptor.signal_id.to_string(),
            request,
            left_out,
            arguments,
            accepts: metadata.get("accepts").cloned(),
            answers: metadata.get("answers").cloned(),
            parts: fan_in.map(parts_of).unwrap_or_default(),
            needed: fan_in.map(needed_of),
            ladder: ladder_of(paused),
            event: paused.wake.event.as_ref().map(|event| event.pattern.clone()),
            path: path_of(paused),
            remarks: if shows_remarks { remarks.iter().map(Remark::of).collect() } else { Vec::new() },
            failure: match &record.status {
                InvocationStatus::Errored(failure) => Some(format!("{}: {}", failure.category, failure.message)),
                InvocationStatus::Canceled(cancellation) => Some(cancellation.message()),
                InvocationStatus::Suspended
                | InvocationStatus::Accepted { .. }
                | InvocationStatus::Resuming(_)
                | InvocationStatus::Completed { .. } => None,
            },
        }
    }
}

impl Remark {
    fn of(told: &dormouse_maintenance::doctor::Observation) -> Self {
        let finding = serde_json::to_value(told.finding).ok();
        Self {
            finding: finding.and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default(),
            trouble: told.finding.is_trouble(),
            sentence: told.sentence.clone(),
            remedy: told.finding.remedy().map(str::to_owned),
        }
    }
}

/// The request without what is told apart, the largest fields left out where it is too long for one answer.
fn shown_request(mut request: Map) -> (Map, Vec<String>) {
    // The rule of the answer is told in a field of its own.
    request.retain(|name, _| name != "accepts" && !SignalDescriptor::FOR_THE_SERVER.contains(&name.as_str()));
    let size = |value: &Value| dormouse_json::length(value).unwrap_or(usize::MAX);
    let mut left_out = Vec::new();
    while request.values().map(size).fold(0_usize, usize::saturating_add) > REQUEST_BYTES {
        let largest = request.iter().max_by_key(|(_, value)| size(value)).map(|(name, _)| name.clone());
        let Some(name) = largest else { break };
        request.shift_remove(&name);
        left_out.push(name);
    }
    (request, left_out)
}

/// The arguments of the calls that `paused` asks about and does not show, by their parts, and the names of those for which
/// there is no room. They are those with the digest that is asked about, as the state of the agent has them.
fn whole_arguments(paused: &PausedInvocation) -> (Map, Vec<String>) {
    let metadata = paused.descriptor.metadata.as_ref();
    let asked = metadata.and_then(|metadata| metadata.get(CALLS)?.as_object()).into_iter().flatten();
    let planned: Vec<&Value> = paused.state.get(CALLS).and_then(Value::as_array).into_iter().flatten().collect();
    let (mut whole, mut left_out, mut room) = (Map::new(), Vec::new(), ARGUMENTS_BYTES);
    for (part, call) in asked.filter(|(_, call)| call["arguments"]["cut"] == true && call["digest"].is_string()) {
        let is_it = |planned: &&&Value| planned["part"] == **part && planned["digest"] == call["digest"];
        let Some(arguments) = planned.iter().find(is_it).map(|planned| &planned["arguments"]) else { continue };
        match room.checked_sub(dormouse_json::length(arguments).unwrap_or(usize::MAX)) {
            Some(left) => {
                room = left;
                whole.insert(part.clone(), arguments.clone());
            }
            None => left_out.push(format!("arguments of {part}")),
        }
    }
    (whole, left_out)
}

fn parts_of(fan_in: &FanIn) -> Vec<PausePart> {
    let answered = |part: &str| fan_in.answers.iter().find(|answer| answer.part == part).map(|answer| answer.at);
    let part = |part: &String| PausePart { part: part.clone(), answered_at: answered(part) };
    fan_in.expected.iter().map(|one| part(&one.part)).collect()
}

fn needed_of(fan_in: &FanIn) -> usize {
    match fan_in.until {
        dormouse_ports::Until::All => fan_in.expected.len(),
        dormouse_ports::Until::AtLeast(count) => count,
    }
}

fn ladder_of(paused: &PausedInvocation) -> Vec<LadderStep> {
    paused.wake.due.iter().chain(&paused.wake.later).map(step_of).collect()
}

fn step_of(due: &Due) -> LadderStep {
    let (action, to, sets) = match &due.action {
        DueAction::Resume(sets) => ("resume", None, Some(sets.clone())),
        DueAction::Fail => ("fail", None, None),
        DueAction::Announce(announced) => (announced.step.as_str(), announced.to.clone(), None),
    };
    LadderStep { at: due.at, action, to, sets }
}

/// The nodes that finished, and the one that sleeps at the end.
fn path_of(paused: &PausedInvocation) -> Vec<PathStep> {
    let mut path: Vec<PathStep> = paused
        .completed_positions
        .iter()
        .map(|position| {
            let names = position.namespace.iter().chain([&position.node_name]).map(AsRef::as_ref);
            PathStep { node: names.collect::<Vec<&str>>().join("/"), step: position.step }
        })
        .collect();
    path.sort_by_key(|step| step.step);
    path
}

/// What came of an answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AnswerTaken {
    /// Always `x-answer`.
    pub(crate) object: Object<AnswerWord>,
    /// The invocation.
    pub(crate) id: String,
    /// What it does now: `asleep`, `completed` or `failed`.
    pub(crate) status: PauseStatus,
    /// True if the same answer had come before.
    pub(crate) repeated: bool,
    /// Those who have still to answer, of a pause for several answers.
    pub(crate) missing: Vec<String>,
}

/// Word of an answer in `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerWord;

impl Named for AnswerWord {
    const OBJECT: &'static str = "x-answer";
}

/// What a repair did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Repaired {
    /// Always `x-repair`.
    pub(crate) object: Object<RepairWord>,
    /// What was done or could not be, in sentences.
    pub(crate) done: Vec<String>,
    /// The invocation after it.
    pub(crate) pause: Pause,
}

/// Word of a repair in `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairWord;

impl Named for RepairWord {
    const OBJECT: &'static str = "x-repair";
}

/// Where a stretch of the feed of all events begins.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FeedStart {
    /// Always `x-feed`.
    pub(crate) object: Object<FeedWord>,
    /// The first event; a range of all events goes on behind it (`after_event_id`). Null if there is none.
    pub(crate) first: Option<String>,
}

impl FeedStart {
    pub(super) fn of(first: Option<EventId>) -> Self {
        Self { object: Object::new(), first: first.map(|id| id.to_string()) }
    }
}

/// Word of the start of a feed in `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedWord;

impl Named for FeedWord {
    const OBJECT: &'static str = "x-feed";
}

/// What is declared with the agents of this server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Catalog {
    /// Always `list`.
    pub(crate) object: Object<dormouse_protocol::envelope::Listing>,
    /// Agents, models, sources of tools, and what cannot be used.
    pub(crate) data: Vec<CatalogEntry>,
}

/// Something that is declared.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct CatalogEntry {
    /// `agent`, `subagent`, `model`, `tool`, `action`, `skill` or `hook`; `tier` for where commands and file tools work;
    /// `problem` for a mistake in a file, whose name is the place.
    pub(crate) kind: &'static str,
    /// Its name.
    pub(crate) name: String,
    /// What it is.
    pub(crate) description: String,
    /// True if it can be used.
    pub(crate) enabled: bool,
    /// Why it cannot.
    pub(crate) reasons: Vec<String>,
}

impl Catalog {
    pub(super) fn of(lines: Vec<CatalogLine>) -> Self {
        let entry = |CatalogLine { kind, name, description, enabled, reasons }| CatalogEntry {
            kind,
            name,
            description,
            enabled,
            reasons,
        };
        Self { object: Object::new(), data: lines.into_iter().map(entry).collect() }
    }
}

/// The graphs that are linked into this server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Graphs {
    /// Always `list`.
    pub(crate) object: Object<dormouse_protocol::envelope::Listing>,
    /// Their shapes.
    pub(crate) data: Vec<GraphShape>,
}

impl Graphs {
    pub(super) fn of(data: Vec<GraphShape>) -> Self {
        Self { object: Object::new(), data }
    }
}

/// The shape of a graph.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GraphShape {
    /// Its name.
    pub(crate) name: String,
    /// The node at which it begins.
    pub(crate) entry: String,
    /// Its nodes.
    pub(crate) nodes: Vec<NodeShape>,
}

/// A node of a graph.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct NodeShape {
    /// Its name.
    pub(crate) name: String,
    /// `function`, `subgraph`, `fan_out` or `branches`.
    pub(crate) kind: &'static str,
    /// True if its outcome is committed before the next node begins.
    pub(crate) durable: bool,
    /// The node that always follows; null at the end, and where a function of the state decides.
    pub(crate) next: Option<String>,
    /// True if a function of the state decides what follows.
    pub(crate) decides: bool,
    /// The nodes that it may choose beside the end, where it decides and they are declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) among: Option<Vec<String>>,
    /// Names of the nodes of the graphs inside of it.
    pub(crate) inner: Vec<String>,
}

impl GraphShape {
    pub(super) fn of(outline: GraphOutline) -> Self {
        let GraphOutline { name, entry, nodes } = outline;
        let nodes = nodes.into_iter().map(|node| {
            let inner = node.inner.iter().flat_map(|graph| &graph.nodes).map(|node| node.name.clone()).collect();
            let (next, decides, among) = match node.next {
                NextNode::Node(name) => (Some(name), false, None),
                NextNode::End => (None, false, None),
                NextNode::Decided { among } => (None, true, among),
            };
            NodeShape { name: node.name, kind: node.kind.as_str(), durable: node.durable, next, decides, among, inner }
        });
        Self { name, entry, nodes: nodes.collect() }
    }
}
