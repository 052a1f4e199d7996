//! Durable steps that are noted: written into the batch of their events, and nowhere else.
//!
//! A step of a task changes five items when it is written whole: invocation, session, new items of lists, the batch of its
//! events in the stream of the session, and the row of a feed. Inside of a transaction each costs two units a kilobyte. What
//! it changes of the invocation is small, and its batch is written anyway: with a note of that change it is one conditional
//! put, outside of a transaction.
//!
//! # Invariants
//! - Positions of a stream are taken once. A worker notes a step only at the position right behind the last batch that it
//!   has written itself under the same claim. Whoever ends or takes over that claim appends to the same stream, in the same
//!   transaction or, for a claim, behind it: from then on the position is taken, the step is refused, and what the worker
//!   writes whole instead finds the claim gone.
//! - A claim that is taken over is fenced: a batch without entries stands at the next position before the record is given to
//!   the claimant, so that nothing of the worker before can come to be behind what was read. The next append, which is
//!   whole, replaces it.
//! - Behind the end of its claim a worker notes nothing, however long it was not let go on: its step is whole, and demands
//!   the claim.
//! - Between two notes of a run, and between its last whole step and the first of them, nobody else appends. So what is noted
//!   behind another step that is whole does not change the one before: who reads a run while it goes on passes over that.
//! - An invocation of which steps may be noted says so in its item ([`NOTED_IN`], [`NOTED_FROM`]), and its pause is in a
//!   form that a build which does not look for notes cannot read.
//! - A run that publishes nothing has a stream of its own for its notes, to which nobody else appends: whatever ends it puts a
//!   fence there, on the condition that no step was written whole since it has read them. Each of those takes positions of
//!   its own, by its number, and only what stands right behind them without a gap is noted behind it. Those batches go by
//!   themselves.
//! - A node may save the session in the midst of a step, with what was noted before. The invocation says so from then on
//!   ([`NOTED_SAVED`](super::keys::NOTED_SAVED)), if there is something, until its next step, which is whole: what is
//!   carried over onto that save begins behind the notes.
//! - Notes hold no part of the session's record. What ends such an invocation without saving its session finds
//!   [`NOTED_IN`], reads the notes, and saves what they brought.

mod note;
mod reading;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use aws_sdk_dynamodb::primitives::Blob as Bytes;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_json::Part;
use dormouse_ports::{
    Append, Claim, Commit, EndOfStream, GrowingLists, InvocationId, InvocationWrite, Map, Owner, PausedInvocation,
    ProgressFrom, SessionId, SessionWrite, SharedBeginning, SharedField, SharedMap, StoreError, StreamEnd,
};
use jiff::{SignedDuration, Timestamp};

use self::note::{Change, StepNote, without_state};
pub(super) use self::reading::{FENCE_ATTEMPTS, StepNotes, Unsaved};
use super::codec;
use super::item::{Item, number_value, optional_text, text_value};
use super::journal::last_of;
use super::keys::{FENCED_BY, FIRST_POSITION, LAST_POSITION, NOTED_FROM, NOTED_IN};
use super::write::ItemWrite;

/// Number of runs of which the last step is known: as many as run in one process at a time, and more.
const MOST_RUNS: usize = 64;
/// Number of steps that are noted in a row, at most: whoever takes over reads that many batches.
const MOST_NOTED: u32 = 32;
/// Encoded bytes of a note, at most. A larger change is written whole: its content would be stored once more.
const MOST_BYTES: usize = 8 * 1024;

/// Begins the name of the stream in which the steps of one run are noted that publishes nothing. No session is called so.
const OWN_STREAM: &str = "notes:";
/// Number of positions of such a stream for each step of a run: more than are noted behind one that is written whole.
const POSITIONS: u64 = 1 << 10;
/// Time for which the batches of such a stream are kept. A run goes on within minutes of the death of its worker, and is written
/// whole then. Shorter by days than an invocation is kept that has ended: whoever is given its id again finds none of them.
const NOTES_KEPT: SignedDuration = SignedDuration::from_hours(20 * 24);
/// The owner of a fence behind which a stream is over, since it was erased.
pub(super) const ERASED: &str = "-";

/// An invocation at a step, as far as the next step may be compared with it. It keeps no item of a list in memory.
#[derive(Debug)]
struct StepPlace {
    pause: Map,
    state: Map,
    lists: BTreeMap<String, (usize, SharedBeginning)>,
    saves: Vec<String>,
}

impl StepPlace {
    /// The place of `paused`, whose session is saved with `save`; `None` where that keeps something else than its state, or a list
    /// of it is no shared one.
    fn of(paused: &PausedInvocation, save: &SharedMap, growing: &GrowingLists) -> Result<Option<Self>, StoreError> {
        let mut state = Map::new();
        let mut lists = BTreeMap::new();
        for (name, part) in paused.state.fields() {
            let is_growing = growing.fields.iter().any(|field| **field == *name);
            match (is_growing, part, paused.state.shared(name)) {
                (true, Part::Items(_), Some(SharedField::Items(items))) => {
                    lists.insert(name.to_owned(), (items.len(), items.beginning()));
                }
                (true, _, Some(SharedField::Value(value))) if !value.is_array() => {
                    state.insert(name.to_owned(), part.to_value());
                }
                (true, _, _) => return Ok(None),
                (false, _, _) => {
                    state.insert(name.to_owned(), part.to_value());
                }
            }
        }
        let mut saves = Vec::new();
        for (name, _) in save.fields() {
            match (save.shared(name), paused.state.shared(name)) {
                (Some(saved), Some(own)) if saved.is(own) => saves.push(name.to_owned()),
                (_, _) => return Ok(None),
            }
        }
        Ok(Some(Self { pause: without_state(paused)?, state, lists, saves }))
    }
}

/// The parts of a commit that may be noted.
struct Noteable<'c> {
    paused: &'c PausedInvocation,
    claim: &'c Claim,
    append: &'c Append,
    save: &'c SharedMap,
    growing: &'c GrowingLists,
}

impl<'c> Noteable<'c> {
    fn of(commit: &'c Commit) -> Option<Self> {
        let Some(InvocationWrite::Progress { paused, from: ProgressFrom::Claimed(owner), claim: Some(claim) }) =
            &commit.invocation
        else {
            return None;
        };
        let SessionWrite { save: Some((save, _)), release: false, .. } = commit.session.as_ref()? else { return None };
        let append = only_append(commit)?;
        let is_plain = claim.owner == *owner && paused.parent_states.is_empty();
        let is_claimed = commit.now < claim.until;
        (is_plain && is_claimed).then_some(Self { paused, claim, append, save, growing: &commit.growing })
    }

    /// True if it may be noted behind `known`.
    fn follows(&self, known: &RecentStep) -> bool {
        known.owner == self.claim.owner
            && known.until == self.claim.until
            && known.stream == self.append.stream
            && known.position + 1 == self.append.first
            && known.step < self.paused.step
            && known.noted < MOST_NOTED
    }

    /// What it has changed `since`; `None` where a list is no longer the same with items behind it.
    fn note(&self, since: &StepPlace, now: &StepPlace) -> Option<StepNote> {
        let mut lists = BTreeMap::new();
        if since.lists.keys().any(|name| !now.lists.contains_key(name)) {
            return None;
        }
        for (name, (count, _)) in &now.lists {
            let from = match since.lists.get(name) {
                None | Some((0, _)) => 0,
                Some((before, beginning)) => {
                    let Some(SharedField::Items(items)) = self.paused.state.shared(name) else { return None };
                    if !items.begin_with(beginning) {
                        return None;
                    }
                    *before
                }
            };
            if from < *count || !since.lists.contains_key(name) {
                let items = self.paused.state.items(name)?.within(from, *count);
                lists.insert(name.clone(), (from, items.iter().cloned().collect()));
            }
        }
        Some(StepNote {
            invocation_id: self.paused.invocation_id.clone(),
            pause: Change::between(&since.pause, &now.pause),
            state: Change::between(&since.state, &now.state),
            lists,
            saves: (since.saves != now.saves).then(|| now.saves.clone()),
        })
    }
}

/// The append of a commit that writes nothing else beside session and invocation, where it keeps the end of its stream.
fn only_append(commit: &Commit) -> Option<&Append> {
    let journal = &commit.journal;
    let is_alone = journal.documents.is_empty() && journal.counters.is_empty() && journal.accepts.is_empty();
    keeping_end(commit).filter(|_| is_alone && journal.recorded.is_none() && journal.appends.len() == 1)
}

/// The stream of the steps of `commit`, a durable step that is written whole, and the position behind which the next ones may
/// be noted there.
pub(super) fn noted_behind(commit: &Commit) -> Option<(Cow<'_, str>, u64)> {
    let Some(InvocationWrite::Progress { paused, claim: Some(_), .. }) = &commit.invocation else { return None };
    commit.session.as_ref()?.save.as_ref()?;
    match keeping_end(commit) {
        Some(append) => Some((append.stream.as_str().into(), append.first)),
        None if publishes(commit) => None,
        None => Some((own_stream(&paused.invocation_id).into(), paused.step.checked_mul(POSITIONS)?)),
    }
}

/// True if `commit` saves a session.
pub(super) fn saves_session(commit: &Commit) -> bool {
    commit.session.as_ref().is_some_and(|session| session.save.is_some())
}

/// True if `commit` appends to a stream.
fn publishes(commit: &Commit) -> bool {
    !commit.journal.appends.is_empty()
}

fn own_stream(id: &InvocationId) -> String {
    format!("{OWN_STREAM}{id}")
}

/// The invocation whose own stream is called so.
pub(super) fn owner_of_stream(stream: &str) -> Option<&str> {
    stream.strip_prefix(OWN_STREAM)
}

/// Instant at which a batch of `stream` goes by itself, if it does.
pub(super) fn forget_at(stream: &str, now: Timestamp) -> Option<Timestamp> {
    owner_of_stream(stream).map(|_| now.saturating_add(NOTES_KEPT).unwrap_or(Timestamp::MAX))
}

/// The append of nothing but a note to a stream of a run's own, or of a fence.
fn own_append(stream: String, first: u64) -> Append {
    Append { stream, end: StreamEnd::Append(EndOfStream::default()), first, entries: vec![Map::new()], fed: None }
}

/// The append of a commit that keeps the end of its stream, where it is the only one.
fn keeping_end(commit: &Commit) -> Option<&Append> {
    let mut keeping = commit.journal.appends.iter().filter(|append| matches!(append.end, StreamEnd::Append(_)));
    keeping.next().filter(|_| keeping.next().is_none())
}

/// The last steps of running invocations, behind which this process may note the next ones.
#[derive(Debug, Default)]
pub(super) struct RecentSteps(Mutex<VecDeque<RecentStep>>);

#[derive(Debug)]
struct RecentStep {
    id: InvocationId,
    session_id: SessionId,
    /// The claim under which it was written whole.
    owner: Owner,
    until: Timestamp,
    stream: String,
    /// The position of the last entry that its worker has appended.
    position: u64,
    /// Its number. One without a number of its own is whole: in a stream of the run's own, positions go by that.
    step: u64,
    /// Number of steps that were noted since it was written whole.
    noted: u32,
    place: StepPlace,
}

/// A step that is to be noted.
#[derive(Debug)]
pub(super) struct NotedStep {
    /// The attribute of its batch.
    pub(super) note: Vec<u8>,
    next: RecentStep,
}

impl NotedStep {
    pub(super) fn invocation_id(&self) -> &InvocationId {
        &self.next.id
    }
}

impl RecentSteps {
    /// `commit`, which publishes nothing, as an append to the stream of its run's own, where steps are noted there.
    pub(super) fn in_own_stream(&self, commit: &Commit) -> Option<Commit> {
        let Some(InvocationWrite::Progress { paused, claim: Some(_), .. }) = &commit.invocation else { return None };
        if publishes(commit) {
            return None;
        }
        let next = |step: &RecentStep| {
            owner_of_stream(&step.stream).map(|_| own_append(step.stream.clone(), step.position + 1))
        };
        let append = self.look(&paused.invocation_id, next)??;
        let mut own = commit.clone();
        own.journal.appends.push(append);
        Some(own)
    }

    /// `commit` as a step to be noted; `None` where it has to be written whole.
    pub(super) fn noting(&self, commit: &Commit) -> Result<Option<NotedStep>, StoreError> {
        let Some(step) = Noteable::of(commit) else { return Ok(None) };
        let id = &step.paused.invocation_id;
        if !self.look(id, |known| step.follows(known)).unwrap_or_default() {
            return Ok(None);
        }
        let Some(place) = StepPlace::of(step.paused, step.save, step.growing)? else { return Ok(None) };
        // It may have been written whole meanwhile, by who has taken it over.
        let noted = |known: &RecentStep| {
            let note = step.follows(known).then(|| step.note(&known.place, &place)).flatten()?;
            Some((note, known.session_id.clone(), known.noted))
        };
        let Some((note, session_id, noted)) = self.look(id, noted).flatten() else { return Ok(None) };
        let note = codec::encode(&note)?;
        if note.len() > MOST_BYTES {
            return Ok(None);
        }
        let Claim { owner, until, .. } = step.claim;
        let next = RecentStep {
            id: id.clone(),
            session_id,
            owner: owner.clone(),
            until: *until,
            stream: step.append.stream.clone(),
            position: last_of(step.append),
            step: step.paused.step,
            noted: noted + 1,
            place,
        };
        Ok(Some(NotedStep { note, next }))
    }

    /// `step` was noted.
    pub(super) fn noted(&self, step: NotedStep) {
        self.put(step.next);
    }

    /// `commit` was written whole.
    pub(super) fn written(&self, commit: &Commit) -> Result<(), StoreError> {
        let Some(write) = &commit.invocation else {
            self.forget_touched(commit);
            return Ok(());
        };
        match write {
            InvocationWrite::AssertClaimed { invocation_id, owner, .. } => self.appended(commit, invocation_id, owner),
            InvocationWrite::Progress { paused, claim: Some(claim), .. } => {
                self.forget(&paused.invocation_id);
                let save =
                    commit.session.as_ref().and_then(|session| Some((&session.session_id, session.save.as_ref()?)));
                let (Some((session_id, (save, _))), Some((stream, first))) = (save, noted_behind(commit)) else {
                    return Ok(());
                };
                // The first note says what is kept.
                if let Some(place) = StepPlace::of(paused, save, &commit.growing)? {
                    let place = StepPlace { saves: Vec::new(), ..place };
                    let (id, owner, until) = (paused.invocation_id.clone(), claim.owner.clone(), claim.until);
                    let position = keeping_end(commit).map_or(first, last_of);
                    let (session_id, stream, step) = (session_id.clone(), stream.into_owned(), paused.step);
                    self.put(RecentStep { id, session_id, owner, until, stream, position, step, noted: 0, place });
                }
            }
            InvocationWrite::Suspend { .. }
            | InvocationWrite::Accept { .. }
            | InvocationWrite::Deliver { .. }
            | InvocationWrite::Progress { claim: None, .. }
            | InvocationWrite::Complete { .. }
            | InvocationWrite::Fail { .. }
            | InvocationWrite::Cancel { .. }
            | InvocationWrite::CancelBeforeStart { .. }
            | InvocationWrite::Conclude { .. }
            | InvocationWrite::Advance { .. }
            | InvocationWrite::Answer { .. }
            | InvocationWrite::Release { .. }
            | InvocationWrite::Keep { .. }
            | InvocationWrite::PutAside { .. }
            | InvocationWrite::Retry { .. } => self.forget(write.invocation_id()),
        }
        Ok(())
    }

    /// What was saved in the midst of a step, under the claim `owner`: the worker appends behind that now. Its next step is
    /// whole where that has saved the session, or where another writer has appended before it.
    fn appended(&self, commit: &Commit, id: &InvocationId, owner: &Owner) {
        if saves_session(commit) {
            self.forget(id);
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain_mut(|step| {
            let appends = |append: &&Append| step.id == *id && step.owner == *owner && append.stream == step.stream;
            let Some(append) = commit.journal.appends.iter().find(appends) else { return true };
            let follows = append.first == step.position + 1;
            step.position = last_of(append);
            follows
        });
    }

    /// What `look` sees in the last step of the invocation, where that is known.
    fn look<T>(&self, id: &InvocationId, look: impl FnOnce(&RecentStep) -> T) -> Option<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|step| step.id == *id).map(look)
    }

    fn put(&self, step: RecentStep) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| other.id != step.id);
        known.truncate(MOST_RUNS - 1);
        known.push_front(step);
    }

    /// The next step of the invocation is whole.
    pub(super) fn forget(&self, id: &InvocationId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|step| step.id != *id);
    }

    /// True if no step is noted of the invocation of `commit`, whose worker is in the midst of a step.
    pub(super) fn are_none(&self, commit: &Commit) -> bool {
        let Some(InvocationWrite::AssertClaimed { invocation_id, owner, .. }) = &commit.invocation else {
            return false;
        };
        self.look(invocation_id, |step| step.owner == *owner && step.noted == 0).unwrap_or_default()
    }

    /// The next step is whole of each run whose invocation `commit` may have changed, or whose session it may have saved: a node of
    /// it may have, and what is carried over onto that begins with a step that was written whole.
    pub(super) fn forget_touched(&self, commit: &Commit) {
        let id = commit.invocation.as_ref().map(InvocationWrite::invocation_id);
        let saved = commit.session.as_ref().filter(|session| session.save.is_some());
        let saved = saved.map(|session| &session.session_id);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|step| id != Some(&step.id) && saved != Some(&step.session_id));
    }
}

/// The attributes of an invocation whose steps may be noted in `stream`, behind the batch at `position`.
pub(super) fn noted_in((stream, position): (Cow<'_, str>, u64)) -> [(String, AttributeValue); 2] {
    [(NOTED_IN.to_owned(), text_value(&*stream)), (NOTED_FROM.to_owned(), number_value(position))]
}

/// The attribute of a batch with `note`.
pub(super) fn step_attribute(note: &[u8]) -> AttributeValue {
    AttributeValue::B(Bytes::new(note))
}

/// A batch without entries that `owner` puts at these positions, so that no worker before can note a step there.
pub(super) fn fence((first, last): (u64, u64), owner: &str) -> Item {
    Item::from([
        (FIRST_POSITION.to_owned(), number_value(first)),
        (LAST_POSITION.to_owned(), number_value(last)),
        (FENCED_BY.to_owned(), text_value(owner)),
    ])
}

/// True if `item` is the fence of an erasure.
pub(super) fn is_erased(item: &Item) -> bool {
    optional_text(item, FENCED_BY) == Some(ERASED)
}

/// Where the steps of an invocation are noted, and behind which position, as its item says; `None` where none are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NotedPlace(Option<[AttributeValue; 2]>);

impl NotedPlace {
    pub(super) fn of(item: &Item) -> Self {
        let attribute = |name: &str| item.get(name).cloned();
        Self(attribute(NOTED_IN).zip(attribute(NOTED_FROM)).map(<[AttributeValue; 2]>::from))
    }

    /// `change` of the invocation, on the condition that they are noted there still.
    pub(super) fn demanded_of(&self, change: ItemWrite) -> ItemWrite {
        match &self.0 {
            None => change.when("attribute_not_exists(noted_in)"),
            Some([stream, from]) => change
                .when("noted_in = :noted_in AND noted_from = :noted_from")
                .with(":noted_in", stream.clone())
                .with(":noted_from", from.clone()),
        }
    }
}

/// `write` to a stream, on condition that its position is free, or was only fenced off by who has taken a run over.
pub(super) fn at_next_position(write: ItemWrite) -> ItemWrite {
    write
        .when("attribute_not_exists(pk) OR (attribute_exists(fenced_by) AND fenced_by <> :erased)")
        .with(":erased", text_value(ERASED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::StoreConfig;

    #[test]
    fn batches_of_a_run_s_own_stream_go_by_themselves_and_those_of_sessions_stay() {
        let own = own_stream(&"run_1".into());
        assert_eq!((owner_of_stream(&own), owner_of_stream("session_1")), (Some("run_1"), None));
        assert_eq!(forget_at(&own, Timestamp::UNIX_EPOCH), Some(Timestamp::UNIX_EPOCH + NOTES_KEPT));
        assert_eq!(forget_at(&own, Timestamp::MAX), Some(Timestamp::MAX));
        assert_eq!(forget_at("session_1", Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn what_was_noted_is_gone_before_the_id_of_its_invocation_is_free() {
        let kept = SignedDuration::try_from(StoreConfig::default().finished_kept).expect("a duration");
        assert!(kept - NOTES_KEPT >= SignedDuration::from_hours(7 * 24), "a table takes days to remove what is over");
    }
}
