//! The table: each operation and each route, with the requests by which somebody could get at what is not theirs, or not
//! public.

use dormouse_protocol::Operation::{self, *};

use Row::{Lists, OfTheServer, Reads, Writes};

/// How an operation could be used to see something.
pub(crate) enum Row {
    /// It tells of the server, whoever asks.
    OfTheServer(&'static str),
    /// Reads of lists and streams. Each tells its owner of something.
    Lists(&'static [&'static str]),
    /// Reads of single things.
    Reads(&'static [&'static str]),
    /// Writes: targets and bodies.
    Writes(&'static [(&'static str, &'static str)]),
}

/// In braces stand the names of things of the workspace `W`, and of `V`, the one of whoever is elsewhere. A target that
/// begins with `!` is one that its owner may not read either.
pub(crate) const TABLE: &[(Operation, Row)] = &[
    (GetHealth, OfTheServer("/health")),
    (GetVersion, OfTheServer("/version")),
    (GetOpenApiDocument, OfTheServer("/openapi.json")),
    (GetProtocolDiscovery, OfTheServer("/v1")),
    (GetAgentCard, OfTheServer("/v1/agent-card")),
    (ListPersonas, OfTheServer("/v1/personas")),
    (GetPersona, OfTheServer("/v1/personas/persona_quiet")),
    (ListWorkspaces, Lists(&["/v1/workspaces", "/v1/workspaces?limit=1"])),
    (CreateWorkspace, Writes(&[("/v1/workspaces", r#"{"name": "another", "root": "/"}"#)])),
    (GetWorkspace, Reads(&["/v1/workspaces/{W}"])),
    (UpdateWorkspace, Writes(&[("/v1/workspaces/{W}", r#"{"name": "marker-workspace 2"}"#)])),
    (DeleteWorkspace, Writes(&[("/v1/workspaces/{DOOMED}", "")])),
    (DeleteWorkspaceFile, Writes(&[("/v1/workspaces/{W}/files?path=notes/doomed.txt", "")])),
    (ListSessions, Lists(&["/v1/sessions", "/v1/sessions?limit=1", "/v1/sessions?workspace_id={W}&limit=1"])),
    (CreateSession, Writes(&[("/v1/sessions", r#"{"workspace_id": "{W}"}"#)])),
    (GetSession, Reads(&["/v1/sessions/{S}", "/v1/sessions/{FORK}"])),
    (UpdateSession, Writes(&[("/v1/sessions/{S}", r#"{"summary": "marker-session"}"#)])),
    (CloseSession, Writes(&[("/v1/sessions/{FORK}/close", "")])),
    (
        ForkSession,
        Writes(&[
            ("/v1/sessions/{S}/fork", "{}"),
            ("/v1/sessions/{S}/fork", r#"{"at_event_id": "{E}"}"#),
            ("/v1/sessions/{S}/fork", r#"{"branch_id": "{B}"}"#),
            ("/v1/sessions/{R}/fork", r#"{"at_event_id": "{E}"}"#),
            ("/v1/sessions/{R}/fork", r#"{"branch_id": "{B}"}"#),
        ]),
    ),
    (TruncateSession, Writes(&[("/v1/sessions/{S}/truncate", r#"{"keep_first": 1}"#)])),
    (
        ListSessionMessages,
        Lists(&["/v1/sessions/{S}/messages", "/v1/sessions/{S}/messages?limit=1", "/v1/sessions/{FORK}/messages"]),
    ),
    (
        AppendSessionMessage,
        Writes(&[(
            "/v1/sessions/{S}/messages",
            r#"{"message": {"role": "user", "parts": [
                {"type": "text", "text": "marker-internal", "visibility": "internal"},
                {"type": "json", "value": {"a": "marker-receipt"}, "visibility": "receipt_only"},
                {"type": "text", "text": "and marker-public", "visibility": "public"}]}}"#,
        )]),
    ),
    (ListSessionTasks, Lists(&["/v1/sessions/{S}/tasks", "/v1/sessions/{S}/tasks?limit=1"])),
    (
        SubmitSessionTask,
        Writes(&[
            (
                "/v1/sessions/{S}/tasks",
                r#"{"persona_id": "persona_quiet", "input": {"role": "user", "parts": [
                    {"type": "json", "value": {"note": "marker-internal"}, "visibility": "internal"}]}}"#,
            ),
            ("/v1/sessions/{R}/tasks", r#"{"input": {"a": 1}, "persona_id": "persona_quiet", "branch_id": "{B}"}"#),
            (
                "/v1/sessions/{R}/tasks",
                r#"{"input": {"a": 1}, "persona_id": "persona_quiet", "parent_task_id": "{T}"}"#,
            ),
        ]),
    ),
    (ListSessionBranches, Lists(&["/v1/sessions/{S}/branches"])),
    (
        CreateSessionBranch,
        Writes(&[
            ("/v1/sessions/{S}/branches", r#"{"kind": "session", "base_ref": "marker-branch"}"#),
            ("/v1/sessions/{R}/branches", r#"{"kind": "session", "base_ref": "x", "parent_branch_id": "{B}"}"#),
            ("/v1/sessions/{R}/branches", r#"{"kind": "session", "base_ref": "x", "task_id": "{T}"}"#),
        ]),
    ),
    (
        ListSessionEvents,
        Lists(&[
            "/v1/sessions/{S}/events",
            "/v1/sessions/{S}/events?after_event_id={E}",
            "/v1/sessions/{S}/events?limit=1",
        ]),
    ),
    (
        StreamSessionEvents,
        Lists(&["/v1/sessions/{S}/events/stream", "/v1/sessions/{S}/events/stream?after_event_id={E}"]),
    ),
    (
        ListTasks,
        Lists(&["/v1/tasks", "/v1/tasks?limit=1", "/v1/tasks?workspace_id={W}", "/v1/tasks?session_id={S}&limit=1"]),
    ),
    (
        SubmitTask,
        Writes(&[(
            "/v1/tasks",
            r#"{"session_id": "{S}", "persona_id": "persona_quiet", "input": {"note": "marker-note"}}"#,
        )]),
    ),
    (GetTask, Reads(&["/v1/tasks/{T}", "/v1/tasks/{OPEN}"])),
    (CancelTask, Writes(&[("/v1/tasks/{OPEN}/cancel", r#"{"reason": "marker-reason"}"#)])),
    (
        ListPermissionRequests,
        Lists(&[
            "/v1/permission-requests",
            "/v1/permission-requests?session_id={S}",
            "/v1/permission-requests?task_id={ASK}",
        ]),
    ),
    (ListTaskPermissionRequests, Lists(&["/v1/tasks/{ASK}/permission-requests"])),
    (RespondPermissionRequest, Writes(&[("/v1/permission-requests/{PERM}/respond", r#"{"approved": true}"#)])),
    (ReplayTask, Writes(&[("/v1/tasks/{T}/replay", "{}")])),
    (
        AppendTaskMessage,
        Writes(&[(
            "/v1/tasks/{OPEN}/messages",
            r#"{"kind": "interrupt", "message": {"role": "user", "parts": [
                {"type": "text", "text": "marker-internal", "visibility": "internal"}]}}"#,
        )]),
    ),
    (ListTaskEvents, Lists(&["/v1/tasks/{T}/events", "/v1/tasks/{T}/events?limit=1"])),
    (StreamTaskEvents, Lists(&["/v1/tasks/{T}/stream"])),
    (ListTaskReceipts, Lists(&["/v1/tasks/{T}/receipts"])),
    (GetBranch, Reads(&["/v1/branches/{B}"])),
    (GetMessage, Reads(&["/v1/messages/{M}"])),
    (
        ListArtifacts,
        Lists(&[
            "/v1/artifacts",
            "/v1/artifacts?limit=1",
            "/v1/artifacts?workspace_id={W}",
            "/v1/artifacts?session_id={S}&limit=1",
            "/v1/artifacts?task_id={T}",
        ]),
    ),
    (
        RegisterArtifact,
        Writes(&[
            (
                "/v1/artifacts",
                r#"{"kind": "log", "mime_type": "text/plain", "visibility": "internal", "session_id": "{S}",
                    "uri": "data:text/plain,marker-internal"}"#,
            ),
            (
                "/v1/artifacts",
                r#"{"kind": "log", "mime_type": "text/plain", "visibility": "public", "task_id": "{T}"}"#,
            ),
            (
                "/v1/artifacts",
                r#"{"kind": "log", "mime_type": "text/plain", "visibility": "public", "workspace_id": "{W}"}"#,
            ),
        ]),
    ),
    (GetArtifact, Reads(&["/v1/artifacts/{INTERNAL}", "/v1/artifacts/{RECEIPT}", "/v1/artifacts/{STATE}"])),
    (
        DownloadArtifactContent,
        Reads(&[
            "!/v1/artifacts/{INTERNAL}/content",
            "!/v1/artifacts/{RECEIPT}/content",
            // What the task was given was internal, and may be in its state.
            "!/v1/artifacts/{STATE}/content",
            "/v1/artifacts/{PUBLIC}/content",
        ]),
    ),
    (
        ListEvents,
        Lists(&[
            "/v1/events",
            "/v1/events?limit=1",
            "/v1/events?after_event_id={E}",
            "/v1/events?workspace_id={W}",
            "/v1/events?session_id={S}",
            "/v1/events?task_id={T}&limit=1",
        ]),
    ),
    (GetEvent, Reads(&["/v1/events/{E}", "/v1/events/{EM}"])),
    (
        StreamEvents,
        Lists(&["/v1/events/stream", "/v1/events/stream?session_id={S}", "/v1/events/stream?after_event_id={E}"]),
    ),
    (GetReceipt, Reads(&["/v1/receipts/{PROOF}"])),
    (VerifyReceipt, Writes(&[("/v1/receipts/{PROOF}/verify", "{}")])),
    (
        ListMemories,
        Lists(&[
            "/v1/memories",
            "/v1/memories?limit=1",
            "/v1/memories?workspace_id={W}",
            "/v1/memories?session_id={S}",
        ]),
    ),
    (
        CreateMemory,
        Writes(&[
            (
                "/v1/memories",
                r#"{"scope": "session", "owner_id": "{S}", "content": "marker-memory", "provenance": {}}"#,
            ),
            (
                "/v1/memories",
                r#"{"scope": "workspace", "owner_id": "{W}", "content": "marker-memory", "provenance": {}}"#,
            ),
        ]),
    ),
    (GetMemory, Reads(&["/v1/memories/{MEMORY}", "/v1/memories/{NOTE}"])),
    (DeleteMemory, Writes(&[("/v1/memories/{GONE}", "")])),
    (ListVaults, Lists(&["/v1/vaults", "/v1/vaults?limit=1", "/v1/vaults?workspace_id={W}"])),
    (
        CreateVault,
        Writes(&[("/v1/vaults", r#"{"workspace_id": "{W}", "provider": "env", "capabilities": ["marker-vault"]}"#)]),
    ),
    (GetVault, Reads(&["/v1/vaults/{VAULT}"])),
    (ListConnectors, Lists(&["/v1/connectors", "/v1/connectors?workspace_id={W}"])),
    (GetConnector, Reads(&["/v1/connectors/{CONN}"])),
    (
        CreateConnector,
        Writes(&[(
            "/v1/connectors",
            r#"{"provider": "marker-provider", "workspace_id": "{W}", "target_session_id": "{S}", "mapping": {"kind": "message"},
                "auth": {"scheme": "github", "vault_id": "{VAULT}", "secrets": ["HOOK"]}}"#,
        )]),
    ),
    (UpdateConnector, Writes(&[("/v1/connectors/{CONN}", r#"{"status": "PAUSED"}"#)])),
    (ListSessionWebhooks, Reads(&["/v1/sessions/{S}/webhooks"])),
    (
        CreateSessionWebhook,
        Writes(&[(
            "/v1/sessions/{S}/webhooks",
            r#"{"url": "https://marker-hook.example.com", "events": ["task.failed"]}"#,
        )]),
    ),
    (DeleteSessionWebhook, Writes(&[("/v1/sessions/{S}/webhooks/{HOOK}", "")])),
    (GetSessionQueue, Reads(&["/v1/sessions/{S}/queue"])),
    (ReorderSessionQueue, Writes(&[("/v1/sessions/{S}/queue", r#"{"task_ids": []}"#)])),
    (EmptySessionQueue, Writes(&[("/v1/sessions/{S}/queue", "")])),
    (DeliverToConnector, OfTheServer("/v1/connectors/connector_none/deliveries")),
    (CreateQuota, Writes(&[("/v1/quotas", r#"{"scope": "workspace", "owner_id": "{W}", "limits": {"tasks": 1000}}"#)])),
    (UpdateQuota, Writes(&[("/v1/quotas/quota_none", "{}")])),
    (ListSkills, OfTheServer("/v1/skills")),
    (GetSkill, OfTheServer("/v1/skills/skill_quiet")),
    (ListOutcomes, Lists(&["/v1/outcomes", "/v1/outcomes?limit=1", "/v1/outcomes?task_id={T}"])),
    (GetOutcome, Reads(&["/v1/outcomes/{O}"])),
    (ListQuotas, Lists(&["/v1/quotas"])),
    (GetQuota, Reads(&["/v1/quotas/{Q}"])),
    (GetRuntime, OfTheServer("/v1/runtime")),
    (ListCapabilities, OfTheServer("/v1/capabilities")),
    (ListTools, OfTheServer("/v1/tools")),
    (GetTool, OfTheServer("/v1/tools/tool_none")),
    (ReadWorkspaceFile, Reads(&["/v1/workspaces/{W}/files", "/v1/workspaces/{W}/files?path=notes/a.txt"])),
    (
        WriteWorkspaceFile,
        Writes(&[
            ("/v1/workspaces/{W}/files?path=notes/b.txt", r#"{"content": "marker-file"}"#),
            ("/v1/workspaces/{W}/files?path=notes/a.txt", r#"{"content": "marker-file 2"}"#),
        ]),
    ),
    // What a tenant makes of personas is all of the tenant's: `api::extended` has more of them.
    (CreatePersona, Writes(&[("/v1/personas", r#"{"name": "none"}"#)])),
    (UpdatePersona, Writes(&[("/v1/personas/persona_quiet", r#"{"description": "none"}"#)])),
];

/// The routes beside the protocol: what somebody asks who has no token for it, or who may wake a pause and no more.
pub(crate) const ROUTES: &[(&str, &str, &[&str])] = &[
    ("GET", "/", &["/"]),
    ("POST", "/graphs/{graph}/turns", &["/graphs/nobody/turns"]),
    ("POST", "/chat/{graph}/sessions/{session_id}/messages", &["/chat/chat/sessions/{S}/messages"]),
    (
        "GET",
        "/invocations/{invocation_id}?token=",
        &["/invocations/{I}", "/invocations/{I}?token=AAAA", "/invocations/{T}"],
    ),
    ("POST", "/callback/{invocation_id}?token=", &["/callback/{I}", "/callback/{I}?token=AAAA", "/callback/{OPEN}"]),
    ("POST", "/invocations/{invocation_id}/cancel?token=", &["/invocations/{I}/cancel", "/invocations/{OPEN}/cancel"]),
    ("POST", "/signals/{signal_id}", &["/signals/quiet"]),
];
