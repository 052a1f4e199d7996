//! Runs with the steps that were noted of them, and the fences behind those.

use std::sync::Arc;

use dormouse_ports::{
    Append, InvocationId, InvocationRecord, Map, Owner, PausedInvocation, SessionExpectation, SessionWrite, StoreError,
    StoredList,
};
use jiff::Timestamp;

use super::note::{StepNote, with_notes};
use super::{at_next_position, fence, forget_at, is_erased, own_append, owner_of_stream};
use crate::dynamodb::batch::KeyRange;
use crate::dynamodb::blobs::Bodies;
use crate::dynamodb::item::{Item, number, optional_text, text, ttl_value};
use crate::dynamodb::keys::{
    self, FED_AT, FIRST_POSITION, KNOWN, Key, LAST_POSITION, NOTED_FROM, NOTED_IN, NOTED_SAVED, STEP, TTL, UNREPORTED,
};
use crate::dynamodb::requests::Table;
use crate::dynamodb::write::{ItemWrite, WriteOutcome};

/// Number of batches that are read at once.
const BATCHES: usize = 100;
/// Number of times that a fence is tried: each time, somebody else appended.
pub(in crate::dynamodb) const FENCE_ATTEMPTS: usize = 32;

/// A record with the steps that were noted of it.
pub(in crate::dynamodb) struct NotedRun {
    pub(in crate::dynamodb) record: InvocationRecord,
    /// The fields that its session keeps, where steps were noted that it does not have.
    saves: Option<Vec<String>>,
    /// The last batch of the stream.
    newest: Option<Item>,
}

/// What steps that were noted have brought to a session.
pub(in crate::dynamodb) struct Unsaved {
    /// The invocation as it is behind them, once its session is saved.
    pub(in crate::dynamodb) paused: PausedInvocation,
    pub(in crate::dynamodb) session: SessionWrite,
    /// The lists that the store has of both.
    pub(in crate::dynamodb) stored: Vec<StoredList>,
}

/// Reads what was noted of invocations.
#[derive(Clone)]
pub(in crate::dynamodb) struct StepNotes {
    pub(in crate::dynamodb) table: Arc<Table>,
    pub(in crate::dynamodb) bodies: Arc<Bodies>,
}

impl StepNotes {
    /// `record` of `item`, which is without them, with all steps that were noted since it was written.
    pub(in crate::dynamodb) async fn noted(
        &self,
        record: InvocationRecord,
        item: &Item,
    ) -> Result<NotedRun, StoreError> {
        let Some(stream) = optional_text(item, NOTED_IN) else {
            return Ok(NotedRun { record, saves: None, newest: None });
        };
        let from = number(item, NOTED_FROM)?;
        let (notes, newest) = self.read(&record.paused.invocation_id, (stream, from)).await?;
        let saves = notes.iter().rev().find_map(|note| note.saves.clone());
        let record = if notes.is_empty() { record } else { with_notes(record, notes)? };
        if item.contains_key(NOTED_SAVED) {
            return Ok(NotedRun { record: InvocationRecord { saved: None, ..record }, saves: None, newest });
        }
        Ok(NotedRun { record, saves, newest })
    }

    /// What was noted of the invocation `id` in `stream`, behind its step that was written whole at the position `from`; and
    /// the last batch of the stream. In one of its own that is the last one that follows on that step.
    async fn read(
        &self,
        id: &InvocationId,
        (stream, from): (&str, u64),
    ) -> Result<(Vec<StepNote>, Option<Item>), StoreError> {
        let mut stretch = Stretch::behind(stream, from);
        let after = stretch.read_after().map(keys::batch_order);
        let mut range = KeyRange { pk: keys::stream_partition(stream), after, backwards: false };
        let (mut notes, mut newest) = (Vec::new(), None);
        loop {
            let batches = self.table.query_range(&range, BATCHES).await?;
            let is_last = batches.len() < BATCHES;
            for batch in batches {
                let Some(may_have_note) = stretch.reach(&batch)? else { return Ok((notes, newest)) };
                if may_have_note
                    && let Some(note) = self.bodies.optional_body::<StepNote>(&batch, STEP).await?
                    && note.invocation_id == *id
                {
                    notes.push(note);
                }
                range.after = Some(text(&batch, keys::SK)?.to_owned());
                newest = Some(batch);
            }
            if is_last {
                return Ok((notes, newest));
            }
        }
    }

    /// The same record as [`noted`](Self::noted), and no worker before `owner` can note a step any more.
    pub(in crate::dynamodb) async fn fenced(
        &self,
        record: InvocationRecord,
        item: &Item,
        (owner, now): (&Owner, Timestamp),
    ) -> Result<InvocationRecord, StoreError> {
        if !item.contains_key(NOTED_IN) {
            return Ok(record);
        }
        for _ in 0..FENCE_ATTEMPTS {
            let run = self.noted(record.clone(), item).await?;
            let newest = run.newest.as_ref();
            if newest.is_some_and(is_erased) {
                return Err(StoreError::Unavailable("the run is being erased".to_owned()));
            }
            // Without a stream there is nothing behind which a step could be noted.
            let Some((stream, next)) = behind(item, newest)? else { return Ok(run.record) };
            let put = fence_behind(newest, (&stream, next), (owner, now));
            if let WriteOutcome::Done(_) = self.table.write_alone(&put).await? {
                return Ok(run.record);
            }
        }
        Err(StoreError::Unavailable(format!(
            "{FENCE_ATTEMPTS} attempts to take a run over: each time, its session grew"
        )))
    }

    /// What the steps that were noted have brought to the session of the invocation of `item`, whose `record` is without them;
    /// `None` where there is nothing. And the append by which no step is noted behind them, where its stream is the run's own.
    pub(in crate::dynamodb) async fn unsaved(
        &self,
        record: InvocationRecord,
        item: &Item,
    ) -> Result<(Option<Unsaved>, Option<Append>), StoreError> {
        let NotedRun { record, saves, newest } = self.noted(record, item).await?;
        let place = behind(item, newest.as_ref())?;
        let place = place.filter(|(stream, _)| owner_of_stream(stream).is_some());
        let fence = place.map(|(stream, next)| own_append(stream, next));
        let InvocationRecord { paused, stored, .. } = record;
        let (Some(saves), Some(session_id), Some(version)) = (saves, &paused.session_id, paused.session_version) else {
            return Ok((None, fence));
        };
        let kept = paused.state.fields().filter(|(name, _)| saves.iter().any(|field| field == name));
        let kept: Map = kept.map(|(name, part)| (name.to_owned(), part.to_value())).collect();
        let session = SessionWrite {
            session_id: session_id.clone(),
            save: Some((kept.into(), paused.schema_version.clone())),
            expect: SessionExpectation::Version(version),
            lease: None,
            release: false,
        };
        let paused = PausedInvocation { session_version: Some(version + 1), ..paused };
        Ok((Some(Unsaved { paused, session, stored }), fence))
    }
}

/// The batches behind a step that was written whole, one after the other, as far as its run may have noted steps in them.
struct Stretch {
    from: u64,
    /// The position of the next one, in a stream of the run's own.
    next: Option<u64>,
    is_whole_again: bool,
}

impl Stretch {
    fn behind(stream: &str, from: u64) -> Self {
        Self { from, next: owner_of_stream(stream).map(|_| from + 1), is_whole_again: false }
    }

    /// The position behind which batches are read: in a stream of its own a step that is written whole has none.
    fn read_after(&self) -> Option<u64> {
        if self.next.is_some() { Some(self.from) } else { self.from.checked_sub(1) }
    }

    /// Whether `batch`, the next one that was read, may have a note of the run; `None` where a gap is before it in a stream of
    /// the run's own: it is behind a step that was written whole since, and has taken other positions.
    fn reach(&mut self, batch: &Item) -> Result<Option<bool>, StoreError> {
        let first = number(batch, FIRST_POSITION)?;
        if self.next.is_some_and(|next| first != next) {
            return Ok(None);
        }
        self.next = self.next.map(|_| first + 1);
        let is_behind = first > self.from;
        // A step that was written whole since, of this run or another one: what is noted of this run behind it changes that
        // one.
        self.is_whole_again |= is_behind && batch.contains_key(NOTED_FROM);
        Ok(Some(is_behind && !self.is_whole_again))
    }
}

/// The place behind the last batch of a stream, `newest`, in which steps are noted of the invocation of `item`; `None` where the
/// stream is gone.
fn behind(item: &Item, newest: Option<&Item>) -> Result<Option<(String, u64)>, StoreError> {
    let Some(stream) = optional_text(item, NOTED_IN) else { return Ok(None) };
    let last = match newest {
        Some(newest) => number(newest, LAST_POSITION)?,
        None if owner_of_stream(stream).is_some() => number(item, NOTED_FROM)?,
        None => return Ok(None),
    };
    Ok(Some((stream.to_owned(), last + 1)))
}

/// The fence of `owner` at the place behind `newest`, the last batch of its stream: the end is known there as it was before.
fn fence_behind(newest: Option<&Item>, (stream, next): (&str, u64), (owner, now): (&Owner, Timestamp)) -> ItemWrite {
    let mut fence = fence((next, next - 1), owner.as_str());
    let kept = [KNOWN, FED_AT, UNREPORTED, TTL].into_iter();
    fence.extend(kept.filter_map(|name| Some((name.to_owned(), newest?.get(name)?.clone()))));
    if let Some(at) = forget_at(stream, now) {
        fence.insert(TTL.to_owned(), ttl_value(at));
    }
    at_next_position(ItemWrite::put(&Key::batch(stream, next), fence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::item::{number_value, text_value};
    use crate::dynamodb::steps::own_stream;

    fn batch(first: u64) -> Item {
        Item::from([(FIRST_POSITION.to_owned(), number_value(first)), (LAST_POSITION.to_owned(), number_value(first))])
    }

    fn noted_in(stream: &str, from: u64) -> Item {
        Item::from([(NOTED_IN.to_owned(), text_value(stream)), (NOTED_FROM.to_owned(), number_value(from))])
    }

    #[test]
    fn what_is_behind_another_step_that_is_whole_is_no_note_of_the_one_before() {
        let whole = |first| {
            let mut batch = batch(first);
            batch.insert(NOTED_FROM.to_owned(), number_value(first));
            batch
        };
        let mut stretch = Stretch::behind("session_1", 4);
        assert_eq!(stretch.read_after(), Some(3), "its own batch tells the end where it is the last one");
        let found = [whole(4), batch(5), batch(7), whole(9), batch(10)]
            .map(|batch| stretch.reach(&batch).expect("a batch").expect("positions of others are between"));
        assert_eq!(found, [false, true, true, false, false]);
        assert_eq!(Stretch::behind("session_1", 0).read_after(), None);
        let mut own = Stretch::behind(&own_stream(&"run_1".into()), 1024);
        assert_eq!(own.read_after(), Some(1024), "there it has no batch");
        let found = [1025, 1026, 2049, 1028].map(|first| own.reach(&batch(first)).expect("a batch"));
        assert_eq!(found, [Some(true), Some(true), None, None], "in a stream of its own a gap tells of it");
        let error = own.reach(&Item::new()).expect_err("no batch");
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    }

    #[test]
    fn a_fence_has_its_place_behind_the_last_batch_and_in_a_stream_of_its_own_behind_the_last_whole_step() {
        let place = |item: &Item, newest: Option<&Item>| behind(item, newest).expect("an item");
        let own = own_stream(&"run_1".into());
        assert_eq!(place(&Item::new(), Some(&batch(7))), None, "no steps are noted of it");
        assert_eq!(place(&noted_in("session_1", 4), Some(&batch(7))), Some(("session_1".to_owned(), 8)));
        assert_eq!(place(&noted_in("session_1", 4), None), None, "the stream is gone");
        assert_eq!(place(&noted_in(&own, 1024), Some(&batch(1025))), Some((own.clone(), 1026)));
        assert_eq!(place(&noted_in(&own, 1024), None), Some((own, 1025)), "no step was noted yet");
    }
}
