//! Limits on input, storage and work, in one place. Input beyond a limit is refused before anything is written. An
//! operator changes some of them by the environment of a function or of local mode: `Quotas` of `dormouse-http` lists
//! the variables.
//!
//! | what | default | beyond it | to change it |
//! |---|---|---|---|
//! | body of a turn or message | [`BODY`] bytes | `request_too_large` (413): send less | `Limits::body` of `dormouse-http` |
//! | payload of a signal, however it comes | [`SIGNAL_PAYLOAD`] bytes of JSON | `request_too_large` (413): send a reference to the data | `Limits::signal_payload` of `dormouse-http` |
//! | parked signals of one id | 1 | `request_invalid` (400): the first stands; the same payload again is no second one | fixed |
//! | life of a parked signal | [`EARLY_SIGNALS`] | forgotten; a wait that begins later sleeps | `Limits::early_signals`; `None` parks nothing |
//! | state, payload or answers of a pause, encoded and compressed | [`STATE`] bytes | `request_too_large` (413): keep the data elsewhere and a reference in the state | `StoreConfig::state_limit` of `dormouse-aws` |
//! | state as a graph sees it: of a pause, with those of its subgraphs, of a session, of an end | [`InvocationLimits::state`], [`STATE_JSON`] bytes of JSON | `request_too_large` (413) | `Engine::limited` |
//! | JSON that comes in | 64 levels, 50,000 values (`dormouse_json::ENTRY`) | `request_invalid` (400), `request_too_large` (413): flatten it, send less | fixed: deeper JSON cannot be read again |
//! | JSON of a state | 80 levels, 500,000 values (`dormouse_json::STATE`) | `request_too_large` (413) | fixed |
//! | metadata of an invocation, with what nodes add to it; of a signal descriptor | [`METADATA`] bytes of JSON each | `request_too_large` (413); `harness_signal_subscription_failed` (422) | fixed |
//! | an id that a caller or a graph chooses | [`ID`] bytes | `request_invalid` (400); of a signal descriptor `harness_signal_subscription_failed` (422) | fixed |
//! | signals that one pause expects | [`PARTS`] | `harness_signal_subscription_failed` (422): wait for groups, one after the other | fixed: all are written in one transaction |
//! | signals that one pause expects, of which a tenant's keys can send any | [`PARTS_OF_TENANT`] | each is sent to the address of its part, or with the key of the deployment | fixed, for the same reason |
//! | steps of a ladder of deadlines | [`RUNGS`] | `harness_signal_subscription_failed` (422) | fixed |
//! | lease of a session or claim of a pause, from the instant at which another turn asks | [`LEASE`] | it does not count: the clock that gave it was wrong, and the next turn or sweep takes it over | fixed |
//! | pauses of one invocation | [`InvocationLimits::pauses`], 10,000 | `limit_exceeded` (500): the invocation ends; begin another one with the remaining work | `Engine::limited` |
//! | pauses in a row that wake by themselves within [`AT_ONCE`] and say the same `progress` | [`InvocationLimits::self_wakes`], 100 | `limit_exceeded` (500): the invocation ends; sleep longer, or wait for something; another `progress` (of a `Wait`) begins the count anew | `Engine::limited` |
//! | nodes in a row without a pause | [`InvocationLimits::nodes`], 100,000 | `limit_exceeded` (500) at the node that would run next: the graph goes round in a circle | `Engine::limited` |
//! | turns of one session that wait in a process for the one that runs | [`SESSION_LINE`] | `session_busy` (429): nothing was done; send it again after `retry-after` | `HarnessConfig::session_line` of `dormouse-harness` |
//! | tasks of a session that wait for their turn | [`QUEUED`] | `rate_limited` (429), with `limit: queued_tasks`: send it when one of them has begun, or to another session | fixed: each event of the session is written with all of them |
//! | repetitions of a request that wait in a process for the first one | [`SESSION_LINE`] | `resume_in_progress` (503): send it again after `retry-after` for its outcome | `HarnessConfig::session_line` of `dormouse-harness` |
//! | workers in a row that die of an invocation, or never come to an end | [`ATTEMPTS`] | `attempts_exhausted` (500): it is put aside whole; `dormouse doctor` names it, `dormouse retry` lets it go on | `Limits::attempts` of `dormouse-http` |
//! | time for which an address with a token is good | [`ADDRESS`], 366 days | 410: the starter of the invocation asks for its present address, or sends the request again with its id | `Limits::address` of `dormouse-http` |
//! | answer to an HTTP request | [`ANSWER`] bytes | of a turn: its largest fields are left out, and named with their sizes; content of an artifact: 413, ask for it in ranges; a stream: it ends early, to be taken up again | fixed: Lambda refuses a larger one when the work is done |
//! | page of a list, range of events | [`PAGE`] bytes of JSON, but one element at least | it ends early, with a cursor | fixed |
//! | message of a graph's conversation, as clients of the protocol receive it | [`MESSAGE`] bytes of JSON | it is sent shortened; the agent keeps it whole | fixed |
//! | entries that nodes record, in one commit | [`ENTRIES`], [`ENTRIES_BYTES`] bytes of JSON together | `limit_exceeded` (500) at the node that recorded too much: record less, or save the session in between | fixed: they are written in one transaction |
//! | payload of one such entry; its kind | [`ENTRY`] bytes of JSON; [`ENTRY_KIND`] bytes | the same: record a reference to the data | fixed |
//! | rules for events on a bus | [`PATTERN_RULES`] | `harness_signal_subscription_failed` (422): let waits share a pattern | `RulePolicy::most` of `dormouse-harness`; rules that no wait has needed for an hour go |

use std::time::Duration;

use jiff::Timestamp;

/// The largest body of a turn or a message, in bytes.
pub const BODY: usize = 1024 * 1024;
/// The largest payload of a signal, in bytes of JSON. EventBridge and the scheduler carry no more.
pub const SIGNAL_PAYLOAD: usize = 256 * 1024;
/// Number of workers that may die of one invocation, without it getting any further. Machines that fail for reasons of
/// their own rarely hit the same invocation as often.
pub const ATTEMPTS: u32 = 8;
/// Duration for which an address is good that opens a pause, cancels it or looks at it, from its making. The end of
/// its pause or invocation makes it useless before.
pub const ADDRESS: Duration = Duration::from_secs(366 * 24 * 3600);
/// Duration for which a signal is kept for a wait that has not begun.
pub const EARLY_SIGNALS: Duration = Duration::from_secs(7 * 24 * 3600);
/// The largest state, in bytes as it is stored.
pub const STATE: usize = 4 * 1024 * 1024;
/// The largest state, in bytes of JSON, however a store encodes it: a function holds as much in memory several times.
pub const STATE_JSON: usize = 16 * 1024 * 1024;
/// The largest metadata of an invocation or a signal descriptor, in bytes of JSON.
pub const METADATA: usize = 64 * 1024;
/// The longest id, in bytes.
pub const ID: usize = 256;
/// The longest lease or claim: more than any turn may take, which Lambda ends after 15 minutes.
pub const LEASE: Duration = Duration::from_secs(20 * 60);
/// The most signals that one pause may expect. The pause before it may have had as many, and all their items are
/// written in one transaction of at most 100.
pub const PARTS: usize = 25;
/// The most signals that one pause may expect for them to come with keys of its tenant, too: each is one item more.
pub const PARTS_OF_TENANT: usize = 10;
/// The most steps of a ladder of deadlines.
pub const RUNGS: usize = 10;
/// The most turns of one session that wait in a process while another one runs, and the most repetitions of a request that
/// wait for the first one.
pub const SESSION_LINE: usize = 16;
/// The most tasks of a session that wait for their turn.
pub const QUEUED: usize = 500;
/// The most rules for events on one bus: two thirds of what AWS allows, so that others find room there.
pub const PATTERN_RULES: usize = 200;
/// The longest answer to an HTTP request, in bytes of its body. Lambda takes 6 MB, within which the body is a string of
/// JSON, or Base64: so many bytes of any kind are 5.6 MB of Base64.
pub const ANSWER: usize = 4 * 1024 * 1024;
/// The most bytes of JSON that the elements of one page have together. A single one may be longer, and is below
/// [`ANSWER`].
pub const PAGE: usize = 1024 * 1024;
/// The most bytes of JSON of one message of an agent to its clients. Clients may send as much in one request.
pub const MESSAGE: usize = 256 * 1024;
/// The most entries that the nodes of a run record between two commits.
pub const ENTRIES: usize = 500;
/// The most bytes of JSON that these have together.
pub const ENTRIES_BYTES: usize = 256 * 1024;
/// The largest payload of one entry, in bytes of JSON.
pub const ENTRY: usize = 64 * 1024;
/// The longest kind of an entry, in bytes.
pub const ENTRY_KIND: usize = 128;
/// A pause that wakes by itself sooner than this wakes at once.
pub const AT_ONCE: Duration = Duration::from_secs(10);

/// True if a lease or claim until `until` lasts longer, at `now`, than any turn may take: the clock that gave it was
/// wrong.
pub fn lasts_too_long(until: Timestamp, now: Timestamp) -> bool {
    until > now + LEASE
}

/// True if a claim until `until` counts no more at `now`: its time is over, or it [lasts too long](lasts_too_long).
pub fn out_of_time(until: Timestamp, now: Timestamp) -> bool {
    until <= now || lasts_too_long(until, now)
}

/// Limits on the pauses of one invocation, on what it does between them, and on its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvocationLimits {
    /// The most pauses from its beginning to its end.
    pub pauses: u64,
    /// The most pauses in a row that wake by themselves within [`AT_ONCE`]: a loop without any signal from outside. One that says
    /// another progress begins the count anew.
    pub self_wakes: u32,
    /// The most nodes of one graph that run in a row without a pause or a durable step between them.
    pub nodes: u64,
    /// The most bytes of JSON that one state may have when it is written.
    pub state: usize,
}

impl Default for InvocationLimits {
    fn default() -> Self {
        Self { pauses: 10_000, self_wakes: 100, nodes: 100_000, state: STATE_JSON }
    }
}
