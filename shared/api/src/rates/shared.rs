use std::collections::BTreeMap;

use dormouse_ports::{
    Commit, CommitError, CounterChange, CounterWrite, Counters, DocumentKey, Journal, Records, StoreError,
};
use jiff::{SignedDuration, Timestamp};

use super::{Subject, WINDOW, Window};
use crate::keys::Writes;

/// Kind of the counters.
pub(crate) const KIND: &str = "rate";
/// Name of what is counted.
const REQUESTS: &str = "requests";

/// Number of parts of a window that are taken at a time.
const PARTS: u32 = 20;

/// Time from the end of a window until its counters may be forgotten: no clock is so far behind.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// Number of attempts at a take that others were faster than.
const ATTEMPTS: usize = 3;

/// A part of the window of `subject`, taken from the store. A store that does not answer lets one request through, which
/// will not get far.
pub(super) async fn more(records: &dyn Records, writes: &Writes, subject: &Subject, now: Timestamp) -> Window {
    match taken(records, writes, subject, now).await {
        Ok(Some(window)) => window,
        Ok(None) => one(now),
        Err(error) => {
            tracing::warn!(%error, policy = subject.policy, "a rate cannot be counted in the store");
            one(now)
        }
    }
}

fn one(now: Timestamp) -> Window {
    Window { ends_at: now + SignedDuration::from_secs(1), in_hand: 1, elsewhere: 0, is_whole: false }
}

async fn taken(
    records: &dyn Records,
    writes: &Writes,
    subject: &Subject,
    now: Timestamp,
) -> Result<Option<Window>, StoreError> {
    let key = DocumentKey::new(KIND, format!("{}/{}", subject.policy, subject.name));
    for _ in 0..ATTEMPTS {
        let counters = records.counters(&key).await?.unwrap_or_default();
        let (change, window) = step(&counters, subject, now);
        let Some(change) = change else { return Ok(Some(window)) };
        let journal = Journal { counters: vec![CounterWrite { key: key.clone(), change }], ..Journal::default() };
        let commit = Commit { journal, ..Commit::new(writes.ids.fresh(), now) };
        match writes.commits.commit(&commit).await {
            Ok(()) => return Ok(Some(window)),
            Err(CommitError::Journal(_)) => {}
            Err(CommitError::Store(error)) => return Err(error),
            Err(error) => return Err(StoreError::Unavailable(error.to_string())),
        }
    }
    Ok(None)
}

/// The change that takes a part, and the window after it; none where nothing is left.
fn step(counters: &Counters, subject: &Subject, now: Timestamp) -> (Option<CounterChange>, Window) {
    let part = (subject.quota / PARTS).max(1);
    let amounts = |amount: u32| BTreeMap::from([(REQUESTS.to_owned(), i64::from(amount))]);
    let Some(ends_at) = counters.ends_at.filter(|end| *end > now) else {
        let in_hand = part.min(subject.quota);
        let elsewhere = subject.quota - in_hand;
        let ends_at = now + WINDOW;
        let begin = CounterChange::Begin {
            ending: counters.ends_at,
            left: amounts(elsewhere),
            ends_at: Some(ends_at),
            forget_at: Some(ends_at + FORGOTTEN_AFTER),
        };
        return (Some(begin), Window { ends_at, in_hand, elsewhere, is_whole: false });
    };
    let left = counters.left.get(REQUESTS).copied().unwrap_or_default().clamp(0, i64::from(u32::MAX));
    let left = u32::try_from(left).unwrap_or_default();
    let in_hand = part.min(left);
    let take = CounterChange::Take { needs: amounts(in_hand), amounts: amounts(in_hand) };
    (Some(take).filter(|_| in_hand > 0), Window { ends_at, in_hand, elsewhere: left - in_hand, is_whole: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_a_window() {
        let subject = Subject { policy: "tenant", quota: 45, name: "acme".to_owned() };
        let mut counters = Counters::default();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut takes = |now: Timestamp| {
            let (change, window) = step(&counters, &subject, now);
            if let Some(change) = change {
                counters = counters.after(&change, now).expect("it may happen");
            }
            window.in_hand
        };
        let all: Vec<u32> = (0..30).map(|_| takes(now)).collect();
        assert_eq!((all[0], all.iter().sum::<u32>()), (2, 45), "{all:?}");
        now += WINDOW;
        assert_eq!((0..30).map(|_| takes(now)).sum::<u32>(), 45);
    }
}
