//! Who accepts tasks, as a front of the product does: what it promises is written down in one commit, with a document, an
//! entry in the stream of its session and the key of the request, and a worker is called. Whatever a turn does to a task
//! afterwards is told in the commit that does it.

use std::fmt;
use std::sync::Arc;

use dormouse_harness::{Harness, Transmission};
use dormouse_ports::{
    Append, Cancellation, Clock, Commit, CommitError, Document, DocumentKey, DocumentWrite, GrowingLists, IdSource,
    InvocationId, InvocationStatus, InvocationWrite, Journal, Map, Records, StateStore, StoreError,
};
use serde_json::{Value, json};

use super::desk::Desk;

/// How often it looks again when others were faster.
const ATTEMPTS: usize = 8;

/// What somebody asks of the clerk.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Do this; asked again with the same key it is the same task.
    Submit { key: String, graph: &'static str, session: String },
    /// Go on with this.
    Answer { task: String, payload: Map },
    /// Do not.
    Cancel { task: String },
    /// How is it going?
    Look { task: String },
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submit { key, graph, session } => write!(f, "task {key} of {graph} in {session}"),
            Self::Answer { task, payload } => write!(f, "answer to {task}: {}", Value::Object(payload.clone())),
            Self::Cancel { task } => write!(f, "cancel {task}"),
            Self::Look { task } => write!(f, "look at {task}"),
        }
    }
}

/// A task, as its client sees it.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) status: String,
}

/// The name of the document of a task.
pub(crate) fn task_key(id: &str) -> DocumentKey {
    DocumentKey::new("task", id)
}

/// Whether nothing comes behind this status.
pub(crate) fn is_terminal(status: &str) -> bool {
    ["completed", "failed", "canceled"].contains(&status)
}

/// The clerk of one process.
pub(crate) struct Clerk {
    pub(crate) desk: Arc<Desk>,
    pub(crate) harness: Harness,
}

impl Clerk {
    /// The task as it is then; `None` when nobody knows whether it was done.
    pub(crate) async fn serve(&self, ask: Ask) -> Option<Task> {
        for _ in 0..ATTEMPTS {
            let done = match &ask {
                Ask::Submit { key, graph, session } => self.submit(key, graph, session).await,
                Ask::Answer { task, payload } => self.answer(task, payload.clone()).await,
                Ask::Cancel { task } => self.cancel(task).await,
                Ask::Look { task } => self.task(task).await.map(|document| seen(&document)).map_err(CommitError::from),
            };
            match done {
                Ok(task) => return Some(task),
                Err(CommitError::Journal(_) | CommitError::InvocationConflict) => {}
                Err(_) => return None,
            }
        }
        None
    }

    async fn submit(&self, key: &str, graph: &str, session: &str) -> Result<Task, CommitError> {
        let receipt = DocumentKey::new("key", key);
        if let Some(receipt) = self.desk.document(&receipt, self.desk.now()).await? {
            return Ok(Task { id: text_of(&receipt, "task"), status: "working".to_owned() });
        }
        let id = format!("task_{}", self.desk.fresh());
        let transmission = Transmission {
            invocation_id: Some(id.as_str().into()),
            session_id: Some(session.into()),
            ..Transmission::start(graph, Map::new())
        };
        let paused = self.harness.accept(transmission).await.map_err(|error| unavailable(&error.message))?;
        let body = json!({ "task": id, "key": key, "graph": graph, "session": session, "status": "working" });
        let (body, now) = (crate::map(body), self.desk.now());
        let mut journal = told(&self.desk, &body, 0, &["submitted", "started"]).await?;
        let kept = crate::map(json!({ "task": id }));
        journal.documents.push(DocumentWrite {
            key: receipt,
            expect: 0,
            body: Some(kept),
            listed: Vec::new(),
            expires_at: None,
        });
        let accept = InvocationWrite::Accept { paused: Box::new(paused) };
        self.desk.commit(&self.commit(accept, journal, now)).await?;
        self.call(&id).await;
        Ok(Task { id, status: "working".to_owned() })
    }

    async fn answer(&self, task: &str, payload: Map) -> Result<Task, CommitError> {
        let document = self.task(task).await?;
        let id = InvocationId::from(task);
        let record = self.desk.load_invocation(&id).await?;
        let waits = record.filter(|record| record.status == InvocationStatus::Suspended);
        let Some(record) = waits.filter(|_| text_of(&document, "status") == "waiting") else {
            return Ok(seen(&document));
        };
        let payload = self.harness.input(&record.paused, payload).map_err(|error| unavailable(&error.message))?;
        let body = with_status(&document, "working");
        let journal = told(&self.desk, &body, document.version, &["answered"]).await?;
        let generation = record.paused.generation;
        let deliver = InvocationWrite::Deliver { invocation_id: id, generation, answered: None, payload };
        self.desk.commit(&self.commit(deliver, journal, self.desk.now())).await?;
        self.call(task).await;
        Ok(Task { id: task.to_owned(), status: "working".to_owned() })
    }

    async fn cancel(&self, task: &str) -> Result<Task, CommitError> {
        let document = self.task(task).await?;
        if is_terminal(&text_of(&document, "status")) {
            return Ok(seen(&document));
        }
        let record = self.desk.load_invocation(&task.into()).await?;
        let Some(record) = record else { return Err(unavailable("a task without an invocation")) };
        let body = with_status(&document, "canceled");
        let journal = told(&self.desk, &body, document.version, &["canceled"]).await?;
        let (paused, now) = (Box::new(record.paused), self.desk.now());
        let cancel = InvocationWrite::Cancel { paused, cancellation: Cancellation { reason: None, at: now } };
        self.desk.commit(&self.commit(cancel, journal, now)).await?;
        Ok(Task { id: task.to_owned(), status: "canceled".to_owned() })
    }

    async fn task(&self, id: &str) -> Result<Document, StoreError> {
        let document = self.desk.document(&task_key(id), self.desk.now()).await?;
        document.ok_or_else(|| StoreError::Corrupt(format!("there is no task {id}")))
    }

    /// A call that is lost is made up for by the sweep.
    async fn call(&self, task: &str) {
        let _ = self.harness.call_for_work(&task.into()).await;
    }

    fn commit(&self, write: InvocationWrite, journal: Journal, now: jiff::Timestamp) -> Commit {
        let (id, growing) = (self.desk.fresh(), GrowingLists::default());
        Commit { id, now, session: None, invocation: Some(write), journal, growing }
    }
}

/// `commit` with what it does to a task, told as things are now; `None` when it tells of that itself, or does nothing to
/// a task.
pub(crate) async fn telling(desk: &Desk, commit: &Commit) -> Result<Option<Commit>, StoreError> {
    let Some(write) = commit.invocation.as_ref().filter(|_| commit.journal.is_empty()) else { return Ok(None) };
    let status = match write {
        InvocationWrite::Suspend { claim: None, .. } | InvocationWrite::Release { generation: 1.., .. } => "waiting",
        InvocationWrite::Suspend { claim: Some(_), .. } => "working",
        InvocationWrite::Complete { .. } => "completed",
        InvocationWrite::Fail { .. } => "failed",
        InvocationWrite::Cancel { .. } => "canceled",
        InvocationWrite::Accept { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Release { .. }
        | InvocationWrite::Advance { .. }
        | InvocationWrite::Answer { .. }
        | InvocationWrite::Forestall { .. }
        | InvocationWrite::Unstored { .. } => return Ok(None),
    };
    let id = write.invocation_id().as_str();
    if !id.starts_with("task_") {
        return Ok(None);
    }
    let Some(document) = desk.document(&task_key(id), commit.now).await? else { return Ok(None) };
    if is_terminal(&text_of(&document, "status")) {
        return Ok(None);
    }
    let journal = told(desk, &with_status(&document, status), document.version, &[status]).await?;
    Ok(Some(Commit { id: format!("{}-{}", commit.id, desk.fresh()), journal, ..commit.clone() }))
}

/// The task of `body` becomes that, and the stream of its session tells of `steps`. Each entry says where it stands.
async fn told(desk: &Desk, body: &Map, version: u64, steps: &[&str]) -> Result<Journal, StoreError> {
    let body = body.clone();
    let (task, stream) = (field(&body, "task"), field(&body, "session"));
    let first = desk.last_position(&stream).await? + 1;
    let entry = |(position, step): (u64, &&str)| json!({ "task": task, "step": step, "position": position });
    let entries = (first..).zip(steps).map(entry).map(crate::map).collect();
    let document =
        DocumentWrite { key: task_key(&task), expect: version, body: Some(body), listed: Vec::new(), expires_at: None };
    let append = Append { stream, first, entries, fed: Vec::new() };
    Ok(Journal { documents: vec![document], appends: vec![append] })
}

fn seen(document: &Document) -> Task {
    Task { id: document.key.id.clone(), status: text_of(document, "status") }
}

fn with_status(document: &Document, status: &str) -> Map {
    let mut body = document.body.clone();
    body.insert("status".to_owned(), status.into());
    body
}

fn text_of(document: &Document, name: &str) -> String {
    field(&document.body, name)
}

fn field(body: &Map, name: &str) -> String {
    body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn unavailable(why: &str) -> CommitError {
    StoreError::Unavailable(why.to_owned()).into()
}
