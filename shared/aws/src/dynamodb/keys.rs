//! Every key and every attribute name, spelled once. No attribute that an expression names is a reserved word.

use dormouse_ports::{InvocationId, PausedInvocation, SessionId, SignalId};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

pub(super) const PK: &str = "pk";
pub(super) const SK: &str = "sk";
pub(super) const TTL: &str = "ttl";
pub(super) const COMMIT_ID: &str = "commit_id";

pub(super) const SESSION_STATE: &str = "session_state";
pub(super) const SCHEMA_VERSION: &str = "schema_version";
pub(super) const VERSION: &str = "version";
pub(super) const CREATED_AT: &str = "created_at";
pub(super) const UPDATED_AT: &str = "updated_at";
pub(super) const LEASE_OWNER: &str = "lease_owner";
pub(super) const LEASE_UNTIL: &str = "lease_until";
pub(super) const FENCE: &str = "fence";

pub(super) const PHASE: &str = "phase";
pub(super) const GENERATION: &str = "generation";
pub(super) const PAUSE: &str = "pause";
pub(super) const PAUSE_STATE: &str = "pause_state";
pub(super) const CLAIM_OWNER: &str = "claim_owner";
pub(super) const CLAIM_UNTIL: &str = "claim_until";
pub(super) const CLAIM_PAYLOAD: &str = "claim_payload";
pub(super) const FINAL_STATE: &str = "final_state";
pub(super) const FAILURE: &str = "failure";

pub(super) const INVOCATION_ID: &str = "invocation_id";
pub(super) const PAYLOAD: &str = "payload";
pub(super) const PAYLOAD_DIGEST: &str = "payload_digest";
pub(super) const RECEIVED_AT: &str = "received_at";
pub(super) const EXPIRES_AT: &str = "expires_at";
pub(super) const DUE_AT: &str = "due_at";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const CORRELATION_ID: &str = "correlation_id";
pub(super) const GRAPH_NAME: &str = "graph_name";
pub(super) const SAVED_AT: &str = "saved_at";
pub(super) const COMPLETED_COUNT: &str = "completed_count";
pub(super) const CHUNK: &str = "chunk";

/// Over how many partitions the index of what sleeps is spread: each takes 1,000 write units a second.
pub(super) const PENDING_SHARDS: u8 = 16;

const SESSION: &str = "SESSION#";
pub(super) const HEAD: &str = "HEAD";
const INVOCATION: &str = "INVOCATION#";
pub(super) const CHECKPOINT_SK: &str = "CHECKPOINT";

/// The primary key of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) pk: String,
    pub(super) sk: String,
}

impl Key {
    pub(super) fn session(id: &SessionId) -> Self {
        Self { pk: format!("{SESSION}{id}"), sk: HEAD.to_owned() }
    }

    pub(super) fn invocation(id: &InvocationId) -> Self {
        Self { pk: format!("{INVOCATION}{id}"), sk: "PAUSED".to_owned() }
    }

    /// The checkpoint of an invocation lies beside its pause: neither touches the other.
    pub(super) fn checkpoint(id: &InvocationId) -> Self {
        Self { pk: format!("{INVOCATION}{id}"), sk: CHECKPOINT_SK.to_owned() }
    }

    pub(super) fn signal(id: &SignalId) -> Self {
        Self { pk: format!("SIGNAL#{id}"), sk: "SIGNAL".to_owned() }
    }

    pub(super) fn blob(sha256: &str, chunk: usize) -> Self {
        Self { pk: format!("BLOB#{sha256}"), sk: format!("{chunk:05}") }
    }

    /// The row of `paused` in the index of what sleeps; rows that never fall due sort last.
    pub(super) fn pending(paused: &PausedInvocation) -> Self {
        let id = &paused.invocation_id;
        let due = match &paused.wake.due {
            Some(due) => instant(due.at),
            None => "never".to_owned(),
        };
        Self { pk: pending_shard(shard_of(id)), sk: format!("{due}#{id}") }
    }
}

/// The session of a head's partition key.
pub(super) fn session_id(pk: &str) -> Option<SessionId> {
    pk.strip_prefix(SESSION).map(SessionId::from)
}

/// What the partition keys of all sessions begin with.
pub(super) fn session_prefix() -> &'static str {
    SESSION
}

/// The invocation of a partition key.
pub(super) fn invocation_id(pk: &str) -> Option<InvocationId> {
    pk.strip_prefix(INVOCATION).map(InvocationId::from)
}

/// What the partition keys of all invocations begin with.
pub(super) fn invocation_prefix() -> &'static str {
    INVOCATION
}

/// The partition key of a shard of the index of what sleeps.
pub(super) fn pending_shard(shard: u8) -> String {
    format!("PENDING#{shard:02}")
}

/// Sorts behind every row that falls due at or before `limit` and before every later one.
pub(super) fn pending_bound(limit: Timestamp) -> String {
    format!("{}$", instant(limit))
}

fn shard_of(id: &InvocationId) -> u8 {
    Sha256::digest(id.as_str().as_bytes())[0] % PENDING_SHARDS
}

/// Nanoseconds in as many digits as the largest instant needs, so that text order is time order.
fn instant(at: Timestamp) -> String {
    format!("{:021}", at.as_nanosecond().max(0))
}

#[cfg(test)]
mod tests {
    use dormouse_ports::InvocationId;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a valid instant")
    }

    #[test]
    fn instants_sort_as_text() {
        let texts: Vec<String> = [-5, 0, 9, 10, 1_800_000_000].map(|second| instant(at(second))).to_vec();
        assert!(texts.is_sorted());
        assert_eq!(instant(Timestamp::MAX).len(), 21);
        assert!(texts[4].as_str() < "never", "what never falls due comes last");
    }

    #[test]
    fn the_bound_includes_its_instant_and_nothing_later() {
        let bound = pending_bound(at(100));
        assert!(format!("{}#zzz", instant(at(100))) < bound);
        assert!(format!("{}#", instant(at(101))) > bound);
    }

    #[test]
    fn shards_are_stable_and_in_range() {
        let shards: Vec<u8> = (0..100).map(|n| shard_of(&InvocationId::from(format!("i{n}")))).collect();
        assert!(shards.iter().all(|shard| *shard < PENDING_SHARDS));
        assert_eq!(shard_of(&InvocationId::from("i1")), shard_of(&InvocationId::from("i1")));
        assert_eq!(pending_shard(7), "PENDING#07");
    }

    #[test]
    fn a_session_id_survives_its_key() {
        let key = Key::session(&SessionId::from("a#b"));
        assert_eq!(session_id(&key.pk), Some(SessionId::from("a#b")));
        assert_eq!(session_id("SIGNAL#a"), None);
    }
}
