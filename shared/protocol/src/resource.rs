//! The resources of the protocol and the bodies that create and change them, as they are on the wire.
//!
//! A field that is an `Option` "may be missing or null" by the contract; it is always written. A field that may be
//! missing but not null is left out when there is no value. A `Vec` may be missing when read and is always written.
//! Unknown fields are ignored, as the narrative asks of both sides.

mod artifact;
mod branch;
mod card;
mod catalog;
mod extension;
mod memory;
mod message;
mod outcome;
mod part;
mod permission;
mod persona;
mod session;
mod system;
mod task;
mod vault;
mod workspace;

pub use artifact::{Artifact, ArtifactKind, RegisterArtifactRequest, Sha256Hex};
pub use branch::{Branch, BranchKind, CreateBranchRequest};
pub use card::{
    A2aAgentCapabilities, A2aAgentCard, A2aAgentCardSignature, A2aAgentInterface, A2aAgentProvider, A2aAgentSkill,
    A2aTransport, CardSignature, HarnAgentCard, HarnAgentInterface, HarnTransport,
};
pub use catalog::{Connector, ConnectorStatus, Quota, QuotaScope, Skill, Tool};
pub use extension::{
    CreateConnectorRequest, CreateQuotaRequest, CreateWebhookRequest, ReorderQueueRequest, SessionQueue,
    UpdateConnectorRequest, UpdateQuotaRequest, Webhook, WebhookFormat, WorkspaceDeletion,
};
pub use memory::{CreateMemoryRequest, Memory, MemoryContent, MemoryScope};
pub use message::{AppendMessageRequest, AppendTaskMessageRequest, Message, MessageInput, Role, TaskMessageKind};
pub use outcome::{Outcome, OutcomeStatus};
pub use part::{Part, PartVisibility, ToolResultStatus};
pub use permission::{
    PermissionAnswer, PermissionRequest, PermissionResponseRequest, PermissionSource, PermissionStatus,
};
pub use persona::{AutonomyTier, CreatePersonaRequest, Persona, ReceiptPolicy, UpdatePersonaRequest};
pub use session::{
    CreateSessionRequest, ForkSessionRequest, Session, SessionState, Transcript, TruncateSessionRequest,
    TruncateSessionResponse, UpdateSessionRequest,
};
pub use system::{
    Capability, CapabilitySummary, Discovery, Health, RuntimeMetadata, RuntimeVersion, TransportCapabilities,
};
pub use task::{CancelTaskRequest, Failure, SubmitInput, SubmitTaskRequest, Task, TaskInput, TaskStatus};
pub use vault::{CreateVaultRequest, Vault};
pub use workspace::{
    CreateWorkspaceRequest, FileEncoding, FileEntryKind, UpdateWorkspaceRequest, Workspace, WorkspaceFile,
    WorkspaceFileEntry, WorkspaceFileListing, WorkspaceFileRead, WriteWorkspaceFileRequest,
};
