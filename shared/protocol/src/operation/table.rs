use super::Access::{AnyKey, Needs, Public, Signed};
use super::Scope::*;
use super::{Input, Level, Method, Output, Paging, SchemaOf, Schemas, Spec, schema_of};
use crate::envelope::{List, Map};
use crate::event::Event;
use crate::receipt::{Receipt, ReceiptVerification, VerifyReceiptRequest};
use crate::replay::ReplayTaskRequest;
use crate::resource::*;

macro_rules! input {
    (none) => {
        Input::None
    };
    (optional $type:ty) => {
        Input::Optional
    };
    (required $type:ty) => {
        Input::Required
    };
}

macro_rules! output {
    (json $status:literal $type:ty) => {
        Output::Json($status)
    };
    (stream) => {
        Output::Stream
    };
    (bytes) => {
        Output::Bytes
    };
    (empty) => {
        Output::Empty
    };
}

macro_rules! schema {
    ($without:ident) => {
        None
    };
    ($of:ident $($status:literal)? $type:ty) => {
        Some(schema_of::<$type> as SchemaOf)
    };
}

macro_rules! operations {
    ($(
        #[doc = $summary:literal]
        $name:ident $id:literal $method:ident $path:literal $tag:ident $level:ident $access:expr, $paging:ident
        [$($query:literal),*] ($($input:tt)+) -> ($($output:tt)+);
    )*) => {
        /// An operation of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation {
            $(#[doc = $summary] $name,)*
        }

        impl Operation {
            /// All of them, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Everything that is known about it but its schemas.
            pub const fn spec(self) -> &'static Spec {
                match self {
                    $(Self::$name => const { &Spec {
                        id: $id,
                        summary: $summary.trim_ascii(),
                        method: Method::$method,
                        path: $path,
                        tag: stringify!($tag),
                        level: Level::$level,
                        access: $access,
                        paging: Paging::$paging,
                        query: &[$($query),*],
                        input: input!($($input)+),
                        output: output!($($output)+),
                    } },)*
                }
            }

            /// The schemas of what it takes and answers.
            pub(crate) fn schemas(self) -> Schemas {
                match self {
                    $(Self::$name => Schemas { input: schema!($($input)+), output: schema!($($output)+) },)*
                }
            }
        }
    };
}

// Each line: name, name on the wire, method, path, group, level, access, paging, further query; then body and answer.
operations! {
    /// Says whether the server is well.
    GetHealth "getHealth" Get "/health" Runtime Host Public, Whole []
        (none) -> (json 200 Health);
    /// Tells the versions of server and protocol.
    GetVersion "getVersion" Get "/version" Runtime Host Public, Whole []
        (none) -> (json 200 RuntimeVersion);
    /// Gives this document.
    GetOpenApiDocument "getOpenApiDocument" Get "/openapi.json" Discovery Host Public, Whole []
        (none) -> (json 200 Map);
    /// Tells which versions and transports work here.
    GetProtocolDiscovery "getProtocolDiscovery" Get "/v1" Discovery Core Public, Whole []
        (none) -> (json 200 Discovery);
    /// Tells about the process that answers.
    GetRuntime "getRuntime" Get "/v1/runtime" Runtime Host AnyKey, Whole []
        (none) -> (json 200 RuntimeMetadata);
    /// Lists what the server can do.
    ListCapabilities "listCapabilities" Get "/v1/capabilities" Runtime Host AnyKey, Whole []
        (none) -> (json 200 CapabilitySummary);
    /// Lists the tools of the server.
    ListTools "listTools" Get "/v1/tools" Tools Host AnyKey, Page ["workspace_id"]
        (none) -> (json 200 List<Tool>);
    /// Reads a tool of the server.
    GetTool "getTool" Get "/v1/tools/{tool_id}" Tools Host AnyKey, Whole ["workspace_id"]
        (none) -> (json 200 Tool);
    /// Gives the agent card.
    GetAgentCard "getAgentCard" Get "/v1/agent-card" Discovery Core Public, Whole []
        (none) -> (json 200 HarnAgentCard);
    /// Lists personas.
    ListPersonas "listPersonas" Get "/v1/personas" Personas Core Needs(PersonasRead), Page ["workspace_id"]
        (none) -> (json 200 List<Persona>);
    /// Creates or imports a persona.
    CreatePersona "createPersona" Post "/v1/personas" Personas Extended Needs(PersonasWrite), Whole []
        (required CreatePersonaRequest) -> (json 201 Persona);
    /// Reads a persona.
    GetPersona "getPersona" Get "/v1/personas/{persona_id}" Personas Core Needs(PersonasRead), Whole ["workspace_id"]
        (none) -> (json 200 Persona);
    /// Changes a persona.
    UpdatePersona "updatePersona" Patch "/v1/personas/{persona_id}" Personas Extended Needs(PersonasWrite), Whole []
        (required UpdatePersonaRequest) -> (json 200 Persona);
    /// Lists workspaces.
    ListWorkspaces "listWorkspaces" Get "/v1/workspaces" Workspaces Core Needs(WorkspacesRead), Page []
        (none) -> (json 200 List<Workspace>);
    /// Creates a workspace.
    CreateWorkspace "createWorkspace" Post "/v1/workspaces" Workspaces Core Needs(WorkspacesWrite), Whole []
        (required CreateWorkspaceRequest) -> (json 201 Workspace);
    /// Reads a workspace.
    GetWorkspace "getWorkspace" Get "/v1/workspaces/{workspace_id}" Workspaces Core Needs(WorkspacesRead), Whole []
        (none) -> (json 200 Workspace);
    /// Changes a workspace.
    UpdateWorkspace "updateWorkspace" Patch "/v1/workspaces/{workspace_id}" Workspaces Core Needs(WorkspacesWrite), Whole []
        (required UpdateWorkspaceRequest) -> (json 200 Workspace);
    /// Deletes a workspace with everything in it.
    DeleteWorkspace "deleteWorkspace" Delete "/v1/workspaces/{workspace_id}" Workspaces Extension Needs(WorkspacesWrite), Whole []
        (none) -> (json 200 WorkspaceDeletion);
    /// Reads a file, or lists a folder.
    ReadWorkspaceFile "readWorkspaceFile" Get "/v1/workspaces/{workspace_id}/files" Workspaces Host Needs(WorkspacesRead), Whole ["path"]
        (none) -> (json 200 WorkspaceFileRead);
    /// Writes a file.
    WriteWorkspaceFile "writeWorkspaceFile" Put "/v1/workspaces/{workspace_id}/files" Workspaces Host Needs(WorkspacesWrite), Whole ["path"]
        (required WriteWorkspaceFileRequest) -> (json 200 WorkspaceFile);
    /// Removes a file.
    DeleteWorkspaceFile "deleteWorkspaceFile" Delete "/v1/workspaces/{workspace_id}/files" Workspaces Extension Needs(WorkspacesWrite), Whole ["path"]
        (none) -> (empty);
    /// Lists sessions.
    ListSessions "listSessions" Get "/v1/sessions" Sessions Core Needs(SessionsRead), Page ["workspace_id"]
        (none) -> (json 200 List<Session>);
    /// Creates a session.
    CreateSession "createSession" Post "/v1/sessions" Sessions Core Needs(SessionsWrite), Whole []
        (required CreateSessionRequest) -> (json 201 Session);
    /// Reads a session.
    GetSession "getSession" Get "/v1/sessions/{session_id}" Sessions Core Needs(SessionsRead), Whole []
        (none) -> (json 200 Session);
    /// Changes a session.
    UpdateSession "updateSession" Patch "/v1/sessions/{session_id}" Sessions Core Needs(SessionsWrite), Whole []
        (required UpdateSessionRequest) -> (json 200 Session);
    /// Closes a session.
    CloseSession "closeSession" Post "/v1/sessions/{session_id}/close" Sessions Core Needs(SessionsWrite), Whole []
        (none) -> (json 200 Session);
    /// Forks a session into a new one.
    ForkSession "forkSession" Post "/v1/sessions/{session_id}/fork" Sessions Core Needs(SessionsWrite), Whole []
        (optional ForkSessionRequest) -> (json 201 Session);
    /// Cuts a transcript to its first turns, in place.
    TruncateSession "truncateSession" Post "/v1/sessions/{session_id}/truncate" Sessions Core Needs(SessionsWrite), Whole []
        (required TruncateSessionRequest) -> (json 200 TruncateSessionResponse);
    /// Lists the messages of a session.
    ListSessionMessages "listSessionMessages" Get "/v1/sessions/{session_id}/messages" Messages Core Needs(SessionsRead), Page []
        (none) -> (json 200 List<Message>);
    /// Appends a message to a session.
    AppendSessionMessage "appendSessionMessage" Post "/v1/sessions/{session_id}/messages" Messages Core Needs(SessionsWrite), Whole []
        (required AppendMessageRequest) -> (json 201 Message);
    /// Lists the tasks of a session.
    ListSessionTasks "listSessionTasks" Get "/v1/sessions/{session_id}/tasks" Tasks Core Needs(TasksRead), Page []
        (none) -> (json 200 List<Task>);
    /// Submits a task to a session.
    SubmitSessionTask "submitSessionTask" Post "/v1/sessions/{session_id}/tasks" Tasks Core Needs(TasksWrite), Whole []
        (required SubmitTaskRequest) -> (json 202 Task);
    /// Lists the branches of a session.
    ListSessionBranches "listSessionBranches" Get "/v1/sessions/{session_id}/branches" Branches Core Needs(SessionsRead), Page []
        (none) -> (json 200 List<Branch>);
    /// Creates a branch in a session.
    CreateSessionBranch "createSessionBranch" Post "/v1/sessions/{session_id}/branches" Branches Core Needs(SessionsWrite), Whole []
        (required CreateBranchRequest) -> (json 201 Branch);
    /// Reads a range of the events of a session.
    ListSessionEvents "listSessionEvents" Get "/v1/sessions/{session_id}/events" Events Core Needs(EventsRead), Range []
        (none) -> (json 200 List<Event>);
    /// Streams the events of a session.
    StreamSessionEvents "streamSessionEvents" Get "/v1/sessions/{session_id}/events/stream" Events Core Needs(EventsRead), Stream ["deltas"]
        (none) -> (stream);
    /// Lists tasks.
    ListTasks "listTasks" Get "/v1/tasks" Tasks Core Needs(TasksRead), Page ["workspace_id", "session_id"]
        (none) -> (json 200 List<Task>);
    /// Submits a task to the session that the body names.
    SubmitTask "submitTask" Post "/v1/tasks" Tasks Core Needs(TasksWrite), Whole []
        (required SubmitTaskRequest) -> (json 202 Task);
    /// Reads a task.
    GetTask "getTask" Get "/v1/tasks/{task_id}" Tasks Core Needs(TasksRead), Whole []
        (none) -> (json 200 Task);
    /// Asks for a task to be canceled.
    CancelTask "cancelTask" Post "/v1/tasks/{task_id}/cancel" Tasks Core Needs(TasksWrite), Whole []
        (optional CancelTaskRequest) -> (json 200 Task);
    /// Lists requests for permissions.
    ListPermissionRequests "listPermissionRequests" Get "/v1/permission-requests" Permissions Extended Needs(TasksRead), Page ["session_id", "task_id", "status"]
        (none) -> (json 200 List<PermissionRequest>);
    /// Lists the requests for permissions of a task.
    ListTaskPermissionRequests "listTaskPermissionRequests" Get "/v1/tasks/{task_id}/permission-requests" Permissions Extended Needs(TasksRead), Page ["status"]
        (none) -> (json 200 List<PermissionRequest>);
    /// Answers a request for a permission.
    RespondPermissionRequest "respondPermissionRequest" Post "/v1/permission-requests/{request_id}/respond" Permissions Extended Needs(TasksWrite), Whole []
        (required PermissionResponseRequest) -> (json 200 PermissionRequest);
    /// Replays a task as a new one.
    ReplayTask "replayTask" Post "/v1/tasks/{task_id}/replay" Tasks Replay Needs(TasksWrite), Whole []
        (optional ReplayTaskRequest) -> (json 202 Task);
    /// Sends input, an interruption or a confirmation to a task.
    AppendTaskMessage "appendTaskMessage" Post "/v1/tasks/{task_id}/messages" Messages Core Needs(TasksWrite), Whole []
        (required AppendTaskMessageRequest) -> (json 201 Message);
    /// Reads a range of the events of a task.
    ListTaskEvents "listTaskEvents" Get "/v1/tasks/{task_id}/events" Events Core Needs(EventsRead), Range []
        (none) -> (json 200 List<Event>);
    /// Streams the events of a task.
    StreamTaskEvents "streamTaskEvents" Get "/v1/tasks/{task_id}/stream" Events Core Needs(EventsRead), Stream ["deltas"]
        (none) -> (stream);
    /// Lists the receipts of a task.
    ListTaskReceipts "listTaskReceipts" Get "/v1/tasks/{task_id}/receipts" Receipts Receipts Needs(ReceiptsRead), Page []
        (none) -> (json 200 List<Receipt>);
    /// Reads a branch.
    GetBranch "getBranch" Get "/v1/branches/{branch_id}" Branches Core Needs(SessionsRead), Whole []
        (none) -> (json 200 Branch);
    /// Reads a message.
    GetMessage "getMessage" Get "/v1/messages/{message_id}" Messages Core Needs(SessionsRead), Whole []
        (none) -> (json 200 Message);
    /// Lists artifacts.
    ListArtifacts "listArtifacts" Get "/v1/artifacts" Artifacts Core Needs(ArtifactsRead), Page ["workspace_id", "session_id", "task_id"]
        (none) -> (json 200 List<Artifact>);
    /// Registers an artifact.
    RegisterArtifact "registerArtifact" Post "/v1/artifacts" Artifacts Core Needs(ArtifactsWrite), Whole []
        (required RegisterArtifactRequest) -> (json 201 Artifact);
    /// Reads what is known of an artifact.
    GetArtifact "getArtifact" Get "/v1/artifacts/{artifact_id}" Artifacts Core Needs(ArtifactsRead), Whole []
        (none) -> (json 200 Artifact);
    /// Gives the bytes of an artifact.
    DownloadArtifactContent "downloadArtifactContent" Get "/v1/artifacts/{artifact_id}/content" Artifacts Core Needs(ArtifactsRead), Whole []
        (none) -> (bytes);
    /// Reads a range of all events.
    ListEvents "listEvents" Get "/v1/events" Events Core Needs(EventsRead), Range ["workspace_id", "session_id", "task_id"]
        (none) -> (json 200 List<Event>);
    /// Reads an event.
    GetEvent "getEvent" Get "/v1/events/{event_id}" Events Core Needs(EventsRead), Whole []
        (none) -> (json 200 Event);
    /// Streams all events.
    StreamEvents "streamEvents" Get "/v1/events/stream" Events Core Needs(EventsRead), Stream ["workspace_id", "session_id", "task_id"]
        (none) -> (stream);
    /// Reads a receipt.
    GetReceipt "getReceipt" Get "/v1/receipts/{receipt_id}" Receipts Receipts Needs(ReceiptsRead), Whole []
        (none) -> (json 200 Receipt);
    /// Says whether a receipt is valid.
    VerifyReceipt "verifyReceipt" Post "/v1/receipts/{receipt_id}/verify" Receipts Receipts Needs(ReceiptsRead), Whole []
        (optional VerifyReceiptRequest) -> (json 200 ReceiptVerification);
    /// Lists memories.
    ListMemories "listMemories" Get "/v1/memories" Memories Extended Needs(MemoriesRead), Page ["workspace_id", "session_id"]
        (none) -> (json 200 List<Memory>);
    /// Creates a memory.
    CreateMemory "createMemory" Post "/v1/memories" Memories Extended Needs(MemoriesWrite), Whole []
        (required CreateMemoryRequest) -> (json 201 Memory);
    /// Reads a memory.
    GetMemory "getMemory" Get "/v1/memories/{memory_id}" Memories Extended Needs(MemoriesRead), Whole []
        (none) -> (json 200 Memory);
    /// Deletes a memory.
    DeleteMemory "deleteMemory" Delete "/v1/memories/{memory_id}" Memories Extended Needs(MemoriesWrite), Whole []
        (none) -> (empty);
    /// Lists vaults, never what is in them.
    ListVaults "listVaults" Get "/v1/vaults" Vaults Extended Needs(VaultsRead), Page ["workspace_id"]
        (none) -> (json 200 List<Vault>);
    /// Creates or registers a vault.
    CreateVault "createVault" Post "/v1/vaults" Vaults Extended Needs(VaultsWrite), Whole []
        (required CreateVaultRequest) -> (json 201 Vault);
    /// Reads what is known of a vault.
    GetVault "getVault" Get "/v1/vaults/{vault_id}" Vaults Extended Needs(VaultsRead), Whole []
        (none) -> (json 200 Vault);
    /// Lists connectors.
    ListConnectors "listConnectors" Get "/v1/connectors" Connectors Extended Needs(ConnectorsRead), Page ["workspace_id"]
        (none) -> (json 200 List<Connector>);
    /// Reads a connector.
    GetConnector "getConnector" Get "/v1/connectors/{connector_id}" Connectors Extended Needs(ConnectorsRead), Whole []
        (none) -> (json 200 Connector);
    /// Lists skills.
    ListSkills "listSkills" Get "/v1/skills" Skills Extended Needs(PersonasRead), Page []
        (none) -> (json 200 List<Skill>);
    /// Reads a skill.
    GetSkill "getSkill" Get "/v1/skills/{skill_id}" Skills Extended Needs(PersonasRead), Whole []
        (none) -> (json 200 Skill);
    /// Lists outcomes.
    ListOutcomes "listOutcomes" Get "/v1/outcomes" Outcomes Core Needs(TasksRead), Page ["task_id"]
        (none) -> (json 200 List<Outcome>);
    /// Reads an outcome.
    GetOutcome "getOutcome" Get "/v1/outcomes/{outcome_id}" Outcomes Core Needs(TasksRead), Whole []
        (none) -> (json 200 Outcome);
    /// Lists quotas.
    ListQuotas "listQuotas" Get "/v1/quotas" Quotas Extended Needs(WorkspacesRead), Page []
        (none) -> (json 200 List<Quota>);
    /// Reads a quota.
    GetQuota "getQuota" Get "/v1/quotas/{quota_id}" Quotas Extended Needs(WorkspacesRead), Whole []
        (none) -> (json 200 Quota);
    /// Creates a quota.
    CreateQuota "createQuota" Post "/v1/quotas" Quotas Extension Needs(QuotasWrite), Whole []
        (required CreateQuotaRequest) -> (json 201 Quota);
    /// Changes a quota.
    UpdateQuota "updateQuota" Patch "/v1/quotas/{quota_id}" Quotas Extension Needs(QuotasWrite), Whole []
        (required UpdateQuotaRequest) -> (json 200 Quota);
    /// Creates a connector.
    CreateConnector "createConnector" Post "/v1/connectors" Connectors Extension Needs(ConnectorsWrite), Whole []
        (required CreateConnectorRequest) -> (json 201 Connector);
    /// Changes a connector.
    UpdateConnector "updateConnector" Patch "/v1/connectors/{connector_id}" Connectors Extension Needs(ConnectorsWrite), Whole []
        (required UpdateConnectorRequest) -> (json 200 Connector);
    /// Lists the webhooks of a session.
    ListSessionWebhooks "listSessionWebhooks" Get "/v1/sessions/{session_id}/webhooks" Sessions Extension Needs(SessionsRead), Whole []
        (none) -> (json 200 List<Webhook>);
    /// Has events of a session sent by webhooks.
    CreateSessionWebhook "createSessionWebhook" Post "/v1/sessions/{session_id}/webhooks" Sessions Extension Needs(SessionsWrite), Whole []
        (required CreateWebhookRequest) -> (json 201 Webhook);
    /// Deletes a webhook.
    DeleteSessionWebhook "deleteSessionWebhook" Delete "/v1/sessions/{session_id}/webhooks/{webhook_id}" Sessions Extension Needs(SessionsWrite), Whole []
        (none) -> (empty);
    /// Reads the queue of a session.
    GetSessionQueue "getSessionQueue" Get "/v1/sessions/{session_id}/queue" Sessions Extension Needs(TasksRead), Whole []
        (none) -> (json 200 SessionQueue);
    /// Puts the queue of a session in another order.
    ReorderSessionQueue "reorderSessionQueue" Put "/v1/sessions/{session_id}/queue" Sessions Extension Needs(TasksWrite), Whole []
        (required ReorderQueueRequest) -> (json 200 SessionQueue);
    /// Cancels everything that is queued in a session.
    EmptySessionQueue "emptySessionQueue" Delete "/v1/sessions/{session_id}/queue" Sessions Extension Needs(TasksWrite), Whole []
        (none) -> (json 200 List<Task>);
    /// Takes a webhook, which is proved by its signature.
    DeliverToConnector "deliverToConnector" Post "/v1/connectors/{connector_id}/deliveries" Connectors Extension Signed, Whole []
        (required Map) -> (json 200 Map);
}
