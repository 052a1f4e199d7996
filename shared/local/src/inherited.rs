//! What a process that died had claimed: only one has the data folder at a time, so that the next one frees it at once.

use std::time::Duration;

use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, IdSource, InvocationId, InvocationStatus, InvocationWrite, LeaseRequest,
    Sleepers, StoreError, TurnStore, limits,
};
use jiff::Timestamp;

/// Time after which what is freed is free.
const SOON: Duration = Duration::from_millis(1);

/// Ends the claims of `store`, and the leases of their sessions. Gives how many there were.
///
/// # Errors
/// When the store does not answer: they end by themselves then.
pub(crate) async fn free(
    store: &TurnStore,
    sleepers: &dyn Sleepers,
    ids: &dyn IdSource,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let mut freed = 0;
    for id in sleepers.dead_claims(now + limits::LEASE).await? {
        freed += usize::from(free_one(store, ids, now, &id).await?);
    }
    Ok(freed)
}

async fn free_one(
    store: &TurnStore,
    ids: &dyn IdSource,
    now: Timestamp,
    id: &InvocationId,
) -> Result<bool, StoreError> {
    let Some(record) = store.invocations.load_invocation(id).await? else { return Ok(false) };
    let InvocationStatus::Resuming(claim) = &record.status else { return Ok(false) };
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
    let ClaimOutcome::Granted(record) = store.commits.claim(&request).await? else { return Ok(false) };
    // It was not this worker that died of it.
    let keep = InvocationWrite::Keep {
        invocation_id: id.clone(),
        generation: record.paused.generation,
        owner: request.owner.clone(),
        at_once: false,
    };
    let commit = Commit { invocation: Some(keep), ..Commit::new(ids.fresh(), now) };
    Ok(store.commits.commit(&commit).await.is_ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_ports::{Claim, Map, PausedInvocation, ProgressFrom, SessionId};
    use dormouse_testkit::{CountingIds, MemoryStore};

    use super::*;

    const LONG: Duration = Duration::from_secs(15 * 60);

    #[tokio::test]
    async fn the_claim_of_a_process_that_died_and_the_lease_of_its_session_end_and_no_death_is_counted() {
        let store = Arc::new(MemoryStore::default());
        let turns = TurnStore::from(store.clone());
        let died_at = Timestamp::constant(1_800_000_000, 0);
        let now = died_at + Duration::from_secs(3);
        let (id, session) = (InvocationId::from("i1"), SessionId::from("s1"));
        let paused = PausedInvocation {
            session_id: Some(session.clone()),
            under_way: true,
            ..PausedInvocation::before_first_pause(id.clone(), "g", died_at)
        };
        let claim = Claim { owner: "dead".into(), until: died_at + LONG, payload: Map::new(), attempts: 1 };
        let write =
            InvocationWrite::Progress { paused: Box::new(paused), from: ProgressFrom::Fresh, claim: Some(claim) };
        let commit = Commit { invocation: Some(write), ..Commit::new("c1", died_at) };
        turns.commits.commit(&commit).await.expect("it is written");
        let lease =
            LeaseRequest { owner: "dead".into(), now: died_at, until: died_at + LONG, past: None, begun_for: None };
        turns.sessions.load_session(&session, Some(&lease)).await.expect("a lease");

        let freed = free(&turns, &*store, &CountingIds::default(), now).await.expect("it answers");
        assert_eq!(freed, 1);
        let next = now + SOON;
        assert_eq!(
            store.dead_claims(next).await.expect("an answer"),
            std::slice::from_ref(&id),
            "the next sweep finds it"
        );
        let request = ClaimRequest {
            invocation_id: id,
            generation: None,
            owner: "next".into(),
            now: next,
            until: next + LONG,
            past: None,
            payload: None,
            answered: None,
        };
        let ClaimOutcome::Granted(record) = turns.commits.claim(&request).await.expect("an answer") else {
            panic!("it is free")
        };
        let InvocationStatus::Resuming(claim) = record.status else { panic!("it is claimed") };
        assert_eq!(claim.attempts, 2, "the death of one process counts once");
        let lease = LeaseRequest { owner: "next".into(), now: next, until: next + LONG, past: None, begun_for: None };
        turns.sessions.load_session(&session, Some(&lease)).await.expect("the session is free");
    }
}
