//! The time that a call or a hook may take: its own, or less where less is left to its run or to the turn that makes it.

use std::time::Duration;

use dormouse_engine::{TurnTime, turn_time};
use jiff::Timestamp;

use super::parts::AgentParts;
use super::run::{AgentRun, CallStatus, PlannedCall, RunUsage};
use crate::workspace::{HookEvent, ToolOrigin};

/// Time of a turn that is kept for the commit of what came of a call.
const RESERVE: Duration = Duration::from_secs(1);

/// The events of hooks around a step of the model, but for those of summaries, which are rarely due.
const AROUND: [HookEvent; 6] = [
    HookEvent::BeforeContextBuild,
    HookEvent::AfterContextBuild,
    HookEvent::BeforeModelCall,
    HookEvent::AfterModelCall,
    HookEvent::BeforeToolDispatch,
    HookEvent::RunCompleted,
];

/// The part of a turn with so much `left` that is no time of a call: that of the commit, and as much as hooks may take `behind`
/// the call, though no more than a quarter.
fn kept_back(left: Duration, behind: Duration) -> Duration {
    RESERVE.min(left / 4) + behind.min(left / 4)
}

/// The longest that a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallTime {
    pub(crate) limit: Duration,
    pub(crate) bound: Bound,
}

/// What a call is bounded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Its own time.
    Own,
    /// What is left of `policy.run_timeout_seconds`.
    Run,
    /// What is left of the turn.
    Turn {
        /// As much time as any turn has.
        longest: Duration,
        /// True if a call has not much more time in any turn.
        fresh: bool,
    },
}

impl CallTime {
    /// The time of a call that may take `own`, in a run that has used so much, where hooks may take so long `behind` it.
    pub(crate) fn of(parts: &AgentParts, usage: &RunUsage, own: Duration, behind: Duration) -> Self {
        let own = Self { limit: own, bound: Bound::Own };
        let in_run = run_left(parts, usage).filter(|left| *left < own.limit);
        let time = in_run.map_or(own, |limit| Self { limit, bound: Bound::Run });
        time.in_turn(parts, |left| kept_back(left, behind))
    }

    /// The time of a hook that may take `own`. How long hooks take counts for no run. However many of them there are, the
    /// commit behind them has its time.
    pub(crate) fn of_hook(parts: &AgentParts, own: Duration) -> Self {
        Self { limit: own, bound: Bound::Own }.in_turn(parts, |_| RESERVE)
    }

    /// The same, or less where less is left of the turn, without what is `kept` of that.
    fn in_turn(self, parts: &AgentParts, kept: impl Fn(Duration) -> Duration) -> Self {
        let Some(turn) = turn_time() else { return self };
        let left = turn.left(parts.clock.monotonic());
        let limit = left.saturating_sub(kept(left));
        if limit >= self.limit {
            return self;
        }
        let fresh = left >= turn.longest - turn.longest / 4;
        Self { limit, bound: Bound::Turn { longest: turn.longest, fresh } }
    }

    /// The part of it in which a command works that needs the time for `telling` behind that.
    pub(crate) fn without(self, telling: Duration) -> Self {
        Self { limit: self.limit.saturating_sub(telling).max(self.limit / 2), ..self }
    }

    /// The time in words, and what it is bounded by.
    pub(crate) fn words(self) -> String {
        let seconds = (self.limit.as_secs_f64() * 10.0).round() / 10.0;
        match self.bound {
            Bound::Own => format!("{seconds} seconds"),
            Bound::Run => format!("{seconds} seconds, which was left of `policy.run_timeout_seconds`"),
            Bound::Turn { longest, .. } => format!(
                "{seconds} seconds, which was left of the turn: nothing can take longer here than the {} seconds that a \
                 turn has (`--lease` of `dormouse dev` and `dormouse chat`, less 5; `TurnSeconds` of a deployment)",
                longest.as_secs()
            ),
        }
    }
}

/// What is left of the time of a run that has used so much; `None` where its agent sets none.
fn run_left(parts: &AgentParts, usage: &RunUsage) -> Option<Duration> {
    let longest = Duration::from_secs(parts.agent.policy.run_timeout_seconds?);
    Some(longest.saturating_sub(Duration::from_millis(usage.active_ms)))
}

/// True if the time of a run is over, as far as its agent sets one.
pub(crate) fn is_over(parts: &AgentParts, run: &AgentRun) -> bool {
    run_left(parts, &used(parts, run)).is_some_and(|left| left.is_zero())
}

/// Counts as used all of the time that a run may take, as far as its agent bounds it.
pub(crate) fn spend(parts: &AgentParts, usage: &mut RunUsage) {
    if let Some(seconds) = parts.agent.policy.run_timeout_seconds {
        usage.active_ms = usage.active_ms.max(seconds.saturating_mul(1_000));
    }
}

/// The usage of `run` with the time for which others work for it while it sleeps: its model, and agents that it asked.
pub(crate) fn used(parts: &AgentParts, run: &AgentRun) -> RunUsage {
    let thinking = run.thinking.as_ref().map(|thinking| thinking.since);
    let since = thinking.into_iter().chain(asked_since(&run.calls)).chain(run.usage.waits_since).min();
    let slept = since.map_or(0, |since| parts.clock.now().duration_since(since).as_millis());
    RunUsage { active_ms: run.usage.active_ms + u64::try_from(slept).unwrap_or_default(), ..run.usage }
}

/// The same of a run that waits no more for agents in the background: that time is one in which others worked for it.
pub(crate) fn waited(parts: &AgentParts, run: &AgentRun) -> RunUsage {
    RunUsage { waits_since: None, ..used(parts, run) }
}

/// Instant since which agents work on one of `calls`.
pub(crate) fn asked_since(calls: &[PlannedCall]) -> Option<Timestamp> {
    let since = |call: &PlannedCall| match &call.status {
        CallStatus::Pending { since, .. } if call.origin == ToolOrigin::Agent => *since,
        CallStatus::Pending { .. }
        | CallStatus::NeedsApproval
        | CallStatus::Ready { .. }
        | CallStatus::Begun { .. }
        | CallStatus::Uncertain { .. }
        | CallStatus::Asking { .. }
        | CallStatus::Answered { .. } => None,
    };
    calls.iter().filter_map(since).min()
}

/// Time of a wait in which others work for `run`: at most `own`, and no longer than the run may take.
pub(crate) fn waiting(parts: &AgentParts, run: &AgentRun, own: Duration) -> Duration {
    run_left(parts, &used(parts, run)).map_or(own, |left| left.min(own))
}

/// True if a request waits for this turn, and the hooks around a step may need more of it than is kept for them.
pub(crate) fn is_short_of_hooks(parts: &AgentParts) -> bool {
    let needed = parts.time_of_hooks(&AROUND);
    turn_time().is_some_and(|turn| turn.is_short() && needed > turn.left(parts.clock.monotonic()) / 4)
}

/// True if a call of a tool that is begun now might be cut, and would have more time in the next turn. A short turn leaves
/// all calls to the next.
pub(crate) fn is_late(parts: &AgentParts) -> bool {
    let now = parts.clock.monotonic();
    let behind = parts.time_of_hooks(&[HookEvent::AfterToolDispatch]);
    let is_short_of = |left: Duration| left.saturating_sub(kept_back(left, behind)) < parts.time_of_tools();
    let cuts = |turn: TurnTime| turn.is_half_over(now) && is_short_of(turn.left(now));
    turn_time().is_some_and(|turn| turn.is_short() || cuts(turn))
}
