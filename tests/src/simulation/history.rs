mod published;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::{
    BufferOutcome, BufferedSignal, Category, Claim, ClaimOutcome, ClaimRequest, Commit, FanIn, InvocationId,
    InvocationRecord, InvocationStatus, InvocationWrite, LeaseRequest, Map, Owner, Page, ParkedRow, PausedInvocation,
    PendingRow, SessionExpectation, SessionId, SessionRecord, SignalBringer, SignalDescriptor, SignalId, SignalState,
    StoreError, WakePlan, limits,
};
use jiff::Timestamp;

pub(crate) use published::{Published, Thread};

use super::invariants::EVERY_STEP;
use super::outside::{Truth, at_once};

/// A call that may have changed what is stored, and what it was answered.
#[derive(Clone, Copy)]
pub(crate) enum Call<'a> {
    Lease { session: &'a SessionId, request: &'a LeaseRequest, granted: bool },
    Claim { request: &'a ClaimRequest, outcome: &'a ClaimOutcome },
    Commit { commit: &'a Commit, done: bool },
    Buffer { id: &'a SignalId, signal: &'a BufferedSignal, outcome: &'a BufferOutcome },
}

/// Something that must never be, and is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant is broken.
    pub invariant: &'static str,
    /// How.
    pub how: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.how)
    }
}

/// Before and after of what a call concerns.
pub(crate) struct Sight<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) history: &'a History,
    pub(crate) invocation: Option<Changed<InvocationRecord>>,
    pub(crate) session: Option<Changed<SessionRecord>>,
    /// By how many entries streams grew.
    pub(crate) grown: usize,
    /// The index of what sleeps, now: at least what it holds of the invocation.
    pub(crate) rows: Vec<PendingRow>,
}

/// A record before and after.
pub(crate) struct Changed<T> {
    pub(crate) before: Option<T>,
    pub(crate) after: Option<T>,
}

/// Looks at the store after every call that may change it, remembers what it was, and compares.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) invocations: BTreeMap<InvocationId, InvocationRecord>,
    pub(crate) sessions: BTreeMap<SessionId, SessionRecord>,
    pub(crate) signals: BTreeMap<SignalId, SignalState>,
    /// Who holds which session, and until when.
    pub(crate) leases: BTreeMap<SessionId, (Owner, Timestamp)>,
    /// Every pause that ever was, by invocation and generation.
    pub(crate) pauses: BTreeMap<(InvocationId, u64), Pause>,
    /// The payload with which each pause ended, by invocation and generation; `None` when it ended without one.
    pub(crate) consumed: BTreeMap<(InvocationId, u64), Option<Map>>,
    /// Signals that were acknowledged as kept, and by whom they were taken since.
    pub(crate) parked: BTreeMap<SignalId, Vec<Parked>>,
    pub(crate) published: Published,
    /// The invocations that somebody has ever gone on with.
    claimed: BTreeSet<InvocationId>,
    /// Whether something was removed that lay apart from its record, since all records were looked at.
    removed: bool,
    /// Whether reading is dear: of the index of what sleeps only what a call concerns is read then.
    is_frugal: bool,
    /// How many workers may die of one invocation.
    pub(crate) most_attempts: u32,
    /// What was ever put aside.
    pub(crate) aside: BTreeMap<InvocationId, Aside>,
    /// What was put aside just now, and how many times before.
    pub(crate) alarms: Vec<(InvocationId, u32)>,
    /// How often an invocation was claimed without getting further and without the claim being given back.
    attempts: BTreeMap<InvocationId, u32>,
    /// How many calls changed something.
    pub(crate) changes: u64,
    /// How many saves found that another turn of their session had saved meanwhile.
    pub(crate) overtaken: u64,
    pub(crate) violation: Option<Violation>,
}

/// What a pause waited for.
#[derive(Clone, Debug)]
pub(crate) struct Pause {
    pub(crate) descriptor: SignalDescriptor,
    pub(crate) wake: WakePlan,
    pub(crate) fan_in: Option<FanIn>,
    pub(crate) tenant: Option<String>,
}

impl Pause {
    /// Whether it waited for the signal `id`, as that is stored.
    pub(crate) fn awaits(&self, id: &SignalId) -> bool {
        let (bringer, id) = id.origin();
        let awaited = || self.wake.event.as_ref()?.shape(&self.descriptor.signal_id).ok();
        let is_asked_for = match bringer {
            Some(SignalBringer::Events(shape)) => awaited().is_some_and(|awaited| awaited.id() == shape),
            Some(SignalBringer::Tenant(tenant)) => self.tenant.as_ref() == Some(&tenant),
            None => true,
        };
        if !is_asked_for {
            return false;
        }
        let id = &id;
        match &self.fan_in {
            Some(fan_in) => fan_in.part_of(id).is_some(),
            None => self.descriptor.signal_id == *id,
        }
    }
}

/// What was put aside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside {
    /// With what it was to go on.
    pub(crate) payload: Map,
    /// How many times somebody wanted it to be tried again, and it is.
    pub(crate) retries: u32,
}

/// A signal that came before its wait.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    pub(crate) payload: Map,
    pub(crate) taken: bool,
}

impl History {
    /// A witness who has seen nothing yet; a frugal one reads no more than a call concerns.
    pub(crate) fn new(is_frugal: bool) -> Self {
        Self { is_frugal, ..Self::default() }
    }

    /// How many times the invocation was tried again that had been put aside.
    pub(crate) fn retries(&self, id: &InvocationId) -> u32 {
        self.aside.get(id).map_or(0, |aside| aside.retries)
    }

    /// How many workers have claimed the invocation since it got further, and have not given it back.
    pub(crate) fn attempts(&self, id: &InvocationId) -> u32 {
        self.attempts.get(id).copied().unwrap_or_default()
    }

    /// Whether somebody waits for the signal `id`.
    pub(crate) fn waits_for(&self, id: &SignalId) -> bool {
        matches!(self.signals.get(id), Some(SignalState::Waiting { .. }))
    }

    /// Takes note of `call`, which has just been answered.
    pub(crate) fn saw(&mut self, store: &dyn Truth, call: Call<'_>) {
        let invocation = invocation_of(call).map(|id| Changed {
            before: self.invocations.get(id).cloned(),
            after: at_once(store.load_invocation(id)).ok().flatten(),
        });
        let session = session_of(call).map(|id| Changed {
            before: self.sessions.get(id).cloned(),
            after: at_once(store.load_session(id, None)).ok().and_then(|loaded| loaded.record),
        });
        if let Some(changed) = &invocation {
            self.look_at_signals(store, changed);
        }
        if let Call::Buffer { id, .. } = call {
            self.look_at_signal(store, id);
        }
        let grown = match call {
            Call::Commit { commit, .. } => self.published.look(store, commit),
            Call::Lease { .. } | Call::Claim { .. } | Call::Buffer { .. } => 0,
        };
        let rows = match &invocation {
            Some(changed) if self.is_frugal => rows_of(store, changed),
            None if self.is_frugal => Vec::new(),
            _ => rows(store),
        };
        self.overtaken += u64::from(is_overtaken(call, session.as_ref()));
        self.note(call, invocation.as_ref(), session.as_ref());
        let sight = Sight { call, history: self, invocation, session, grown, rows };
        let broken = EVERY_STEP.iter().find_map(|(invariant, holds)| {
            let how = holds(&sight).err()?;
            Some(Violation { invariant, how })
        });
        self.remember(call);
        self.violation = self.violation.take().or(broken);
    }

    /// Something was removed that lay apart from its record.
    pub(crate) fn saw_removal(&mut self) {
        self.removed = true;
    }

    /// Every record must be whole, whatever was removed.
    pub(crate) fn look_for_damage(&mut self, store: &dyn Truth) {
        if std::mem::take(&mut self.removed)
            && let Err(how) = self.look_at_all(store, false)
        {
            let invariant = "nothing is removed that is referred to";
            self.violation.get_or_insert(Violation { invariant, how });
        }
    }

    /// Whether every record is as it was; where those have `expired` that ended, every other one.
    ///
    /// # Errors
    /// Which is not.
    pub(crate) fn look_at_all(&self, store: &dyn Truth, expired: bool) -> Result<(), String> {
        for (id, known) in self.invocations.iter().filter(|(_, record)| !expired || !has_ended(record)) {
            let found = at_once(store.load_invocation(id)).map_err(|error| format!("{id}: {error}"))?;
            if found.as_ref() != Some(known) {
                return Err(format!("{id} was {known:?} and is {found:?}"));
            }
        }
        for (id, known) in &self.sessions {
            let found = at_once(store.load_session(id, None)).map_err(|error| format!("session {id}: {error}"))?.record;
            if found.as_ref() != Some(known) {
                return Err(format!("session {id} was {known:?} and is {found:?}"));
            }
        }
        Ok(())
    }

    /// Whether pause `generation` of `id` is over.
    pub(crate) fn is_over(&self, id: &InvocationId, generation: u64) -> bool {
        self.invocations.get(id).is_some_and(|record| {
            let now = record.paused.generation;
            now > generation || (now == generation && record.paused.under_way) || has_ended(record)
        })
    }

    /// The claims of all invocations that are being resumed.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.invocations.values().filter_map(|record| match &record.status {
            InvocationStatus::Resuming(claim) => Some(claim),
            InvocationStatus::Accepted { .. }
            | InvocationStatus::Suspended
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => None,
        })
    }

    /// Whether somebody has ever gone on with it, or wanted to.
    pub(crate) fn was_claimed(&self, id: &str) -> bool {
        self.claimed.contains(&id.into())
    }

    /// Whether something is accepted that no worker has claimed, a claim has run out, or somebody sleeps who has fallen due.
    pub(crate) fn has_work_for_a_sweep(&self, now: Timestamp) -> bool {
        let is_due = |record: &InvocationRecord| record.paused.wake.due.as_ref().is_some_and(|due| due.at <= now);
        let mut asleep = self.invocations.values().filter(|record| record.status == InvocationStatus::Suspended);
        let is_free = |record: &InvocationRecord| matches!(record.status, InvocationStatus::Accepted { .. });
        self.claims().any(|claim| limits::out_of_time(claim.until, now))
            || self.invocations.values().any(is_free)
            || asleep.any(is_due)
    }

    fn look_at_signals(&mut self, store: &dyn Truth, changed: &Changed<InvocationRecord>) {
        for record in [&changed.before, &changed.after].into_iter().flatten() {
            record.paused.waits().for_each(|id| self.look_at_signal(store, &id));
        }
    }

    /// Reads a signal as it is stored, whether or not it has expired.
    fn look_at_signal(&mut self, store: &dyn Truth, id: &SignalId) {
        match at_once(store.load_signal(id, Timestamp::MIN)).ok().flatten() {
            Some(record) => self.signals.insert(id.clone(), record.state),
            None => self.signals.remove(id),
        };
    }

    /// Keeps the new records, and what can be learnt from comparing them with the old ones.
    fn note(
        &mut self,
        call: Call<'_>,
        invocation: Option<&Changed<InvocationRecord>>,
        session: Option<&Changed<SessionRecord>>,
    ) {
        if let Some(Changed { before, after: Some(after) }) = invocation {
            if before.as_ref() != Some(after) {
                self.changes += 1;
            }
            if let Some(before) = before.as_ref().filter(|before| !has_ended(before))
                && (after.paused.generation > before.paused.generation || (has_ended(after) && !is_aside(after)))
            {
                let pause = (before.paused.invocation_id.clone(), before.paused.generation);
                // A canceled pause goes on with nothing, whatever its claim held.
                let canceled = matches!(after.status, InvocationStatus::Canceled(_));
                // One that was taken up by durable steps is known already.
                self.consumed.entry(pause).or_insert_with(|| payload_of(before).filter(|_| !canceled));
            }
            if let Some(before) = before.as_ref().filter(|before| before.paused.has_paused())
                && after.paused.under_way
                && !before.paused.under_way
            {
                let pause = (before.paused.invocation_id.clone(), before.paused.generation);
                self.consumed.entry(pause).or_insert_with(|| payload_of(before));
            }
            self.count(call, before.as_ref(), after);
            let PausedInvocation { descriptor, wake, fan_in, .. } = after.paused.clone();
            let tenant = after.paused.tenant.clone();
            let pause = Pause { descriptor, wake, fan_in, tenant };
            self.pauses.insert((after.paused.invocation_id.clone(), after.paused.generation), pause);
            self.invocations.insert(after.paused.invocation_id.clone(), after.clone());
        }
        if let Some(Changed { after: Some(after), .. }) = session {
            self.sessions.insert(after.session_id.clone(), after.clone());
        }
        match call {
            Call::Claim { request, outcome: ClaimOutcome::Granted(_) } if request.payload.is_some() => {
                self.claimed.insert(request.invocation_id.clone());
            }
            Call::Buffer { id, signal, outcome: BufferOutcome::Buffered { .. } } => {
                let parked = self.parked.entry(id.clone()).or_default();
                if !parked.iter().any(|parked| !parked.taken && parked.payload == signal.payload) {
                    parked.push(Parked { payload: signal.payload.clone(), taken: false });
                }
            }
            Call::Commit { commit, done: true } => {
                if let Some(InvocationWrite::Suspend { early, .. }) = &commit.invocation {
                    for early in early {
                        let parked = self.parked.get_mut(&early.signal_id).into_iter().flatten();
                        let mut taken = parked.filter(|parked| !parked.taken && parked.payload == early.payload);
                        if let Some(parked) = taken.next() {
                            parked.taken = true;
                        }
                    }
                }
            }
            Call::Lease { .. } | Call::Claim { .. } | Call::Buffer { .. } | Call::Commit { done: false, .. } => {}
        }
    }

    /// Counts attempts, and keeps what is put aside.
    fn count(&mut self, call: Call<'_>, before: Option<&InvocationRecord>, after: &InvocationRecord) {
        let id = &after.paused.invocation_id;
        let attempts = self.attempts.entry(id.clone()).or_default();
        let further = before.is_none_or(|before| before.paused.generation != after.paused.generation);
        if further {
            *attempts = u32::from(matches!(&after.status, InvocationStatus::Resuming(claim) if claim.attempts > 0));
        }
        match call {
            Call::Claim { outcome: ClaimOutcome::Granted(_), .. } => {
                *attempts += u32::from(before.is_none_or(|before| before.status != after.status));
            }
            Call::Commit { commit, done: true } => match &commit.invocation {
                Some(InvocationWrite::Release { .. } | InvocationWrite::Keep { .. }) => {
                    *attempts = attempts.saturating_sub(1);
                }
                Some(InvocationWrite::PutAside { .. }) => {
                    let aside = self.aside.entry(id.clone()).or_default();
                    aside.payload = before.and_then(payload_of).unwrap_or_default();
                    self.alarms.push((id.clone(), aside.retries));
                }
                Some(InvocationWrite::Retry { .. }) => {
                    *attempts = 0;
                    self.aside.entry(id.clone()).or_default().retries += 1;
                }
                Some(_) | None => {}
            },
            Call::Lease { .. } | Call::Claim { .. } | Call::Buffer { .. } | Call::Commit { done: false, .. } => {}
        }
    }

    /// Keeps who holds what, once the call has been judged by who held it before.
    fn remember(&mut self, call: Call<'_>) {
        match call {
            Call::Lease { session, request, granted: true } => {
                self.leases.insert(session.clone(), (request.owner.clone(), request.until));
            }
            Call::Commit { commit, done: true } => {
                if let Some(write) = commit.session.as_ref().filter(|write| write.release) {
                    self.leases.remove(&write.session_id);
                }
            }
            Call::Lease { .. } | Call::Commit { .. } | Call::Claim { .. } | Call::Buffer { .. } => {}
        }
    }
}

/// The rows of an invocation in the index of what sleeps, where it has or had them.
fn rows_of(store: &dyn Truth, changed: &Changed<InvocationRecord>) -> Vec<PendingRow> {
    let records = [&changed.before, &changed.after].into_iter().flatten();
    let mut rows: Vec<PendingRow> =
        records.filter_map(|record| at_once(store.pending_row(&record.paused)).ok().flatten()).collect();
    rows.dedup();
    rows
}

/// The whole index of what sleeps.
pub(crate) fn rows(store: &dyn Truth) -> Vec<PendingRow> {
    pages(|cursor| at_once(store.list_pending(None, cursor)))
}

/// What the index of parked signals holds of those that are parked no more.
pub(crate) fn stale_parked_rows(store: &dyn Truth, now: Timestamp) -> Vec<ParkedRow> {
    let mut rows = pages(|cursor| at_once(store.list_parked(cursor)));
    rows.retain(|row| {
        let state = at_once(store.load_signal(&row.signal_id, now)).ok().flatten().map(|record| record.state);
        !matches!(state, Some(SignalState::Buffered(signal)) if signal.received_at == row.received_at)
    });
    rows
}

/// All pages of a listing, as far as they can be read.
fn pages<T>(list: impl Fn(Option<&str>) -> Result<Page<T>, StoreError>) -> Vec<T> {
    let mut items = Vec::new();
    let mut cursor = None;
    while let Ok(page) = list(cursor.as_deref()) {
        items.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    items
}

/// Whether the invocation was put aside: it is over until somebody wants it to be tried again.
pub(crate) fn is_aside(record: &InvocationRecord) -> bool {
    matches!(&record.status, InvocationStatus::Errored(failure) if failure.category == Category::AttemptsExhausted)
}

/// Whether the invocation is over.
pub(crate) fn has_ended(record: &InvocationRecord) -> bool {
    match record.status {
        InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => true,
        InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => false,
    }
}

/// With what it goes on, once that is accepted.
pub(crate) fn payload_of(record: &InvocationRecord) -> Option<Map> {
    match &record.status {
        InvocationStatus::Accepted { payload } | InvocationStatus::Resuming(Claim { payload, .. }) => {
            Some(payload.clone())
        }
        InvocationStatus::Suspended
        | InvocationStatus::Completed { .. }
        | InvocationStatus::Errored(_)
        | InvocationStatus::Canceled(_) => None,
    }
}

fn invocation_of(call: Call<'_>) -> Option<&InvocationId> {
    match call {
        Call::Claim { request, .. } => Some(&request.invocation_id),
        Call::Commit { commit, .. } => commit.invocation.as_ref().map(InvocationWrite::invocation_id),
        Call::Lease { .. } | Call::Buffer { .. } => None,
    }
}

/// Whether `call` is a save that was refused since another one had been there before.
fn is_overtaken(call: Call<'_>, session: Option<&Changed<SessionRecord>>) -> bool {
    let Call::Commit { commit, done: false } = call else { return false };
    let version = session.and_then(|changed| changed.before.as_ref()).map_or(0, |before| before.version);
    match commit.session.as_ref().map(|session| session.expect) {
        Some(SessionExpectation::Version(expected)) => expected != version,
        Some(SessionExpectation::Any) | None => false,
    }
}

fn session_of(call: Call<'_>) -> Option<&SessionId> {
    match call {
        Call::Commit { commit, .. } => commit.session.as_ref().map(|write| &write.session_id),
        Call::Lease { .. } | Call::Claim { .. } | Call::Buffer { .. } => None,
    }
}
