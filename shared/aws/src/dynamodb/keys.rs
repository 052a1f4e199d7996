//! Every key and every attribute name, spelled once. No attribute that an expression names as it is called is a reserved word.

use std::fmt;

use dormouse_ports::{
    Breadth, DocumentKey, FeedRow, InvocationId, Listed, PausedInvocation, SessionId, ShapeId, SignalId,
};
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

/// Of a session or an invocation: the tenant in whose name it was begun. Those of earlier versions have none.
pub(super) const BEGUN_FOR: &str = "begun_for";

pub(super) const PHASE: &str = "phase";
pub(super) const GENERATION: &str = "generation";
pub(super) const PAUSE: &str = "pause";
pub(super) const PAUSE_STATE: &str = "pause_state";
pub(super) const WAKE: &str = "wake";
pub(super) const ANSWERS: &str = "answers";
pub(super) const ANSWERED: &str = "answered";
pub(super) const RUNG: &str = "rung";
/// Number of the step to which a worker has come.
pub(super) const REACHED: &str = "reached";
pub(super) const CLAIM_OWNER: &str = "claim_owner";
/// End of the claim. Items of the first versions have it in [`CLAIM_SINCE`].
pub(super) const CLAIM_UNTIL: &str = "held_until";
/// Instant since which a payload is accepted: the sort key of the index of claims, which no take-over moves.
pub(super) const CLAIM_SINCE: &str = "claim_until";
pub(super) const CLAIM_LANE: &str = "claim_lane";
/// The phase that the claim found: where a worker had claimed it, or a payload was accepted, it was taken over.
pub(super) const CLAIMED_FROM: &str = "claimed_from";
pub(super) const ATTEMPTS: &str = "attempts";
pub(super) const CLAIM_PAYLOAD: &str = "claim_payload";
pub(super) const FINAL_STATE: &str = "final_state";
pub(super) const FAILURE: &str = "failure";
pub(super) const CANCELLATION: &str = "cancellation";

pub(super) const INVOCATION_ID: &str = "invocation_id";
pub(super) const PAYLOAD: &str = "payload";
pub(super) const PAYLOAD_DIGEST: &str = "payload_digest";
pub(super) const RECEIVED_AT: &str = "received_at";
pub(super) const SENDER: &str = "sender";
pub(super) const EXPIRES_AT: &str = "expires_at";
pub(super) const DUE_AT: &str = "due_at";
pub(super) const SINCE: &str = "since_at";
pub(super) const REGISTERED: &str = "registered";
/// Of a row: the shape of the events that its pause waits for, or nothing. Rows of the first versions have none.
pub(super) const SHAPE: &str = "event_shape";
pub(super) const EDITION: &str = "rule_edition";
pub(super) const TOUCHES: &str = "touches";
pub(super) const MADE_AT: &str = "made_at";
pub(super) const IDLE_SINCE: &str = "idle_since";
pub(super) const STANDS_SINCE: &str = "stands_since";
pub(super) const SIGNAL_ID: &str = "signal_id";
pub(super) const POSITION: &str = "sweep_position";
pub(super) const CHECKPOINT: &str = "checkpoint";
pub(super) const CORRELATION_ID: &str = "correlation_id";
pub(super) const GRAPH_NAME: &str = "graph_name";
pub(super) const SAVED_AT: &str = "saved_at";
pub(super) const COMPLETED_COUNT: &str = "completed_count";
pub(super) const CHUNK: &str = "chunk";
pub(super) const LIST_REFS: &str = "list_refs";
pub(super) const BEFORE: &str = "before_digest";
pub(super) const KIND: &str = "record_kind";
pub(super) const RECORD_ID: &str = "record_id";
pub(super) const BODY: &str = "body";
/// What of a body that is apart stays in the item (`brief`).
pub(super) const BRIEF: &str = "brief_body";
pub(super) const STREAM: &str = "stream_id";
pub(super) const ENTRIES: &str = "entries";
pub(super) const ENTRY_COUNT: &str = "entry_count";
pub(super) const FIRST_POSITION: &str = "first_position";
pub(super) const LAST_POSITION: &str = "last_position";
pub(super) const FED_AT: &str = "fed_at";
pub(super) const LABEL: &str = "row_label";
/// Of a batch: what the writers of its stream know at its end.
pub(super) const KNOWN: &str = "known_at_end";
/// Of a batch that is reported later: number of entries up to its end that no row of a feed reports.
pub(super) const UNREPORTED: &str = "unreported";
/// Of a batch whose row reports some before it, too: the position of the first of them.
pub(super) const REPORTS_FROM: &str = "reports_from";
/// Of a batch: the note of a durable step that is written nowhere else (`steps`).
pub(super) const STEP: &str = "step";
/// Of a batch without entries: the worker that took the claim of a run over, which the next append replaces; or what says that the
/// stream was erased (`steps`).
pub(super) const FENCED_BY: &str = "fenced_by";
/// Of an invocation: the stream in whose batches its steps may be noted.
pub(super) const NOTED_IN: &str = "noted_in";
/// Of an invocation: the position of the batch behind which they are. Of that batch: the same.
pub(super) const NOTED_FROM: &str = "noted_from";
/// Of such an invocation: its session was saved behind them, in the midst of a step.
pub(super) const NOTED_SAVED: &str = "noted_saved";
/// Of a row of a feed: its batch is found by its first position.
pub(super) const BY_FIRST: &str = "by_first";
/// Of a row that reports more than one batch: the first position of the last one, with which it was written.
pub(super) const OWN_FIRST: &str = "own_first";
/// Of counters: what is left of each, by its name behind this.
pub(super) const LEFT: &str = "left_";
/// Of counters: end of their period.
pub(super) const PERIOD_ENDS_AT: &str = "period_ends_at";
pub(super) const OWNERS: &str = "owners";
pub(super) const WRITTEN_AT: &str = "written_at";

/// The index of claims: only items with an accepted payload have its keys, [`CLAIM_LANE`] and [`CLAIM_SINCE`].
pub(super) const CLAIMS_INDEX: &str = "claims";

/// Number of partitions over which the index of suspended invocations is spread: each takes 1,000 write units a second.
pub(super) const PENDING_SHARDS: u8 = 16;

const SESSION: &str = "SESSION#";
pub(super) const HEAD: &str = "HEAD";
pub(super) const PIECE: &str = "SEGMENT#";
/// Prefix of the partition keys of all documents.
pub(super) const DOCUMENTS: &str = "DOCUMENT#";
/// Prefix of the partition keys of the indexes that sweeps read.
pub(super) const PENDING: &str = "PENDING#";
const SIGNAL: &str = "SIGNAL#";
const INVOCATION: &str = "INVOCATION#";
const BLOB: &str = "BLOB#";
pub(super) const RULES: &str = "RULES";
pub(super) const PAUSED: &str = "PAUSED";
pub(super) const CHECKPOINT_SK: &str = "CHECKPOINT";

/// The primary key of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) pk: String,
    pub(super) sk: String,
}

impl Key {
    pub(super) fn session(id: &SessionId) -> Self {
        Self { pk: format!("{SESSION}{id}"), sk: HEAD.to_owned() }
    }

    pub(super) fn invocation(id: &InvocationId) -> Self {
        Self { pk: format!("{INVOCATION}{id}"), sk: PAUSED.to_owned() }
    }

    /// The checkpoint of an invocation lies beside its pause: neither touches the other.
    pub(super) fn checkpoint(id: &InvocationId) -> Self {
        Self { pk: format!("{INVOCATION}{id}"), sk: CHECKPOINT_SK.to_owned() }
    }

    pub(super) fn signal(id: &SignalId) -> Self {
        Self { pk: format!("{SIGNAL}{id}"), sk: "SIGNAL".to_owned() }
    }

    /// A chunk of a blob; `place` is empty for those of the first versions.
    pub(super) fn blob(sha256: &str, place: &str, chunk: usize) -> Self {
        Self { pk: format!("{BLOB}{sha256}{place}"), sk: format!("{chunk:05}") }
    }

    /// The row of `paused` in the index of suspended invocations; rows that never fall due sort last.
    pub(super) fn pending(paused: &PausedInvocation) -> Self {
        Self::pending_at(&paused.invocation_id, paused.wake.due.as_ref().map(|due| due.at))
    }

    /// The row of the invocation `id` that falls due at `due_at`, in the index of suspended invocations.
    pub(super) fn pending_at(id: &InvocationId, due_at: Option<Timestamp>) -> Self {
        let due = due_at.map_or_else(|| "never".to_owned(), instant);
        Self { pk: pending_shard(shard_of(id.as_str())), sk: format!("{due}#{id}") }
    }

    /// The row of a signal in the index of parked signals.
    pub(super) fn parked(id: &SignalId, received_at: Timestamp) -> Self {
        Self { pk: parked_shard(shard_of(id.as_str())), sk: format!("{}#{id}", instant(received_at)) }
    }

    pub(super) fn document(key: &DocumentKey) -> Self {
        Self { pk: format!("{DOCUMENTS}{}#{}", key.kind, key.id), sk: "DOCUMENT".to_owned() }
    }

    /// A place in a list of documents.
    pub(super) fn place(place: &Listed) -> Self {
        let whole = list_partition(&place.list);
        let pk = match place.breadth {
            Breadth::Narrow => whole,
            Breadth::Wide { .. } | Breadth::Among { .. } => shard_named(&whole, shard_of(&place.order)),
        };
        Self { pk, sk: row_order(&place.order) }
    }

    /// The place of `row` in `feed`.
    pub(super) fn feed_row(feed: &str, row: &FeedRow) -> Self {
        let pk = shard_named(&feed_partition(feed), shard_of(&row.stream));
        Self { pk, sk: row_order(&row.order()) }
    }

    /// The item that holds the length of a stream. Sorts before its batches.
    pub(super) fn stream_head(stream: &str) -> Self {
        Self { pk: stream_partition(stream), sk: "#".to_owned() }
    }

    /// The entries of one append: at the position of the last of them, or of the first where the append keeps the end of
    /// its stream.
    pub(super) fn batch(stream: &str, position: u64) -> Self {
        Self { pk: stream_partition(stream), sk: batch_order(position) }
    }

    /// Holds the instant since which a session with pieces has no head.
    pub(super) fn headless(session: &SessionId) -> Self {
        Self { pk: format!("{PENDING}headless"), sk: session.to_string() }
    }

    /// Holds the instant at which an invocation was seen last that refers to the pieces of a session without a head.
    pub(super) fn root(session: &SessionId) -> Self {
        Self { pk: format!("{PENDING}root"), sk: session.to_string() }
    }

    /// Holds the instant at which an invocation was seen last that refers to pieces of a session and cannot be read.
    pub(super) fn riddle() -> Self {
        Self { pk: format!("{PENDING}riddle"), sk: "ROOT".to_owned() }
    }

    /// The entry of the rule of `shape`. All of them are in one partition: each is written every few minutes.
    pub(super) fn rule(shape: &ShapeId) -> Self {
        Self { pk: RULES.to_owned(), sk: shape.to_string() }
    }

    /// The position of the sweep called `lane`.
    pub(super) fn position(lane: &str) -> Self {
        Self { pk: format!("{PENDING}position"), sk: lane.to_owned() }
    }
}

/// Level of a piece of a list: written by the save that appended it, or holding many of those. Sorts in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceLevel {
    Tail,
    Block,
}

/// The sort key of a piece of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PieceKey {
    pub(super) field: String,
    pub(super) level: PieceLevel,
    /// The piece holds the items `from..to`.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Of all items before `to`.
    pub(super) digest: String,
}

impl fmt::Display for PieceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, level, from, to, digest } = self;
        write!(f, "{}{:010}#{from:010}#{digest}", pieces_prefix(field, *level), to)
    }
}

impl PieceKey {
    pub(super) fn parse(sk: &str) -> Option<Self> {
        let mut parts = sk.strip_prefix(PIECE)?.rsplitn(5, '#');
        let digest = parts.next()?.to_owned();
        let from = parts.next()?.parse().ok()?;
        let to = parts.next()?.parse().ok()?;
        let level = match parts.next()? {
            "0" => PieceLevel::Tail,
            "1" => PieceLevel::Block,
            _ => return None,
        };
        Some(Self { field: parts.next()?.to_owned(), level, from, to, digest })
    }

    /// The keys between which the pieces of a list of `count` items are, of which the first `merged` ones are in
    /// blocks.
    pub(super) fn bounds(field: &str, count: usize, merged: usize) -> (String, String) {
        let tails = pieces_prefix(field, PieceLevel::Tail);
        let blocks = pieces_prefix(field, PieceLevel::Block);
        let low = if merged == count { blocks.clone() } else { format!("{tails}{:010}", merged + 1) };
        let high = if merged == 0 { format!("{tails}{count:010}$") } else { format!("{blocks}{merged:010}$") };
        (low, high)
    }
}

fn pieces_prefix(field: &str, level: PieceLevel) -> String {
    match level {
        PieceLevel::Tail => format!("{PIECE}{field}#0#"),
        PieceLevel::Block => format!("{PIECE}{field}#1#"),
    }
}

/// The partition keys of a list of documents.
pub(super) fn list_partitions(list: &str, breadth: &Breadth) -> Vec<String> {
    let whole = list_partition(list);
    match breadth {
        Breadth::Narrow => vec![whole],
        Breadth::Wide { .. } | Breadth::Among { .. } => with_shards(whole),
    }
}

/// The partition keys of a feed.
pub(super) fn feed_partitions(feed: &str) -> Vec<String> {
    with_shards(feed_partition(feed))
}

fn list_partition(list: &str) -> String {
    format!("LIST#{list}")
}

fn feed_partition(feed: &str) -> String {
    format!("FEED#{feed}")
}

/// The partitions over which what would be in `whole` is spread: each takes 1,000 write units a second. The first
/// versions wrote to `whole` itself.
fn with_shards(whole: String) -> Vec<String> {
    let shards: Vec<String> = (0..PENDING_SHARDS).map(|shard| shard_named(&whole, shard)).collect();
    [vec![whole], shards].concat()
}

fn shard_named(whole: &str, shard: u8) -> String {
    format!("{whole}#{shard:02}")
}

/// The partition key of a stream.
pub(super) fn stream_partition(stream: &str) -> String {
    format!("STREAM#{stream}")
}

/// The sort key of the batch at `position`, in as many digits as the largest needs.
pub(super) fn batch_order(position: u64) -> String {
    format!("{position:020}")
}

/// The position of the batch of this sort key.
pub(super) fn position_of(sk: &str) -> Option<u64> {
    sk.parse().ok()
}

/// The sort key of a row of a list or a feed; an order may be empty, a sort key may not.
pub(super) fn row_order(order: &str) -> String {
    format!("#{order}")
}

/// The order of a row's sort key.
pub(super) fn order_of(sk: &str) -> Option<&str> {
    sk.strip_prefix('#')
}

/// The session of a head's partition key.
pub(super) fn session_id(pk: &str) -> Option<SessionId> {
    pk.strip_prefix(SESSION).map(SessionId::from)
}

/// The signal of an item's partition key.
pub(super) fn signal_id(pk: &str) -> Option<SignalId> {
    pk.strip_prefix(SIGNAL).map(SignalId::from)
}

/// The document of a partition key; no kind has a `#` in its name.
pub(super) fn document_key(pk: &str) -> Option<DocumentKey> {
    let (kind, id) = pk.strip_prefix(DOCUMENTS)?.split_once('#')?;
    Some(DocumentKey::new(kind, id))
}

/// Prefix of the partition keys of all sessions.
pub(super) fn session_prefix() -> &'static str {
    SESSION
}

/// The digest and the place of a blob, from the partition key of a chunk.
pub(super) fn blob_of(pk: &str) -> Option<&str> {
    pk.strip_prefix(BLOB)
}

/// The invocation of a partition key.
pub(super) fn invocation_id(pk: &str) -> Option<InvocationId> {
    pk.strip_prefix(INVOCATION).map(InvocationId::from)
}

/// Prefix of the partition keys of all invocations.
pub(super) fn invocation_prefix() -> &'static str {
    INVOCATION
}

/// The partition key of a shard of the index of suspended invocations.
pub(super) fn pending_shard(shard: u8) -> String {
    format!("{PENDING}{shard:02}")
}

/// The partition key of a shard of the index of parked signals.
pub(super) fn parked_shard(shard: u8) -> String {
    format!("{PENDING}parked#{shard:02}")
}

/// The partition key of a shard of the index of claims.
pub(super) fn claim_lane(shard: u8) -> String {
    format!("CLAIMS#{shard:02}")
}

/// The partition key of the claim of `id` in the index of claims.
pub(super) fn claim_lane_of(id: &InvocationId) -> String {
    claim_lane(shard_of(id.as_str()))
}

/// The partition key, in the index of claims, of a shard of invocations that were put aside; sorted by the instant of
/// that.
pub(super) fn aside_lane(shard: u8) -> String {
    format!("ASIDE#{shard:02}")
}

/// The partition key of `id` among the invocations that were put aside.
pub(super) fn aside_lane_of(id: &InvocationId) -> String {
    aside_lane(shard_of(id.as_str()))
}

/// Sorts behind every row that falls due at or before `limit` and before every later one.
pub(super) fn pending_bound(limit: Timestamp) -> String {
    format!("{}$", instant(limit))
}

fn shard_of(id: &str) -> u8 {
    Sha256::digest(id.as_bytes())[0] % PENDING_SHARDS
}

/// Nanoseconds in as many digits as the largest instant needs, so that text order is time order.
fn instant(at: Timestamp) -> String {
    format!("{:021}", at.as_nanosecond().max(0))
}

#[cfg(test)]
mod tests {
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
        let shards: Vec<u8> = (0..100).map(|n| shard_of(&format!("i{n}"))).collect();
        assert!(shards.iter().all(|shard| *shard < PENDING_SHARDS));
        assert_eq!(shard_of("i1"), shard_of("i1"));
        assert_eq!(pending_shard(7), "PENDING#07");
    }

    #[test]
    fn a_piece_survives_its_key() {
        let key =
            PieceKey { field: "a#0#b".to_owned(), level: PieceLevel::Block, from: 7, to: 40, digest: "d".to_owned() };
        assert_eq!(PieceKey::parse(&key.to_string()), Some(key));
        assert_eq!(PieceKey::parse(HEAD), None);
    }

    #[test]
    fn one_range_holds_the_blocks_and_the_tails_behind_them() {
        let key = |level, from, to| PieceKey { field: "f".to_owned(), level, from, to, digest: "d".to_owned() };
        let is_within = |key: PieceKey, (low, high): (String, String)| (low..=high).contains(&key.to_string());
        let bounds = || PieceKey::bounds("f", 12, 10);
        for (wanted, level, from, to) in [
            (true, PieceLevel::Block, 0, 9),
            (true, PieceLevel::Block, 9, 10),
            (false, PieceLevel::Block, 10, 11),
            (false, PieceLevel::Tail, 9, 10),
            (true, PieceLevel::Tail, 10, 11),
            (true, PieceLevel::Tail, 11, 12),
        ] {
            assert_eq!(is_within(key(level, from, to), bounds()), wanted, "{level:?} {from}..{to}");
        }
        assert!(!is_within(key(PieceLevel::Tail, 12, 13), PieceKey::bounds("f", 12, 0)));
        assert!(!is_within(key(PieceLevel::Tail, 9, 10), PieceKey::bounds("f", 12, 12)));
    }

    #[test]
    fn a_session_id_survives_its_key() {
        let key = Key::session(&SessionId::from("a#b"));
        assert_eq!(session_id(&key.pk), Some(SessionId::from("a#b")));
        assert_eq!(session_id("SIGNAL#a"), None);
    }
}
