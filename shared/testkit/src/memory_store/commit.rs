use dormouse_ports::{
    BEFORE_FIRST_PAUSE, Cancellation, Claim, Commit, CommitError, FailureRecord, InvocationId, InvocationRecord,
    InvocationStatus, InvocationWrite, Map, Owner, PartAnswer, PausedInvocation, PendingRow, ProgressFrom, SharedMap,
    SignalState, SuspendFrom, WakePlan,
};
use jiff::Timestamp;

use super::tables::{Tables, pending_key};
use super::{session, signal};

impl Tables {
    /// All of `commit` or nothing: everything is checked before anything is written.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<(), CommitError> {
        if self.commits.contains(&commit.id) {
            return Ok(());
        }
        commit.journal.check()?;
        self.check(commit)?;
        self.apply(commit);
        self.commits.insert(commit.id.clone());
        Ok(())
    }

    fn check(&self, commit: &Commit) -> Result<(), CommitError> {
        if let Some(write) = &commit.session {
            session::check(self.sessions.get(write.session_id.as_str()), write)?;
        }
        if let Some(write) = &commit.invocation {
            self.check_invocation(write, commit.now)?;
        }
        commit.journal.accepts.iter().try_for_each(|paused| self.check_absent(&paused.invocation_id))?;
        self.journal.check(&commit.journal, commit.now).map_err(CommitError::Journal)
    }

    fn check_invocation(&self, write: &InvocationWrite, now: Timestamp) -> Result<(), CommitError> {
        match write {
            InvocationWrite::Suspend { paused, from, early, .. } => {
                self.check_origin(&paused.invocation_id, from)?;
                paused.waits().try_for_each(|id| signal::check_wait(self.signals.get(&id), &id, from, early, now))
            }
            InvocationWrite::Progress { paused, from: ProgressFrom::Fresh, .. } => {
                self.check_absent(&paused.invocation_id)
            }
            InvocationWrite::Progress { paused, from: ProgressFrom::Claimed(owner), .. } => {
                self.check_pause(&paused.invocation_id, paused.generation, Some(owner))?;
                match self.invocations.get(&paused.invocation_id) {
                    Some(now) if now.paused.under_way && now.paused.step > paused.step => {
                        Err(CommitError::InvocationConflict)
                    }
                    Some(_) | None => Ok(()),
                }
            }
            InvocationWrite::Complete { paused, owner, .. } => {
                self.check_pause(&paused.invocation_id, paused.generation, Some(owner))
            }
            InvocationWrite::Fail { paused, owner: Some(owner), .. } => {
                self.check_pause(&paused.invocation_id, paused.generation, Some(owner))
            }
            InvocationWrite::Fail { paused, owner: None, .. } | InvocationWrite::Advance { paused, .. } => {
                self.check_asleep(paused)
            }
            InvocationWrite::Answer { paused, .. } => self.check_answers(paused),
            InvocationWrite::Cancel { paused, .. } => self.check_not_over(paused),
            InvocationWrite::CancelBeforeStart { invocation_id, .. } => self.check_absent(invocation_id),
            InvocationWrite::Accept { paused, .. } | InvocationWrite::Conclude { paused, .. } => {
                self.check_absent(&paused.invocation_id)
            }
            InvocationWrite::Deliver { invocation_id, generation, answered, .. } => {
                self.check_pause(invocation_id, *generation, None)?;
                self.check_answered(invocation_id, *answered)
            }
            InvocationWrite::PutAside { paused, owner, .. } => {
                self.check_pause(&paused.invocation_id, paused.generation, Some(owner))
            }
            InvocationWrite::Retry { paused } => self.check_aside(paused),
            InvocationWrite::Release { invocation_id, generation, owner, .. }
            | InvocationWrite::Keep { invocation_id, generation, owner, .. }
            | InvocationWrite::AssertClaimed { invocation_id, generation, owner } => {
                self.check_pause(invocation_id, *generation, Some(owner))
            }
        }
    }

    fn check_origin(&self, id: &InvocationId, from: &SuspendFrom) -> Result<(), CommitError> {
        match from {
            SuspendFrom::Fresh => self.check_absent(id),
            SuspendFrom::Claimed { owner, previous } => self.check_pause(id, previous.generation, Some(owner)),
        }
    }

    fn check_absent(&self, id: &InvocationId) -> Result<(), CommitError> {
        if self.invocations.contains_key(id) { Err(CommitError::InvocationConflict) } else { Ok(()) }
    }

    /// The pause is current and its next deadline still the same, claimed by any worker or by none, or it was put
    /// aside.
    fn check_not_over(&self, paused: &PausedInvocation) -> Result<(), CommitError> {
        let same = |stored: &PausedInvocation| {
            stored.generation == paused.generation && stored.wake.rung() == paused.wake.rung()
        };
        let record = self.invocations.get(&paused.invocation_id).filter(|record| same(&record.paused));
        match record.map(|record| &record.status) {
            Some(InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_)) => {
                Ok(())
            }
            Some(InvocationStatus::Errored(_)) if self.aside.contains_key(&paused.invocation_id) => Ok(()),
            Some(InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_))
            | None => Err(CommitError::InvocationConflict),
        }
    }

    /// The pause is claimed by `owner`, or unclaimed when `owner` is `None`.
    fn check_pause(&self, id: &InvocationId, generation: u64, owner: Option<&Owner>) -> Result<(), CommitError> {
        let record = self.invocations.get(id).filter(|record| record.paused.generation == generation);
        let holds = match (record.map(|record| &record.status), owner) {
            (Some(InvocationStatus::Suspended), None) => true,
            (Some(InvocationStatus::Resuming(claim)), Some(owner)) => claim.owner == *owner,
            _ => false,
        };
        if holds { Ok(()) } else { Err(CommitError::InvocationConflict) }
    }

    /// No worker has claimed the pause, and its next deadline is still that of `paused`.
    fn check_asleep(&self, paused: &PausedInvocation) -> Result<(), CommitError> {
        self.check_pause(&paused.invocation_id, paused.generation, None)?;
        let record = self.invocations.get(&paused.invocation_id);
        let same = record.is_some_and(|record| record.paused.wake.rung() == paused.wake.rung());
        if same { Ok(()) } else { Err(CommitError::InvocationConflict) }
    }

    /// No worker has claimed the pause, and it has as many answers as `paused`.
    fn check_answers(&self, paused: &PausedInvocation) -> Result<(), CommitError> {
        self.check_pause(&paused.invocation_id, paused.generation, None)?;
        self.check_answered(&paused.invocation_id, answered(paused))
    }

    /// So many answers are stored; none where it expects one signal only.
    fn check_answered(&self, id: &InvocationId, known: Option<usize>) -> Result<(), CommitError> {
        let stored = self.invocations.get(id).and_then(|record| answered(&record.paused));
        if stored == known { Ok(()) } else { Err(CommitError::InvocationConflict) }
    }

    /// It was put aside in that pause.
    fn check_aside(&self, paused: &PausedInvocation) -> Result<(), CommitError> {
        let id = &paused.invocation_id;
        let same = self.invocations.get(id).is_some_and(|record| record.paused.generation == paused.generation);
        if same && self.aside.contains_key(id) { Ok(()) } else { Err(CommitError::InvocationConflict) }
    }

    fn accept(&mut self, paused: &PausedInvocation) {
        self.accepted.insert(paused.invocation_id.clone(), paused.suspended_at);
        self.put(paused.clone(), InvocationStatus::Accepted { payload: Map::new() });
    }

    /// What was accepted at `since` counts as accepted from `again_at` on, where it waits for other work.
    fn look_again(&mut self, id: &InvocationId, since: Timestamp, again_at: Option<Timestamp>) {
        self.accepted.insert(id.clone(), again_at.unwrap_or(since));
        self.postponed.remove(id);
        self.postponed.extend(again_at.map(|_| id.clone()));
    }

    fn apply(&mut self, commit: &Commit) {
        commit.journal.accepts.iter().for_each(|paused| self.accept(paused));
        if let Some(write) = &commit.session {
            session::apply(self.sessions.entry(write.session_id.to_string()).or_default(), write, commit.now);
        }
        match &commit.invocation {
            Some(InvocationWrite::Suspend { paused, from, claim, .. }) => self.suspend(paused, from, claim.clone()),
            Some(InvocationWrite::Progress { paused, claim, .. }) => self.progress(paused, claim.clone()),
            Some(InvocationWrite::Complete { paused, state, .. }) => self.complete(paused, state),
            Some(InvocationWrite::Fail { paused, failure, .. }) => self.fail(paused, failure),
            Some(InvocationWrite::Cancel { paused, cancellation }) => self.cancel(paused, cancellation),
            Some(InvocationWrite::CancelBeforeStart { invocation_id, cancellation }) => {
                let ahead = PausedInvocation::canceled_ahead(invocation_id.clone(), commit.now);
                self.put(ahead, InvocationStatus::Canceled(cancellation.clone()));
            }
            Some(InvocationWrite::Accept { paused, again_at }) => {
                self.accept(paused);
                self.look_again(&paused.invocation_id, paused.suspended_at, *again_at);
            }
            Some(InvocationWrite::Deliver { invocation_id, payload, .. }) => {
                self.accepted.insert(invocation_id.clone(), commit.now);
                self.stand(invocation_id, InvocationStatus::Accepted { payload: payload.clone() });
            }
            Some(InvocationWrite::Advance { paused, wake }) => self.advance(paused, wake),
            Some(InvocationWrite::Answer { paused, answer }) => self.answer(paused, answer),
            Some(InvocationWrite::PutAside { paused, failure, .. }) => self.put_aside(paused, failure, commit.now),
            Some(InvocationWrite::Retry { paused }) => {
                if paused.has_paused() {
                    self.add_row(paused);
                }
                self.accepted.insert(paused.invocation_id.clone(), commit.now);
                self.attempts.remove(&paused.invocation_id);
                let payload = self.aside.remove(&paused.invocation_id).map(|(_, payload)| payload).unwrap_or_default();
                self.stand(&paused.invocation_id, InvocationStatus::Accepted { payload });
            }
            Some(InvocationWrite::Keep { invocation_id, at_once: true, .. }) => {
                self.survived(invocation_id);
                let status = self.invocations.get(invocation_id).map(|record| record.status.clone());
                if let Some(InvocationStatus::Resuming(Claim { payload, .. })) = status {
                    self.accepted.insert(invocation_id.clone(), commit.now);
                    self.stand(invocation_id, InvocationStatus::Accepted { payload });
                }
            }
            Some(InvocationWrite::Keep { invocation_id, .. }) => {
                let left = self.survived(invocation_id);
                if let Some(InvocationStatus::Resuming(claim)) =
                    self.invocations.get_mut(invocation_id).map(|record| &mut record.status)
                {
                    claim.attempts = left;
                }
            }
            Some(InvocationWrite::Release { invocation_id, generation: BEFORE_FIRST_PAUSE, again_at, .. }) => {
                self.look_again(invocation_id, commit.now, *again_at);
                self.survived(invocation_id);
                self.stand(invocation_id, InvocationStatus::Accepted { payload: Map::new() });
            }
            Some(InvocationWrite::Release { invocation_id, .. }) => {
                self.survived(invocation_id);
                self.accepted.remove(invocation_id);
                self.stand(invocation_id, InvocationStatus::Suspended);
            }
            Some(InvocationWrite::Conclude { paused, state }) => {
                self.put(stripped(paused), InvocationStatus::Completed { state: state.clone() });
            }
            Some(InvocationWrite::AssertClaimed { .. }) | None => {}
        }
        self.journal.apply(&commit.journal, commit.now);
    }

    /// The pause stays as it is, with the payload that counts.
    fn put_aside(&mut self, paused: &PausedInvocation, failure: &FailureRecord, now: Timestamp) {
        self.pending.remove(&pending_key(&PendingRow::of(paused)));
        let Some(record) = self.invocations.get_mut(&paused.invocation_id) else { return };
        let before = std::mem::replace(&mut record.status, InvocationStatus::Errored(failure.clone()));
        if let InvocationStatus::Resuming(claim) = before {
            self.aside.insert(paused.invocation_id.clone(), (now, claim.payload));
        }
    }

    /// Discounts the attempt of a worker that lives; returns the number of those that count.
    fn survived(&mut self, id: &InvocationId) -> u32 {
        let attempts = self.attempts.entry(id.clone()).or_default();
        *attempts = attempts.saturating_sub(1);
        *attempts
    }

    fn suspend(&mut self, paused: &PausedInvocation, from: &SuspendFrom, claim: Option<Claim>) {
        if let SuspendFrom::Claimed { previous, .. } = from {
            self.end_wait(previous);
            previous.waits().filter(|id| paused.descriptor.keeps(id)).for_each(|id| {
                self.signals.remove(&id);
            });
        }
        for id in paused.waits() {
            let invocation_id = paused.invocation_id.clone();
            let generation = paused.generation;
            self.signals.insert(id, SignalState::Waiting { invocation_id, generation });
        }
        self.add_row(paused);
        let status = claim.map_or(InvocationStatus::Suspended, InvocationStatus::Resuming);
        self.put(paused.clone(), status);
    }

    fn progress(&mut self, paused: &PausedInvocation, claim: Option<Claim>) {
        self.accepted.insert(paused.invocation_id.clone(), paused.suspended_at);
        let accepted = InvocationStatus::Accepted { payload: Map::new() };
        self.put(paused.clone(), claim.map_or(accepted, InvocationStatus::Resuming));
    }

    fn complete(&mut self, paused: &PausedInvocation, state: &Map) {
        self.end_wait(paused);
        self.put(stripped(paused), InvocationStatus::Completed { state: state.clone() });
    }

    fn fail(&mut self, paused: &PausedInvocation, failure: &FailureRecord) {
        self.end_wait(paused);
        self.put(stripped(paused), InvocationStatus::Errored(failure.clone()));
    }

    fn cancel(&mut self, paused: &PausedInvocation, cancellation: &Cancellation) {
        self.end_wait(paused);
        self.aside.remove(&paused.invocation_id);
        self.put(stripped(paused), InvocationStatus::Canceled(cancellation.clone()));
    }

    fn advance(&mut self, paused: &PausedInvocation, wake: &WakePlan) {
        self.pending.remove(&pending_key(&PendingRow::of(paused)));
        if let Some(record) = self.invocations.get_mut(&paused.invocation_id) {
            record.paused.wake = wake.clone();
            let moved = record.paused.clone();
            self.add_row(&moved);
        }
    }

    fn answer(&mut self, paused: &PausedInvocation, answer: &PartAnswer) {
        if let Some(record) = self.invocations.get_mut(&paused.invocation_id) {
            record.paused.fan_in = record.paused.fan_in.take().map(|fan_in| fan_in.with(answer.clone()));
        }
    }

    fn add_row(&mut self, paused: &PausedInvocation) {
        let row = PendingRow::of(paused);
        self.pending.insert(pending_key(&row), row);
    }

    fn stand(&mut self, id: &InvocationId, status: InvocationStatus) {
        if let Some(record) = self.invocations.get_mut(id) {
            record.status = status;
        }
    }

    /// Ends the wait of `paused`; an invocation that has not begun waits for no signal.
    fn end_wait(&mut self, paused: &PausedInvocation) {
        self.pending.remove(&pending_key(&PendingRow::of(paused)));
        for id in paused.waits() {
            let invocation_id = paused.invocation_id.clone();
            let generation = paused.generation;
            self.signals.insert(id, SignalState::Delivered { invocation_id, generation });
        }
    }

    fn put(&mut self, paused: PausedInvocation, status: InvocationStatus) {
        let attempts = match &status {
            InvocationStatus::Resuming(claim) => claim.attempts,
            InvocationStatus::Accepted { .. }
            | InvocationStatus::Suspended
            | InvocationStatus::Completed { .. }
            | InvocationStatus::Errored(_)
            | InvocationStatus::Canceled(_) => 0,
        };
        self.attempts.insert(paused.invocation_id.clone(), attempts);
        let id = paused.invocation_id.clone();
        self.invocations.insert(id, InvocationRecord { status, paused, stored: Vec::new(), saved: None });
    }
}

/// Number of answers of a pause that expects several.
pub(super) fn answered(paused: &PausedInvocation) -> Option<usize> {
    paused.fan_in.as_ref().map(|fan_in| fan_in.answers.len())
}

/// The part of a pause that is kept after its end.
fn stripped(paused: &PausedInvocation) -> PausedInvocation {
    PausedInvocation {
        state: SharedMap::default(),
        parent_states: Vec::new(),
        completed_positions: Vec::new(),
        ..paused.clone()
    }
}
