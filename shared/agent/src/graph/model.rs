//! The node that asks the model: one call, and what follows from its answer, in one commit.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dormouse_engine::{NodeError, Update, current, record};
use dormouse_ports::model::{
    CallEvent, CallObserver, CallOptions, CompletionRequest, DeltaKind, FinishReason, Message, ModelError, Response,
    RetryPolicy, Usage,
};
use dormouse_ports::{Category, EntryKind, InvocationId, JournalEntry, Map, Shortfall};
use futures::future::{Either, select};
use serde_json::{Value, json};

use super::action;
use super::background::{self, Asked};
use super::children::wanted;
use super::compact::{self, Compacted};
use super::context;
use super::digest::of_value;
use super::entries::{LostAnswer, ModelCall, RUN_ENDED, answer_lost, model_call, tools_missing};
use super::environment;
use super::gates::{self, HooksSay, at_end};
use super::images;
use super::instructions;
use super::lost::{Unusable, again, is_given_up, is_not_streamed, may_rest, mendable, rest, usable};
use super::open;
use super::parts::{AgentParts, AnswerUnderWay, DeltaSink, Markers};
use super::plan::{BegunMark, FILTERED, give_up, invocation, plan, settle, told_apart};
use super::run::{AgentRun, ModelRest, TerminalReason, Thinking};
use super::time::{Bound, CallTime, is_over, is_short_of_hooks, used};
use super::toolset::Toolset;
use super::watch::unless_canceled;
use super::weight;
use crate::workspace::{HookEvent, Prices};

/// The longest wait that a provider asks for which the call itself waits out.
const HEEDED: Duration = Duration::from_secs(10);

/// The events of hooks that may run behind an answer of the model in the node that asked for it.
const BEHIND: [HookEvent; 3] = [HookEvent::AfterModelCall, HookEvent::BeforeToolDispatch, HookEvent::RunCompleted];

/// Asks the model for the next step.
pub(crate) async fn think(
    parts: &AgentParts,
    markers: &Markers,
    mut run: AgentRun,
) -> Result<Update<AgentRun>, NodeError> {
    wanted(parts, &run).await?;
    if is_over(parts, &run) {
        run.usage = used(parts, &run);
        if let (Some(thinking), Some(provider)) = (run.thinking.take(), &parts.model.background) {
            background::end(&**provider, &thinking.job).await;
        }
        let update = ended(parts, run, TerminalReason::Time).await?;
        return Ok(update.then(identity(parts)));
    }
    if run.compact {
        return made_shorter(parts, run).await;
    }
    if let Some(action) = run.action.clone() {
        return action::run(parts, markers, run, action).await.map(|update| update.then(identity(parts)));
    }
    // Summaries and hooks may have used up what was left behind the last step.
    if run.steps > 0 && run.thinking.is_none() && has_spent(parts, &run) {
        let update = ended(parts, run, TerminalReason::Budget).await?;
        return Ok(update.then(identity(parts)));
    }
    run.environment = environment::summary(parts, &run).await.unwrap_or_default();
    let mut found = open::look(parts, &mut run).await?.then(AgentRun::environment.set(run.environment.clone()));
    if parts.remembers && run.steps == 0 {
        found = found.set(AgentRun::remembered, run.remembered_now());
    }
    found = found.then(taken_over(parts, &mut run));
    think_of(parts, markers, run).await.map(|update| found.then(update))
}

/// Has `run` know whether its agent goes on with what another one said.
fn taken_over(parts: &AgentParts, run: &mut AgentRun) -> Update<AgentRun> {
    if run.steps == 0 && run.agent_before.is_empty() {
        run.agent_before.clone_from(&run.last_agent);
    }
    let before = if run.agent.is_empty() { &run.agent_before } else { &run.agent };
    run.takes_over |= !before.is_empty() && *before != parts.agent.name;
    AgentRun::agent_before.set(run.agent_before.clone()).set(AgentRun::takes_over, run.takes_over)
}

/// Asks the model for the next step of a run that goes on.
async fn think_of(parts: &AgentParts, markers: &Markers, mut run: AgentRun) -> Result<Update<AgentRun>, NodeError> {
    // Hooks that have no time left fail, and are passed over. That this was left once is known by the name of the agent.
    if run.agent.is_empty() && is_short_of_hooks(parts) {
        return Ok(identity(parts));
    }
    let tools = Toolset::of(parts).await;
    let mut request = context::request(parts, &run, &tools);
    if run.thinking.is_none() {
        match compact::if_due(parts, &run, &request).await? {
            Some(Compacted::Yes { update, usage, context }) => {
                let told = AgentRun::hook_context.set(gates::told_also(run.hook_context, context));
                let update = update.then(told).then(AgentRun::usage.set(usage)).then(AgentRun::rest.set(None));
                return Ok(update.then(identity(parts)));
            }
            Some(Compacted::No { usage, context, .. }) => {
                run.usage = usage;
                run.hook_context = gates::told_also(run.hook_context, context);
                // What it cost is known before the next call. A rest keeps what it was for till the model is asked.
                if run.rest.is_none() {
                    let told = AgentRun::hook_context.set(run.hook_context).set(AgentRun::usage, run.usage);
                    return Ok(told.then(identity(parts)));
                }
            }
            Some(Compacted::Stopped { reason, usage }) => {
                run.usage = usage;
                return stopped(parts, run, &reason).await;
            }
            None => {}
        }
    }
    if run.thinking.is_none()
        && let Some(reason) = gates::before_model(parts, &mut run, &tools, &mut request).await?
    {
        return stopped(parts, run, &reason).await;
    }
    let asking = async {
        match &parts.model.background {
            Some(provider) => background::ask(parts, &**provider, &mut run, &request).await,
            None => at_once(parts, &mut run, &request).await,
        }
    };
    let asked = instructions::under(parts, &request, asking).await?;
    let refused = run.images_refused.clone();
    let identity = |parts: &AgentParts| identity(parts).then(AgentRun::images_refused.set(refused.clone()));
    let (answer, request_digest, duration_ms, jobs) = match asked {
        Asked::Answered { answer, request_digest, duration_ms, jobs } => (answer, request_digest, duration_ms, jobs),
        Asked::Thinking(thinking) => {
            return Ok(asleep(thinking).then(AgentRun::usage.set(run.usage)).then(identity(parts)));
        }
        Asked::InWords(rest) => {
            let update = AgentRun::rest.set(Some(rest)).set(AgentRun::usage, run.usage).then(awake());
            return Ok(update.then(identity(parts)));
        }
        Asked::Cut { time, duration_ms } => {
            run.usage.active_ms += duration_ms;
            return cut(parts, &run, time).await.map(|update| update.then(identity(parts)));
        }
    };
    let answer = answer.map(|response| *response).or_else(mendable);
    let mut response = match answer.map_err(Unusable::failed).and_then(usable) {
        Ok(response) => response,
        Err(unusable) => {
            let asked = NoAnswer { unusable: *unusable, request_digest, duration_ms, jobs };
            return without_answer(parts, run, &request, asked).await.map(|update| update.then(identity(parts)));
        }
    };
    told_apart(&mut response.message.tool_calls);
    response.usage = response.billed();
    uncounted(parts, &run, &response);
    run.measured = weight::measured(parts, &run, &request, &response.usage);
    let cost = cost(parts.model.prices, &response);
    run.steps += 1;
    run.usage = run.usage.and(response.usage, cost, duration_ms);
    let entry = ModelCall {
        step: run.steps,
        request_digest,
        response_digest: of_value(&response.message),
        finish_reason: response.finish_reason.as_str(),
        stop_word: response.stop_word(),
        usage: json!(response.usage),
        cost,
        duration_ms,
        listed: if run.steps == 1 { tools.listed.clone() } else { Map::new() },
    };
    model_call(parts, entry)?;
    if run.steps == 1 {
        tools_missing(&tools.missing)?;
    }
    let mut says = gates::after_model(parts, &mut run, &mut response).await?;
    let follow = follow(parts, markers, &tools, &mut run, &response, &mut says).await?;
    let answer = serde_json::to_value(Message::Assistant(response.message)).map_err(unwritable)?;
    let said: Vec<Value> = std::iter::once(answer).chain(follow).collect();
    let open = open::noted(&run)?;
    Ok(AgentRun::messages
        .append(open::marked(said)?)
        .set(AgentRun::steps, run.steps)
        .set(AgentRun::usage, run.usage)
        .set(AgentRun::measured, run.measured)
        .then(open)
        .set(AgentRun::calls, run.calls)
        .set(AgentRun::hook_context, says.context)
        .then(conclusion(run.reason, run.dormouse_shortfall))
        .set(AgentRun::awaits_children, run.awaits_children)
        .then(rested())
        .then(identity(parts)))
}

/// A request to which there is no answer that can stand in the conversation.
struct NoAnswer {
    unusable: Unusable,
    request_digest: String,
    duration_ms: u64,
    /// Jobs that ended without an answer before.
    jobs: u32,
}

/// What follows such a `request`: a shorter conversation where it was too long, a rest before it is made again, or the end.
async fn without_answer(
    parts: &AgentParts,
    mut run: AgentRun,
    request: &CompletionRequest,
    asked: NoAnswer,
) -> Result<Update<AgentRun>, NodeError> {
    let NoAnswer { unusable: Unusable { error, jobs: lost, advice, usage }, request_digest, duration_ms, jobs } = asked;
    let jobs = jobs + lost;
    let shortening = if error.too_long { compact::shortening(parts, &run, request) } else { None };
    if let Some(usage) = usage.or(shortening.as_ref().map(|_| Usage::default())) {
        let cost = parts.model.prices.map_or(0.0, |prices| prices.cost(&usage));
        run.usage = run.usage.and(usage, cost, duration_ms);
        let (step, message, is_last) = (run.steps + 1, &error.message, is_given_up(&run, &error));
        let too_long = shortening.is_some();
        let lost = LostAnswer { step, message, request_digest, usage, cost, duration_ms, is_last, too_long };
        answer_lost(parts, lost)?;
        if has_spent(parts, &run) {
            return ended(parts, run, TerminalReason::Budget).await;
        }
        // A step that fails records nothing, and is made again by the next worker: it would be paid further on.
        if is_last {
            end(parts, &mut run, TerminalReason::NoAnswer).await?;
            run.dormouse_shortfall = told(run.dormouse_shortfall, &error.message);
            return Ok(concluded(run));
        }
    }
    if let Some(shortening) = shortening {
        match compact::shorten(parts, &run, &shortening).await? {
            Some(Compacted::Yes { update, usage, context }) => {
                // The next job is another one.
                let rest = parts.model.background.as_ref().map(|_| again(parts, &run, &error, jobs));
                let context = gates::told_also(run.hook_context, context);
                let told = AgentRun::hook_context.set(context).set(AgentRun::usage, usage).set(AgentRun::rest, rest);
                return Ok(update.then(told).then(awake()));
            }
            Some(Compacted::Stopped { reason, usage }) => {
                run.usage = usage;
                return stopped(parts, run, &reason).await;
            }
            // The summary may be had later: the run rests, as it does where its model is away.
            Some(Compacted::No { usage, may_pass: true, .. }) if may_rest(&run) => {
                run.usage = usage;
                // As often as what is paid, however its refusal is told: the summary may have been begun.
                let error = ModelError { may_pass: Some(true), may_be_paid: true, ..error };
                return rest(parts, &run, &error, ModelRest { jobs, ..ModelRest::default() }).await;
            }
            // A step that fails records nothing, and what was paid for the summary would stand nowhere.
            Some(Compacted::No { usage, .. }) if usage.tokens() > run.usage.tokens() => {
                run.usage = usage;
                end(parts, &mut run, TerminalReason::NotCompacted).await?;
                run.dormouse_shortfall = told(run.dormouse_shortfall, &error.message);
                return Ok(concluded(run));
            }
            // It fails, as it would without a summary.
            Some(Compacted::No { .. }) | None => {}
        }
    }
    let next = ModelRest { advice: advice.to_owned(), jobs, ..ModelRest::default() };
    rest(parts, &run, &error, next).await
}

/// The end of a run whose model is not asked since a hook says so, for this `reason`.
async fn stopped(parts: &AgentParts, mut run: AgentRun, reason: &str) -> Result<Update<AgentRun>, NodeError> {
    tracing::info!(reason, "a hook ended a run before its model was asked");
    ended_by_hook(parts, &mut run, reason).await?;
    Ok(concluded(run).then(AgentRun::messages.append(vec![said(reason)?])).then(identity(parts)))
}

/// Says once in a run that its provider tells no tokens: limits on tokens and money then have nothing to count.
fn uncounted(parts: &AgentParts, run: &AgentRun, response: &Response) {
    let policy = &parts.agent.policy;
    let is_limited = policy.max_total_tokens.is_some() || policy.max_cost.is_some();
    if is_limited && run.steps == 0 && response.usage.prompt_tokens.or(response.usage.completion_tokens).is_none() {
        let (model, agent) = (&parts.model.reference, &parts.agent.name);
        tracing::warn!(
            model,
            agent,
            "the provider does not tell how many tokens a call took: `max_total_tokens` and `max_cost` limit nothing in this run"
        );
    }
}

/// Asks, and waits for the answer as long as the run and the turn have time.
async fn at_once(parts: &AgentParts, run: &mut AgentRun, request: &CompletionRequest) -> Result<Asked, NodeError> {
    let options = options(parts, &invocation()?, run.steps);
    let behind = parts.time_of_hooks(&BEHIND);
    let time = CallTime::of(parts, &run.usage, Duration::MAX, behind);
    let over = async {
        match time.bound {
            Bound::Own => futures::future::pending().await,
            Bound::Run | Bound::Turn { .. } => parts.clock.sleep(time.limit).await,
        }
    };
    let began = parts.clock.monotonic();
    let over = pin!(over);
    let sent = context::advised(images::taken(parts, run, request), run);
    let provider = &parts.model.provider;
    let asking = pin!(async {
        let mut sent = sent;
        let mut refuses_images = false;
        loop {
            match provider.complete(&sent, &options).await {
                Err(error) if !refuses_images && images::are_refused(parts, &sent, &error) => {
                    sent = Cow::Owned(images::in_words(&sent));
                    refuses_images = true;
                }
                Err(error) if is_not_streamed(&sent, &error) => sent.to_mut().stream = false,
                answer => break (answer, refuses_images),
            }
        }
    });
    let asked = unless_canceled(&*parts.clock, select(asking, over)).await?;
    let duration_ms = millis(parts.clock.monotonic().saturating_sub(began));
    Ok(match asked {
        Either::Left(((answer, refuses_images), _)) => {
            if refuses_images {
                run.images_refused.clone_from(&parts.model.reference);
            }
            let answer = answer.map(Box::new);
            let jobs = run.rest.as_ref().map_or(0, |rest| rest.jobs);
            Asked::Answered { answer, request_digest: of_value(request), duration_ms, jobs }
        }
        Either::Right(_) => Asked::Cut { time, duration_ms },
    })
}

/// What follows a model call for which there was no time: the end of a run whose own time is over. Where the turn began
/// long before the call, it is made once more in one that has all its time; else the run fails.
async fn cut(parts: &AgentParts, run: &AgentRun, time: CallTime) -> Result<Update<AgentRun>, NodeError> {
    let message = format!("the model did not answer within {}", time.words());
    match time.bound {
        Bound::Own | Bound::Run => ended(parts, run.clone(), TerminalReason::Time).await,
        Bound::Turn { fresh: false, .. } if run.rest.is_none() => {
            tracing::warn!("{message}; it is asked once more, in another turn");
            let rest = ModelRest { attempts: 1, seconds: 1, message, ..ModelRest::default() };
            Ok(AgentRun::rest.set(Some(rest)).set(AgentRun::usage, run.usage))
        }
        Bound::Turn { .. } => {
            let category = Category::LimitExceeded;
            at_end(parts, HookEvent::RunFailed, category.as_str(), run).await?;
            let message =
                format!("{message}. Give it more, or let the model work in the background (`background: true`)");
            Err(NodeError::new(message).with_category(category))
        }
    }
}

/// The model works, and the run sleeps.
fn asleep(thinking: Thinking) -> Update<AgentRun> {
    AgentRun::thinking.set(Some(thinking)).set(AgentRun::rest, None).set(AgentRun::outcome, Map::new())
}

/// The model works on nothing any more.
pub(crate) fn awake() -> Update<AgentRun> {
    AgentRun::thinking.set(None).set(AgentRun::outcome, Map::new())
}

/// Nothing is waited for before the model is asked again.
fn rested() -> Update<AgentRun> {
    awake().set(AgentRun::rest, None)
}

/// A run that was asked to make the conversation shorter, and ends.
async fn made_shorter(parts: &AgentParts, mut run: AgentRun) -> Result<Update<AgentRun>, NodeError> {
    let (shorter, reason) = match compact::asked(parts, &run).await? {
        Some(Compacted::Yes { update, usage, .. }) => {
            run.usage = usage;
            (update, TerminalReason::Completed)
        }
        Some(Compacted::No { usage, .. }) => {
            run.usage = usage;
            (Update::none(), TerminalReason::NotCompacted)
        }
        Some(Compacted::Stopped { reason, usage }) => {
            run.usage = usage;
            ended_by_hook(parts, &mut run, &reason).await?;
            return Ok(concluded(run).then(identity(parts)));
        }
        None => (Update::none(), TerminalReason::Completed),
    };
    end(parts, &mut run, reason).await?;
    let conclusion = conclusion(run.reason, run.dormouse_shortfall);
    Ok(shorter.then(AgentRun::usage.set(run.usage)).then(conclusion).then(identity(parts)))
}

/// The beginning of `text`, in so many bytes. One that was cut to as many is told as it is: a replay has it from the record.
pub(crate) fn conversational(text: &str, longest: usize) -> String {
    const CUT: &str = " [cut]";
    let is_cut = text.ends_with(CUT) && text.len() <= longest + CUT.len();
    match is_cut || text.len() <= longest {
        true => text.to_owned(),
        false => format!("{}{CUT}", &text[..text.floor_char_boundary(longest)]),
    }
}

/// The agent and the definitions with which the step was made.
fn identity(parts: &AgentParts) -> Update<AgentRun> {
    AgentRun::agent
        .set(parts.agent.name.clone())
        .set(AgentRun::last_agent, parts.agent.name.clone())
        .set(AgentRun::bundle, parts.bundle.clone())
        .set(AgentRun::next_agent, String::new())
}

/// What follows the answer, behind which hooks `say` something: the end, or a plan for the calls. Gives the results that are
/// known already.
async fn follow(
    parts: &AgentParts,
    markers: &Markers,
    tools: &Toolset<'_>,
    run: &mut AgentRun,
    response: &Response,
    say: &mut HooksSay,
) -> Result<Vec<Value>, NodeError> {
    let calls = &response.message.tool_calls;
    if calls.is_empty() && say.stop.is_none() {
        let reason = match response.finish_reason {
            FinishReason::Length => TerminalReason::Length,
            FinishReason::ContentFilter => TerminalReason::ContentFilter,
            FinishReason::Error => TerminalReason::NoAnswer,
            FinishReason::Stop | FinishReason::ToolCalls if run.in_background().next().is_some() => {
                // Where its model is asked no more, nobody would hear what they find.
                let Some(reason) = spent(parts, run) else {
                    run.awaits_children = true;
                    run.usage.waits_since = Some(parts.clock.now());
                    return Ok(Vec::new());
                };
                reason
            }
            FinishReason::Stop | FinishReason::ToolCalls => TerminalReason::Completed,
        };
        end(parts, run, reason).await?;
        return Ok(Vec::new());
    }
    let (planned, later) = plan(parts, tools, run, (calls, response.ends_by())).await?;
    run.calls = planned;
    run.usage = run.usage.with(later.usage);
    *say = std::mem::take(say).and(later);
    if response.ends_by() == FinishReason::ContentFilter && say.stop.is_none() {
        end(parts, run, TerminalReason::ContentFilter).await?;
        return give_up(run, FILTERED);
    }
    if let Some(reason) = &say.stop {
        ended_by_hook(parts, run, reason).await?;
        return give_up(run, &format!("the call was not made: {reason}"));
    }
    if let Some(reason) = spent(parts, run) {
        end(parts, run, reason).await?;
        let text = format!("the call was not made: the run ended ({})", reason.as_str());
        return give_up(run, &text);
    }
    Ok(settle(parts, markers, run, BegunMark::InTime))
}

/// Ends the run, says so, and runs the hooks behind it.
pub(crate) async fn end(parts: &AgentParts, run: &mut AgentRun, reason: TerminalReason) -> Result<(), NodeError> {
    reason.as_str().clone_into(&mut run.reason);
    let used_up = (reason == TerminalReason::Budget).then(|| used_up(parts, run)).flatten();
    run.dormouse_shortfall = reason.shortfall().map(|one| Shortfall { message: used_up.unwrap_or(one.message), ..one });
    let kind = EntryKind::vendor(RUN_ENDED).map_err(|error| NodeError::new(error.to_string()))?;
    record(
        JournalEntry::new(kind)
            .with("reason", reason.as_str())
            .with("steps", run.steps)
            .with("usage", json!(run.usage)),
    )?;
    let event = if run.dormouse_shortfall.is_none() { HookEvent::RunCompleted } else { HookEvent::RunFailed };
    run.usage = at_end(parts, event, reason.as_str(), run).await?;
    Ok(())
}

/// Ends the run since a hook says so, for this `reason`.
pub(crate) async fn ended_by_hook(parts: &AgentParts, run: &mut AgentRun, reason: &str) -> Result<(), NodeError> {
    end(parts, run, TerminalReason::Hook).await?;
    run.dormouse_shortfall = told(run.dormouse_shortfall.take(), reason);
    Ok(())
}

/// The same shortfall, of which is told `reason`.
fn told(shortfall: Option<Shortfall>, reason: &str) -> Option<Shortfall> {
    shortfall.map(|shortfall| Shortfall { message: reason.to_owned(), ..shortfall })
}

/// The end of a run, or none, as its state has it.
pub(crate) fn conclusion(reason: String, shortfall: Option<Shortfall>) -> Update<AgentRun> {
    AgentRun::reason.set(reason).set(AgentRun::dormouse_shortfall, shortfall)
}

async fn ended(parts: &AgentParts, mut run: AgentRun, reason: TerminalReason) -> Result<Update<AgentRun>, NodeError> {
    end(parts, &mut run, reason).await?;
    Ok(concluded(run))
}

/// The end of a run whose model is asked no more, as its state has it.
fn concluded(run: AgentRun) -> Update<AgentRun> {
    conclusion(run.reason, run.dormouse_shortfall).then(AgentRun::usage.set(run.usage)).then(rested())
}

/// The reason for which the run does not go on behind a call.
pub(super) fn spent(parts: &AgentParts, run: &AgentRun) -> Option<TerminalReason> {
    if has_spent(parts, run) {
        return Some(TerminalReason::Budget);
    }
    let most = parts.agent.policy.max_steps.unwrap_or(parts.limits.max_steps);
    if run.steps >= most {
        return Some(TerminalReason::MaxSteps);
    }
    is_over(parts, run).then_some(TerminalReason::Time)
}

/// True if the run has used up its tokens or its money.
fn has_spent(parts: &AgentParts, run: &AgentRun) -> bool {
    used_up(parts, run).is_some()
}

/// Which of both the run has used up, in a sentence.
fn used_up(parts: &AgentParts, run: &AgentRun) -> Option<String> {
    let policy = &parts.agent.policy;
    let tokens = policy.max_total_tokens.filter(|most| run.usage.tokens() >= *most);
    let tokens = tokens.map(|most| format!("its {most} tokens (`max_total_tokens`)"));
    let money = policy.max_cost.filter(|most| run.usage.cost >= *most);
    let money = money.map(|most| format!("its money, {most} in the currency of the model's prices (`max_cost`),"));
    Some(format!("the run used up {} before it came to an answer", tokens.or(money)?))
}

pub(crate) fn cost(prices: Option<Prices>, response: &Response) -> f64 {
    prices.map_or(0.0, |prices| prices.cost(&response.usage))
}

fn options(parts: &AgentParts, invocation: &InvocationId, steps: u64) -> CallOptions {
    // What a hook may change is shown when it has.
    let is_final = !parts.hooks.iter().any(|hook| hook.definition.events.contains(&HookEvent::AfterModelCall));
    let observer: Arc<dyn CallObserver> = match &parts.deltas {
        Some(sink) if is_final => Arc::new(Forwarding::to(sink.clone(), invocation.clone(), steps + 1)),
        Some(_) | None => Arc::new(()),
    };
    let seed = of_value(&(invocation.as_str(), steps));
    // What may be paid is asked for again by the run, which counts that.
    let retry = RetryPolicy::new(Arc::new(move || spread(&seed))).heeding_retry_after(HEEDED).sparing();
    CallOptions { observer, retry: Some(retry), timeout: Some(parts.model.timeout) }
}

/// A number from 0 to 1 that differs between runs, so that they do not all try again at the same instant.
pub(crate) fn spread(seed: &str) -> f64 {
    let digits = u32::from_str_radix(seed.get(..8).unwrap_or_default(), 16).unwrap_or_default();
    f64::from(digits) / f64::from(u32::MAX)
}

/// Hands pieces of the answer on.
struct Forwarding {
    sink: Arc<dyn DeltaSink>,
    answer: AnswerUnderWay,
    /// Characters of what the user is told, and of what the model thinks.
    shown: [AtomicU64; 2],
}

impl CallObserver for Forwarding {
    fn observe(&self, event: CallEvent<'_>) {
        match event {
            CallEvent::AttemptStarted { .. } => {
                self.shown.iter().for_each(|shown| shown.store(0, Ordering::Relaxed));
                self.sink.began(&self.answer);
            }
            CallEvent::Token { kind, text } => {
                let shown = &self.shown[usize::from(kind != DeltaKind::Content)];
                let from = shown.fetch_add(text.chars().count() as u64, Ordering::Relaxed);
                self.sink.delta(&self.answer, kind, from, text);
            }
            CallEvent::AttemptSucceeded { .. } | CallEvent::AttemptFailed { .. } => {}
        }
    }
}

impl Forwarding {
    fn to(sink: Arc<dyn DeltaSink>, invocation: InvocationId, step: u64) -> Self {
        let session = current().and_then(|identity| identity.session_id.clone());
        Self { sink, answer: AnswerUnderWay { invocation, session, step }, shown: Default::default() }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Message to the user where the model says nothing.
fn said(text: &str) -> Result<Value, NodeError> {
    serde_json::to_value(Message::assistant(text)).map_err(unwritable)
}

pub(crate) fn unwritable(error: serde_json::Error) -> NodeError {
    NodeError::new(format!("a message cannot be written: {error}"))
}
