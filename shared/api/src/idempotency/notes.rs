//! Keys that are noted: a key is in the first event of what its request writes, where it takes a few bytes of an item that is
//! written anyway. The end of the session's stream tells where the newest note is, and that one tells where those before it
//! are. All of them are in one stream, and a commit is refused where the stream has grown since its end was read: whoever has
//! read the end, and behind that looks through the notes, has seen every key that was used before.
//!
//! Beyond [`MOST_NOTED`], and where nothing that is written has the answer, a key has a document, of which the session knows
//! until when there may be one.

use dormouse_ports::{DocumentKey, Journal, Map};
use dormouse_protocol::id::EventId;
use dormouse_protocol::{Event, Operation, ProtocolError};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{KEPT_FOR, hash_of};
use crate::Call;
use crate::api::json;
use crate::documents::SessionIndex;
use crate::refusal::internal;
use crate::transcript::readable;

/// Field of a stored event with the [`KeyNote`] of the request that wrote it. It is no field of an event as clients know it.
const NOTE: &str = "noted";

/// Time for which what is over is known yet, where clocks differ or a request took long.
const MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// Seconds in which notes tell how old they are.
const SLOT: i64 = 600;

/// Age in slots at which no note leads to another one any more: 24 hours and the margin.
const FORGOTTEN: u64 = 25 * 6;

/// Number of notes that the newest one leads to, each of which takes five bytes of it.
const MOST_NOTED: usize = 48;

/// Characters that a note keeps of a hash: 128 bits.
const HALF: usize = 32;

/// A request whose key is noted: it writes to one session alone, which its path names or leads to, and is answered with what
/// it writes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// A task, submitted at the address of its session.
    Submission,
    /// What is said to a task.
    Message,
    /// The answer to a request for a permission.
    Decision,
}

/// How the key of a request is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Keeping {
    /// Its session is not told: there is none, or no session has to know it.
    #[default]
    Untold,
    /// In a document, which its session tells of.
    Apart,
    /// In the first event of what it writes.
    Noted(KeyNote),
}

/// The key of a request, in the first event of what the request wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyNote {
    /// Half of the hash of its scope.
    pub(super) scope: String,
    /// Half of the hash of the request's body.
    pub(super) body: String,
    /// The notes before it, the newest first: three numbers for each, those of an [`EarlierNote`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<u64>,
}

/// What a note tells of one before it.
struct EarlierNote {
    /// The first 16 bits of its scope.
    scope: u64,
    /// By how many positions it stands before the one behind it.
    back: u64,
    /// By how many slots of time it is older than that.
    older: u64,
}

/// A note where it stands.
pub(super) struct PlacedNote {
    position: u64,
    pub(super) note: KeyNote,
    /// The event that has it.
    pub(super) event: Event,
}

impl Noted {
    /// Which of these `operation` is; the key of every other one has a document.
    #[expect(clippy::wildcard_enum_match_arm, reason = "those that are noted are few, and all of them stand here")]
    pub(super) fn of(operation: Operation) -> Option<Self> {
        match operation {
            Operation::SubmitSessionTask => Some(Self::Submission),
            Operation::AppendTaskMessage => Some(Self::Message),
            Operation::RespondPermissionRequest => Some(Self::Decision),
            _ => None,
        }
    }
}

impl Keeping {
    /// The same where no answer can be made of what is written.
    pub(crate) fn apart(self) -> Self {
        match self {
            Self::Untold => Self::Untold,
            Self::Apart | Self::Noted(_) => Self::Apart,
        }
    }

    /// Has `own`, the session of a request of `now`, know of the key; the note that belongs in its first event, which is at
    /// `position`.
    ///
    /// # Errors
    /// `internal_error` when it cannot be written.
    pub(crate) fn note_in(
        self,
        own: &mut SessionIndex,
        (position, now): (u64, Timestamp),
    ) -> Result<Option<Value>, ProtocolError> {
        if self == Self::Untold {
            return Ok(None);
        }
        // Of what an earlier version has written there are documents alone.
        let is_apart = self == Self::Apart || own.keyed.is_none();
        own.apart_until = own.apart_until.filter(|until| now.duration_since(*until) < MARGIN);
        if is_apart {
            let until = now.checked_add(KEPT_FOR).map_err(|error| internal(&error))?;
            own.apart_until = own.apart_until.max(Some(until));
        }
        let before = own.keyed.unwrap_or_default();
        match self {
            Self::Noted(note) => {
                own.keyed = Some(position);
                json(&note).map(Some)
            }
            Self::Untold | Self::Apart => {
                own.keyed = Some(before);
                Ok(None)
            }
        }
    }
}

impl KeyNote {
    pub(super) fn of(call: &Call, key: &DocumentKey) -> Self {
        Self { scope: half(&key.id), body: half(&hash_of(call)), before: Vec::new() }
    }

    /// The notes before it, the newest first.
    fn earlier(&self) -> impl Iterator<Item = EarlierNote> {
        self.before.chunks_exact(3).filter_map(|numbers| match numbers {
            [scope, back, older] => Some(EarlierNote { scope: *scope, back: *back, older: *older }),
            _ => None,
        })
    }

    /// The same at `position` and `now`, behind `newest`; `None` where that leads to enough others.
    pub(super) fn behind(self, newest: &PlacedNote, (position, now): (u64, Timestamp)) -> Option<Self> {
        let scope = beginning(&newest.note.scope);
        let back = position.checked_sub(newest.position)?;
        let older = u64::try_from(slot(now) - slot(newest.event.envelope.created_at)).unwrap_or_default();
        let mut age = 0;
        let is_known = |note: &EarlierNote| {
            age += note.older;
            age < FORGOTTEN
        };
        let earlier = std::iter::once(EarlierNote { scope, back, older }).chain(newest.note.earlier());
        let known = earlier.take_while(is_known).flat_map(|note| [note.scope, note.back, note.older]);
        let before: Vec<u64> = known.collect();
        (before.len() <= 3 * MOST_NOTED).then_some(Self { before, ..self })
    }
}

impl PlacedNote {
    /// That of `entry`, which is in `stream` at `position`; none where it cannot be read.
    pub(super) fn read(stream: &str, position: u64, mut entry: Map) -> Option<Self> {
        let damaged = |error: &serde_json::Error| {
            tracing::error!(stream, position, %error, "a key cannot be read: its request, and those before it, may be done again");
        };
        let note = entry.shift_remove(NOTE).and_then(|note| KeyNote::deserialize(note).inspect_err(damaged).ok());
        let event = readable(&EventId::at(stream, position), entry);
        note.zip(event).map(|(note, event)| Self { position, note, event })
    }

    /// How long ago it was written.
    pub(super) fn age(&self, now: Timestamp) -> SignedDuration {
        now.duration_since(self.event.envelope.created_at)
    }

    /// The positions before it at which there may be a note of `scope`, the newest first.
    pub(super) fn places_before(&self, scope: &str) -> Vec<u64> {
        let (mut position, scope) = (self.position, beginning(scope));
        let place = |earlier: EarlierNote| {
            position = position.saturating_sub(earlier.back);
            (earlier.scope == scope).then_some(position)
        };
        self.note.earlier().filter_map(place).collect()
    }
}

/// True if `journal` notes the key of its request.
pub(crate) fn notes_key(journal: &Journal) -> bool {
    journal.appends.iter().any(|append| append.entries.first().is_some_and(|entry| entry.contains_key(NOTE)))
}

/// Puts `note` into `entry`.
pub(crate) fn put_note(entry: &mut Map, note: Value) {
    entry.insert(NOTE.to_owned(), note);
}

/// The first half of a hash.
fn half(hash: &str) -> String {
    hash.chars().take(HALF).collect()
}

/// The slot of time in which `at` is.
fn slot(at: Timestamp) -> i64 {
    at.as_second().div_euclid(SLOT)
}

/// The first 16 bits of a hash.
fn beginning(hash: &str) -> u64 {
    hash.get(..4).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use dormouse_protocol::event::{Draft, EventPlace};
    use dormouse_protocol::{EventKind, ResourcePointer};
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn note(scope: &str) -> KeyNote {
        KeyNote { scope: half(&scope.repeat(64)), body: "b".to_owned(), before: Vec::new() }
    }

    fn noted(position: u64, note: KeyNote, second: i64) -> PlacedNote {
        let task = ResourcePointer { object: "task".to_owned(), id: "t".to_owned() };
        let event = Draft::new(EventKind::TaskSubmitted, task, json!({}));
        let event = event.at(EventPlace { stream: "s", position, sequence: 1, at: at(second) });
        PlacedNote { position, note, event }
    }

    #[test]
    fn a_note_leads_to_those_before_it_until_they_are_enough() {
        let first = noted(7, note("1"), 0);
        let second = noted(12, note("2").behind(&first, (12, at(1_199))).expect("few"), 1_199);
        assert_eq!(second.note.before, [0x1111, 5, 1]);
        let third = note("3").behind(&second, (13, at(1_200))).expect("few");
        assert_eq!(third.before, [0x2222, 1, 1, 0x1111, 5, 1]);
        let third = noted(13, third, 1_200);
        let places = ["1", "2", "3"].map(|scope| third.places_before(&note(scope).scope));
        assert_eq!(places, [vec![7], vec![12], Vec::new()]);
        let behind = note("3").behind(&second, (13, at(0))).expect("few");
        assert_eq!(behind.before, [0x2222, 1, 0, 0x1111, 5, 1], "a clock that is behind");
        let mut newest = first;
        let mut count = 0;
        while let Some(next) = note("4").behind(&newest, (newest.position + 1, at(0))) {
            newest = noted(newest.position + 1, next, 0);
            count += 1;
        }
        assert_eq!(count, MOST_NOTED);
    }

    #[test]
    fn a_note_leads_to_none_that_is_forgotten() {
        let mut newest = noted(1, note("1"), 0);
        for hour in 1..100 {
            let now = hour * 3_600;
            let next = note("1").behind(&newest, (newest.position + 1, at(now))).expect("few");
            assert_eq!(i64::try_from(next.earlier().count()), Ok(hour.min(24)), "after {hour} hours");
            newest = noted(newest.position + 1, next, now);
        }
        let late = note("1").behind(&newest, (200, at(99 * 3_600 + 25 * 3_600))).expect("few");
        assert_eq!(late.before, [0_u64; 0]);
    }

    #[test]
    fn a_session_knows_of_the_newest_note_and_until_when_documents_are_there() {
        let day = |second: i64| Some(at(second + 24 * 3_600));
        let mut own = SessionIndex::new();
        let keep = |keeping: Keeping, own: &mut SessionIndex, position, second| {
            let note = keeping.note_in(own, (position, at(second))).expect("a note");
            (note.is_some(), own.keyed, own.apart_until)
        };
        assert_eq!(keep(Keeping::Untold, &mut own, 2, 0), (false, Some(0), None));
        assert_eq!(keep(Keeping::Noted(note("1")), &mut own, 3, 1), (true, Some(3), None));
        assert_eq!(keep(Keeping::Apart, &mut own, 5, 2), (false, Some(3), day(2)));
        assert_eq!(keep(Keeping::Apart, &mut own, 6, 1), (false, Some(3), day(2)), "a clock that is behind");
        assert_eq!(keep(Keeping::Noted(note("2")), &mut own, 7, 3), (true, Some(7), day(2)));
        assert_eq!(keep(Keeping::Noted(note("2")), &mut own, 9, 25 * 3_600 + 1), (true, Some(9), day(2)));
        assert_eq!(keep(Keeping::Noted(note("2")), &mut own, 11, 25 * 3_600 + 2), (true, Some(11), None));
        let mut earlier = SessionIndex::default();
        assert_eq!(keep(Keeping::Noted(note("1")), &mut earlier, 4, 0), (true, Some(4), day(0)));
    }
}
