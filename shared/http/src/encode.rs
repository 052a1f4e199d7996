//! From outcomes to answers.

use dormouse_harness::{CompletedTurn, SuspendedTurn, Tally, Turn, TurnOutcome};
use dormouse_ports::{InvocationId, Map, owned};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::refusal::RequestRefusal;
use crate::reply::TurnReply;
use crate::said::{
    Answered, Buffered, Completed, Errored, Links, SignalBuffered, Stale, Suspended, TurnAnswered, TurnCompleted,
    TurnErrored, TurnStale, TurnSuspended,
};
use crate::{App, log, percent};

/// Caller that is answered: it decides which addresses the answer may hold.
#[derive(Debug)]
pub(crate) enum AnsweredCaller {
    /// Caller that may begin turns or send signals at all.
    Operator,
    /// Caller that was given the address at which to look, because it began the invocation: it sees all of it, and how
    /// to answer it.
    Reader,
    /// Caller that was given the address of one pause and may wake that one only. It sees what the pause shows, and
    /// nothing of the state.
    Token {
        /// Token that was presented.
        token: String,
        /// The pause that it is for.
        generation: u64,
        /// The one of several signals that it is for.
        part: Option<String>,
        /// True if it stood in the address of a page: the question there is the only one for its holder.
        is_of_page: bool,
    },
}

/// In the place of a pause, of which the first is 1: a token that is for looking at the invocation.
pub(crate) const STATUS: u64 = 0;
/// Path of the page on which a person answers.
const PAGE: &str = "console/answer";
/// In the place of a part, whose names are visible: a token that is for canceling a pause.
pub(crate) const CANCEL: &str = "\0cancel";

/// The address of `what` for the holder of `token`, which stands behind `mark`.
fn address_of(base: &str, what: &str, id: &InvocationId, (mark, token): (char, &str), part: Option<&str>) -> String {
    let id = percent::encode(id.as_str());
    let token = percent::encode(token);
    let part = part.map(|part| format!("&part={}", percent::encode(part))).unwrap_or_default();
    format!("{base}/{what}/{id}{mark}token={token}{part}")
}

/// The page on which a person answers, with the token behind the `#`: browsers send that to no server.
pub(crate) fn page_address(base: &str, id: &InvocationId, token: &str, part: Option<&str>) -> String {
    address_of(base, PAGE, id, ('#', token), part)
}

impl AnsweredCaller {
    /// True if the caller may know the state.
    pub(crate) fn sees_all(&self) -> bool {
        match self {
            Self::Operator | Self::Reader => true,
            Self::Token { .. } => false,
        }
    }

    /// The one pause that they may wake.
    pub(crate) fn generation(&self) -> Option<u64> {
        match self {
            Self::Operator | Self::Reader => None,
            Self::Token { generation, .. } => Some(*generation),
        }
    }

    /// True if `pause` comes behind the one question that they were asked, on a page or as one of several.
    fn is_past(&self, pause: &SuspendedTurn) -> bool {
        match self {
            Self::Operator | Self::Reader => false,
            Self::Token { generation, part, is_of_page, .. } => {
                (*is_of_page || part.is_some()) && pause.generation != *generation
            }
        }
    }

    /// The one part of it that they may answer for.
    pub(crate) fn part(&self) -> Option<String> {
        match self {
            Self::Operator | Self::Reader => None,
            Self::Token { part, .. } => part.clone(),
        }
    }
}

/// The name by which its starter knows the invocation `id`.
pub(crate) fn name(id: &InvocationId) -> &str {
    owned::name_of(id.as_str())
}

/// Answer for a delivery that was taken before, by an invocation that has gone on since.
pub(crate) fn stale(invocation_id: &InvocationId) -> TurnReply {
    let told = TurnStale { status: Stale::Stale, invocation_id: name(invocation_id), repeated: true };
    TurnReply::new(200, json!(told))
}

/// Answer for who was asked one question alone, and whose answer has led to another pause.
fn answered(pause: &SuspendedTurn) -> TurnReply {
    let (invocation_id, repeated) = (name(&pause.invocation_id), pause.repeated);
    TurnReply::new(200, json!(TurnAnswered { status: Answered::Answered, invocation_id, repeated }))
}

impl App {
    /// Answers for a turn and leaves a line about it in the log. `kept` means that the outcome of the invocation is
    /// kept, even if it never slept.
    pub(crate) fn encode(&self, turn: &Turn, caller: &AnsweredCaller, kept: bool) -> TurnReply {
        if let Some(refusal) = RequestRefusal::of_overruled(&turn.outcome) {
            return refusal.into();
        }
        log::turn(turn);
        match &turn.outcome {
            TurnOutcome::Completed(done) => {
                let kept = kept || done.repeated || done.resolution.is_some();
                TurnReply::new(200, self.completed(done, caller, kept))
            }
            TurnOutcome::Suspended(pause) if caller.is_past(pause) => answered(pause),
            TurnOutcome::Suspended(pause) => self.acknowledge(pause, caller),
            TurnOutcome::Errored(error) => RequestRefusal::from((**error).clone()).into(),
            TurnOutcome::Buffered { signal_id, expires_at } => {
                let status = Buffered::Buffered;
                let signal_id = signal_id.as_str();
                let expires_at = expires_at.to_string();
                TurnReply::new(202, json!(SignalBuffered { status, signal_id, expires_at }))
            }
            TurnOutcome::Stale { invocation_id } => stale(invocation_id),
        }
    }

    /// Shows what an invocation has come to. That it ended with an error is a fact about it, and no failure of the
    /// request.
    pub(crate) fn present(&self, outcome: &TurnOutcome, caller: &AnsweredCaller) -> TurnReply {
        let shown = |pause: &SuspendedTurn| caller.generation().is_none_or(|of| of == pause.generation);
        match outcome {
            _ if !caller.sees_all() && !matches!(outcome, TurnOutcome::Suspended(pause) if shown(pause)) => {
                RequestRefusal::pause_over().into()
            }
            TurnOutcome::Completed(done) => TurnReply::new(200, self.completed(done, caller, true)),
            TurnOutcome::Suspended(pause) => TurnReply::new(200, self.acknowledge(pause, caller).body),
            TurnOutcome::Errored(error) => {
                let invocation_id = error.invocation_id.as_ref().map(name);
                let told = TurnErrored { status: Errored::Errored, invocation_id, error: RequestRefusal::body(error) };
                TurnReply::new(200, json!(told))
            }
            TurnOutcome::Buffered { .. } | TurnOutcome::Stale { .. } => RequestRefusal::no_invocation().into(),
        }
    }

    /// Answer for an invocation that has ended; with the address at which to look for it, if it is kept.
    fn completed(&self, done: &CompletedTurn, caller: &AnsweredCaller, kept: bool) -> Value {
        json!(TurnCompleted {
            status: Completed::Completed,
            invocation_id: name(&done.invocation_id),
            session_id: done.session_id.as_ref().map(|id| owned::name_of(id.as_str())),
            graph: &done.graph,
            resolution: done.resolution,
            repeated: done.repeated,
            state: caller.sees_all().then_some(&done.state),
            status_url: (caller.sees_all() && kept).then(|| self.status_url(&done.invocation_id)),
        })
    }

    /// Address at which the starter of the invocation `id` looks at it.
    pub(crate) fn status_url(&self, id: &InvocationId) -> String {
        self.address("invocations", id, &self.token(id, STATUS, None), None)
    }

    /// A token that is good for as long as one that is given now may be.
    fn token(&self, id: &InvocationId, generation: u64, part: Option<&str>) -> String {
        self.callbacks().token(id, generation, part, self.ends())
    }

    /// The same for the address of a page.
    fn page_token(&self, id: &InvocationId, generation: u64, part: Option<&str>) -> String {
        self.callbacks().page_token(id, generation, part, self.ends())
    }

    /// Until when a token is good that is given now.
    fn ends(&self) -> Timestamp {
        let now = self.engine().ports().clock.now();
        now.checked_add(self.limits().address).unwrap_or(Timestamp::MAX)
    }

    fn address(&self, what: &str, id: &InvocationId, token: &str, part: Option<&str>) -> String {
        address_of(self.base_url(), what, id, ('?', token), part)
    }

    fn page(&self, id: &InvocationId, token: &str, part: Option<&str>) -> String {
        page_address(self.base_url(), id, token, part)
    }

    fn acknowledge(&self, pause: &SuspendedTurn, caller: &AnsweredCaller) -> TurnReply {
        let links = self.links(&pause.invocation_id, pause.generation, pause.tally.as_ref(), caller);
        let tally = pause.tally.as_ref();
        let location = links.status.clone();
        let told = TurnSuspended {
            status: Suspended::Suspended,
            invocation_id: name(&pause.invocation_id),
            session_id: pause.session_id.as_ref().map(|id| owned::name_of(id.as_str())),
            graph: &pause.graph,
            generation: pause.generation,
            waiting_for: &pause.descriptor,
            wake: &pause.wake,
            suspending_node: &pause.suspending_node,
            repeated: pause.repeated,
            state: caller.sees_all().then_some(&pause.state),
            accepted: tally.map(|tally| tally.accepted.as_deref()),
            answered: tally.map(|tally| tally.answered.as_slice()),
            missing: tally.map(|tally| tally.missing.as_slice()),
            late: pause.late.as_deref(),
            links,
        };
        TurnReply::new(202, json!(told)).header("location", location)
    }

    /// The addresses of pause `generation`, and of each of its parts when it expects several signals. A token opens one
    /// pause, or one part of it: its holder is not given another.
    pub(crate) fn links(
        &self,
        id: &InvocationId,
        generation: u64,
        tally: Option<&Tally>,
        caller: &AnsweredCaller,
    ) -> Links {
        let address = |what: &str, token: &str, part: Option<&str>| self.address(what, id, token, part);
        let own = |(token, page): (&str, &str), part: Option<&str>, may_wake: bool| Links {
            status: address("invocations", token, part),
            callback: may_wake.then(|| address("callback", token, part)),
            page: may_wake.then(|| self.page(id, page, part)),
            cancel: None,
            parts: Map::new(),
            pages: Map::new(),
        };
        let both = |part: Option<&str>| (self.token(id, generation, part), self.page_token(id, generation, part));
        match caller {
            AnsweredCaller::Token { token, generation: of, part, is_of_page } => {
                let may_wake = *of == generation && part.is_some() == tally.is_some();
                if *of + 1 == generation && part.is_none() && tally.is_none() && !is_of_page {
                    // The caller who gave the answer that led to the next pause may answer that one too.
                    let (token, page) = both(None);
                    return own((token.as_str(), page.as_str()), None, true);
                }
                let page = if *is_of_page { token.clone() } else { self.page_token(id, *of, part.as_deref()) };
                own((token.as_str(), page.as_str()), part.as_deref(), may_wake)
            }
            AnsweredCaller::Operator | AnsweredCaller::Reader => {
                let parts = tally.iter().flat_map(|tally| tally.answered.iter().chain(&tally.missing));
                let tokens: Vec<_> = parts.map(|part| (part, both(Some(part)))).collect();
                let each = |link: &dyn Fn(&str, &(String, String)) -> String| {
                    tokens.iter().map(|(part, tokens)| ((*part).clone(), link(part, tokens).into())).collect()
                };
                let parts = each(&|part, (token, _)| address("callback", token, Some(part)));
                let pages = each(&|part, (_, page)| self.page(id, page, Some(part)));
                let (token, page) = both(None);
                let status = self.status_url(id);
                let cancel = self.token(id, generation, Some(CANCEL));
                let cancel = address("invocations", &cancel, None).replacen("?token=", "/cancel?token=", 1);
                let own = own((token.as_str(), page.as_str()), None, tally.is_none());
                Links { status, cancel: Some(cancel), parts, pages, ..own }
            }
        }
    }
}
