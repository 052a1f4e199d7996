//! What a process that died had claimed: only one has the data folder at a time, so that the next one frees it at once.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, IdSource, InvocationId, InvocationStatus, InvocationWrite, LeaseRequest,
    Sleepers, StoreError, TurnStore, limits,
};
use jiff::Timestamp;

/// Time after which what is freed is free.
const SOON: Duration = Duration::from_millis(1);
/// File of the data folder with the instant at which a process that had died was found, and counted.
const DEATH: &str = "death";
/// Seconds in which deaths of processes that worked on several things count once: a process that is killed again and again
/// before anything gets further would have all of it put aside, and none of it did that.
const APART: i64 = 10;

/// Ends the claims of `store`, and the leases of their sessions. Gives how many there were. `folder` is the data folder.
///
/// # Errors
/// When the store does not answer: they end by themselves then.
pub(crate) async fn free(
    store: &TurnStore,
    sleepers: &dyn Sleepers,
    ids: &dyn IdSource,
    now: Timestamp,
    folder: &Path,
) -> Result<usize, StoreError> {
    let mut freed = Vec::new();
    for id in sleepers.dead_claims(now + limits::LEASE).await? {
        freed.extend(free_one(store, ids, now, &id).await?);
    }
    let under_way: Vec<_> = freed.iter().filter(|it| it.was_under_way).collect();
    // What was alone may have done it. Of several nobody knows which.
    if under_way.len() > 1 && counted_lately(folder, now) {
        for Freed { keep, .. } in under_way {
            keep_claim(store, ids, now, keep).await;
        }
    } else if !under_way.is_empty()
        && let Err(error) = fs::write(folder.join(DEATH), now.to_string())
    {
        tracing::warn!(%error, "that a process died is not noted: the next one counts, too, however soon it comes");
    }
    Ok(freed.len())
}

/// What was claimed, and is free.
struct Freed {
    /// What takes one attempt off.
    keep: InvocationWrite,
    /// False where its worker had left it, or none has taken it up since it was freed before: the process did not die of it.
    was_under_way: bool,
}

/// True if a death was counted within [`APART`] before `now`.
fn counted_lately(folder: &Path, now: Timestamp) -> bool {
    let noted = fs::read_to_string(folder.join(DEATH)).ok().and_then(|noted| noted.parse::<Timestamp>().ok());
    noted.is_some_and(|noted| (0..APART).contains(&(now.as_second() - noted.as_second())))
}

/// Frees it, where it is claimed.
async fn free_one(
    store: &TurnStore,
    ids: &dyn IdSource,
    now: Timestamp,
    id: &InvocationId,
) -> Result<Option<Freed>, StoreError> {
    let Some(record) = store.invocations.load_invocation(id).await? else { return Ok(None) };
    let InvocationStatus::Resuming(claim) = &record.status else { return Ok(None) };
    let was_under_way = claim.attempts > 0 && claim.until > now;
    if let Some(session) = &record.paused.session_id
        && let Some(until) = store.sessions.load_session(session, None).await?.leased_until.filter(|until| *until > now)
    {
        let lease =
            LeaseRequest { owner: ids.fresh().into(), now, until: now + SOON, past: Some(until), begun_for: None };
        store.sessions.load_session(session, Some(&lease)).await?;
    }
    let owner = ids.fresh().into();
    let request = ClaimRequest {
        invocation_id: id.clone(),
        generation: None,
        owner,
        now,
        until: now + SOON,
        past: Some(claim.until),
        payload: None,
        answered: None,
    };
    let ClaimOutcome::Granted(record) = store.commits.claim(&request).await? else { return Ok(None) };
    // It was not this worker that died of it.
    let keep = InvocationWrite::Keep {
        invocation_id: id.clone(),
        generation: record.paused.generation,
        owner: request.owner.clone(),
        at_once: false,
    };
    Ok(keep_claim(store, ids, now, &keep).await.then_some(Freed { keep, was_under_way }))
}

/// Takes one attempt off. True if that was written.
async fn keep_claim(store: &TurnStore, ids: &dyn IdSource, now: Timestamp, keep: &InvocationWrite) -> bool {
    let commit = Commit { invocation: Some(keep.clone()), ..Commit::new(ids.fresh(), now) };
    store.commits.commit(&commit).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_ports::{BEFORE_FIRST_PAUSE, Claim, Map, PausedInvocation, ProgressFrom, SessionId};
    use dormouse_testkit::{CountingIds, MemoryStore};

    use super::*;

    const LONG: Duration = Duration::from_secs(15 * 60);

    /// Writes that the worker that died has claimed the invocation.
    async fn claimed(turns: &TurnStore, paused: PausedInvocation, died_at: Timestamp) {
        let (owner, until, payload) = ("dead".into(), died_at + LONG, Map::new());
        let claim = Claim { owner, until, payload, attempts: 1, taken_over: false };
        let id = paused.invocation_id.clone();
        let write =
            InvocationWrite::Progress { paused: Box::new(paused), from: ProgressFrom::Fresh, claim: Some(claim) };
        let commit = Commit { invocation: Some(write), ..Commit::new(format!("commit of {id}"), died_at) };
        turns.commits.commit(&commit).await.expect("it is written");
    }

    /// Claims it for the next worker; gives the attempts by then.
    async fn attempts(turns: &TurnStore, id: &InvocationId, now: Timestamp) -> u32 {
        let request = ClaimRequest {
            invocation_id: id.clone(),
            generation: None,
            owner: "next".into(),
            now,
            until: now + LONG,
            past: None,
            payload: None,
            answered: None,
        };
        let ClaimOutcome::Granted(record) = turns.commits.claim(&request).await.expect("an answer") else {
            panic!("it is free")
        };
        let InvocationStatus::Resuming(claim) = record.status else { panic!("it is claimed") };
        claim.attempts
    }

    /// When the worker died.
    const DIED_AT: Timestamp = Timestamp::constant(1_800_000_000, 0);

    /// A store in which a process that died had invocations under way, and the folder of what follows it.
    struct World {
        store: Arc<MemoryStore>,
        turns: TurnStore,
        folder: tempfile::TempDir,
        ids: CountingIds,
    }

    impl World {
        /// That of the invocations `names`.
        async fn with<const N: usize>(names: [&str; N]) -> (Self, [InvocationId; N]) {
            let store = Arc::new(MemoryStore::default());
            let turns = TurnStore::from(store.clone());
            let under_way = names.map(InvocationId::from);
            for id in &under_way {
                let begun = PausedInvocation::before_first_pause(id.clone(), "g", DIED_AT);
                claimed(&turns, PausedInvocation { under_way: true, ..begun }, DIED_AT).await;
            }
            let folder = tempfile::tempdir().expect("a folder");
            (Self { store, turns, folder, ids: CountingIds::default() }, under_way)
        }

        /// How many claims the next process frees so many seconds behind the death.
        async fn freed_after(&self, seconds: u64) -> usize {
            let now = DIED_AT + Duration::from_secs(seconds);
            free(&self.turns, &*self.store, &self.ids, now, self.folder.path()).await.expect("it answers")
        }

        /// The attempts at `id` by the claim that follows what was freed so many seconds behind the death.
        async fn attempts_after(&self, seconds: u64, id: &InvocationId) -> u32 {
            attempts(&self.turns, id, DIED_AT + Duration::from_secs(seconds) + SOON).await
        }
    }

    #[tokio::test]
    async fn the_claim_of_a_process_that_died_and_the_lease_of_its_session_end_and_no_death_is_counted() {
        let store = Arc::new(MemoryStore::default());
        let turns = TurnStore::from(store.clone());
        let folder = tempfile::tempdir().expect("a folder");
        let died_at = Timestamp::constant(1_800_000_000, 0);
        let now = died_at + Duration::from_secs(3);
        let (id, session) = (InvocationId::from("i1"), SessionId::from("s1"));
        let paused = PausedInvocation {
            session_id: Some(session.clone()),
            under_way: true,
            ..PausedInvocation::before_first_pause(id.clone(), "g", died_at)
        };
        claimed(&turns, paused, died_at).await;
        let lease =
            LeaseRequest { owner: "dead".into(), now: died_at, until: died_at + LONG, past: None, begun_for: None };
        turns.sessions.load_session(&session, Some(&lease)).await.expect("a lease");

        let freed = free(&turns, &*store, &CountingIds::default(), now, folder.path()).await.expect("it answers");
        assert_eq!(freed, 1);
        let next = now + SOON;
        assert_eq!(
            store.dead_claims(next).await.expect("an answer"),
            std::slice::from_ref(&id),
            "the next sweep finds it"
        );
        assert_eq!(attempts(&turns, &id, next).await, 2, "the death of one process counts once");
        let lease = LeaseRequest { owner: "next".into(), now: next, until: next + LONG, past: None, begun_for: None };
        turns.sessions.load_session(&session, Some(&lease)).await.expect("the session is free");
    }

    #[tokio::test]
    async fn deaths_that_follow_each_other_at_once_count_once_where_several_things_were_under_way() {
        let (world, several) = World::with(["i1", "i2"]).await;
        for (seconds, counted) in [(1, 2), (2, 2), (10, 2), (11, 3), (12, 3), (40, 4)] {
            assert_eq!(world.freed_after(seconds).await, 2);
            for id in &several {
                assert_eq!(world.attempts_after(seconds, id).await, counted, "{id} after {seconds} s");
            }
        }
    }

    #[tokio::test]
    async fn each_death_counts_of_what_was_under_way_alone() {
        let (world, [id]) = World::with(["i1"]).await;
        for (seconds, counted) in [(1, 2), (2, 3), (3, 4)] {
            world.freed_after(seconds).await;
            assert_eq!(world.attempts_after(seconds, &id).await, counted);
        }
    }

    #[tokio::test]
    async fn a_claim_that_its_worker_had_left_is_not_under_way_beside_what_was_alone() {
        let (world, [alone, left]) = World::with(["i1", "i2"]).await;
        let generation = BEFORE_FIRST_PAUSE;
        let keep =
            InvocationWrite::Keep { invocation_id: left.clone(), generation, owner: "dead".into(), at_once: false };
        assert!(keep_claim(&world.turns, &world.ids, DIED_AT, &keep).await);
        for (seconds, counted) in [(1, 2), (2, 3), (3, 4)] {
            assert_eq!(world.freed_after(seconds).await, 2);
            let charged = world.attempts_after(seconds, &alone).await;
            assert_eq!(charged, counted, "it may be what the process died of");
        }
        assert_eq!(world.attempts_after(3, &left).await, 1, "nobody died of it");
    }

    #[tokio::test]
    async fn a_death_that_was_counted_stays_so_where_the_next_process_ends_before_it_takes_anything_up() {
        let (world, several) = World::with(["i1", "i2"]).await;
        for seconds in 1..=3 {
            assert_eq!(world.freed_after(seconds).await, 2);
        }
        for id in &several {
            assert_eq!(world.attempts_after(3, id).await, 2, "{id}");
        }
    }
}
