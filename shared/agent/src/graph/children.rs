//! The runs that a run asked for: how many there may be, what is known of them, and their results where the run goes on
//! meanwhile.

use dormouse_engine::{NodeError, Update, current, record};
use dormouse_ports::model::Message;
use dormouse_ports::{Category, ChildLink, ChildStanding, EntryKind, InvocationId, JournalEntry, Map};

use super::agents::output_of;
use super::calls::text_of;
use super::compact::RESULT;
use super::images::hidden;
use super::model::{conclusion, end, unwritable};
use super::parts::AgentParts;
use super::plan::key;
use super::run::{AgentRun, CallStatus, PlannedCall, TerminalReason};
use super::time::{is_over, waited};
use crate::names::{ASK, SWITCH};
use crate::workspace::{AgentMode, ToolOrigin};

/// Kind of the entry of an agent that was asked.
pub(super) const ASKED: &str = "dormouse.agent_asked";

/// Why no image of an agent in the background is shown.
const IN_BACKGROUND: &str = "of an agent that works in the background words come alone";
/// Agents that were asked and have not ended, where the agent that asks sets no limit.
const MOST_OPEN: u64 = 8;
/// Agents that one run asks in all.
const MOST_IN_ALL: usize = 64;

/// Refuses calls that would ask more agents than may be asked at a time.
pub(crate) fn limit(parts: &AgentParts, run: &AgentRun, calls: &mut [PlannedCall]) {
    let most = parts.agent.policy.max_concurrent_subagents.unwrap_or(MOST_OPEN);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    // Where calls are planned no call of an earlier step is open: nobody waits any more for the other agents of the run, also
    // for one of which it is not known whether it was asked, or how it ended.
    let mut open = run.in_background().count();
    let mut all = run.dormouse_children.len();
    let asks = |call: &&mut PlannedCall| {
        call.origin == ToolOrigin::Agent && call.tool == ASK && !matches!(call.status, CallStatus::Answered { .. })
    };
    for call in calls.iter_mut().filter(asks) {
        let excess = if all >= MOST_IN_ALL {
            Some(format!("error: a run asks at most {MOST_IN_ALL} agents: go on without"))
        } else if open >= most {
            Some(format!("error: {most} agents are asked at a time at most: wait until one of them has ended"))
        } else {
            None
        };
        match excess {
            Some(text) => call.status = CallStatus::Answered { text, is_error: true },
            None => {
                open += 1;
                all += 1;
            }
        }
    }
}

/// Refuses `call` where it would hand over a run that a call of the same step handed over to `next`.
pub(crate) fn hand_over_once(next: &str, call: &mut PlannedCall) {
    let hands_over = call.origin == ToolOrigin::Agent && call.tool == SWITCH;
    if let (true, false, CallStatus::Answered { is_error: false, .. }) = (hands_over, next.is_empty(), &call.status) {
        let text = format!("error: the run is handed over to `{next}` already: the first call of a step counts");
        call.status = CallStatus::Answered { text, is_error: true };
    }
}

/// Notes what the call `call`, which was made, means for the agents of the run.
pub(crate) fn note(
    parts: &AgentParts,
    invocation: &InvocationId,
    run: &mut AgentRun,
    call: &PlannedCall,
) -> Result<(), NodeError> {
    if call.origin != ToolOrigin::Agent {
        return Ok(());
    }
    if let (SWITCH, CallStatus::Answered { is_error: false, .. }) = (call.tool.as_str(), &call.status) {
        let to = call.arguments.get("to").and_then(|to| to.as_str()).unwrap_or_default();
        to.clone_into(&mut run.next_agent);
        let kind = EntryKind::vendor("dormouse.agent_switched").map_err(|error| NodeError::new(error.to_string()))?;
        return record(JournalEntry::new(kind).with("from", parts.agent.name.as_str()).with("to", to));
    }
    let key = key(invocation, run.steps, call);
    let Some(child) = parts.colleagues.child_of(&call.tool, &call.arguments, &key) else { return Ok(()) };
    let is_known = run.dormouse_children.iter().any(|known| known.invocation_id == child.invocation_id);
    if !is_known {
        let failed = matches!(call.status, CallStatus::Answered { is_error: true, .. });
        let kind = EntryKind::vendor(ASKED).map_err(|error| NodeError::new(error.to_string()))?;
        record(
            JournalEntry::new(kind)
                .with("agent", child.graph.as_str())
                .with("invocation_id", child.invocation_id.as_str())
                .with("session_id", child.session_id.as_str())
                .with("background", child.background),
        )?;
        // One that may have begun all the same is not reported: it ends with the run.
        run.dormouse_children.push(ChildLink { background: child.background && !failed, ..child });
    }
    if let CallStatus::Answered { is_error: false, .. } = &call.status {
        settle(invocation, run, call);
    }
    Ok(())
}

/// Notes that the child of `call` has ended, where the call has a result.
pub(crate) fn settle(invocation: &InvocationId, run: &mut AgentRun, call: &PlannedCall) {
    if let (ToolOrigin::Agent, CallStatus::Answered { .. }) = (call.origin, &call.status) {
        let signal = key(invocation, run.steps, call);
        let is_it = |child: &&mut ChildLink| !child.background && child.signal_id.as_str() == signal;
        run.dormouse_children.iter_mut().filter(is_it).for_each(|child| child.ended = true);
    }
}

/// What stands around the result of a child in the background.
pub(super) fn frame(child: &ChildLink) -> (String, &'static str) {
    (format!("{RESULT}task_id=\"{}\" agent=\"{}\">\n", child.session_id, child.graph), "\n</agent_result>")
}

/// Takes the end of a run in the background, for which nothing else is left to do.
pub(crate) async fn gather(parts: &AgentParts, mut run: AgentRun) -> Result<Update<AgentRun>, NodeError> {
    let Some(at) = run.dormouse_children.iter().position(|child| child.background && !child.ended) else {
        run.usage = waited(parts, &run);
        return Ok(AgentRun::awaits_children
            .set(false)
            .set(AgentRun::usage, run.usage)
            .set(AgentRun::outcome, Map::new()));
    };
    let is_told = run.dormouse_resolution != "timed_out" && run.dormouse_resolution != "woken";
    let payload = match (is_told, &parts.colleagues.runs) {
        (true, _) => Some(std::mem::take(&mut run.outcome)),
        (false, None) => None,
        (false, Some(runs)) => match runs.look(&run.dormouse_children[at].invocation_id).await {
            Ok(ChildStanding::Ended(payload) | ChildStanding::Canceled(payload)) => Some(payload),
            Ok(ChildStanding::Missing) => None,
            Ok(ChildStanding::Open) => return still_waiting(parts, run).await,
            Err(error) => {
                tracing::warn!(%error, "an agent in the background could not be looked up; the run looks again");
                return still_waiting(parts, run).await;
            }
        },
    };
    run.usage = waited(parts, &run);
    let child = &mut run.dormouse_children[at];
    child.ended = true;
    let text = text_of(&output_of(payload), |image| hidden(image, IN_BACKGROUND));
    let (before, behind) = frame(child);
    let said = format!("{before}{text}{behind}");
    let message = serde_json::to_value(Message::user(said)).map_err(unwritable)?;
    Ok(AgentRun::messages
        .append(vec![message])
        .set(AgentRun::dormouse_children, run.dormouse_children)
        .set(AgentRun::usage, run.usage)
        .set(AgentRun::outcome, Map::new())
        .set(AgentRun::awaits_children, false))
}

/// A run whose agents in the background still work: it ends where its time is over.
async fn still_waiting(parts: &AgentParts, mut run: AgentRun) -> Result<Update<AgentRun>, NodeError> {
    if is_over(parts, &run) {
        run.usage = waited(parts, &run);
        end(parts, &mut run, TerminalReason::Time).await?;
    } else {
        // A run that waited before this was kept is counted from here on.
        run.usage.waits_since.get_or_insert(parts.clock.now());
    }
    Ok(AgentRun::outcome
        .set(Map::new())
        .set(AgentRun::usage, run.usage)
        .then(conclusion(run.reason, run.dormouse_shortfall)))
}

/// Makes sure that the run works for a caller that is still there.
///
/// # Errors
/// When an agent runs by itself that only others may ask, or when the run that asked has ended.
pub(crate) async fn wanted(parts: &AgentParts, run: &AgentRun) -> Result<(), NodeError> {
    let Some(parent) = &run.dormouse_parent else {
        if parts.agent.mode == AgentMode::Subagent {
            let message = format!("`{}` is asked by other agents only", parts.agent.name);
            return Err(NodeError::new(message).with_category(Category::RequestInvalid));
        }
        return Ok(());
    };
    let Some(runs) = &parts.colleagues.runs else { return Ok(()) };
    match runs.look(&parent.invocation_id).await {
        Ok(ChildStanding::Open) => Ok(()),
        Ok(ChildStanding::Missing | ChildStanding::Canceled(_) | ChildStanding::Ended(_)) => {
            let reason = "the agent that asked has ended";
            if let Some(identity) = current()
                && let Err(error) = runs.cancel(&identity.invocation_id, reason).await
            {
                tracing::warn!(%error, "a run whose asker has ended could not be canceled; it ends by itself");
            }
            Err(NodeError::new(reason).with_category(Category::InvocationCanceled))
        }
        Err(error) => {
            tracing::warn!(%error, "it is not known whether the agent that asked has ended; the run goes on");
            Ok(())
        }
    }
}
