//! What belongs to a session, a workspace or a tenant, by its documents: what has to go when it is to be forgotten.
//!
//! With a session go its tasks, artifacts, branches, memories, webhooks and answers to repeated requests, and the sessions
//! that were forked of it or work for it: they hold the same words. With a workspace goes everything in it, deleted or
//! not, and its files. With a tenant goes everything that it has, its keys among it. The audit log stays until it expires.

use std::collections::BTreeSet;

use dormouse_ports::{Document, DocumentKey, InvocationId, Map};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{QuotaId, SessionId, TaskId, WorkspaceId};
use dormouse_protocol::resource::TaskStatus;
use serde::Deserialize;
use serde_json::Value;

use crate::audit::KIND as AUDIT;
use crate::idempotency::KIND as IDEMPOTENCY;
use crate::keys::{KIND as KEY, USE as KEY_USE};
use crate::quotas::{COUNTERS, OF_TENANT};
use crate::rates::{KIND as RATE, OF_TENANT as RATE_OF_TENANT};

/// Subject of an erasure: everything that is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// A session, and those that were made of it.
    Session(SessionId),
    /// A workspace with everything in it.
    Workspace(WorkspaceId),
    /// A tenant.
    Tenant(String),
}

/// The documents that go, and what they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The documents.
    pub documents: BTreeSet<DocumentKey>,
    /// Ids of sessions and tasks: their streams, states and invocations go.
    pub owners: BTreeSet<String>,
    /// Tasks that had not ended when their documents were written: their invocations are ended first.
    pub open: BTreeSet<InvocationId>,
    /// The tenant whose lists go, and the signals that came with its keys.
    pub tenant: Option<String>,
}

impl Erasure {
    /// True if `document` may have to go: what is decided of all of these is decided by [`Self::forgotten`].
    pub fn may_take(&self, document: &Document) -> bool {
        match self {
            Self::Session(_) => document.body.contains_key("resource") || document.key.kind == IDEMPOTENCY,
            Self::Workspace(id) => is_in_workspace(document, id) || document.key.kind == IDEMPOTENCY,
            Self::Tenant(name) => {
                let is_tenants = text(&document.body, "tenant") == Some(name) && document.key.kind != AUDIT;
                let is_quota = document.key.kind == OF_TENANT && document.key.id == *name;
                is_tenants || is_quota || document.key.kind == IDEMPOTENCY
            }
        }
    }

    /// Documents and other data that have to go, of `documents`.
    pub fn forgotten(&self, documents: &[Document]) -> Forgotten {
        let roots = match self {
            Self::Session(session) => Some(family(session, documents)),
            Self::Workspace(_) | Self::Tenant(_) => None,
        };
        let is_theirs = |document: &&Document| match &roots {
            Some(sessions) => belongs(document, sessions),
            None => document.key.kind != IDEMPOTENCY,
        };
        let mut forgotten = Forgotten::default();
        for document in documents.iter().filter(is_theirs) {
            forgotten.take(document);
        }
        forgotten.owners.extend(roots.into_iter().flatten());
        let answers = documents.iter().filter(|document| document.key.kind == IDEMPOTENCY);
        let repeats = answers.filter(|document| tells_of(&document.body, &forgotten.owners));
        let repeats: Vec<DocumentKey> = repeats.map(|document| document.key.clone()).collect();
        forgotten.documents.extend(repeats);
        if let Self::Tenant(name) = self {
            forgotten.tenant = Some(name.clone());
            forgotten.documents.insert(DocumentKey::new(RATE, format!("{RATE_OF_TENANT}/{name}")));
        }
        forgotten
    }
}

impl Forgotten {
    fn take(&mut self, document: &Document) {
        let DocumentKey { kind, id } = &document.key;
        self.documents.insert(document.key.clone());
        if kind == QuotaId::OBJECT {
            self.documents.insert(DocumentKey::new(COUNTERS, id));
        }
        if kind == KEY {
            self.documents.insert(DocumentKey::new(KEY_USE, id));
        }
        if kind == SessionId::OBJECT || kind == TaskId::OBJECT {
            self.owners.insert(id.clone());
        }
        let status = resource(document).and_then(|task| TaskStatus::deserialize(task.get("status")?).ok());
        if kind == TaskId::OBJECT && !status.is_some_and(TaskStatus::is_terminal) {
            self.open.insert(InvocationId::from(id.as_str()));
        }
    }
}

/// `session`, and the sessions that were made of it or of one of those.
fn family(session: &SessionId, documents: &[Document]) -> BTreeSet<String> {
    let mut family = BTreeSet::from([session.to_string()]);
    loop {
        let is_child = |document: &&Document| {
            let parent = resource(document).and_then(|session| text(session, "parent_session_id"));
            document.key.kind == SessionId::OBJECT && parent.is_some_and(|parent| family.contains(parent))
        };
        let children: Vec<String> = documents.iter().filter(is_child).map(|child| child.key.id.clone()).collect();
        let before = family.len();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

/// True if `document` is one of `sessions`, or belongs to one.
fn belongs(document: &Document, sessions: &BTreeSet<String>) -> bool {
    let Some(resource) = resource(document) else { return false };
    let is_session = document.key.kind == SessionId::OBJECT && sessions.contains(&document.key.id);
    let names = |field: &str| text(resource, field).is_some_and(|id| sessions.contains(id));
    // A connector goes on to be one of its workspace.
    is_session || names("session_id") || names("owner_id")
}

/// True if `document` is the workspace `id`, or in it.
fn is_in_workspace(document: &Document, id: &WorkspaceId) -> bool {
    text(&document.body, "workspace") == Some(id.as_str())
}

/// True if what was answered to a request is about one of `ids`.
fn tells_of(body: &Map, ids: &BTreeSet<String>) -> bool {
    let Some(answer) = body.get("answer").and_then(Value::as_object) else { return false };
    ["id", "session_id", "task_id"].iter().any(|field| text(answer, field).is_some_and(|id| ids.contains(id)))
}

fn resource(document: &Document) -> Option<&Map> {
    document.body.get("resource")?.as_object()
}

fn text<'a>(map: &'a Map, name: &str) -> Option<&'a str> {
    map.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
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
            document("key", "k", json!({ "tenant": "acme" })),
            document("audit", "a", json!({ "tenant": "acme" })),
        ]
    }

    fn ids(forgotten: &Forgotten) -> Vec<&str> {
        forgotten.documents.iter().map(|key| key.id.as_str()).collect()
    }

    #[test]
    fn with_a_session_goes_what_was_made_of_it() {
        let erasure = Erasure::Session("session_1".into());
        let documents: Vec<Document> = all().into_iter().filter(|document| erasure.may_take(document)).collect();
        let forgotten = erasure.forgotten(&documents);
        assert_eq!(ids(&forgotten), ["i", "memory_1", "session_1", "session_2", "session_3", "task_1"]);
        assert_eq!(forgotten.open, BTreeSet::from(["task_1".into()]));
        assert_eq!(forgotten.tenant, None);
        let again = erasure.forgotten(&[]);
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
        ]);
        documents.retain(|document| erasure.may_take(document));
        let forgotten = erasure.forgotten(&documents);
        let gone =
            ["f", "i", "j", "memory_1", "session_1", "session_2", "session_3", "session_4", "task_1", "task_4", "w"];
        assert_eq!(ids(&forgotten).into_iter().collect::<BTreeSet<_>>(), gone.into_iter().collect());
        assert_eq!(forgotten.tenant, None, "the lists of the tenant stay");
    }

    #[test]
    fn with_a_tenant_goes_everything_but_the_audit_log() {
        let erasure = Erasure::Tenant("acme".to_owned());
        let documents: Vec<Document> = all().into_iter().filter(|document| erasure.may_take(document)).collect();
        let forgotten = erasure.forgotten(&documents);
        assert_eq!(forgotten.documents.len(), 12, "{forgotten:?}");
        assert!(!ids(&forgotten).contains(&"a"));
        assert_eq!(forgotten.tenant.as_deref(), Some("acme"));
        let other = Erasure::Tenant("other".to_owned());
        assert!(
            all().iter().filter(|document| document.key.kind != IDEMPOTENCY).all(|document| !other.may_take(document))
        );
    }
}
