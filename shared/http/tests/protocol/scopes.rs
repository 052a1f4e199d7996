//! Scopes that the operations need. The table is written here once more, by hand: an operation whose scope is changed,
//! or not looked at, is noticed.

use std::collections::BTreeSet;
use std::pin::pin;

use dormouse_api::Keys;
use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_http::Content;
use dormouse_ports::Clock;
use dormouse_protocol::Operation::{self, *};
use dormouse_protocol::Scope::{self, *};
use futures::FutureExt;
use serde_json::Value;

use crate::world::{World, grant, json_of};

/// Operations for the holder of any key.
const OF_ANY_KEY: [Operation; 4] = [GetRuntime, ListCapabilities, ListTools, GetTool];
/// Operations without a key.
const PUBLIC: [Operation; 5] = [GetHealth, GetVersion, GetOpenApiDocument, GetProtocolDiscovery, GetAgentCard];

/// Operations for who signs what it sends: `tests/tests/api/connectors.rs`.
const SIGNED: [Operation; 1] = [DeliverToConnector];

const NEEDED: [(Scope, &[Operation]); 21] = [
    // They are asked for beside the contract: `tests/tests/extensions.rs`.
    (OperationsRead, &[]),
    (OperationsWrite, &[]),
    (PersonasRead, &[ListPersonas, GetPersona, ListSkills, GetSkill]),
    (PersonasWrite, &[CreatePersona, UpdatePersona]),
    (WorkspacesRead, &[ListWorkspaces, GetWorkspace, ReadWorkspaceFile, ListQuotas, GetQuota]),
    (WorkspacesWrite, &[CreateWorkspace, UpdateWorkspace, DeleteWorkspace, WriteWorkspaceFile, DeleteWorkspaceFile]),
    (
        SessionsRead,
        &[
            ListSessions,
            ListSessionWebhooks,
            GetSession,
            ListSessionMessages,
            ListSessionBranches,
            GetBranch,
            GetMessage,
        ],
    ),
    (
        SessionsWrite,
        &[
            CreateSession,
            UpdateSession,
            CloseSession,
            ForkSession,
            TruncateSession,
            AppendSessionMessage,
            CreateSessionBranch,
            CreateSessionWebhook,
            DeleteSessionWebhook,
        ],
    ),
    (
        TasksRead,
        &[
            ListSessionTasks,
            ListTasks,
            GetTask,
            ListPermissionRequests,
            ListTaskPermissionRequests,
            ListOutcomes,
            GetOutcome,
            GetSessionQueue,
        ],
    ),
    (
        TasksWrite,
        &[
            SubmitSessionTask,
            SubmitTask,
            CancelTask,
            RespondPermissionRequest,
            ReplayTask,
            AppendTaskMessage,
            ReorderSessionQueue,
            EmptySessionQueue,
        ],
    ),
    (
        EventsRead,
        &[ListSessionEvents, StreamSessionEvents, ListTaskEvents, StreamTaskEvents, ListEvents, GetEvent, StreamEvents],
    ),
    (ReceiptsRead, &[ListTaskReceipts, GetReceipt, VerifyReceipt]),
    (ArtifactsRead, &[ListArtifacts, GetArtifact, DownloadArtifactContent]),
    (ArtifactsWrite, &[RegisterArtifact]),
    (MemoriesRead, &[ListMemories, GetMemory]),
    (MemoriesWrite, &[CreateMemory, DeleteMemory]),
    (VaultsRead, &[ListVaults, GetVault]),
    (VaultsWrite, &[CreateVault]),
    (ConnectorsRead, &[ListConnectors, GetConnector]),
    (ConnectorsWrite, &[CreateConnector, UpdateConnector]),
    (QuotasWrite, &[CreateQuota, UpdateQuota]),
];

/// A key of `eve` with these scopes and no others.
fn key(world: &World, number: usize, scopes: BTreeSet<Scope>) -> KeyToken {
    let token = KeyToken::generate([u8::try_from(number).unwrap(); CHANCE]);
    world.shelf.apply(Keys::creation(&token, Grant { scopes, ..grant("eve") }, world.clock.now()));
    token
}

/// The refusal of `operation`, asked for with `key`; nothing when it was let through. Nobody waits for what is served.
fn refusal(world: &World, operation: Operation, key: &KeyToken) -> Option<(u16, Value)> {
    let spec = operation.spec();
    let path: Vec<&str> =
        spec.path.split('/').map(|part| if part.starts_with('{') { "task_1" } else { part }).collect();
    let mut request = world.request(spec.method.as_str(), &path.join("/"), "{}");
    request.headers.retain(|(name, _)| name != "authorization");
    request.headers.push(("authorization".to_owned(), format!("Bearer {}", key.reveal())));
    let before = world.desk.calls.lock().unwrap().len();
    let response = pin!(world.server.http(request)).now_or_never();
    let streams = response.as_ref().is_some_and(|response| matches!(response.content, Content::Live(_)));
    let served = streams || world.desk.calls.lock().unwrap().len() > before;
    let refused = response.filter(|response| response.status == 403).map(|response| json_of(&response));
    assert_ne!(served, refused.is_some(), "{}: served or refused", spec.id);
    refused
}

#[test]
fn each_operation_is_in_the_table_once() {
    let mut listed: Vec<Operation> = NEEDED.iter().flat_map(|(_, operations)| *operations).copied().collect();
    listed.extend(OF_ANY_KEY.iter().chain(&PUBLIC).chain(&SIGNED));
    listed.sort_unstable();
    let mut all = Operation::ALL.to_vec();
    all.sort_unstable();
    assert_eq!(listed, all);
}

#[tokio::test]
async fn an_operation_asks_for_its_scope_and_for_no_other() {
    let world = World::new();
    for (number, (scope, operations)) in NEEDED.iter().enumerate() {
        let others = Scope::ALL.iter().copied().filter(|other| other != scope).collect();
        let without = key(&world, 2 * number + 1, others);
        let with = key(&world, 2 * number + 2, [*scope].into());
        for operation in *operations {
            let (status, body) = refusal(&world, *operation, &without).unwrap_or_else(|| panic!("{operation:?}"));
            let code = &body["error"]["code"];
            let missing = &body["error"]["details"]["scope"];
            assert_eq!((status, code.as_str()), (403, Some("permission_denied")), "{operation:?}");
            assert_eq!(missing, scope.as_str(), "{operation:?}");
            assert_eq!(refusal(&world, *operation, &with), None, "{operation:?}");
        }
    }
}

#[tokio::test]
async fn a_key_without_scopes_may_do_what_any_key_may() {
    let world = World::new();
    let bare = key(&world, 1, BTreeSet::new());
    for operation in OF_ANY_KEY {
        let before = world.desk.calls.lock().unwrap().len();
        let path = operation.spec().path.replace("{tool_id}", "tool_1");
        let mut request = world.request("GET", &path, "");
        request.headers.retain(|(name, _)| name != "authorization");
        let status = world.server.http(request.clone()).await.status;
        assert_eq!((status, world.desk.calls.lock().unwrap().len()), (401, before), "{operation:?} without a key");
        request.headers.push(("authorization".to_owned(), format!("Bearer {}", bare.reveal())));
        assert_ne!(world.server.http(request).await.status, 403, "{operation:?}");
    }
}
