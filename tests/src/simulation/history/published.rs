use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::{Commit, Document, DocumentKey, FeedRequest, FeedRow, Map, StreamTip};
use dormouse_protocol::Event;
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::{EventId, OutcomeId, SessionId, TaskId};
use dormouse_protocol::resource::{Outcome, Session, SessionState, Task, TaskStatus};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::simulation::hearing::AllGiven;
use crate::simulation::outside::{Truth, at_once};

/// What is stored for clients: documents in all their versions, and streams.
#[derive(Default)]
pub(crate) struct Published {
    pub(crate) streams: BTreeMap<String, Vec<Event>>,
    pub(crate) feeds: BTreeMap<String, Vec<FeedRow>>,
    /// How many events at the end of a stream no feed reports yet.
    pub(crate) unreported: BTreeMap<String, u64>,
    pub(crate) tasks: BTreeMap<String, Vec<Task>>,
    pub(crate) outcomes: BTreeMap<String, Vec<Outcome>>,
    pub(crate) sessions: BTreeMap<String, Vec<Thread>>,
    /// What is left of each quota, by the names of its limits.
    pub(crate) left: BTreeMap<String, BTreeMap<String, i64>>,
    /// Messages that tasks were given.
    given: AllGiven,
    /// Sessions, as their documents have them.
    documents: BTreeMap<String, Session>,
    /// What idempotency keys were answered with, and until when that is kept.
    pub(crate) receipts: BTreeMap<String, Vec<(Option<Timestamp>, Value)>>,
    /// The events that note the key of their request.
    pub(crate) noted: BTreeSet<EventId>,
    /// The version of each document that was seen last, and until when it is kept: one that comes anew begins at 1 again.
    versions: BTreeMap<DocumentKey, (u64, Option<Timestamp>)>,
    /// The true present instant, where the store is one in which commits are under way for a while.
    pub(crate) now: Timestamp,
    /// How far those have read who read feeds all the time.
    passed: Timestamp,
    /// Whether they go on behind the last that is there.
    pub(crate) hasty: bool,
    /// An append that came to stand behind readers.
    pub(crate) missed: Option<FeedRow>,
    /// Something that cannot be read.
    pub(crate) unreadable: Option<String>,
}

/// Field of a stored event with the key of its request.
const NOTED: &str = "noted";
/// The kind of the counters of quotas.
const COUNTERS: &str = "counters";

/// By how much the clock of a process is wrong at most.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

/// A session, and what its server knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) session: Session,
    /// The position of the last event of its stream.
    pub(crate) position: u64,
    /// What its open tasks do.
    pub(crate) open: BTreeMap<TaskId, String>,
    /// The position from which on no message was given to a run, where that is known of no single ones.
    pub(crate) undelivered_from: Option<u64>,
    /// The positions of the messages that no run was given.
    pub(crate) undelivered: Vec<u64>,
}

/// What every resource is stored as.
#[derive(Deserialize)]
struct Kept<R> {
    resource: R,
}

/// What the end of a stream holds of its session.
#[derive(Deserialize)]
struct SessionEnd {
    state: SessionState,
    updated_at: Timestamp,
    own: OwnOfSession,
}

#[derive(Deserialize)]
struct OwnOfSession {
    position: u64,
    open: BTreeMap<TaskId, OpenTask>,
    unheard: Option<u64>,
    #[serde(default)]
    unheard_at: Vec<u64>,
}

/// What a session knows of an open task.
#[derive(Deserialize)]
#[serde(untagged)]
enum OpenTask {
    Standing(String),
    Progress {
        status: TaskStatus,
        updated_at: Timestamp,
        started_at: Option<Timestamp>,
        #[serde(default)]
        late: Vec<u64>,
    },
}

impl OpenTask {
    fn standing(&self) -> String {
        match self {
            Self::Standing(standing) => standing.clone(),
            Self::Progress { status, .. } => if status.is_suspended() { "waits" } else { "works" }.to_owned(),
        }
    }
}

impl Published {
    /// Reads the documents and streams that `commit` writes; by how many entries the streams grew.
    pub(super) fn look(&mut self, store: &dyn Truth, commit: &Commit) -> usize {
        for write in &commit.journal.documents {
            if let Ok(Some(document)) = at_once(store.document(&write.key, commit.now))
                && let seen = (document.version, document.expires_at)
                && self.versions.insert(document.key.clone(), seen) != Some(seen)
                && let Err(error) = self.note(&document)
            {
                self.unreadable = Some(format!("{}: {error}", document.key));
            }
        }
        for write in commit.journal.counters.iter().filter(|write| write.key.kind == COUNTERS) {
            if let Ok(Some(counters)) = at_once(store.counters(&write.key)) {
                self.left.insert(write.key.id.clone(), counters.left);
            }
        }
        let mut grown = 0;
        for append in &commit.journal.appends {
            let entries = at_once(store.entries(&append.stream, 0, usize::MAX)).unwrap_or_default();
            let noted = entries.iter().filter(|entry| entry.entry.contains_key(NOTED));
            self.noted.extend(noted.map(|entry| EventId::at(&append.stream, entry.position)));
            let events = entries.into_iter().map(|entry| serde_json::from_value(Value::Object(entry.entry)));
            match events.collect::<Result<Vec<Event>, _>>() {
                Ok(events) => {
                    grown += events.len() - self.streams.get(&append.stream).map_or(0, Vec::len);
                    self.streams.insert(append.stream.clone(), events);
                }
                Err(error) => self.unreadable = Some(format!("stream {}: {error}", append.stream)),
            }
            if let Ok(StreamTip { known: Some(known), unreported, .. }) = at_once(store.tip(&append.stream)) {
                self.unreported.insert(append.stream.clone(), unreported);
                if let Err(error) = self.note_end(&append.stream, known) {
                    self.unreadable = Some(format!("the end of stream {}: {error}", append.stream));
                }
            }
            if let Some(fed) = &append.fed {
                let rows = whole(store, &fed.feed);
                let known = self.feeds.insert(fed.feed.clone(), rows.clone()).unwrap_or_default();
                let new = rows.into_iter().filter(|row| !known.contains(row));
                self.missed = self.missed.take().or_else(|| new.into_iter().find(|row| row.at <= self.passed));
            }
        }
        // Readers have clocks of their own.
        let now = self.now + SKEW;
        let upto = if self.hasty { now } else { store.settled(now) };
        if self.now > Timestamp::UNIX_EPOCH {
            self.passed = self.passed.max(upto);
        }
        grown
    }

    fn note(&mut self, document: &Document) -> Result<(), serde_json::Error> {
        let id = document.key.id.clone();
        let body = Value::Object(document.body.clone());
        match document.key.kind.as_str() {
            TaskId::OBJECT => {
                // A small outcome is kept with its task.
                if let Some(outcome) = body["own"].get("outcome") {
                    let outcome: Outcome = serde_json::from_value(outcome.clone())?;
                    self.outcomes.entry(outcome.envelope.id.to_string()).or_default().push(outcome);
                }
                self.given.insert(TaskId::from(id.clone()), serde_json::from_value(body["own"].clone())?);
                self.tasks.entry(id).or_default().push(resource(body)?);
            }
            OutcomeId::OBJECT => self.outcomes.entry(id).or_default().push(resource(body)?),
            SessionId::OBJECT => {
                self.documents.insert(id, resource(body)?);
            }
            "idempotency" => {
                self.receipts.entry(id).or_default().push((document.expires_at, body["answer"].clone()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes what the end of the stream `id` holds of its session.
    fn note_end(&mut self, id: &str, known: Map) -> Result<(), serde_json::Error> {
        let Some(mut session) = self.documents.get(id).cloned() else { return Ok(()) };
        let SessionEnd { state, updated_at, own } = serde_json::from_value(Value::Object(known))?;
        let OwnOfSession { position, open, unheard: undelivered_from, unheard_at: undelivered } = own;
        open.iter().for_each(|(task, open)| self.goes_on(task, open));
        let open = open.into_iter().map(|(task, open)| (task, open.standing())).collect();
        (session.state, session.envelope.updated_at) = (state, updated_at);
        session.last_event_id = Some(EventId::at(id, position));
        self.sessions.entry(id.to_owned()).or_default().push(Thread {
            session,
            position,
            open,
            undelivered_from,
            undelivered,
        });
        Ok(())
    }

    /// An open task is at the end of the stream of its session as it is.
    fn goes_on(&mut self, id: &TaskId, open: &OpenTask) {
        let OpenTask::Progress { status, updated_at, started_at, late } = open else { return };
        if let Some(given) = self.given.get_mut(id) {
            given.late.clone_from(late);
        }
        let Some(versions) = self.tasks.get_mut(id.as_str()) else { return };
        if let Some(mut task) = versions.last().cloned() {
            (task.status, task.envelope.updated_at) = (*status, *updated_at);
            task.started_at = task.started_at.or(*started_at);
            if versions.last() != Some(&task) {
                versions.push(task);
            }
        }
    }

    /// The task `id` as it is.
    pub(crate) fn task(&self, id: &str) -> Option<&Task> {
        self.tasks.get(id)?.last()
    }

    /// All sessions as they are, by their ids.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (&str, &Thread)> {
        self.sessions.iter().filter_map(|(id, all)| Some((id.as_str(), all.last()?)))
    }

    /// The tasks of the session `id` that were given its message at `position`.
    pub(crate) fn given_to(&self, id: &str, position: u64) -> Vec<&Task> {
        let given = self.given.iter().filter(|(_, given)| given.has(position));
        let tasks = given.filter_map(|(task, _)| self.task(task.as_str()));
        tasks.filter(|task| task.session_id.as_str() == id).collect()
    }

    /// The session `id` as it is.
    pub(crate) fn session(&self, id: &str) -> Option<&Thread> {
        self.sessions.get(id)?.last()
    }
}

/// All that `feed` tells of.
fn whole(store: &dyn Truth, feed: &str) -> Vec<FeedRow> {
    let feed = feed.to_owned();
    let until = Timestamp::MAX;
    let request = FeedRequest { feed, labels: None, after: None, until, limit: usize::MAX };
    let page = at_once(store.feed(&request)).unwrap_or_default();
    page.appends.into_iter().map(|append| append.row).collect()
}

fn resource<R: DeserializeOwned>(body: Value) -> Result<R, serde_json::Error> {
    serde_json::from_value(body).map(|kept: Kept<R>| kept.resource)
}
