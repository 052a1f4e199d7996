//! The edge of IO: records, errors and traits, and no implementation.
//!
//! Everything that Dormouse needs from outside (time, identity, storage, buses, timers) is a trait here, and
//! everything that crosses such a trait is a plain record. The crate imports `dormouse-json` alone of ours, and must not
//! know AWS, HTTP or any async runtime.
//!
//! # Ports of a host
//! Engine, harness and graphs compile for `wasm32-unknown-unknown` and reach the outside only through these traits. A
//! runtime at the edge that implements them can run turns:
//!
//! | port | request to the host |
//! |---|---|
//! | [`TurnStore`] | a strongly consistent store that changes a few records together, each under a condition: DynamoDB, or the transactional storage of one durable object per session |
//! | [`MaintenanceStore`] | its index of suspended invocations, for sweeps and doctors |
//! | [`Clock`] | the time, a monotonic reading, and a timer to await |
//! | [`IdSource`] | random ids, from the host's source of randomness |
//! | [`Spawner`] | to drive a future beside the request: observers receive their events that way |
//! | [`Timers`], [`EventRules`] | an alarm at an instant, and rules that route awaited events; both call back as a transmission of the harness |
//! | [`EventBus`] | where nodes announce facts, and the harness deadlines that have passed |
//! | [`WakePlanner`] | nothing: `dormouse-harness` has `DescriptorWakes` |
//! | [`Checkpointer`] | where progress is kept; only for graphs that save it |
//! | [`Signer`] | a key that receipts are signed with; only where they are issued |
//! | [`Fetch`], [`Secrets`], [`Sign`] | HTTP out, and the keys for it; only where models or tools are called |
//! | [`Connections`] | to send to WebSockets that a gateway holds; only where one does |
//! | [`model::ModelProvider`] | nothing: `dormouse-providers` has the wires, over [`Fetch`] |
//! | [`tool::ToolSource`] | the tools that a model may call; `dormouse-tools` has MCP servers, HTTP addresses and functions |
//! | [`hook::HookHandler`] | what handles the hooks of a workspace |
//! | [`WorkspaceSource`] | the files of which a declared agent is made |
//! | [`TextFiles`] | the stored text files of a workspace; only where agents are declared in them |
//! | [`Images`] | images of conversations, beside the states that name them; only where tools or messages have some |
//! | [`execution::ExecutionBackend`] | files that tools read and write, and commands; only for workspaces of the kind `project` |
//!
//! Futures of ports are `Send`; where those of the host are not, as in JavaScript, a wrapper that stays on the one
//! thread will do. Where the target cannot unwind, a node that panics ends the instance like a crash, and the
//! invocation goes on from its last commit. Spans (`Observer` of the engine, `TurnTracer` of the harness) are optional.
//!
//! # The ports of a store
//! One adapter implements all of them, as a [`StateStore`]; each caller names those that it needs.
//!
//! | port | content | callers |
//! |---|---|---|
//! | [`Sessions`] | the records of sessions, and their leases | the engine at the beginning of a turn, the API when a message goes to a task |
//! | [`Invocations`] | records of invocations as they are read, whole or at a glance | engine and harness when a turn resumes, is looked up or canceled; API, sweep, doctor, command line |
//! | [`Signals`] | the state of a signal id, and signals that came early | the engine before it writes a pause, the harness when a signal finds no wait; sweep and doctor |
//! | [`Commits`] | claims, and the one atomic change of session, invocation, signals and journal | engine and harness; the API for everything that its clients change |
//! | [`RuleEntries`] | which shape of event has which rule on the bus, and since when it is idle | the harness before a pause waits for an event; sweep and doctor |
//! | [`Notes`] | short texts under names | the sweep for its positions; the harness leaves the doctor a note of an event that did not fit |
//! | [`Sleepers`] | the index of pauses, dead claims, invocations that were put aside, and parked signals | sweep, doctor, command line, the scheduler of local mode |
//! | [`Diagnostics`] | the records around pauses, many at once | the doctor |
//! | [`Garbage`] | records that nothing refers to any more | the sweep |
//! | [`Records`] | documents and streams of journals, as they are read | the API |
//!
//! # Invariants
//! - A port's verb is as big as the thing that must be atomic: [`Commits::commit`] writes session, invocation,
//!   signal and pending row together or not at all.
//! - Preconditions are values ([`SessionExpectation`], [`InvocationWrite`]); a lost race is a variant of
//!   [`CommitError`], never a string.
//! - Reads are strongly consistent: a write of one call is visible to the next call, on any machine.

#![warn(missing_docs)]

mod answer;
mod answered;
mod attribute;
mod bus;
mod category;
mod checkpoint;
mod child;
mod commit;
mod connections;
mod counters;
mod entry;
pub mod execution;
mod fan_in;
mod fetch;
mod garbage;
mod growing;
pub mod hook;
mod identity;
mod images;
mod invocation;
mod journal;
pub mod limits;
pub mod model;
mod note;
mod objects;
pub mod owned;
mod owned_state;
mod replay;
mod rule;
mod runtime;
mod secrets;
mod session;
mod shared;
mod signal;
mod signer;
mod sleepers;
mod store;
mod subscription;
mod template;
mod text_files;
pub mod tool;
mod unmarked;
mod workspace;

pub use answer::{AnswerRule, ValueSchema};
pub use answered::{Answered, PartEnd, PauseEnd};
pub use attribute::{AttributeValue, PayloadLimit};
pub use bus::{BusError, Event, EventBus};
pub use category::Category;
pub use checkpoint::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, FanOutInstance, FanOutProgress,
    InstanceProgress, InstanceState, SavePoint, SaveSource,
};
pub use child::{CHILDREN, ChildError, ChildLink, ChildRuns, ChildStanding, ChildStart, PARENT, ParentLink, WORKSPACE};
pub use commit::{
    ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, InvocationWrite, ProgressFrom, SessionExpectation,
    SessionSave, SessionWrite, StepWritten, SuspendFrom,
};
pub use connections::{ConnectionError, Connections};
pub use counters::{CounterChange, CounterWrite, Counters};
pub use entry::{ArtifactPlace, EntryKind, InvalidEntry, JournalEntry, RecordedEntries, StateArtifact, VendorKind};
pub use fan_in::{AnswerTest, Decision, DecisionReason, Expected, FanIn, PartAnswer, Until};
pub use fetch::{Fetch, FetchBody, FetchError, FetchLimits, FetchRequest, FetchResponse, Method, Sign, SignError};
pub use garbage::{Garbage, GcReport};
pub use growing::{GrowingLists, StoredList};
pub use identity::{InvocationId, Owner, SessionId, SignalId};
pub use images::{IMAGE_BYTES, IMAGE_TYPES, Image, ImageOwner, Images, ImagesError, image_type};
pub use invocation::{
    BEFORE_FIRST_PAUSE, Cancellation, Claim, FailureRecord, InvocationPhase, InvocationRecord, InvocationStage,
    InvocationStatus, InvocationSummary, Invocations, LoadedInvocation, NodePosition, PausedInvocation, RESOLUTION,
    Resolution, SHORTFALL, Shortfall, SignalDescriptor,
};
pub use journal::{
    Append, Breadth, Document, DocumentKey, DocumentWrite, DocumentWrites, EndOfStream, EntryStretch, Fed, FedAppend,
    FeedPage, FeedRequest, FeedRow, Hearing, Journal, JournalConflict, ListRequest, Listed, Records, Said, StreamEnd,
    StreamEntry, StreamTip,
};
pub use limits::InvocationLimits;
pub use note::{Notes, invocation_of_note, unfit_note};
pub use objects::{Object, ObjectCondition, ObjectError, ObjectVersion, Objects};
pub use owned_state::OwnedState;
pub use replay::{PastAnswer, PastEnd, PastEntry, ReplayIds, ReplayMaterial, Unavailable};
pub use rule::{
    EventRule, EventShape, ListedRule, RuleEntries, RuleEntry, RuleIncarnation, RuleName, RuleNeed, RuleUpdate,
    ShapeId, SignalBringer,
};
pub use runtime::{Clock, IdSource, Spawner};
pub use secrets::{Secret, SecretError, Secrets};
pub use session::{Lease, LeaseRequest, LoadedSession, SessionFilter, SessionRecord, SessionSummary, Sessions};
pub use shared::{SharedBeginning, SharedField, SharedItems, SharedMap};
pub use signal::{BufferOutcome, BufferedSignal, EarlySignal, SignalRecord, SignalState, Signals};
pub use signer::{Signer, SignerError};
pub use sleepers::{Diagnostics, IndexRepair, ParkedRow, PendingRow, PutAside, Sleepers, Surroundings};
pub use store::{MaintenanceStore, Page, StateStore, StoreError, TurnStore};
pub use subscription::{
    Announcement, Due, DueAction, Escalation, EventRules, EventWait, PausePreparation, Registration,
    SignalSubscriptions, Subscription, SubscriptionError, Timers, WakePlan, WakePlanner,
};
pub use template::{Lookup, Template, TextPiece, pieces};
pub use text_files::{TextFile, TextFiles, TextFilesError};
pub use unmarked::{RUN_MARK, Unmarked};
pub use workspace::{KEPT_APART, ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

/// A JSON object with keys that keep their order: the form in which state, payloads and metadata cross a port.
pub use dormouse_json::Map;
