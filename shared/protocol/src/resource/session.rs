use jiff::Timestamp;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MessageInput;
use crate::envelope::{Envelope, Map, Named, Nullable, Object, present};
use crate::id::{BranchId, EventId, MemoryId, MessageId, PersonaId, SessionId, SkillId, VaultId, WorkspaceId};

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum SessionState {
    /// A task works.
    Active,
    /// Nothing to do.
    Idle,
    /// A task waits for input or approval.
    Paused,
    /// Takes nothing any more.
    Closed,
    /// Broken; an operator has to look.
    Failed,
}

impl SessionState {
    /// True if messages and tasks are taken.
    pub fn is_open(self) -> bool {
        match self {
            Self::Active | Self::Idle | Self::Paused => true,
            Self::Closed | Self::Failed => false,
        }
    }
}

/// Summary of a transcript without a copy of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a link or an object")]
#[schemars(inline, transform = link_is_a_uri)]
pub enum Transcript {
    /// Location of the messages: a reference relative to this server.
    Link(String),
    /// A summary.
    Summary(Map),
}

/// A conversation and the continuity of its work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Fields that all resources have.
    #[serde(flatten)]
    pub envelope: Envelope<SessionId>,
    /// Workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// State.
    pub state: SessionState,
    /// Its messages, as a summary or a link.
    pub transcript: Transcript,
    /// The persona that works in it unless a task names another.
    pub persona_id: Option<PersonaId>,
    /// The session that the first fork was made of.
    pub root_session_id: Option<SessionId>,
    /// The session that this one was forked of.
    pub parent_session_id: Option<SessionId>,
    /// The branch that it is on.
    pub branch_id: Option<BranchId>,
    /// The newest event of its stream.
    pub last_event_id: Option<EventId>,
    /// Subject.
    pub summary: Option<String>,
    /// Instant after which it may be forgotten.
    pub expires_at: Option<Timestamp>,
}

/// Creates a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreateSessionRequest {
    /// Workspace that it belongs to.
    pub workspace_id: WorkspaceId,
    /// The persona that works in it.
    pub persona_id: Option<PersonaId>,
    /// Vaults that its tasks may use.
    #[serde(default)]
    pub vault_ids: Vec<VaultId>,
    /// Memories that its tasks may read.
    #[serde(default)]
    pub memory_ids: Vec<MemoryId>,
    /// Skills that its tasks may use.
    #[serde(default)]
    pub skill_ids: Vec<SkillId>,
    /// The first messages of the transcript.
    #[serde(default)]
    pub initial_messages: Vec<MessageInput>,
    /// Is kept with the session.
    #[serde(default)]
    pub metadata: Map,
}

/// Changes a session; what is missing stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateSessionRequest {
    /// `Some(None)` clears the summary.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub summary: Option<Option<String>>,
    /// Replaces the metadata.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map")]
    pub metadata: Option<Map>,
}

/// Forks a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForkSessionRequest {
    /// The last event that the fork takes over; all of them otherwise.
    pub at_event_id: Option<EventId>,
    /// The branch that the fork is on.
    pub branch_id: Option<BranchId>,
    /// Is kept with the fork.
    #[serde(default)]
    pub metadata: Map,
}

/// Truncates a transcript in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TruncateSessionRequest {
    /// Number of turns that stay, counted from the first.
    #[serde(deserialize_with = "crate::request::count")]
    pub keep_first: u64,
    /// Reason; it is reported to clients.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
}

/// Result of a truncation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TruncateSessionResponse {
    /// Always `session.truncate_result`.
    pub object: Object<TruncateSessionResponse>,
    /// The session.
    pub session_id: SessionId,
    /// Number of turns that are left.
    pub kept_turn_count: u64,
    /// Number of turns that are gone.
    pub removed_turn_count: u64,
    /// The last turn that is left.
    #[schemars(with = "Nullable<MessageId>")]
    pub new_tip_turn_id: Option<MessageId>,
    /// The session after it.
    pub session: Session,
}

impl Named for TruncateSessionResponse {
    const OBJECT: &'static str = "session.truncate_result";
}

fn link_is_a_uri(schema: &mut Schema) {
    let variants = schema.get_mut("anyOf").and_then(Value::as_array_mut);
    for variant in variants.into_iter().flatten().filter(|variant| variant["type"] == "string") {
        variant["format"] = "uri-reference".into();
    }
}
