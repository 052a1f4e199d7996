//! Probes, made from the OpenAPI document: at each place at which an operation takes the id of a thing, in its path, its
//! query or its body, stands a thing of somebody else. Sockets, A2A and what sleeps, which the document of the protocol
//! does not have, are probed by tables.
//!
//! Whoever probes has the same things of their own, and all the rest of a request names those. With their own thing in its
//! place the same request is served: what refuses the probe is whose thing it is.

mod sockets;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_api::keys::Grant;
use dormouse_protocol::Scope;
use dormouse_protocol::openapi::{DocumentInfo, document};
use dormouse_protocol::operation::{Access, Paging};

use crate::*;

/// The ids of what somebody has, by the names of the places at which requests take them.
type Things = BTreeMap<&'static str, String>;

/// Parameters that name no thing.
const NO_THINGS: &[&str] =
    &["limit", "path", "deltas", "harn-agents-protocol-version", "idempotency-key", "last-event-id"];

/// Fields of bodies that end as ids do, and are none of a thing of a tenant.
const NO_FIELDS: &[(&str, &str)] = &[
    ("skill_ids", "skills are the server's"),
    ("tool_call_id", "a word between a model and its tools"),
    ("checkpoint_id", "the same as checkpoint_event_id"),
    ("parts/artifact_id", "words of a message: nothing is read there"),
    ("override/event_id", "has to be that of the key, whatever else it names"),
];

/// What is of the whole tenant, so that a key that is bound to a workspace sees it too.
const OF_TENANT: &[&str] = &["persona_id", "tenant"];

/// What a key that is bound to a workspace may not do at all.
const FOR_TENANT: &[Operation] =
    &[CreateWorkspace, DeleteWorkspace, CreatePersona, UpdatePersona, CreateQuota, UpdateQuota];

/// Operations that end something of which others tell: they are tried last.
const LAST: &[Operation] = &[
    RespondPermissionRequest,
    AppendTaskMessage,
    CancelTask,
    EmptySessionQueue,
    TruncateSession,
    CloseSession,
    DeleteSessionWebhook,
    DeleteMemory,
    DeleteWorkspaceFile,
    DeleteWorkspace,
];

/// Somebody, and everything that they have.
struct Owner {
    /// The key by which they ask.
    key: String,
    /// The key by which their things are made: of the same tenant, and bound to no workspace.
    maker: String,
    things: Things,
}

/// Whose things are asked for, and who asks: somebody of another tenant, and of another workspace.
async fn owners(world: &World) -> (Owner, [(&'static str, Owner); 2]) {
    // Whoever operates the deployment sees what sleeps of every tenant.
    let key = async |number: u8, actor: &str, tenant: &str, workspaces: Option<&str>| {
        let workspaces = workspaces.map(|id| BTreeSet::from([WorkspaceId::from(id)]));
        let mut grant = Grant { workspaces, ..full_grant(actor, tenant) };
        grant.scopes.remove(&Scope::OperationsRead);
        world.grant(number, grant).await
    };
    let ada = key(11, "ada", "acme", None).await;
    let eve = key(12, "ada", "other", None).await;
    let mut things = Vec::new();
    for (maker, tenant, mark) in [(&ada, "acme", "marker-"), (&eve, "other", "own-"), (&ada, "acme", "own-")] {
        things.push(furnish(world, maker, tenant, mark).await);
    }
    let bob = key(13, "bob", "acme", Some(&things[2]["workspace_id"])).await;
    let keys = [(ada.clone(), ada.clone()), (eve.clone(), eve), (bob, ada)];
    let owners = things.into_iter().zip(keys).map(|(things, (key, maker))| Owner { key, maker, things });
    let mut owners: Vec<Owner> = owners.collect();
    for owner in &mut owners {
        keep_busy(world, owner).await;
    }
    let [whose, eve, bob] = <[Owner; 3]>::try_from(owners).ok().unwrap();
    (whose, [("another tenant", eve), ("another workspace", bob)])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

async fn asked(world: &World, key: &str, method: &str, target: &str, body: &Value) -> Value {
    let bytes = if body.is_null() { String::new() } else { body.to_string() };
    let said = world.ask(key, method, target, &bytes).await;
    assert!((200..300).contains(&said.status), "{method} {target} {body}: {said:?}");
    serde_json::from_str(&said.body).unwrap_or_default()
}

fn note(mark: &str, session: &str) -> Value {
    json!({ "session_id": session, "persona_id": "persona_quiet", "input": { "note": format!("{mark}note") } })
}

/// One of everything, in a new workspace of `tenant`. Words in it begin with `mark`.
async fn furnish(world: &World, key: &str, tenant: &str, mark: &str) -> Things {
    let made = async |target: &str, body: Value| text(&asked(world, key, "POST", target, &body).await["id"]);
    let read = async |target: &str| asked(world, key, "GET", target, &Value::Null).await["data"][0].clone();
    let workspace = made("/v1/workspaces", json!({ "name": format!("{mark}desk"), "root": "/" })).await;
    let said = json!([{ "type": "text", "text": format!("{mark}words"), "visibility": "public" }]);
    let begins = json!({ "workspace_id": workspace, "initial_messages": [{ "role": "user", "parts": said }] });
    let session = made("/v1/sessions", begins.clone()).await;
    let of_session = |what: &str| format!("/v1/sessions/{session}/{what}");
    let done = made("/v1/tasks", note(mark, &session)).await;
    world.work().await;
    let answer = json!([{ "type": "json", "value": { "decision": "yes" }, "visibility": "public" }]);
    let answer = json!({ "kind": "input", "message": { "role": "user", "parts": answer } });
    made(&format!("/v1/tasks/{done}/messages"), answer).await;
    world.work().await;
    let asking = json!({ "session_id": session, "persona_id": "persona_expense-approval",
        "input": { "employee": format!("{mark}employee"), "amount_cents": 12000, "purpose": "a keyboard" } });
    let asking = made("/v1/tasks", asking).await;
    world.work().await;
    let asleep = made("/v1/tasks", note(mark, &session)).await;
    world.work().await;
    let doomed = made("/v1/tasks", note(mark, &session)).await;
    world.work().await;
    let kept = |scope: &str, owner: &str| json!({ "scope": scope, "owner_id": owner, "content": format!("{mark}memory"), "provenance": {} });
    let vault = json!({ "workspace_id": workspace, "provider": "env", "capabilities": ["webhooks:verify"] });
    let vault = made("/v1/vaults", vault).await;
    let connector = json!({ "provider": format!("{mark}provider"), "workspace_id": workspace, "target_session_id": session,
        "mapping": { "kind": "message" }, "auth": { "scheme": "github", "vault_id": vault, "secrets": ["HOOK"] } });
    let persona = json!({ "name": format!("{mark}clerk"), "version": "1", "entry_workflow": "quiet", "description": "Asks.",
        "autonomy_tier": "act_auto", "receipt_policy": "optional" });
    let quota = json!({ "scope": "workspace", "owner_id": workspace, "limits": { "tasks": 1000 } });
    let hook = json!({ "url": "https://hooks.example.com", "events": ["task.failed"] });
    let instant = json!({ "kind": "log", "mime_type": "application/json", "visibility": "public", "session_id": session,
        "uri": "data:application/json,%222027-01-01T00:00:00Z%22" });
    let file = json!({ "content": format!("{mark}file") });
    asked(world, key, "PUT", &format!("/v1/workspaces/{workspace}/files?path=a.txt"), &file).await;
    BTreeMap::from([
        ("tenant", tenant.to_owned()),
        ("message_id", made(&of_session("messages"), json!({ "message": { "role": "user", "parts": said } })).await),
        (
            "branch_id",
            made(&of_session("branches"), json!({ "kind": "session", "base_ref": format!("{mark}ref") })).await,
        ),
        ("webhook_id", made(&of_session("webhooks"), hook).await),
        ("event_id", text(&read(&of_session("events")).await["id"])),
        ("event_of_task", text(&read(&format!("/v1/tasks/{done}/events")).await["id"])),
        ("outcome_id", text(&read(&format!("/v1/outcomes?task_id={done}")).await["id"])),
        ("receipt_id", text(&read(&format!("/v1/tasks/{done}/receipts")).await["id"])),
        ("request_id", text(&read(&format!("/v1/tasks/{asking}/permission-requests")).await["id"])),
        ("artifact_id", made("/v1/artifacts", instant).await),
        ("memory_id", made("/v1/memories", kept("workspace", &workspace)).await),
        ("memory to forget", made("/v1/memories", kept("session", &session)).await),
        ("connector_id", made("/v1/connectors", connector).await),
        ("persona_id", made("/v1/personas", persona).await),
        ("quota_id", made("/v1/quotas", quota).await),
        ("session to close", made("/v1/sessions", begins.clone()).await),
        ("session to cut", made("/v1/sessions", begins).await),
        ("task_id", done),
        ("task that asks", asking),
        ("task that sleeps", asleep),
        ("task to cancel", doomed),
        ("vault_id", vault),
        ("session_id", session),
        ("workspace_id", workspace),
    ])
}

/// A session of `owner` in which one task works, and another waits for its turn.
async fn keep_busy(world: &World, owner: &mut Owner) {
    let begins = json!({ "workspace_id": owner.things["workspace_id"] });
    let session = text(&asked(world, &owner.maker, "POST", "/v1/sessions", &begins).await["id"]);
    asked(world, &owner.maker, "POST", "/v1/tasks", &note("", &session)).await;
    let queued = text(&asked(world, &owner.maker, "POST", "/v1/tasks", &note("", &session)).await["id"]);
    owner.things.extend([("session with a queue", session), ("task in the queue", queued)]);
}

/// The name of the thing that `operation` takes at the place `name` of its path.
fn at_path(operation: Operation, name: &str) -> &str {
    match (operation, name) {
        (GetSessionQueue | ReorderSessionQueue | EmptySessionQueue, "session_id") => "session with a queue",
        (CloseSession, "session_id") => "session to close",
        (TruncateSession, "session_id") => "session to cut",
        (DeleteMemory, "memory_id") => "memory to forget",
        (AppendTaskMessage, "task_id") => "task that sleeps",
        (CancelTask, "task_id") => "task to cancel",
        (ListTaskPermissionRequests, "task_id") => "task that asks",
        _ => name,
    }
}

/// Bodies with which `operation` is served, which name everything of `own` that one of them can name.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not listed takes no body, or none that it needs")]
fn bodies(operation: Operation, own: &Things) -> Vec<Value> {
    let it = |name: &str| own[name].as_str();
    let remember =
        |scope: &str, owner: &str| json!({ "scope": scope, "owner_id": it(owner), "content": "x", "provenance": {} });
    let limit =
        |scope: &str, owner: &str| json!({ "scope": scope, "owner_id": it(owner), "limits": { "tasks": 1000 } });
    let hello = json!({ "role": "user", "parts": [{ "type": "text", "text": "hi", "visibility": "public" }] });
    let task = json!({ "session_id": it("session_id"), "workspace_id": it("workspace_id"), "persona_id": it("persona_id"),
        "branch_id": it("branch_id"), "parent_task_id": it("task_id"), "input": { "note": "x" } });
    let verify = json!({ "scheme": "github", "vault_id": it("vault_id"), "secrets": ["HOOK"] });
    match operation {
        CreatePersona => vec![json!({ "name": "x", "version": "1", "entry_workflow": "quiet", "description": "x",
            "autonomy_tier": "act_auto", "receipt_policy": "optional" })],
        UpdatePersona | UpdateWorkspace => vec![json!({ "quota_id": it("quota_id") })],
        CreateWorkspace => vec![json!({ "name": "x", "root": "/" })],
        WriteWorkspaceFile => vec![json!({ "content": "x" })],
        CreateSession => vec![json!({ "workspace_id": it("workspace_id"), "persona_id": it("persona_id"),
            "vault_ids": [it("vault_id")], "memory_ids": [it("memory_id")] })],
        UpdateSession => vec![json!({ "summary": "x" })],
        ForkSession => vec![json!({ "at_event_id": it("event_id"), "branch_id": it("branch_id") })],
        TruncateSession => vec![json!({ "keep_first": 1 })],
        AppendSessionMessage => vec![json!({ "message": hello })],
        SubmitSessionTask | SubmitTask => vec![task],
        CreateSessionBranch => vec![json!({ "kind": "session", "base_ref": "x", "parent_branch_id": it("branch_id"),
            "task_id": it("task_id") })],
        RespondPermissionRequest => vec![json!({ "approved": true })],
        ReplayTask => vec![
            json!({ "mode": "from_checkpoint", "checkpoint_event_id": it("event_of_task") }),
            json!({ "mode": "with_overrides",
                "override": { "time:started_at": { "kind": "time", "artifact_id": it("artifact_id") } } }),
        ],
        AppendTaskMessage => vec![json!({ "kind": "input", "message": { "role": "user",
            "parts": [{ "type": "json", "value": { "decision": "yes" }, "visibility": "public" }] } })],
        RegisterArtifact => ["task_id", "session_id", "workspace_id"]
            .map(|of| json!({ "kind": "log", "mime_type": "a/b", "visibility": "public", of: it(of) }))
            .to_vec(),
        CreateMemory => vec![
            remember("session", "session_id"),
            remember("workspace", "workspace_id"),
            remember("persona", "persona_id"),
            remember("tenant", "tenant"),
        ],
        CreateVault => vec![json!({ "workspace_id": it("workspace_id"), "provider": "env", "capabilities": [] })],
        CreateQuota => {
            vec![limit("workspace", "workspace_id"), limit("persona", "persona_id"), limit("tenant", "tenant")]
        }
        CreateConnector => vec![json!({ "provider": "x", "workspace_id": it("workspace_id"), "auth": verify,
            "target_session_id": it("session_id"), "target_persona_id": it("persona_id"), "mapping": { "kind": "task" } })],
        UpdateConnector => vec![json!({ "auth": verify })],
        CreateSessionWebhook => vec![json!({ "url": "https://hooks.example.com", "task_id": it("task_id") })],
        ReorderSessionQueue => vec![json!({ "task_ids": [it("task in the queue")] })],
        _ if operation.spec().method.is_write() => vec![json!({})],
        _ => vec![Value::Null],
    }
}

/// The status of a probe at `place`, where it is not 404. Each is that of an id which names nothing, too.
fn status_at(operation: Operation, place: &str) -> u16 {
    match (operation, place) {
        // What it belongs to is seen, and has nothing of that name.
        (SubmitSessionTask, "session_id") | (SubmitSessionTask | SubmitTask, "workspace_id") => 400,
        (ForkSession, "at_event_id") | (ReplayTask, "checkpoint_event_id") => 400,
        (ReorderSessionQueue, "task_ids") => 409,
        // A stream has begun already, and says in an event that it is none of its cursors.
        (operation, "?after_event_id" | "?cursor") if operation.spec().paging != Paging::Stream => 410,
        (StreamEvents, "?session_id" | "?task_id") => 404,
        // It says whose personas are meant, and narrows no list.
        (ListPersonas | GetPersona | ListTools, "?workspace_id") => 404,
        // A list without it.
        (_, place) if place.starts_with('?') => 200,
        _ => 404,
    }
}

/// A request, in whose place `place` stands the thing `thing`.
struct Probe {
    operation: Operation,
    place: String,
    thing: String,
    target: String,
    body: Value,
}

/// The requests of `operation` with the ids of `own` in it, and `other` in one place, each at a time; the first one of
/// each body is the request with all of its own.
fn probes(operation: Operation, parameters: &[(String, String)], own: &Things, other: &Things) -> Vec<Probe> {
    let spec = operation.spec();
    let path = |foreign: &str| {
        let segment = |segment: &str| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => (if name == foreign { other } else { own })[at_path(operation, name)].clone(),
            None => segment.to_owned(),
        };
        let path = spec.path.split('/').map(segment).collect::<Vec<_>>().join("/");
        if spec.query.contains(&"path") { format!("{path}?path=a.txt") } else { path }
    };
    let mut all = Vec::new();
    for body in bodies(operation, own) {
        let probe = |place: &str, thing: &str, target: String, body: &Value| Probe {
            operation,
            place: place.to_owned(),
            thing: thing.to_owned(),
            target,
            body: body.clone(),
        };
        all.push(probe("", "", path(""), &body));
        for (kind, name) in parameters {
            match kind.as_str() {
                "path" => all.push(probe(name, name, path(name), &body)),
                // It narrows a list, and names no thing.
                "query" if name == "status" => {}
                "query" => {
                    let thing = match name.as_str() {
                        "after_event_id" | "cursor" => "event_id",
                        name => name,
                    };
                    let target = format!("{}?{name}={}", path(""), other[thing]);
                    all.push(probe(&format!("?{name}"), thing, target, &body));
                }
                other => panic!("a parameter in {other}"),
            }
        }
        for (pointer, id) in leaves(&body) {
            let Some((thing, _)) = own.iter().find(|(_, own)| **own == id) else { continue };
            let mut stolen = body.clone();
            *stolen.pointer_mut(&pointer).unwrap() = other[thing].clone().into();
            all.push(probe(&field_of(&pointer), thing, path(""), &stolen));
        }
    }
    all
}

/// The texts of `body`, by where they stand.
fn leaves(body: &Value) -> Vec<(String, String)> {
    let within = |name: &str, value: &Value| {
        leaves(value).into_iter().map(|(rest, text)| (format!("/{name}{rest}"), text)).collect::<Vec<_>>()
    };
    match body {
        Value::String(text) => vec![(String::new(), text.clone())],
        Value::Object(fields) => fields.iter().flat_map(|(name, value)| within(name, value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(at, value)| within(&at.to_string(), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// The field at `pointer`, without places in lists and keys of maps.
fn field_of(pointer: &str) -> String {
    let is_name = |part: &&str| !part.is_empty() && !part.contains(':') && part.parse::<usize>().is_err();
    pointer.split('/').filter(is_name).collect::<Vec<_>>().join("/")
}

/// The fields of `schema` that hold ids, as [`field_of`] calls them.
fn id_fields(document: &Value, schema: &Value, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if depth > 8 {
        return found;
    }
    let mut within = |prefix: &str, schema: &Value| {
        let name = |rest: String| if prefix.is_empty() { rest } else { format!("{prefix}/{rest}") };
        found.extend(id_fields(document, schema, depth + 1).into_iter().map(name));
    };
    if let Some(reference) = schema["$ref"].as_str() {
        within("", document.pointer(reference.trim_start_matches('#')).unwrap());
    }
    for many in ["allOf", "anyOf", "oneOf"] {
        schema[many].as_array().into_iter().flatten().for_each(|one| within("", one));
    }
    for inner in ["items", "additionalProperties"] {
        within("", &schema[inner]);
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        within(name, schema);
    }
    let names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name);
    found.extend(names.filter(|name| name.ends_with("_id") || name.ends_with("_ids")).cloned());
    found
}

/// Everything that the document says that a request of `operation` can name: parameters with their kind, and fields.
fn described(document: &Value, operation: Operation) -> (Vec<(String, String)>, BTreeSet<String>) {
    let spec = operation.spec();
    let of = &document["paths"][spec.path][spec.method.as_str().to_ascii_lowercase()];
    let parameters = of["parameters"].as_array().into_iter().flatten();
    let parameters = parameters.map(|one| (text(&one["in"]), text(&one["name"])));
    let is_place = |(kind, name): &(String, String)| {
        // A cursor of a list is sealed for who was given it; that of a range is an event.
        let is_sealed = name == "cursor" && !matches!(spec.paging, Paging::Range | Paging::Stream);
        !NO_THINGS.contains(&name.to_ascii_lowercase().as_str()) && kind != "header" && !is_sealed
    };
    let body = &of["requestBody"]["content"]["application/json"]["schema"];
    (parameters.filter(is_place).collect(), id_fields(document, body, 0))
}

/// Each operation that names things, with its requests by `own` for things of `other`.
fn all_probes(own: &Things, other: &Things) -> Vec<Probe> {
    let document = document(DocumentInfo { title: "Dormouse", description: "" });
    let mut all = Vec::new();
    for operation in Operation::ALL {
        let is_of_server = matches!(operation.spec().access, Access::Public | Access::Signed)
            || matches!(operation, GetTool | GetSkill);
        if is_of_server {
            continue;
        }
        let (parameters, fields) = described(&document, *operation);
        let own = probes(*operation, &parameters, own, other);
        for field in fields.iter().filter(|field| NO_FIELDS.iter().all(|(name, _)| !field.ends_with(name))) {
            let is_probed = own.iter().any(|probe| probe.place == *field);
            assert!(is_probed, "no probe of {} names `{field}`", operation.spec().id);
        }
        all.extend(own);
    }
    all
}

#[tokio::test]
async fn no_operation_takes_the_id_of_a_thing_of_somebody_else() {
    let world = World::new();
    let (whose, strangers) = owners(&world).await;
    let theirs: Vec<&str> =
        whose.things.values().map(String::as_str).filter(|id| *id != "acme").chain(["marker-"]).collect();
    for (who, stranger) in &strangers {
        let is_bound = *who == "another workspace";
        let all = all_probes(&stranger.things, &whose.things);
        let mut count = 0;
        let mut wrong = Vec::new();
        for probe in all.iter().filter(|probe| !probe.place.is_empty()) {
            let Probe { operation, place, thing, target, body } = probe;
            // What counts against a quota is said by who may change quotas.
            let is_for_tenant = FOR_TENANT.contains(operation) || place == "quota_id" && *operation != GetQuota;
            if is_bound && (OF_TENANT.contains(&thing.as_str()) || is_for_tenant) {
                continue;
            }
            let method = operation.spec().method.as_str();
            let bytes = if body.is_null() { String::new() } else { body.to_string() };
            let before = format!("{:?}", world.store);
            let said = world.ask(&stranger.key, method, target, &bytes).await;
            let about = format!("{who}: `{place}` of {method} {target} {body}: {said:?}");
            if said.status != status_at(*operation, place) {
                wrong.push(about.clone());
                continue;
            }
            assert_eq!(before, format!("{:?}", world.store), "{about}");
            if said.status == 200 && !said.body.is_empty() {
                let list: Value = serde_json::from_str(&said.body).unwrap_or_default();
                let is_stream = operation.spec().paging == Paging::Stream
                    && !said.body.lines().any(|line| line.starts_with("event: ") && line != "event: error");
                assert!(list["data"] == json!([]) || is_stream, "{about}");
            }
            let asked = format!("{target}{body}");
            assert_eq!(said.holds(theirs.iter().copied().filter(|id| !asked.contains(id))), None, "{about}");
            // Of what was never there it says the same.
            let id = &whose.things[at_path(*operation, thing)];
            let [target, bytes] = [target, &bytes].map(|text| text.replace(id, &ghost(id)));
            let of_nothing = world.ask(&stranger.key, method, &target, &bytes).await;
            let body = of_nothing.body.replace(&ghost(id), id);
            assert_eq!(said, Said { body, ..of_nothing }, "{about}");
            count += 1;
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(count >= 100, "{who}: {count} probes");
        // The same requests for things of their own.
        let mut own: Vec<&Probe> = all.iter().filter(|probe| probe.place.is_empty()).collect();
        own.sort_by_key(|probe| LAST.iter().position(|last| *last == probe.operation).map_or(0, |place| place + 1));
        for Probe { operation, target, body, .. } in own {
            let bytes = if body.is_null() { String::new() } else { body.to_string() };
            let said = world.ask(&stranger.key, operation.spec().method.as_str(), target, &bytes).await;
            // Quotas are the tenant's, and so is what counts against them.
            let is_for_tenant = FOR_TENANT.contains(operation)
                || body.get("quota_id").is_some()
                || OF_TENANT.iter().any(|thing| body["owner_id"] == stranger.things[thing].as_str());
            // What counts against one quota counts against no second one.
            let has_one = *operation == CreateQuota && said.status == 409 && said.body.contains("quota_id");
            let is_fine = if is_bound && is_for_tenant {
                said.status == 403
            } else {
                has_one || (200..300).contains(&said.status)
            };
            assert!(is_fine, "{who}: {} {target} {body}: {said:?}", operation.spec().id);
        }
    }
}
