//! What the contract says of requests and their types cannot.

use crate::ProtocolError;
use crate::receipt::VerifyReceiptRequest;
use crate::replay::{ReplayMode, ReplayTaskRequest};
use crate::resource::{
    AppendMessageRequest, AppendTaskMessageRequest, CancelTaskRequest, CreateBranchRequest, CreateMemoryRequest,
    CreatePersonaRequest, CreateSessionRequest, CreateVaultRequest, CreateWorkspaceRequest, ForkSessionRequest,
    PermissionResponseRequest, RegisterArtifactRequest, SubmitTaskRequest, TruncateSessionRequest,
    UpdatePersonaRequest, UpdateSessionRequest, UpdateWorkspaceRequest, WriteWorkspaceFileRequest,
};

/// The most messages that a session is created with: they are written in one transaction.
pub const MAX_INITIAL_MESSAGES: usize = 20;

/// The body of an operation.
pub trait Request {
    /// Looks at what the types of the fields cannot say.
    ///
    /// # Errors
    /// `invalid_request`, whose `param` is the path of the field that is wrong.
    fn check(&self) -> Result<(), ProtocolError> {
        Ok(())
    }
}

impl Request for AppendMessageRequest {}
impl Request for AppendTaskMessageRequest {}
impl Request for CancelTaskRequest {}
impl Request for CreateBranchRequest {}
impl Request for CreateMemoryRequest {}
impl Request for CreatePersonaRequest {}
impl Request for CreateVaultRequest {}
impl Request for CreateWorkspaceRequest {}
impl Request for ForkSessionRequest {}
impl Request for RegisterArtifactRequest {}
impl Request for SubmitTaskRequest {}
impl Request for TruncateSessionRequest {}
impl Request for UpdatePersonaRequest {}
impl Request for UpdateSessionRequest {}
impl Request for UpdateWorkspaceRequest {}
impl Request for VerifyReceiptRequest {}
impl Request for WriteWorkspaceFileRequest {}

impl Request for CreateSessionRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        if self.initial_messages.len() <= MAX_INITIAL_MESSAGES {
            return Ok(());
        }
        let message = format!("at most {MAX_INITIAL_MESSAGES} messages are taken; append the others");
        Err(ProtocolError::invalid("initial_messages", message))
    }
}

impl Request for PermissionResponseRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        let says_something = self.is_approval().is_some() || !self.answer.is_null();
        let missing = || ProtocolError::invalid("approved", "say yes or no in approved or outcome, or give an answer");
        says_something.then_some(()).ok_or_else(missing)
    }
}

impl Request for ReplayTaskRequest {
    fn check(&self) -> Result<(), ProtocolError> {
        let has_start = self.checkpoint_id.is_some() || self.checkpoint_event_id.is_some();
        match self.mode {
            ReplayMode::FromCheckpoint if !has_start => Err(ProtocolError::invalid(
                "checkpoint_id",
                "from_checkpoint needs a checkpoint_id or checkpoint_event_id",
            )),
            ReplayMode::Exact if !self.overrides.is_empty() => {
                Err(ProtocolError::invalid("override", "an exact replay replaces nothing"))
            }
            ReplayMode::Exact | ReplayMode::WithOverrides | ReplayMode::FromCheckpoint => Ok(()),
        }
    }
}
