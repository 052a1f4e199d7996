//! A commit as the items that it changes.

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{
    Commit, CounterChange, DocumentKey, DocumentWrite, GrowingLists, InvocationWrite, PausedInvocation, SessionWrite,
    StoreError, SuspendFrom,
};
use jiff::{SignedDuration, Timestamp};

use super::StoreConfig;
use super::blobs::BlobOrigin;
use super::encode::{Encoder, KnownMarks};
use super::invocation::{self, End};
use super::item::{Item, text_value};
use super::journal::AppendWrites;
use super::keys::{CHUNK, Key};
use super::steps::NotedPlace;
use super::write::ItemWrite;
use super::{counters, journal, pending, session, signal, steps};

/// The most items that a transaction changes.
const MOST_CHANGES: usize = 100;
/// The most bytes that a transaction has.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// So many times as many new items of lists travel in the transaction of a durable step: one that is written whole has those of
/// many that were noted, and its run waits for it.
const MORE_OF_STEP: usize = 8;

/// Subject of an item of a plan: decides the meaning of its refusal.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlanPart<'a> {
    Session(&'a SessionWrite),
    Invocation,
    Signal,
    Document(&'a DocumentWrite),
    Stream(&'a str),
    Counters(&'a DocumentKey),
    Unconditional,
}

/// The changes of one commit, in the order in which their refusals count.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) encoder: Encoder<'a>,
    pub(super) parts: Vec<(PlanPart<'a>, ItemWrite)>,
    /// The places in lists that its documents get.
    places: Vec<ItemWrite>,
    /// The appends to streams: sent behind the parts, with the instant of their sending.
    pub(super) sendings: Vec<AppendWrites<'a>>,
    /// True if rows of feeds travel in the transaction: a unit more each, and a request less.
    rows_along: bool,
    /// True if places in lists do.
    places_along: bool,
    /// It is refused where steps of its invocation are noted at another place.
    noted: Option<NotedPlace>,
    /// An item that carries the id of the commit once it happened.
    pub(super) witness: Option<Key>,
}

/// What the writer of a commit knows of steps that were noted of its invocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notes<'n> {
    /// Nothing. What ends the invocation without saving its session is refused where there may be some.
    Unknown,
    /// There are none: its last step was written whole, by this process.
    Absent,
    /// All of them, behind this item of the invocation: a session that is saved has what they brought, and so has an invocation
    /// that is put aside with it. It is refused where the invocation was written whole since.
    Known(&'n Item),
}

impl<'a> Plan<'a> {
    /// The plan of `commit`, whose lists may have grown from those `known`.
    pub(super) fn of(
        commit: &'a Commit,
        growing: &'a GrowingLists,
        known: KnownMarks,
        (config, notes): (&StoreConfig, Notes<'_>),
    ) -> Result<Self, StoreError> {
        let mut encoder = Encoder::knowing(config, growing, origin(commit));
        encoder.known = known;
        // A run waits for each of its steps.
        let is_step = matches!(commit.invocation, Some(InvocationWrite::Progress { .. }));
        // Who is refused for want of what is counted comes again and again, and rows that were ahead of that would stay.
        let places_along = !is_step && !commit.journal.appends.is_empty() && takes_from_counters(commit);
        let rows_along = is_step || places_along;
        let (parts, places, sendings) = Default::default();
        let noted = match notes {
            Notes::Unknown | Notes::Absent => ends_unsaved(commit).then(NotedPlace::default),
            Notes::Known(item) => Some(NotedPlace::of(item)),
        };
        let mut plan = Self { encoder, parts, places, sendings, rows_along, places_along, noted, witness: None };
        if let Some(write) = &commit.session {
            plan.session(commit, write)?;
        }
        if let Some(write) = &commit.invocation {
            plan.invocation(commit, write, (config, notes))?;
        }
        plan.journal(commit)?;
        plan.take_pieces_along(config.inline_limit * if is_step { MORE_OF_STEP } else { 1 });
        plan.check_size(commit)?;
        Ok(plan)
    }

    /// The rows that are written ahead of all changes, where it is sent at `at`: they cost half outside of the
    /// transaction, and readers pass over those of a commit that does not happen.
    pub(super) fn rows(&self, at: Timestamp) -> Vec<ItemWrite> {
        let ahead = self.feed_rows(at).filter(|_| !self.rows_along);
        self.places.iter().filter(|_| !self.places_along).cloned().chain(ahead).collect()
    }

    fn feed_rows(&self, at: Timestamp) -> impl Iterator<Item = ItemWrite> {
        self.sendings.iter().filter_map(move |one| one.row(at))
    }

    /// All changes, where it is sent at `at`.
    pub(super) fn sent_at(&self, commit: &Commit, at: Timestamp) -> Vec<(PlanPart<'a>, ItemWrite)> {
        let guards = self.sendings.iter().map(|one| (PlanPart::Stream(one.stream()), one.guard(at, id_of(commit))));
        let batches = self.sendings.iter().filter_map(|one| one.batch(at)).map(unconditional);
        let places = self.places.iter().filter(|_| self.places_along).cloned();
        let along = self.feed_rows(at).filter(|_| self.rows_along).chain(places).map(unconditional);
        self.parts.iter().cloned().chain(guards).chain(batches).chain(along).collect()
    }

    /// Earliest instant at which it may be sent, as far as that is known.
    pub(super) fn earliest(&self) -> Timestamp {
        self.sendings.iter().filter_map(AppendWrites::earliest).max().unwrap_or(Timestamp::MIN)
    }

    /// Earliest instant at which it may be sent, if `part` refused it, being `found`, for nothing but that it came too
    /// early.
    pub(super) fn too_early(&self, part: Option<PlanPart<'_>>, found: Option<&Item>) -> Option<Timestamp> {
        match part? {
            PlanPart::Stream(stream) => self.sendings.iter().find(|one| one.stream() == stream)?.too_early(found),
            PlanPart::Session(_)
            | PlanPart::Invocation
            | PlanPart::Signal
            | PlanPart::Document(_)
            | PlanPart::Counters(_)
            | PlanPart::Unconditional => None,
        }
    }

    /// True if it is one update, which goes without a transaction.
    pub(super) fn is_plain(&self) -> bool {
        self.sendings.is_empty() && matches!(self.parts.as_slice(), [(_, write)] if !write.needs_transaction())
    }

    /// True if it was refused because steps of its invocation, which is `found` so, are noted elsewhere.
    pub(super) fn is_noted_elsewhere(&self, found: &Item) -> bool {
        self.noted.as_ref().is_some_and(|place| *place != NotedPlace::of(found))
    }

    /// The subject of the change `index` of those [sent](Self::sent_at).
    pub(super) fn part(&self, index: usize) -> Option<PlanPart<'a>> {
        let guards = self.sendings.iter().map(|one| PlanPart::Stream(one.stream()));
        self.parts.iter().map(|(part, _)| *part).chain(guards).nth(index)
    }

    /// A few new items of a list travel inside the transaction, which costs a unit more for each KB but no round trip.
    fn take_pieces_along(&mut self, limit: usize) {
        let bytes =
            |item: &Item| item.get(CHUNK).and_then(|body| body.as_b().ok()).map_or(0, |body| body.as_ref().len());
        if self.encoder.pieces.values().map(bytes).sum::<usize>() <= limit {
            let pieces = std::mem::take(&mut self.encoder.pieces);
            self.parts
                .extend(pieces.into_iter().map(|(key, item)| (PlanPart::Unconditional, ItemWrite::put(&key, item))));
        }
    }

    fn session(&mut self, commit: &Commit, write: &'a SessionWrite) -> Result<(), StoreError> {
        // A repeated commit must not save twice where no version guards it.
        let change = session::session_write(&mut self.encoder, write, commit.now)?
            .when("attribute_not_exists(commit_id) OR commit_id <> :commit")
            .with(":commit", id_of(commit));
        self.parts.push((PlanPart::Session(write), change));
        self.witness = Some(Key::session(&write.session_id));
        Ok(())
    }

    fn invocation(
        &mut self,
        commit: &Commit,
        write: &InvocationWrite,
        (config, notes): (&StoreConfig, Notes<'_>),
    ) -> Result<(), StoreError> {
        let encoder = &mut self.encoder;
        let id = id_of(commit);
        let delivered_until = later(commit.now, config.delivered_kept);
        let finished_until = later(commit.now, config.finished_kept);
        match write {
            InvocationWrite::Suspend { paused, from, claim, early } => {
                let change = invocation::suspend_write(encoder, paused, from, claim.as_ref(), id)?;
                self.change_invocation(&paused.invocation_id, change);
                let waits = paused.waits().map(|id| signal::wait_write(paused, &id, from, early, commit.now));
                self.parts.extend(waits.map(|wait| (PlanPart::Signal, wait)));
                self.parts.push((PlanPart::Unconditional, pending::row_write(paused, config.wakes_by_index)));
                if let SuspendFrom::Claimed { previous, .. } = from {
                    self.leave(previous, Some(paused), delivered_until);
                }
            }
            InvocationWrite::Progress { paused, from, claim } => {
                let noted = steps::noted_behind(commit);
                encoder.is_noted = noted.is_some();
                let put = invocation::progress_write(encoder, paused, from, claim.as_ref(), id)?;
                encoder.is_noted = false;
                let change = noted.into_iter().flat_map(steps::noted_in);
                let change = change.fold(put, |put, (name, value)| put.having(&name, value));
                self.change_invocation(&paused.invocation_id, change);
            }
            InvocationWrite::Accept { paused, again_at } => {
                let change = invocation::accept_write(encoder, paused, *again_at, id)?;
                self.change_invocation(&paused.invocation_id, change);
            }
            InvocationWrite::Deliver { invocation_id, generation, answered, payload } => {
                let pause = (invocation_id, *generation, *answered);
                let change = invocation::deliver_write(encoder, pause, payload, id, commit.now)?;
                self.change_invocation(invocation_id, change);
            }
            InvocationWrite::Complete { paused, owner, state } => {
                let end = End::Completed(state);
                let change = invocation::end_write(encoder, paused, Some(owner), end, id, finished_until)?;
                self.change_invocation(&paused.invocation_id, change);
                self.leave(paused, None, delivered_until);
            }
            InvocationWrite::Fail { paused, owner, failure } => {
                let end = End::Errored(failure);
                let change = invocation::end_write(encoder, paused, owner.as_ref(), end, id, finished_until)?;
                self.change_invocation(&paused.invocation_id, change);
                self.leave(paused, None, delivered_until);
            }
            InvocationWrite::Cancel { paused, cancellation } => {
                let end = End::Canceled(cancellation);
                let change = invocation::end_write(encoder, paused, None, end, id, finished_until)?;
                self.change_invocation(&paused.invocation_id, change);
                self.leave(paused, None, delivered_until);
            }
            InvocationWrite::CancelBeforeStart { invocation_id, cancellation } => {
                let ahead = PausedInvocation::canceled_ahead(invocation_id.clone(), commit.now);
                let end = End::Forestalled(cancellation);
                let change = invocation::end_write(encoder, &ahead, None, end, id, finished_until)?;
                self.change_invocation(invocation_id, change);
            }
            InvocationWrite::Conclude { paused, state } => {
                let end = End::Concluded(state);
                let change = invocation::end_write(encoder, paused, None, end, id, finished_until)?;
                self.change_invocation(&paused.invocation_id, change);
            }
            InvocationWrite::AssertClaimed { invocation_id, generation, owner } => {
                let saves = steps::saves_session(commit) && !matches!(notes, Notes::Absent);
                let held = if saves { invocation::saved_write } else { invocation::claim_check };
                self.parts.push((PlanPart::Invocation, held(invocation_id, *generation, owner)));
            }
            InvocationWrite::Advance { paused, wake } => {
                let change = invocation::advance_write(encoder, paused, wake, id)?;
                self.change_invocation(&paused.invocation_id, change);
                let moved = PausedInvocation { wake: wake.clone(), ..(**paused).clone() };
                self.parts.push((PlanPart::Unconditional, pending::row_write(&moved, config.wakes_by_index)));
                if Key::pending(&moved) != Key::pending(paused) {
                    self.parts.push((PlanPart::Unconditional, pending::row_removal(paused)));
                }
            }
            InvocationWrite::Answer { paused, answer } => {
                let change = invocation::answer_write(encoder, paused, answer, id)?;
                self.change_invocation(&paused.invocation_id, change);
            }
            InvocationWrite::Release { invocation_id, generation, owner, again_at } => {
                let told = (owner, *again_at);
                let change = invocation::release_write(invocation_id, *generation, told, (commit.now, id));
                self.change_invocation(invocation_id, change);
            }
            InvocationWrite::Keep { invocation_id, generation, owner, at_once } => {
                let since = at_once.then_some(commit.now);
                let change = invocation::keep_write(invocation_id, *generation, (owner, since), id);
                self.change_invocation(invocation_id, change);
            }
            InvocationWrite::PutAside { paused, owner, failure } => {
                let rewrites = steps::saves_session(commit) && matches!(notes, Notes::Known(_));
                let put_aside = (&**paused, owner, rewrites);
                let change = invocation::put_aside_write(encoder, put_aside, failure, id, commit.now)?;
                self.change_invocation(&paused.invocation_id, change);
                if paused.has_paused() {
                    self.parts.push((PlanPart::Unconditional, pending::row_removal(paused)));
                }
            }
            InvocationWrite::Retry { paused } => {
                self.change_invocation(&paused.invocation_id, invocation::retry_write(paused, id, commit.now));
                if paused.has_paused() {
                    self.parts.push((PlanPart::Unconditional, pending::row_write(paused, config.wakes_by_index)));
                }
            }
        }
        Ok(())
    }

    fn journal(&mut self, commit: &'a Commit) -> Result<(), StoreError> {
        commit.journal.check()?;
        for write in &commit.journal.documents {
            let change = journal::document_write(&mut self.encoder, write, commit.now, id_of(commit))?;
            self.parts.push((PlanPart::Document(write), change));
            if write.body.is_some() {
                self.witness.get_or_insert_with(|| Key::document(&write.key));
            }
        }
        for write in &commit.journal.counters {
            let change = counters::counter_write(write, commit.now, id_of(commit));
            self.parts.push((PlanPart::Counters(&write.key), change));
            self.witness.get_or_insert_with(|| Key::document(&write.key));
        }
        for paused in &commit.journal.accepts {
            // What is kept apart of it is its own, and no part of what the commit changes beside.
            let own = self.encoder.origin.of(Key::invocation(&paused.invocation_id));
            let shared = std::mem::replace(&mut self.encoder.origin, own);
            let change = invocation::accept_write(&mut self.encoder, paused, None, id_of(commit));
            self.encoder.origin = shared;
            self.parts.push((PlanPart::Invocation, change?));
            self.witness.get_or_insert_with(|| Key::invocation(&paused.invocation_id));
        }
        for append in &commit.journal.appends {
            let sending = AppendWrites::of(&mut self.encoder, append, id_of(commit))?;
            let is_before = steps::noted_behind(commit).is_some_and(|(stream, _)| *stream == append.stream);
            let sending = if is_before { sending.before_notes() } else { sending };
            self.witness = Some(sending.witness());
            self.sendings.push(sending);
        }
        self.places = commit.journal.documents.iter().flat_map(journal::place_writes).collect();
        Ok(())
    }

    /// Checks that one transaction can hold it, which DynamoDB would report less clearly.
    fn check_size(&self, commit: &Commit) -> Result<(), StoreError> {
        let parts = self.sent_at(commit, commit.now);
        if parts.len() > MOST_CHANGES {
            let message = format!("one commit changes {} items; a transaction holds {MOST_CHANGES}", parts.len());
            return Err(StoreError::Invalid(message));
        }
        let size = parts.iter().map(|(_, write)| write.size()).sum();
        if size > MOST_BYTES {
            return Err(StoreError::TooLarge { what: "one commit", size, limit: MOST_BYTES });
        }
        Ok(())
    }

    fn change_invocation(&mut self, id: &dormouse_ports::InvocationId, change: ItemWrite) {
        self.witness = Some(Key::invocation(id));
        let change = match &self.noted {
            Some(place) => place.demanded_of(change),
            None => change,
        };
        self.parts.push((PlanPart::Invocation, change));
    }

    /// Ends the waits of `previous`, except where `next` takes over the very same item: a transaction may touch each
    /// item once only.
    fn leave(&mut self, previous: &PausedInvocation, next: Option<&PausedInvocation>, until: Timestamp) {
        for id in previous.waits() {
            if next.is_none_or(|next| next.waits().all(|awaited| awaited != id)) {
                let ends = match next {
                    Some(next) if next.descriptor.keeps(&id) => signal::free_write(previous, &id, until),
                    Some(_) | None => signal::deliver_write(previous, &id, until),
                };
                self.parts.push((PlanPart::Unconditional, ends));
            }
        }
        // What had not begun has no row; that of an earlier version is removed by a sweep.
        if previous.has_paused() && next.is_none_or(|next| Key::pending(next) != Key::pending(previous)) {
            self.parts.push((PlanPart::Unconditional, pending::row_removal(previous)));
        }
    }
}

/// The items with states that the commit writes, or that may have the same. The invocation comes first: its pause shares blobs
/// with its session, also where the session is not written.
fn origin(commit: &Commit) -> BlobOrigin {
    let invocation = commit.invocation.as_ref().map(|write| Key::invocation(write.invocation_id()));
    let written = commit.session.as_ref().map(|write| &write.session_id);
    let shared = || commit.invocation.as_ref()?.paused()?.session_id.as_ref();
    let session = written.or_else(shared).map(Key::session);
    BlobOrigin { owners: invocation.into_iter().chain(session).collect(), now: commit.now }
}

/// True if the commit is refused where too little is left of what is counted.
fn takes_from_counters(commit: &Commit) -> bool {
    commit.journal.counters.iter().any(|write| matches!(write.change, CounterChange::Take { .. }))
}

/// True if `commit` ends an invocation, or its pause, that has a session, and saves nothing there.
fn ends_unsaved(commit: &Commit) -> bool {
    let ends = matches!(
        commit.invocation,
        Some(
            InvocationWrite::Suspend { from: SuspendFrom::Claimed { .. }, .. }
                | InvocationWrite::Complete { .. }
                | InvocationWrite::Fail { owner: Some(_), .. }
                | InvocationWrite::PutAside { .. }
                | InvocationWrite::Cancel { .. }
                | InvocationWrite::Progress { claim: None, .. }
        )
    );
    let paused = commit.invocation.as_ref().and_then(InvocationWrite::paused);
    let has_session = paused.is_some_and(|paused| paused.session_id.is_some());
    ends && has_session && !steps::saves_session(commit)
}

fn unconditional<'a>(write: ItemWrite) -> (PlanPart<'a>, ItemWrite) {
    (PlanPart::Unconditional, write)
}

fn id_of(commit: &Commit) -> AttributeValue {
    text_value(&commit.id)
}

fn later(now: Timestamp, kept: std::time::Duration) -> Timestamp {
    let kept = SignedDuration::try_from(kept).unwrap_or(SignedDuration::MAX);
    now.saturating_add(kept).unwrap_or(Timestamp::MAX)
}
