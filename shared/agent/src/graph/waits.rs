//! The pauses of a run: one for all calls of a step that wait for the same.

use std::time::Duration;

use dormouse_engine::{Answer, Delay, NodeError, Rule, Step, Update, Voters, Wait};
use dormouse_ports::tool::Pending;
use dormouse_ports::{Map, SignalDescriptor, SignalId, limits};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::background;
use super::entries::shown_arguments;
use super::forms;
use super::parts::AgentParts;
use super::plan::{invocation, signal};
use super::run::{AgentRun, CallStatus, Choice, PlannedCall, Reply};
use super::time::{asked_since, waiting};
use crate::workspace::ApprovalPolicy;

/// Characters of a reason or a result that a person gives.
const LONGEST: usize = 16 * 1024;
/// Characters of a question that say what is known of calls in doubt.
const LONGEST_KNOWN: usize = 300;
/// How long an outcome is waited for where its tool says nothing of it.
const LONGEST_PENDING: Duration = Duration::from_secs(24 * 60 * 60);
/// Time after which a run looks whether an agent in the background has ended without its being told.
const LOOKS: Duration = Duration::from_secs(15 * 60);

/// Bytes of JSON of the arguments that one pause shows, of all its calls; beyond them they are read with the pause itself.
const SHOWN_TOGETHER: usize = 32 * 1024;
/// Characters of what a pause says is known of a call, and of what was wrong with the arguments that a person gave.
const SHOWN_WORDS: usize = 500;

/// Waits for the approval of calls.
pub(crate) fn approve(parts: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun, Reply>, NodeError> {
    let calls: Vec<&PlannedCall> = with(run, |status| *status == CallStatus::NeedsApproval);
    let answer = Answer::new()
        .required(Reply::decision, Rule::one_of([Choice::Approve, Choice::Deny, Choice::Stop]))
        .optional(Reply::reason, Rule::text().at_most(LONGEST))
        .optional(Reply::arguments, Rule::<Map>::schema(object()))
        // What a person says of other arguments is no answer to this question.
        .optional(Reply::digest, Rule::one_of(calls.iter().map(|call| call.digest.clone())))
        .optional(Reply::by, Rule::text().at_most(200));
    let policy = parts.agent.policy.approval.or(&parts.approval);
    let question = match calls.as_slice() {
        [call] => match call.unfit.last() {
            Some(mistakes) => format!(
                "May `{}` call `{}`?\nThe arguments that were given do not fit, and were not taken: {}",
                parts.agent.name,
                call.tool,
                in_a_line(&beginning(mistakes, SHOWN_WORDS))
            ),
            None => format!("May `{}` call `{}`?", parts.agent.name, call.tool),
        },
        many => format!("May `{}` make these {} calls?", parts.agent.name, many.len()),
    };
    let wait = asked(run, "approve", &calls, answer)?
        .kind("approval")
        .describe(question)
        .label("agent", parts.agent.name.as_str())
        .label("calls", shown(&calls)?)
        .answers(Reply::decision.set(Choice::Approve), Reply::decision.set(Choice::Deny))
        .answered_by(Reply::by);
    let end = delay(policy.deny_after.as_deref(), Delay::days(3));
    Ok(stepping(wait, &policy, end).or_default(end, AgentRun::reply.set(Reply::default())))
}

/// `wait` with what is done before its `end`; a wait without steps stays one.
fn stepping(wait: Wait<AgentRun, Reply>, policy: &ApprovalPolicy, end: Delay) -> Wait<AgentRun, Reply> {
    steps(policy, end).into_iter().fold(wait, |wait, step| wait.steps([step]))
}

/// Steps of time while no answer comes, before the `end`, in order: those who were asked are reminded, and
/// notifications go out.
fn steps(policy: &ApprovalPolicy, end: Delay) -> Vec<Step> {
    let remind = policy.remind_after.iter().map(|after| (delay(Some(after), Delay::days(1)), None));
    let notify = policy.notify.iter().map(|(to, after)| (delay(Some(after), Delay::seconds(1)), Some(to)));
    let mut all: Vec<_> = notify.chain(remind).collect();
    all.sort_by_key(|(after, _)| after.length());
    let mut last = Duration::ZERO;
    let mut steps = Vec::new();
    for (after, to) in all {
        // No two steps are of the same second.
        let at = after.length().max(last + Duration::from_secs(1));
        let Some(at) = Delay::try_from(at).ok().filter(|_| at < end.length()) else { break };
        // The end is one more. Definitions that an earlier version took may name more channels.
        if steps.len() + 1 == limits::RUNGS {
            break;
        }
        last = at.length();
        steps.push(match to {
            Some(channel) => Step::notify(at, channel.as_str()),
            None => Step::remind(at),
        });
    }
    steps
}

/// Waits for a person to say whether calls happened.
pub(crate) fn doubt(parts: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun, Reply>, NodeError> {
    let calls: Vec<&PlannedCall> = with(run, |status| matches!(status, CallStatus::Uncertain { .. }));
    let answer = Answer::new()
        .required(Reply::decision, Rule::one_of([Choice::Happened, Choice::Repeat, Choice::Skip]))
        .optional(Reply::result, Rule::text().at_most(LONGEST))
        .optional(Reply::reason, Rule::text().at_most(LONGEST))
        .optional(Reply::by, Rule::text().at_most(200));
    let names = calls.iter().map(|call| format!("`{}`", call.tool)).collect::<Vec<_>>().join(", ");
    let question = format!(
        "Did {names} happen? It was begun, and its outcome is in doubt. `happened`: go on with it as done; `repeat`: it \
         did not happen, make the call now; `skip`: leave it\nKnown of it: {}",
        known(&calls)
    );
    let wait = asked(run, "doubt", &calls, answer)?
        .kind(SignalDescriptor::UNCERTAIN_EFFECT)
        .describe(question)
        .label("agent", parts.agent.name.as_str())
        .label("calls", shown(&calls)?)
        .answers(Reply::decision.set(Choice::Happened), Reply::decision.set(Choice::Repeat))
        .answered_by(Reply::by);
    Ok(stepping(wait, &notified(parts), Delay::days(3))
        .or_default(Delay::days(3), AgentRun::reply.set(Reply::default())))
}

/// What is known of `calls`, which are in doubt: what was heard of each, in a line, cut where it is long.
fn known(calls: &[&PlannedCall]) -> String {
    let heard = |call: &&PlannedCall| {
        let CallStatus::Uncertain { message, .. } = &call.status else { return None };
        let message = in_a_line(message);
        Some(if calls.len() == 1 { message } else { format!("`{}`: {message}", call.tool) })
    };
    beginning(&calls.iter().filter_map(heard).collect::<Vec<_>>().join("; "), LONGEST_KNOWN)
}

/// The policy of questions that are no approvals: the same channels, and no reminder.
fn notified(parts: &AgentParts) -> ApprovalPolicy {
    ApprovalPolicy { remind_after: None, ..parts.agent.policy.approval.or(&parts.approval) }
}

/// Waits for the answers to questions of tools.
pub(crate) fn ask(parts: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun, Reply>, NodeError> {
    let calls: Vec<&PlannedCall> = with(run, |status| matches!(status, CallStatus::Asking { .. }));
    let form = match calls.as_slice() {
        [PlannedCall { status: CallStatus::Asking { request, .. }, .. }] => forms::checked(request),
        // Each has another one.
        _ => object(),
    };
    let answer = Answer::new()
        .required(Reply::decision, Rule::one_of([Choice::Answer, Choice::Decline]))
        .optional(Reply::content, Rule::<Map>::schema(form))
        .optional(Reply::by, Rule::text().at_most(200));
    let question = |call: &&PlannedCall| {
        let CallStatus::Asking { request, unfit } = &call.status else { return None };
        let mut message = request.message.clone();
        let mut shown = json!({ "tool": call.tool, "message": message, "schema": request.schema });
        name_server(call, &mut shown);
        if let Some(mistakes) = call.unfit.last().filter(|_| *unfit > 0) {
            let mistakes = beginning(mistakes, SHOWN_WORDS);
            if calls.len() == 1 {
                let mistakes = in_a_line(&mistakes);
                message.push_str(&format!("\nThe answer that was given does not fit, and was not taken: {mistakes}"));
            }
            shown["unfit"] = mistakes.into();
        }
        Some((message, (call.part.clone(), shown)))
    };
    let (messages, questions): (Vec<String>, Vec<(String, Value)>) = calls.iter().filter_map(question).unzip();
    let wait = asked(run, "ask", &calls, answer)?
        .kind(SignalDescriptor::TOOL_INPUT)
        .describe(messages.join("\n"))
        .label("agent", parts.agent.name.as_str())
        .label("questions", Value::Object(questions.into_iter().collect()))
        .answered_by(Reply::by);
    Ok(stepping(wait, &notified(parts), Delay::days(3))
        .or_default(Delay::days(3), AgentRun::reply.set(Reply { decision: Choice::Decline, ..Reply::default() })))
}

/// Waits for the outcomes of calls that go on elsewhere.
pub(crate) fn pending(parts: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun, Map>, NodeError> {
    let now = parts.clock.now();
    let pace = pace(run);
    let mut waits: Vec<_> = run.calls.iter().filter_map(|call| pending_of(call, pace, now)).collect();
    let first = waits.iter().map(|(_, _, left)| *left).min().unwrap_or_default();
    let time = match asked_since(&run.calls) {
        Some(_) => whole_seconds(waiting(parts, run, first)),
        None => whole_seconds(first),
    };
    // The outcomes of the others are kept till these are recorded.
    let later = waits.split_off(outcomes_at_once(parts).min(waits.len()));
    let later: Vec<SignalId> = later.into_iter().map(|(_, signal, _)| signal).collect();
    let wait = match waits.as_slice() {
        [(_, signal, _)] => Wait::signal_into(signal.clone(), AgentRun::outcome, Answer::anything()),
        _ => {
            let outer = format!("{}/{}/pending-{}", invocation()?, run.steps, attempts(run));
            let parts = waits.iter().map(|(part, signal, _)| (part.clone(), signal.clone()));
            Wait::votes(outer, AgentRun::outcomes, Answer::anything(), Voters::with_signals(parts))
        }
    };
    let references = run.calls.iter().filter(|call| pending_of(call, pace, now).is_some());
    let references = references.map(|call| (call.part.clone(), json!({ "tool": call.tool })));
    Ok(wait
        .kind("job")
        .describe("Tools that the agent called work elsewhere")
        .label("calls", Value::Object(references.collect()))
        .keeping(later)
        .progress(run.steps)
        .or_default(time, Update::none()))
}

/// The calls that went on elsewhere of which one step takes the outcomes; where there are more, others wait for theirs.
pub(crate) fn outcomes_at_once(parts: &AgentParts) -> usize {
    parts.calls_at_once().max(2)
}

/// `time` as the delay of a wait, which is a second at least.
fn whole_seconds(time: Duration) -> Delay {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    Delay::seconds(u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
}

/// Waits while the model works.
pub(crate) fn think(parts: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun, Map>, NodeError> {
    let thinking = run.thinking.as_ref().ok_or_else(|| NodeError::new("the model works on nothing"))?;
    let pause = Duration::from_secs(background::pause(thinking).into());
    let wait = Wait::signal_into(thinking.job.signal_id(), AgentRun::outcome, Answer::anything())
        .kind("model")
        .label("job", thinking.job.id.as_str())
        .progress(run.steps)
        .or_default(whole_seconds(waiting(parts, run, pause)), Update::none());
    Ok(match thinking.message.as_str() {
        "" => wait.describe("The model thinks"),
        message => {
            let reason = in_a_line(&beginning(message, SHOWN_WORDS));
            wait.describe(format!("The provider does not tell how far the model is: {reason}\nIt is asked again"))
                .label("reason", message)
        }
    })
}

/// Waits for the first of the agents in the background, or for the time to look whether it has ended.
pub(crate) fn agents(parts: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun, Map>, NodeError> {
    let first = run.in_background().next().ok_or_else(|| NodeError::new("no agent works in the background"))?;
    let names: Vec<&str> = run.in_background().map(|child| child.graph.as_str()).collect();
    Ok(Wait::signal_into(first.signal_id.clone(), AgentRun::outcome, Answer::anything())
        .kind("agents")
        .describe("Agents work in the background")
        .label("agents", json!(names))
        .or_default(whole_seconds(waiting(parts, run, LOOKS)), Update::none()))
}

/// Rests before the next attempt at asking the model.
pub(crate) fn rest(_: &AgentParts, run: &AgentRun) -> Result<Wait<AgentRun>, NodeError> {
    let rest = run.rest.clone().unwrap_or_default();
    let pause = format!("{}/{}/rest-{}", invocation()?, run.steps, rest.attempts.saturating_add(rest.away));
    let id = if rest.mending > 0 { format!("{pause}-{}", rest.mending) } else { pause };
    let description = match rest.needs_mending {
        false => "The model cannot be asked now".to_owned(),
        // Whoever follows the run has to know, and not every one of them is shown the reason.
        true => {
            let reason = in_a_line(&beginning(&rest.message, SHOWN_WORDS));
            let until = "The run tries again now and then, until somebody has mended that";
            format!("The model refuses to be asked: {reason}\n{until}")
        }
    };
    let wait = Wait::sleep(id, Delay::seconds(rest.seconds.max(1)))
        .kind("rest")
        .describe(description)
        .label("reason", rest.message);
    let labels = [("needs_mending", rest.needs_mending), ("may_be_paid", rest.may_be_paid)];
    Ok(labels.into_iter().filter(|(_, holds)| *holds).fold(wait, |wait, (name, holds)| wait.label(name, holds)))
}

/// Next thing to do about a call that goes on elsewhere.
pub(crate) enum PendingDue {
    /// Nothing for that time.
    Later(Duration),
    /// Its source is asked.
    Asked,
    /// Its time is over.
    Over,
}

/// Least time from one question to a source of the calls of a step to the next: the longer, the more were asked. So a run
/// that waits for weeks has not slept more often than a run may.
pub(crate) fn pace(run: &AgentRun) -> Duration {
    let polls: u32 = run.calls.iter().map(|call| call.polls).fold(0, u32::saturating_add);
    let pending = with(run, |status| matches!(status, CallStatus::Pending { .. })).len();
    let pending = u32::try_from(pending).unwrap_or(u32::MAX).max(1);
    match polls {
        0..20 => Duration::ZERO,
        20..60 => Duration::from_secs(10),
        60..300 => Duration::from_secs(10) * pending.max(3),
        300..3_000 => Duration::from_secs(60) * pending,
        _ => Duration::from_secs(600) * pending,
    }
}

/// What is to be done at `now` about a call that is pending `since` then, where sources are asked at that `pace`: before its
/// time is over in any case.
pub(crate) fn due(pending: &Pending, pace: Duration, (since, now): (Option<Timestamp>, Timestamp)) -> PendingDue {
    let time = pending.timeout.unwrap_or(if pending.poll_after.is_some() { Duration::MAX } else { LONGEST_PENDING });
    let next = pending.poll_after.map_or(Duration::MAX, |after| after.max(pace.min(time / 2)));
    let first = time.min(next);
    let waited = since.map_or(first, |since| Duration::try_from(now.duration_since(since)).unwrap_or_default());
    if waited < first {
        PendingDue::Later(first - waited)
    } else if waited < time {
        PendingDue::Asked
    } else {
        PendingDue::Over
    }
}

/// Part, signal and time of a pending call.
fn pending_of(call: &PlannedCall, pace: Duration, now: Timestamp) -> Option<(String, SignalId, Duration)> {
    let CallStatus::Pending { signal_id, pending, since } = &call.status else { return None };
    let left = match due(pending, pace, (*since, now)) {
        PendingDue::Later(left) => left,
        PendingDue::Asked | PendingDue::Over => Duration::ZERO,
    };
    Some((call.part.clone(), signal_id.clone(), left))
}

/// The calls with a status for which `matching` is true.
pub(crate) fn with(run: &AgentRun, matching: impl Fn(&CallStatus) -> bool) -> Vec<&PlannedCall> {
    run.calls.iter().filter(|call| matching(&call.status)).collect()
}

/// A wait for one reply, or for one from each part. A later pause of the same step about the same calls has another id.
fn asked(
    run: &AgentRun,
    what: &str,
    calls: &[&PlannedCall],
    answer: Answer<Reply>,
) -> Result<Wait<AgentRun, Reply>, NodeError> {
    let invocation = invocation()?;
    let id = format!("{invocation}/{}/{what}-{}", run.steps, attempts(run));
    let wait = match calls {
        [_] => Wait::signal_into(id, AgentRun::reply, answer),
        many => {
            let voters = Voters::each(many.iter().map(|call| call.part.clone()));
            let voters = match many.iter().all(|call| call.status == CallStatus::NeedsApproval) {
                // Who ends the run waits for nobody else's answer.
                true => voters.veto(Reply::decision, Choice::Stop),
                false => voters,
            };
            Wait::votes(id, AgentRun::replies, answer, voters)
        }
    };
    // Calls that go on elsewhere are waited for again behind it, and so may those be of which it asks.
    let outcomes = run.calls.iter().filter_map(|call| match &call.status {
        CallStatus::Pending { signal_id, .. } => Some(signal_id.clone()),
        CallStatus::Uncertain { .. } | CallStatus::Asking { .. } => {
            (call.polls > 0).then(|| signal(&invocation, run.steps, call))
        }
        CallStatus::NeedsApproval
        | CallStatus::Ready { .. }
        | CallStatus::Begun { .. }
        | CallStatus::Answered { .. } => None,
    });
    Ok(wait.keeping(outcomes).progress(run.steps))
}

/// Counts the beginnings of the calls of this step, the questions of their tools, and the answers about them that did not fit.
fn attempts(run: &AgentRun) -> u32 {
    let of = |call: &PlannedCall| call.attempts + call.questions + u32::try_from(call.unfit.len()).unwrap_or(u32::MAX);
    run.calls.iter().map(of).sum()
}

/// Names in `shown` the server that makes `call`: another one may have a tool of the same name.
fn name_server(call: &PlannedCall, shown: &mut Value) {
    if let Some(server) = call.server() {
        shown["source"] = server.into();
    }
}

/// What a person is shown of `calls`: tool, its server, arguments, and their digest, by the names of the parts. Arguments
/// that are too long for it are whole where the pause itself is read, which is named.
fn shown(calls: &[&PlannedCall]) -> Result<Value, NodeError> {
    let pause = format!("/v1/x-pauses/{}", invocation()?);
    let mut room = SHOWN_TOGETHER;
    let one = |call: &&PlannedCall| {
        let arguments = shown_arguments(&call.arguments, room);
        room = room.saturating_sub(dormouse_json::length(&arguments).unwrap_or(room));
        let mut shown = json!({ "tool": call.tool, "arguments": arguments, "digest": call.digest });
        name_server(call, &mut shown);
        if shown["arguments"].as_object() != Some(&call.arguments) {
            shown["whole"] = pause.as_str().into();
        }
        if let CallStatus::Uncertain { message, .. } = &call.status {
            shown["known"] = beginning(message, SHOWN_WORDS).into();
        }
        if let Some(mistakes) = call.unfit.last().filter(|_| call.status == CallStatus::NeedsApproval) {
            shown["unfit"] = beginning(mistakes, SHOWN_WORDS).into();
        }
        (call.part.clone(), shown)
    };
    Ok(Value::Object(calls.iter().map(one).collect()))
}

/// `text`, or its beginning where it has more than `most` characters.
fn beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The words of `text` in a line: what notifications leave out is the last line of a question.
fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn object() -> Map {
    Map::from_iter([("type".to_owned(), "object".into())])
}

fn delay(text: Option<&str>, otherwise: Delay) -> Delay {
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use dormouse_ports::InvocationLimits;

    use super::*;

    fn pending(number: u32) -> PlannedCall {
        let status = CallStatus::Pending { signal_id: "s".into(), pending: Pending::default(), since: None };
        PlannedCall::numbered(number, status)
    }

    #[test]
    fn a_run_that_asks_each_minute_waits_for_weeks_before_it_has_slept_as_often_as_it_may() {
        for count in [1, 2, 25] {
            let mut run = AgentRun { calls: (1..=count).map(pending).collect(), ..AgentRun::default() };
            let mut waited = Duration::ZERO;
            // In the worst case each of them has a sleep of its own.
            for _ in 0..InvocationLimits::default().pauses {
                waited += pace(&run).max(Duration::from_secs(60)) / count;
                run.calls[0].polls += 1;
            }
            let days = waited.as_secs() / 86_400;
            assert!(days >= 40, "of {count} calls: {days} days");
        }
    }
}
