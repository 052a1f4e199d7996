//! What belongs to a session, a workspace or a tenant, by its documents and by what the states name: what has to go when it
//! is to be forgotten.
//!
//! With a session go its tasks, artifacts, images, branches, memories, webhooks and answers to repeated requests, and the sessions
//! that were forked of it or work for it: they hold the same words. With a workspace goes everything in it, deleted or
//! not, and its files. With a tenant goes everything that it has, its keys among it. The audit log stays until it expires.
//!
//! Sessions and invocations of `/graphs` and `/chat` have no documents: their items name the tenant in whose name they
//! began. Those of earlier versions do not; of them are found the sessions of the actors whose keys the tenant has, those of
//! agents that were asked there, and the invocations in all of these. Images name their session: by them it is found also when
//! its state is gone already, in an erasure that ended in the midst.

use std::collections::BTreeSet;

use dormouse_ports::{Document, DocumentKey, InvocationId, Map, OwnedState, SessionId as StateId, owned};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{ArtifactId, ConnectorId, OutcomeId, QuotaId, SessionId, TaskId, WorkspaceId};
use dormouse_protocol::resource::TaskStatus;
use serde::Deserialize;
use serde_json::Value;

use crate::audit::KIND as AUDIT;
use crate::idempotency::KIND as IDEMPOTENCY;
use crate::images::KIND as IMAGE;
use crate::keys::{KIND as KEY, USE as KEY_USE};
use crate::quotas::{COUNTERS, OF_TENANT};
use crate::rates::{KIND as RATE, OF_KEY as RATE_OF_KEY, OF_TENANT as RATE_OF_TENANT};

/// Prefix of the ids of invocations that documents lead to.
const OF_DOCUMENTS: &str = "task_";

/// Subject of an erasure: everything that is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// A session, and those that were made of it.
    Session(SessionId),
    /// A workspace with everything in it.
    Workspace(WorkspaceId),
    /// A tenant.
    Tenant(String),
    /// A session of `/graphs` or `/chat`, of all actors of a tenant that call one so; or, without a tenant, the one that is
    /// stored under that name.
    Conversation {
        /// The name that callers know.
        name: String,
        /// The tenant of the callers.
        tenant: Option<String>,
    },
}

/// The documents that go, and what they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The documents.
    pub documents: BTreeSet<DocumentKey>,
    /// Ids of workspaces, sessions and tasks, and of artifacts of no session: their streams, states, invocations and lists go.
    pub owners: BTreeSet<String>,
    /// Sessions of `/graphs` and `/chat`.
    pub sessions: BTreeSet<StateId>,
    /// Invocations of `/graphs` and `/chat`.
    pub invocations: BTreeSet<InvocationId>,
    /// Number of those that may be the tenant's, and name none: they began without a key or token, or in an earlier version.
    pub nobodys: usize,
    /// Tasks that had not ended when their documents were written, and other invocations: they are ended first.
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
            // Its keys say which actors it has.
            Self::Conversation { tenant, .. } => {
                let is_image = document.key.kind == IMAGE && is_of(document, tenant.as_ref());
                is_image || tenant.as_ref().is_some_and(|tenant| is_key_of(document, tenant))
            }
        }
    }

    /// True if `state` may have to go, as [`may_take`](Self::may_take) says of documents.
    pub fn may_take_state(&self, state: &OwnedState) -> bool {
        let (of_tenant, is_found_otherwise) = match state {
            OwnedState::Session { tenant, .. } => (tenant, false),
            OwnedState::Invocation { id, tenant, .. } => (tenant, id.as_str().starts_with(OF_DOCUMENTS)),
        };
        match self {
            Self::Session(_) | Self::Workspace(_) => false,
            Self::Tenant(name) => match of_tenant {
                Some(tenant) => tenant == name,
                None => !is_found_otherwise,
            },
            Self::Conversation { tenant, .. } => {
                !is_found_otherwise && (tenant.is_none() || of_tenant.is_none() || of_tenant == tenant)
            }
        }
    }

    /// The kind of counters that go, and the beginning of their names: nothing leads to them.
    pub fn counters(&self) -> Option<DocumentKey> {
        match self {
            Self::Tenant(name) => Some(DocumentKey::new(RATE, format!("{RATE_OF_KEY}/{name}/"))),
            Self::Session(_) | Self::Workspace(_) | Self::Conversation { .. } => None,
        }
    }

    /// True if the sessions of invocations have to be known.
    pub fn is_by_session(&self) -> bool {
        matches!(self, Self::Conversation { .. })
    }

    /// Documents and other data that have to go, of `documents` and `states`. The sessions of agents that work for a session
    /// begin with what `asked_by` makes of its id.
    pub fn forgotten(
        &self,
        documents: &[Document],
        states: &[OwnedState],
        asked_by: impl Fn(&str) -> String,
    ) -> Forgotten {
        let mut forgotten = self.forgotten_documents(documents);
        let actors = |tenant: &str| -> Vec<String> {
            let keys = documents.iter().filter(|document| is_key_of(document, tenant));
            keys.filter_map(|key| text(&key.body, "actor")).map(|actor| owned::owner_of(tenant, actor)).collect()
        };
        match self {
            Self::Session(_) | Self::Workspace(_) => {}
            Self::Tenant(name) => forgotten.take_states_of(name, &actors(name), states, asked_by),
            Self::Conversation { name, tenant } => {
                let ids: BTreeSet<StateId> = match tenant {
                    Some(tenant) => actors(tenant).iter().map(|owner| owned::session(owner, name)).collect(),
                    None => BTreeSet::from([name.as_str().into()]),
                };
                let is_named = |id: &StateId, of: Option<&String>| {
                    let is_theirs = tenant.is_some() && of == tenant.as_ref();
                    ids.contains(id) || (is_theirs && owned::name_within(id.as_str()) == Some(name))
                };
                let known: Vec<(StateId, Option<String>)> = of_images(documents).collect();
                forgotten.take_conversation((states, &known), (&ids, is_named), asked_by);
                forgotten.take_images(documents);
            }
        }
        forgotten
    }

    fn forgotten_documents(&self, documents: &[Document]) -> Forgotten {
        let roots = match self {
            Self::Session(session) => Some(family(session, documents)),
            Self::Workspace(_) | Self::Tenant(_) => None,
            Self::Conversation { .. } => return Forgotten::default(),
        };
        let tasks = roots.as_ref().map(|sessions| tasks_of(sessions, documents)).unwrap_or_default();
        let is_theirs = |document: &&Document| match &roots {
            Some(sessions) => belongs(document, sessions) || is_outcome_of(document, &tasks),
            None => document.key.kind != IDEMPOTENCY,
        };
        let mut forgotten = Forgotten::default();
        for document in documents.iter().filter(is_theirs) {
            forgotten.take(document);
        }
        forgotten.owners.extend(roots.into_iter().flatten());
        let (subject, tenant) = match self {
            Self::Tenant(name) => (name.as_str(), Some(name.as_str())),
            Self::Workspace(id) => (id.as_str(), None),
            Self::Session(id) => (id.as_str(), None),
            Self::Conversation { name, .. } => (name.as_str(), None),
        };
        let is_tenants = |body: &Map| tenant.is_some() && text(body, "tenant") == tenant;
        let is_told_of = |id: &str| id == subject || forgotten.owners.contains(id);
        let gone: BTreeSet<&str> = forgotten.documents.iter().map(|key| key.id.as_str()).collect();
        let answers = documents.iter().filter(|document| document.key.kind == IDEMPOTENCY);
        let repeats = answers.filter(|one| is_tenants(&one.body) || tells_of(&one.body, &gone, is_told_of));
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
    /// True if there is nothing that has to go but what only its absence shows.
    pub fn is_empty(&self, documents: &[Document]) -> bool {
        let is_there = documents.iter().any(|document| self.documents.contains(&document.key));
        !is_there && self.sessions.is_empty() && self.invocations.is_empty()
    }

    /// Takes the states that began in the name of `tenant`, and those of earlier versions in sessions of `actors` and of agents
    /// that were asked there.
    fn take_states_of(
        &mut self,
        tenant: &str,
        actors: &[String],
        states: &[OwnedState],
        asked_by: impl Fn(&str) -> String,
    ) {
        let prefixes: Vec<String> = actors.iter().map(|owner| owned::session(owner, "").to_string()).collect();
        let of_actors = |id: &StateId| prefixes.iter().any(|prefix| id.as_str().starts_with(prefix));
        let unsaid = || sessions_of(states).filter(|(_, of)| of.is_none()).map(|(id, _)| id);
        let is_theirs = |(id, of): &(&StateId, Option<&String>)| match of {
            Some(of) => *of == tenant,
            None => of_actors(id),
        };
        let theirs = sessions_of(states).filter(is_theirs).map(|(id, _)| id.clone()).collect();
        let theirs = with_those_asked(theirs, unsaid, asked_by);
        let is_actors = |id: &StateId| theirs.contains(id);
        for state in states {
            if self.documents_lead_to(state) {
                continue;
            }
            match state {
                OwnedState::Session { id, tenant: Some(of) } if of == tenant => {
                    self.sessions.insert(id.clone());
                }
                OwnedState::Session { id, tenant: None } if is_actors(id) => {
                    self.sessions.insert(id.clone());
                }
                OwnedState::Session { id, tenant: None } => self.nobodys += usize::from(owned::is_owned(id)),
                OwnedState::Invocation { id, tenant: Some(of), is_open, .. } if of == tenant => {
                    self.take_invocation(id, *is_open);
                }
                OwnedState::Invocation { id, tenant: None, session: Some(session), is_open } if is_actors(session) => {
                    self.take_invocation(id, *is_open);
                }
                OwnedState::Invocation { tenant: None, .. } => self.nobodys += 1,
                OwnedState::Session { tenant: Some(_), .. } | OwnedState::Invocation { tenant: Some(_), .. } => {}
            }
        }
    }

    /// Takes the sessions with one of the `ids` and those that are `named`, those that work for them, and the invocations in
    /// all of these. A session whose state is gone may have left images: it counts as long as it has one.
    fn take_conversation(
        &mut self,
        (states, of_images): (&[OwnedState], &[(StateId, Option<String>)]),
        (ids, is_named): (&BTreeSet<StateId>, impl Fn(&StateId, Option<&String>) -> bool),
        asked_by: impl Fn(&str) -> String,
    ) {
        let all = || sessions_of(states).chain(of_images.iter().map(|(id, of)| (id, of.as_ref())));
        let named = all().filter(|(id, of)| is_named(id, *of)).map(|(id, _)| id);
        let roots = named.chain(ids).cloned().collect();
        let mut sessions = with_those_asked(roots, || all().map(|(id, _)| id), asked_by);
        let known: BTreeSet<&StateId> = all().map(|(id, _)| id).collect();
        sessions.retain(|id| known.contains(id));
        self.sessions.extend(sessions);
        for state in states {
            if let OwnedState::Invocation { id, session: Some(session), is_open, .. } = state
                && self.sessions.contains(session)
            {
                self.take_invocation(id, *is_open);
            }
        }
    }

    /// Takes the images of the sessions and invocations that go.
    fn take_images(&mut self, documents: &[Document]) {
        let is_theirs = |owner: &str| {
            self.sessions.contains(&StateId::from(owner)) || self.invocations.contains(&InvocationId::from(owner))
        };
        let images = documents.iter().filter(|document| document.key.kind == IMAGE);
        let owner = |image: &&Document| resource(image).and_then(|of| text(of, "session_id")).is_some_and(is_theirs);
        let images: Vec<DocumentKey> = images.filter(owner).map(|image| image.key.clone()).collect();
        self.documents.extend(images);
    }

    /// True if `state` is that of a session or task with a document, and goes with that.
    fn documents_lead_to(&self, state: &OwnedState) -> bool {
        match state {
            OwnedState::Session { id, .. } => self.owners.contains(id.as_str()),
            OwnedState::Invocation { id, .. } => self.owners.contains(id.as_str()),
        }
    }

    fn take_invocation(&mut self, id: &InvocationId, is_open: bool) {
        self.invocations.insert(id.clone());
        if is_open {
            self.open.insert(id.clone());
        }
    }

    fn take(&mut self, document: &Document) {
        let DocumentKey { kind, id } = &document.key;
        self.documents.insert(document.key.clone());
        if [QuotaId::OBJECT, ConnectorId::OBJECT].contains(&kind.as_str()) {
            self.documents.insert(DocumentKey::new(COUNTERS, id));
        }
        if kind == KEY {
            self.documents.insert(DocumentKey::new(KEY_USE, id));
        }
        // An artifact of no session is told of in a stream of its own.
        let is_alone =
            kind == ArtifactId::OBJECT && resource(document).is_some_and(|one| text(one, "session_id").is_none());
        if is_alone || [SessionId::OBJECT, TaskId::OBJECT, WorkspaceId::OBJECT].contains(&kind.as_str()) {
            self.owners.insert(id.clone());
        }
        let status = resource(document).and_then(|task| TaskStatus::deserialize(task.get("status")?).ok());
        if kind == TaskId::OBJECT && !status.is_some_and(TaskStatus::is_terminal) {
            self.open.insert(InvocationId::from(id.as_str()));
        }
    }
}

/// The sessions that the images among `documents` were kept for, each with the tenant that its image names. Those that were kept
/// for a run without a session, and name that, expire.
fn of_images(documents: &[Document]) -> impl Iterator<Item = (StateId, Option<String>)> {
    let of_sessions = documents.iter().filter(|one| one.key.kind == IMAGE && one.expires_at.is_none());
    of_sessions.filter_map(|image| {
        let session = text(resource(image)?, "session_id")?;
        Some((session.into(), text(&image.body, "tenant").map(str::to_owned)))
    })
}

/// The sessions of `states`, each with the tenant that its state or that of an invocation in it names.
fn sessions_of(states: &[OwnedState]) -> impl Iterator<Item = (&StateId, Option<&String>)> {
    states.iter().filter_map(|state| match state {
        OwnedState::Session { id, tenant } => Some((id, tenant.as_ref())),
        OwnedState::Invocation { session, tenant, .. } => Some((session.as_ref()?, tenant.as_ref())),
    })
}

/// `sessions`, and those of `all` in which agents work that were asked in one of them or of those.
fn with_those_asked<'s, S: Iterator<Item = &'s StateId>>(
    sessions: BTreeSet<StateId>,
    all: impl Fn() -> S,
    asked_by: impl Fn(&str) -> String,
) -> BTreeSet<StateId> {
    let (mut known, mut new) = (BTreeSet::new(), sessions);
    while !new.is_empty() {
        let starts: Vec<String> = new.iter().map(|id| asked_by(id.as_str())).collect();
        known.append(&mut new);
        let works = |id: &&StateId| starts.iter().any(|start| id.as_str().starts_with(start));
        new = all().filter(works).filter(|id| !known.contains(*id)).cloned().collect();
    }
    known
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

/// The tasks of `sessions`.
fn tasks_of<'d>(sessions: &BTreeSet<String>, documents: &'d [Document]) -> BTreeSet<&'d str> {
    let is_theirs = |document: &&Document| document.key.kind == TaskId::OBJECT && belongs(document, sessions);
    documents.iter().filter(is_theirs).map(|task| task.key.id.as_str()).collect()
}

/// True if `document` is the outcome of one of `tasks`: one that is too large for the document of its task, and names no session.
fn is_outcome_of(document: &Document, tasks: &BTreeSet<&str>) -> bool {
    let task = resource(document).and_then(|outcome| text(outcome, "task_id"));
    document.key.kind == OutcomeId::OBJECT && task.is_some_and(|task| tasks.contains(task))
}

/// True if `document` is a key of `tenant`.
fn is_key_of(document: &Document, tenant: &str) -> bool {
    document.key.kind == KEY && text(&document.body, "tenant") == Some(tenant)
}

/// True if `document` may be of `tenant`, where that is known of both.
fn is_of(document: &Document, tenant: Option<&String>) -> bool {
    let of = text(&document.body, "tenant");
    tenant.is_none_or(|tenant| of.is_none_or(|of| of == tenant))
}

/// True if `document` is the workspace `id`, or in it.
fn is_in_workspace(document: &Document, id: &WorkspaceId) -> bool {
    text(&document.body, "workspace") == Some(id.as_str())
}

/// True if what was answered to a request is one of the documents that are `gone`, or names whom `is_told_of` says.
fn tells_of(body: &Map, gone: &BTreeSet<&str>, is_told_of: impl Fn(&str) -> bool) -> bool {
    let Some(answer) = body.get("answer").and_then(Value::as_object) else { return false };
    let mut names =
        ["id", "session_id", "task_id", "workspace_id", "owner_id"].iter().filter_map(|name| text(answer, name));
    text(answer, "id").is_some_and(|id| gone.contains(id)) || names.any(is_told_of)
}

fn resource(document: &Document) -> Option<&Map> {
    document.body.get("resource")?.as_object()
}

fn text<'a>(map: &'a Map, name: &str) -> Option<&'a str> {
    map.get(name)?.as_str()
}

#[cfg(test)]
mod tests;
