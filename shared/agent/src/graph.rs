//! The graph of an agent.
//!
//! ```text
//!            +----------------------------------------------+
//!            v                                              |
//! begin -> model -> tools -> (pending | ask | doubt) -> decide
//!            |  \-> approve ------------------------------^
//!            +---> (rest | think) -> model
//!            +---> agents -> gather -> model
//! ```
//!
//! `model`, `tools` and `decide` are durable: each ends with one commit, and a worker that dies is followed by one that
//! goes on behind the last of them. A tool that must not run twice is marked as begun in the commit before it runs: a
//! worker that finds such a mark and did not set it asks a person.

mod action;
mod agents;
mod asking;
mod background;
mod calls;
mod children;
mod compact;
mod context;
mod decide;
mod digest;
mod entries;
mod environment;
mod forms;
mod gates;
mod hooks;
mod images;
mod instructions;
mod lost;
mod model;
mod notes;
mod open;
mod outputs;
mod parts;
mod plan;
mod recorded;
mod retold;
mod run;
mod time;
mod tools;
mod toolset;
mod waits;
mod watch;
mod weight;

use std::sync::Arc;

use dormouse_engine::{
    CompiledGraph, END, EngineError, Graph, NodeError, Reducer, SessionConcurrency, SessionPolicy, Target, Update, Wait,
};
use dormouse_ports::{Category, EntryKind};

pub use agents::{Colleague, Colleagues, sessions_asked_by};
pub use asking::ModelHook;
pub use compact::Compaction;
pub use environment::EnvironmentPart;
pub use hooks::HookPart;
#[cfg(test)]
pub(crate) use notes::note;
use parts::Markers;
pub use parts::{AgentLimits, AgentParts, AnswerUnderWay, DeltaSink, ModelPart, ToolPart};
pub use run::{
    ActionProgress, AgentRun, AskedAction, CallStatus, Choice, GivenInput, KeptOutput, ModelRest, PlannedCall, Reply,
    RunUsage, TerminalReason, Thinking,
};
pub use weight::Measured;

use self::entries::RUN_ENDED;
use crate::workspace::HookEvent;

/// The graph of the agent of `parts`. A request sets `messages` to the new message; a session keeps the conversation.
///
/// # Errors
/// As [`Graph::compile`].
pub fn graph(parts: AgentParts) -> Result<CompiledGraph, EngineError> {
    let parts = Arc::new(parts.calling_others());
    let markers = Arc::new(Markers::default());
    let name = parts.name.clone();
    let waits = |wait: MakeWait| {
        let parts = parts.clone();
        move |run: &AgentRun| wait(parts.of(&run.agent), run)
    };
    let resting = parts.clone();
    let sleeping = parts.clone();
    let thinking = parts.clone();
    let canceling = parts.clone();
    let again = parts.clone();
    let awaiting = parts.clone();
    let admitting = parts.clone();
    let hearing = parts.clone();
    let ending = EntryKind::vendor(RUN_ENDED)
        .map_err(|error| EngineError::new(Category::StateValidationError, error.to_string()))?;
    Graph::<AgentRun>::new(name)
        .version("1")
        .inputs((AgentRun::messages, AgentRun::confided, AgentRun::compact, AgentRun::action))
        .admits(move |state| action::admit(&admitting, state))
        .reducer(AgentRun::messages, Reducer::Append)
        .reducer(AgentRun::outputs, Reducer::Append)
        .sessions(
            SessionPolicy::keeping((
                (AgentRun::messages, AgentRun::notes, AgentRun::compaction, AgentRun::waiting),
                AgentRun::last_agent,
            ))
            .concurrency(SessionConcurrency::Rebase)
            .by_entry((AgentRun::notes, AgentRun::waiting)),
        )
        .entry("model")
        .node(
            "model",
            step(&parts, &markers, AgentRun::acting, |parts, markers, run| {
                Box::pin(async move { model::think(&parts, &markers, run).await })
            }),
        )
        .wait("approve", waits(waits::approve))
        .wait("doubt", waits(waits::doubt))
        .wait("ask", waits(waits::ask))
        .wait("pending", move |run: &AgentRun| waits::pending(sleeping.of(&run.agent), run))
        .wait("think", move |run: &AgentRun| waits::think(thinking.of(&run.agent), run))
        .wait("rest", move |run: &AgentRun| waits::rest(&resting, run))
        .wait("agents", move |run: &AgentRun| waits::agents(awaiting.of(&run.agent), run))
        .node(
            "gather",
            step(&parts, &markers, AgentRun::planner, |parts, _, run| {
                Box::pin(async move { children::gather(&parts, run).await })
            }),
        )
        .node(
            "decide",
            step(&parts, &markers, AgentRun::planner, |parts, markers, run| {
                Box::pin(async move { decide::decide(&parts, &markers, run).await })
            }),
        )
        .node(
            "tools",
            step(&parts, &markers, AgentRun::planner, |parts, markers, run| {
                Box::pin(async move { tools::act(&parts, &markers, run).await })
            }),
        )
        .durable("model")
        .durable("decide")
        .durable("tools")
        .durable("gather")
        .route("model", NEXT, next)
        .route("decide", NEXT, next)
        .route("tools", NEXT, next)
        .route("gather", NEXT, next)
        .edge("agents", "gather")
        .edge("approve", "decide")
        .edge("doubt", "decide")
        .edge("ask", "decide")
        .edge("pending", "decide")
        .edge("rest", "model")
        .edge("think", "model")
        .leaves_short_turns()
        .hears(ending, move |run: &AgentRun| hears(hearing.of(run.acting()), run))
        .on_cancel(move |run: AgentRun| background::withdraw(canceling.of(&run.agent).clone(), run))
        .twin(Arc::new(move |material| recorded::twin(&again, material)))
        .compile()
}

type MakeWait = fn(&AgentParts, &AgentRun) -> Result<Wait<AgentRun, Reply>, NodeError>;
type StepFuture = futures::future::BoxFuture<'static, Result<Update<AgentRun>, NodeError>>;

/// A node that works on the parts of the agent that `who` names.
fn step(
    parts: &Arc<AgentParts>,
    markers: &Arc<Markers>,
    who: fn(&AgentRun) -> &str,
    work: fn(Arc<AgentParts>, Arc<Markers>, AgentRun) -> StepFuture,
) -> impl Fn(AgentRun) -> StepFuture + Send + Sync + 'static {
    let parts = parts.clone();
    let markers = markers.clone();
    move |run| work(parts.of(who(&run)).clone(), markers.clone(), run)
}

/// What changes in a run that hears, behind a step, what was said to it; `None` where it does not: its model works on an
/// answer, calls have no result yet, or nobody will be asked any more. A run that was about to end goes on, unless hooks ran
/// at its end.
fn hears(parts: &AgentParts, run: &AgentRun) -> Option<Update<AgentRun>> {
    let is_closed = run.compact || run.action.is_some() || run.thinking.is_some() || !run.calls.is_empty();
    if is_closed || model::spent(parts, run).is_some() {
        return None;
    }
    // It waits no more: what comes is time of its own.
    let goes_on = AgentRun::awaits_children.set(false).set(AgentRun::usage, time::waited(parts, run));
    if run.reason.is_empty() {
        return Some(goes_on);
    }
    let is_answered = run.reason == TerminalReason::Completed.as_str() && parts.hooks_at(HookEvent::RunCompleted) == 0;
    is_answered.then(|| goes_on.then(model::conclusion(String::new(), None)))
}

/// The nodes to which [`next`] may lead.
const NEXT: [&str; 9] = ["rest", "think", "agents", "approve", "doubt", "tools", "ask", "pending", "model"];

/// What is next. A run that has ended goes nowhere, whatever it was waiting for. Questions come before runs, so that no call
/// of a step runs while a person may end the whole of it; and runs before sleep, so that nothing waits that could be done.
fn next(run: &AgentRun) -> Target {
    let node = if !run.reason.is_empty() {
        return END;
    } else if run.rest.is_some() {
        "rest"
    } else if run.thinking.is_some() {
        "think"
    } else if run.awaits_children {
        "agents"
    } else if run.has_call(|status| *status == CallStatus::NeedsApproval) {
        "approve"
    } else if run.has_call(|status| matches!(status, CallStatus::Uncertain { .. })) {
        "doubt"
    } else if run.has_call(|status| matches!(status, CallStatus::Ready { .. } | CallStatus::Begun { .. })) {
        "tools"
    } else if run.has_call(|status| matches!(status, CallStatus::Asking { .. })) {
        "ask"
    } else if run.has_call(|status| matches!(status, CallStatus::Pending { .. })) {
        "pending"
    } else {
        "model"
    };
    Target::from(node)
}
