use serde_json::json;

use super::*;

fn document(kind: &str, id: &str, body: Value) -> Document {
    let Value::Object(body) = body else { panic!("an object") };
    Document { key: DocumentKey::new(kind, id), version: 1, body, expires_at: None }
}

fn stored(kind: &str, id: &str, resource: Value) -> Document {
    document(kind, id, json!({ "tenant": "acme", "workspace": "w", "resource": resource, "own": {} }))
}

fn all() -> Vec<Document> {
    vec![
        stored("session", "session_1", json!({})),
        stored("session", "session_2", json!({ "parent_session_id": "session_1" })),
        stored("session", "session_3", json!({ "parent_session_id": "session_2" })),
        stored("session", "session_4", json!({})),
        stored("task", "task_1", json!({ "session_id": "session_3", "status": "WORKING" })),
        stored("task", "task_4", json!({ "session_id": "session_4", "status": "COMPLETED" })),
        stored("memory", "memory_1", json!({ "owner_id": "session_1" })),
        document("idempotency", "i", json!({ "answer": { "id": "task_1" } })),
        document("idempotency", "j", json!({ "answer": { "id": "task_4" } })),
        document("idempotency", "m", json!({ "answer": { "id": "memory_1", "content": "secret" } })),
        document("idempotency", "n", json!({ "answer": { "id": "memory_2", "owner_id": "session_2" } })),
        document("idempotency", "o", json!({ "answer": { "id": "artifact_2", "workspace_id": "w" } })),
        document("idempotency", "p", json!({ "answer": { "id": "memory_3", "owner_id": "acme" } })),
        document("idempotency", "q", json!({ "answer": { "id": "key_1" }, "tenant": "acme" })),
        document("idempotency", "r", json!({ "answer": { "id": "key_2" }, "tenant": "evil" })),
        document("key", "k", json!({ "tenant": "acme" })),
        document("audit", "a", json!({ "tenant": "acme" })),
    ]
}

fn asked_by(session: &str) -> String {
    format!("owned_of-{session}-")
}

fn session(id: impl Into<StateId>, tenant: Option<&str>) -> OwnedState {
    OwnedState::Session { id: id.into(), tenant: tenant.map(str::to_owned) }
}

fn run(id: &str, tenant: Option<&str>, session: Option<StateId>) -> OwnedState {
    OwnedState::Invocation { id: id.into(), tenant: tenant.map(str::to_owned), session, is_open: id.ends_with("open") }
}

fn taken(erasure: &Erasure, states: &[OwnedState]) -> Forgotten {
    let documents: Vec<Document> = [document("key", "k", json!({ "tenant": "acme", "actor": "ada" }))].into();
    let documents: Vec<Document> = documents.into_iter().filter(|one| erasure.may_take(one)).collect();
    let states: Vec<OwnedState> = states.iter().filter(|one| erasure.may_take_state(one)).cloned().collect();
    erasure.forgotten(&documents, &states, asked_by)
}

fn names<'i>(ids: impl IntoIterator<Item = &'i (impl ToString + 'i)>) -> Vec<String> {
    ids.into_iter().map(ToString::to_string).collect()
}

#[test]
fn with_a_tenant_go_its_sessions_and_invocations_beside_the_protocol() {
    let adas = owned::session(&owned::owner_of("acme", "ada"), "s");
    let unknown = owned::session(&owned::owner_of("acme", "grace@corp"), "s");
    // An agent that was asked in a session of an earlier version, one that it asked, and one of a session that is nobody's.
    let asked = format!("{}1", asked_by(adas.as_str()));
    let asked_in_turn = format!("{}2", asked_by(&asked));
    let asked_by_unknown = format!("{}1", asked_by(unknown.as_str()));
    let states = [
        session(asked_in_turn.clone(), None),
        session(asked.clone(), None),
        session(asked_by_unknown, None),
        run("run-asked-open", None, Some(asked.clone().into())),
        session("new", Some("acme")),
        session("others", Some("evil")),
        session(adas.clone(), None),
        session(unknown.clone(), None),
        session("nobodys", None),
        run("run-open", Some("acme"), None),
        run("run-others-open", Some("evil"), None),
        run("run-old", None, Some(adas.clone())),
        run("run-unknown", None, None),
        run("task_1", None, None),
        run("delivery_1-open", Some("acme"), None),
        run("delivery_2", Some("evil"), None),
    ];
    let forgotten = taken(&Erasure::Tenant("acme".to_owned()), &states);
    let gone: BTreeSet<String> = ["new".to_owned(), adas.to_string(), asked, asked_in_turn].into();
    assert_eq!(names(&forgotten.sessions), gone.into_iter().collect::<Vec<_>>());
    assert_eq!(names(&forgotten.invocations), ["delivery_1-open", "run-asked-open", "run-old", "run-open"]);
    assert_eq!(names(&forgotten.open), ["delivery_1-open", "run-asked-open", "run-open"]);
    assert_eq!(forgotten.nobodys, 3, "two sessions and an invocation that may be theirs");
    assert!(!forgotten.is_empty(&[]) && taken(&Erasure::Tenant("none".to_owned()), &states).is_empty(&[]));
}

#[test]
fn a_conversation_is_that_of_all_actors_of_its_tenant_with_those_that_work_for_it() {
    let of = |tenant: &str, actor: &str| owned::session(&owned::owner_of(tenant, actor), "s");
    let (adas, graces, evil) = (of("acme", "ada"), of("acme", "grace"), of("evil", "ada"));
    let child = format!("{}1", asked_by(graces.as_str()));
    let states = [
        session(adas.clone(), None),
        session(graces.clone(), Some("acme")),
        session(evil.clone(), Some("evil")),
        session(child.as_str(), Some("acme")),
        session("s", None),
        run("r1", Some("acme"), Some(graces.clone())),
        run("r2-open", Some("acme"), Some(child.as_str().into())),
        run("r3", Some("evil"), Some(evil)),
        run("r4", None, Some("s".into())),
    ];
    let of_acme = Erasure::Conversation { name: "s".to_owned(), tenant: Some("acme".to_owned()) };
    let forgotten = taken(&of_acme, &states);
    let all: BTreeSet<StateId> = [adas, graces, child.into()].into();
    assert_eq!((&forgotten.sessions, names(&forgotten.invocations)), (&all, vec!["r1".into(), "r2-open".into()]));
    assert!(forgotten.documents.is_empty(), "its keys stay");
    let nobodys = taken(&Erasure::Conversation { name: "s".to_owned(), tenant: None }, &states);
    assert_eq!((names(&nobodys.sessions), names(&nobodys.invocations)), (vec!["s".into()], vec!["r4".into()]));
}

#[test]
fn with_a_conversation_go_its_images() {
    let (adas, others) = (owned::session(&owned::owner_of("acme", "ada"), "s"), "t");
    let of = |id: &str, owner: &str| document("image", id, json!({ "resource": { "session_id": owner } }));
    let documents = [of("p", adas.as_str()), of("q", others)];
    let erasure = Erasure::Conversation { name: "s".to_owned(), tenant: Some("acme".to_owned()) };
    let documents: Vec<Document> = documents
        .into_iter()
        .chain([document("key", "k", json!({ "tenant": "acme", "actor": "ada" }))])
        .filter(|document| erasure.may_take(document))
        .collect();
    let forgotten = erasure.forgotten(&documents, &[session(adas, None), session(others, None)], asked_by);
    assert_eq!(ids(&forgotten), ["p"]);
}

#[test]
fn images_are_found_when_the_states_of_their_sessions_are_gone() {
    let of = |tenant: &str, actor: &str| owned::session(&owned::owner_of(tenant, actor), "s");
    let (adas, token, evil) = (of("acme", "ada"), of("acme", "a token"), of("evil", "ada"));
    let child = format!("{}1", asked_by(adas.as_str()));
    let run = owned::invocation("acme", "s");
    let image = |id: &str, tenant: Option<&str>, owner: &str| {
        document("image", id, json!({ "tenant": tenant, "resource": { "session_id": owner } }))
    };
    let expires_at = Some(jiff::Timestamp::UNIX_EPOCH);
    let all = [
        document("key", "k", json!({ "tenant": "acme", "actor": "ada" })),
        image("adas", Some("acme"), adas.as_str()),
        image("child", Some("acme"), &child),
        image("evil", Some("evil"), evil.as_str()),
        image("nobodys", None, "s"),
        Document { expires_at, ..image("run", Some("acme"), run.as_str()) },
        image("token", Some("acme"), token.as_str()),
    ];
    let forgotten = |tenant: Option<&str>, left: &[&str]| {
        let erasure = Erasure::Conversation { name: "s".to_owned(), tenant: tenant.map(str::to_owned) };
        let is_left = |one: &&Document| one.key.kind == "key" || left.contains(&one.key.id.as_str());
        let documents = all.iter().filter(is_left).filter(|one| erasure.may_take(one));
        let documents: Vec<Document> = documents.cloned().collect();
        let forgotten = erasure.forgotten(&documents, &[], asked_by);
        assert_eq!(forgotten.is_empty(&documents), forgotten.documents.is_empty());
        names(forgotten.documents.iter().map(|key| &key.id))
    };
    let every = ["adas", "child", "evil", "nobodys", "run", "token"];
    assert_eq!(forgotten(Some("acme"), &every), ["adas", "child", "token"], "and not that of a run of the same name");
    assert_eq!(forgotten(Some("acme"), &["child"]), ["child"], "its asker is not known but by its name");
    assert_eq!(forgotten(None, &every), ["nobodys"]);
    assert_eq!(forgotten(Some("other"), &every), Vec::<String>::new());
}

fn ids(forgotten: &Forgotten) -> Vec<&str> {
    forgotten.documents.iter().map(|key| key.id.as_str()).collect()
}

#[test]
fn with_a_session_goes_what_was_made_of_it() {
    let erasure = Erasure::Session("session_1".into());
    let outcome = |id: &str, task: &str| stored("outcome", id, json!({ "task_id": task, "summary": "done" }));
    let all = all().into_iter().chain([outcome("outcome_1", "task_1"), outcome("outcome_4", "task_4")]);
    let documents: Vec<Document> = all.filter(|document| erasure.may_take(document)).collect();
    let forgotten = erasure.forgotten(&documents, &[], asked_by);
    let gone = ["i", "m", "n", "memory_1", "outcome_1", "session_1", "session_2", "session_3", "task_1"];
    assert_eq!(ids(&forgotten), gone);
    assert_eq!(forgotten.open, BTreeSet::from(["task_1".into()]));
    assert_eq!(forgotten.tenant, None);
    let again = erasure.forgotten(&[], &[], asked_by);
    assert!(again.documents.is_empty() && again.owners.contains("session_1"), "what a crash left is found again");
}

#[test]
fn with_a_workspace_goes_what_is_in_it() {
    let erasure = Erasure::Workspace("w".into());
    let mut documents = all();
    documents.extend([
        document("workspace_deletion", "w", json!({ "tenant": "acme", "workspace": "w" })),
        document("file", "f", json!({ "tenant": "acme", "workspace": "w", "path": "a.txt" })),
        document("file", "g", json!({ "tenant": "acme", "workspace": "v", "path": "a.txt" })),
        stored("image", "picture", json!({ "session_id": "session_1" })),
    ]);
    documents.retain(|document| erasure.may_take(document));
    let forgotten = erasure.forgotten(&documents, &[], asked_by);
    let gone = [
        "f",
        "i",
        "j",
        "m",
        "memory_1",
        "n",
        "o",
        "picture",
        "session_1",
        "session_2",
        "session_3",
        "session_4",
        "task_1",
        "task_4",
        "w",
    ];
    assert_eq!(ids(&forgotten).into_iter().collect::<BTreeSet<_>>(), gone.into_iter().collect());
    assert_eq!(forgotten.tenant, None, "the lists of the tenant stay");
}

#[test]
fn an_artifact_of_no_session_goes_with_its_stream() {
    let documents = [
        stored("artifact", "artifact_1", json!({ "session_id": null, "uri": "data:,secret" })),
        stored("artifact", "artifact_2", json!({ "session_id": "session_1" })),
    ];
    for erasure in [Erasure::Workspace("w".into()), Erasure::Tenant("acme".to_owned())] {
        let forgotten = erasure.forgotten(&documents, &[], asked_by);
        let gone: Vec<_> = ids(&forgotten).into_iter().filter(|id| id.starts_with("artifact_")).collect();
        assert_eq!(gone, ["artifact_1", "artifact_2"]);
        assert_eq!(forgotten.owners, BTreeSet::from(["artifact_1".to_owned()]), "{erasure:?}");
    }
}

#[test]
fn with_a_connector_go_its_deliveries_and_what_was_counted_of_it() {
    let mut documents = all();
    documents.extend([
        stored("connector", "connector_1", json!({})),
        document("delivery", "d", json!({ "connector": "connector_1", "tenant": "acme", "workspace": "w" })),
    ]);
    for erasure in [Erasure::Workspace("w".into()), Erasure::Tenant("acme".to_owned())] {
        let documents: Vec<Document> = documents.iter().filter(|one| erasure.may_take(one)).cloned().collect();
        let forgotten = erasure.forgotten(&documents, &[], asked_by);
        for key in [("delivery", "d"), ("counters", "connector_1")] {
            assert!(forgotten.documents.contains(&DocumentKey::new(key.0, key.1)), "{key:?}: {forgotten:?}");
        }
    }
}

#[test]
fn with_a_tenant_goes_everything_but_the_audit_log() {
    let erasure = Erasure::Tenant("acme".to_owned());
    let documents: Vec<Document> = all().into_iter().filter(|document| erasure.may_take(document)).collect();
    let forgotten = erasure.forgotten(&documents, &[], asked_by);
    assert_eq!(forgotten.documents.len(), 16, "{forgotten:?}");
    assert!(!ids(&forgotten).contains(&"a") && !ids(&forgotten).contains(&"r"));
    assert_eq!(forgotten.tenant.as_deref(), Some("acme"));
    assert_eq!(erasure.counters(), Some(DocumentKey::new("rate", "key/acme/")), "of all of its keys");
    let other = Erasure::Tenant("other".to_owned());
    assert!(all().iter().filter(|document| document.key.kind != IDEMPOTENCY).all(|document| !other.may_take(document)));
}
