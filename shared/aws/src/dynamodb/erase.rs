//! Erasing what belongs to a session or a tenant: documents, streams, invocations, their blobs, and every row that leads
//! to them.
//!
//! The whole table is read, once for the documents and for the states that name a tenant, and once for what belongs to
//! them: an item names its owner, so that nothing is found by following references that may be broken. What all of it is found
//! by goes last: the heads of states, and documents behind them. After a crash in the midst of it, or where others were
//! writing, it is done again, until nothing is left.

mod fences;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use dormouse_ports::{
    Clock, Document, DocumentKey, InvocationId, InvocationPhase, OwnedState, PausedInvocation, SessionId,
    SignalBringer, SignalId, StoreError, invocation_of_note,
};

use self::fences::Fences;
use super::blobs::{BlobRef, Bodies};
use super::invocation::standing;
use super::item::{Item, optional_text, text, text_value};
use super::journal::DocumentItems;
use super::keys::{
    self, BEGUN_FOR, BODY, BRIEF, CLAIM_LANE, CLAIM_SINCE, CLAIM_UNTIL, EXPIRES_AT, FED_AT, FENCED_BY, FIRST_POSITION,
    INVOCATION_ID, KIND, Key, LABEL, LAST_POSITION, NOTED_FROM, NOTED_IN, OWNERS, PAUSE, PHASE, PK, RECORD_ID,
    SIGNAL_ID, SK, STEP, STREAM, VERSION,
};
use super::requests::Table;
use super::scan::{ScanSelection, key_of};
use super::steps::{is_erased, owner_of_stream};
use super::write::ItemWrite;

/// What is read of items to tell what they are: all that [`Belongings`] and [`Fences`] ask for.
const TELLING: &[&str] = &[
    PK,
    SK,
    KIND,
    RECORD_ID,
    STREAM,
    LABEL,
    INVOCATION_ID,
    SIGNAL_ID,
    OWNERS,
    PAUSE,
    FIRST_POSITION,
    LAST_POSITION,
    FED_AT,
    FENCED_BY,
    NOTED_IN,
    NOTED_FROM,
    STEP,
];

/// What is erased beside documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belongings {
    /// The documents.
    pub documents: BTreeSet<DocumentKey>,
    /// Ids of workspaces, sessions, streams and invocations of the protocol, which no caller chooses.
    pub owners: BTreeSet<String>,
    /// Other sessions.
    pub sessions: BTreeSet<SessionId>,
    /// Other invocations.
    pub invocations: BTreeSet<InvocationId>,
    /// The tenant of whose lists, and of whose keys' signals, nothing stays.
    pub tenant: Option<String>,
    /// The kind of counters, and the beginning of their names. They have no body, so that they are not
    /// [found](Eraser::find).
    pub counters: Option<DocumentKey>,
}

/// Selection of what is looked for in a whole table. What it takes may be more than is erased.
pub struct EraseSearch<'s> {
    /// The documents, which it sees as they are [found](Eraser::find).
    pub documents: &'s (dyn Fn(&Document) -> bool + Send + Sync),
    /// The states. Asked without the session of an invocation, and with it where that is [read](Self::by_session).
    pub states: &'s (dyn Fn(&OwnedState) -> bool + Send + Sync),
    /// True if the session of each invocation counts; otherwise records are only read where they may tell a tenant that
    /// their item does not name.
    pub by_session: bool,
}

impl fmt::Debug for EraseSearch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EraseSearch").field("by_session", &self.by_session).finish_non_exhaustive()
    }
}

/// Number of items that were erased, by what they were.
pub type Erased = BTreeMap<&'static str, u64>;

/// Erases what belongs to a session or a tenant, from a whole table.
#[derive(Clone)]
pub struct Eraser {
    pub(super) table: Arc<Table>,
    pub(super) documents: DocumentItems,
    pub(super) bodies: Arc<Bodies>,
    pub(super) clock: Arc<dyn Clock>,
}

impl fmt::Debug for Eraser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eraser").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Eraser {
    /// The documents and states that `search` takes. A document has the short texts of its body and of the objects in that,
    /// or more. Reads the whole table, and of bodies that are apart from their items those that an earlier version wrote.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn find(&self, search: &EraseSearch<'_>) -> Result<(Vec<Document>, Vec<OwnedState>), StoreError> {
        let condition = "(begins_with(pk, :documents) AND attribute_exists(body)) \
                         OR (begins_with(pk, :sessions) AND sk = :head) OR (begins_with(pk, :invocations) AND sk = :paused)";
        let values = [
            (":documents", keys::DOCUMENTS),
            (":sessions", keys::session_prefix()),
            (":head", keys::HEAD),
            (":invocations", keys::invocation_prefix()),
            (":paused", keys::PAUSED),
        ];
        let selection = ScanSelection {
            condition: condition.to_owned(),
            values: values.map(|(name, value)| (name.to_owned(), text_value(value))).into(),
            attributes: &[
                PK,
                SK,
                KIND,
                RECORD_ID,
                VERSION,
                BODY,
                BRIEF,
                EXPIRES_AT,
                BEGUN_FOR,
                PHASE,
                CLAIM_LANE,
                CLAIM_SINCE,
                CLAIM_UNTIL,
                PAUSE,
            ],
        };
        let (mut documents, mut states) = (Vec::new(), Vec::new());
        let mut cursor = None;
        loop {
            let (items, next) = self.table.scan(&selection, cursor.as_deref()).await?;
            for item in &items {
                let key = key_of(item)?;
                if !key.pk.starts_with(keys::DOCUMENTS) {
                    states.extend(self.state(&key, item, search).await?);
                    continue;
                }
                match self.documents.decode_briefly(item).await {
                    Ok(document) => documents.extend((search.documents)(&document).then_some(document)),
                    Err(StoreError::Corrupt(reason)) => {
                        tracing::warn!(reason, "a document that cannot be read is not looked at");
                    }
                    Err(error) => return Err(error),
                }
            }
            match next {
                Some(next) => cursor = Some(next),
                None => return Ok((documents, states)),
            }
        }
    }

    /// The state of `item`, if `search` takes it.
    async fn state(&self, key: &Key, item: &Item, search: &EraseSearch<'_>) -> Result<Option<OwnedState>, StoreError> {
        let tenant = optional_text(item, BEGUN_FOR).map(str::to_owned);
        let Some(id) = keys::invocation_id(&key.pk) else {
            let session = keys::session_id(&key.pk).map(|id| OwnedState::Session { id, tenant });
            return Ok(session.filter(|state| (search.states)(state)));
        };
        let is_open = !matches!(standing(item), Ok(InvocationPhase::Ended));
        let reads = search.by_session || tenant.is_none();
        let state = OwnedState::Invocation { id: id.clone(), tenant: tenant.clone(), session: None, is_open };
        if !(search.states)(&state) {
            return Ok(None);
        }
        if !reads {
            return Ok(Some(state));
        }
        match self.bodies.body::<PausedInvocation>(item, PAUSE).await {
            Ok(paused) => {
                let tenant = tenant.or(paused.tenant);
                let state = OwnedState::Invocation { id, tenant, session: paused.session_id, is_open };
                Ok(Some(state).filter(|state| (search.states)(state)))
            }
            Err(StoreError::Corrupt(reason)) => {
                tracing::warn!(reason, %id, "an invocation that cannot be read is known by what its item names");
                Ok(Some(state))
            }
            Err(error) => Err(error),
        }
    }

    /// Erases `belongings`: the heads of sessions and invocations behind all that they lead to, the documents last. Reads the
    /// whole table.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer: some of it may be erased then.
    pub async fn erase(&self, belongings: &Belongings) -> Result<Erased, StoreError> {
        let selection = ScanSelection {
            condition: "pk <> :nothing".to_owned(),
            values: Item::from([(":nothing".to_owned(), text_value("-"))]),
            attributes: TELLING,
        };
        let mut fences = Fences::at(self.clock.now());
        let named = |key: &DocumentKey| Key::document(key);
        let mut documents: BTreeSet<Key> = belongings.documents.iter().map(named).collect();
        let (mut heads, mut blobs, mut pauses) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut erased = Erased::new();
        let mut cursor = None;
        loop {
            let (items, next) = self.table.scan(&selection, cursor.as_deref()).await?;
            let mut theirs = Vec::new();
            for item in &items {
                let key = key_of(item)?;
                let kind = belongings.kind_of(&key, item);
                if kind.is_some() || belongings.is_fence(&key, item) {
                    fences.find(&key, item)?;
                }
                theirs.extend(kind.map(|kind| (key, kind, item)));
            }
            let mut removals = Vec::new();
            for (key, kind, item) in theirs {
                if let Some(name) = belongings.named_by_list(&key, item) {
                    documents.insert(Key::document(&name));
                }
                *erased.entry(kind).or_default() += 1;
                if is_head(&key) {
                    let apart = optional_text(item, PAUSE).and_then(|text| BlobRef::parse(text).ok());
                    pauses.extend(apart.map(|pause| pause.address()));
                    heads.push(key);
                } else if keys::blob_of(&key.pk).is_some() {
                    blobs.push(key);
                } else {
                    removals.push(fences.removal(&key, item)?);
                }
            }
            self.table.put_all(removals).await?;
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        fences.close(&self.table).await?;
        // An invocation says by its pause of which session it is: a large one is there as long as its head.
        let is_pause = |key: &Key| keys::blob_of(&key.pk).is_some_and(|address| pauses.contains(address));
        let (behind, before): (Vec<Key>, Vec<Key>) = blobs.into_iter().partition(is_pause);
        for group in [before, heads, behind] {
            self.table.put_all(group.iter().map(ItemWrite::delete).collect()).await?;
        }
        erased.insert("documents", documents.len() as u64);
        for documents in belongings.in_order(documents) {
            self.table.put_all(documents.iter().map(ItemWrite::delete).collect()).await?;
        }
        Ok(erased)
    }
}

impl Belongings {
    /// `documents` in the order in which they go: last those of the owners, by which others are found, as an outcome is by its task.
    /// So what is left by an erasure that ended in the midst is found by the next one.
    fn in_order(&self, mut documents: BTreeSet<Key>) -> [BTreeSet<Key>; 2] {
        let owns = |document: &&DocumentKey| self.owners.contains(&document.id);
        let owners: BTreeSet<Key> = self.documents.iter().filter(owns).map(Key::document).collect();
        documents.retain(|key| !owners.contains(key));
        [documents, owners]
    }

    /// What the item at `key` is, if it belongs to them and is no document. The fence of an earlier erasure is nothing.
    fn kind_of(&self, key: &Key, item: &Item) -> Option<&'static str> {
        if is_erased(item) {
            return None;
        }
        if let Some(kind) = self.partition(&key.pk) {
            return Some(kind);
        }
        let names = |attribute: &str| optional_text(item, attribute).is_some_and(|id| self.owners.contains(id));
        let is_invocations = || optional_text(item, INVOCATION_ID).is_some_and(|id| self.has_invocation(id));
        if key.pk.starts_with(keys::DOCUMENTS) {
            return self.has_counters(&key.pk).then_some("counters");
        }
        if keys::signal_id(&key.pk).is_some_and(|signal| self.is_of_tenant(&signal)) {
            return Some("signals");
        }
        if keys::blob_of(&key.pk).is_some() {
            return self.owns_all(item).then_some("blobs");
        }
        let is_listed = || match (text(item, KIND), text(item, RECORD_ID)) {
            (Ok(kind), Ok(id)) => self.documents.contains(&DocumentKey::new(kind, id)),
            (Ok(_) | Err(_), _) => false,
        };
        let is_note = || self.has_session(&key.sk) && is_note_of_a_session(key) || self.is_note_of_an_invocation(key);
        let is_parked = || optional_text(item, SIGNAL_ID).is_some_and(|id| self.is_of_tenant(&id.into()));
        let is_theirs = || names(STREAM) || names(LABEL) || is_invocations() || is_note() || is_listed() || is_parked();
        if self.is_in_lists(&key.pk) || self.is_in_feeds(&key.pk) || self.is_in_own_list(&key.pk) || is_theirs() {
            return Some("rows");
        }
        None
    }

    /// True if `item` at `key` is what an earlier erasure has left of one of their streams.
    fn is_fence(&self, key: &Key, item: &Item) -> bool {
        is_erased(item) && self.partition(&key.pk).is_some()
    }

    /// True if the partition `pk` is of counters that go.
    fn has_counters(&self, pk: &str) -> bool {
        self.counters.as_ref().is_some_and(|counters| pk.starts_with(&Key::document(counters).pk))
    }

    /// True if the row at `key` tells of what one of the invocations was sent.
    fn is_note_of_an_invocation(&self, key: &Key) -> bool {
        let told_of = || invocation_of_note(&key.sk).is_some_and(|id| self.has_invocation(id.as_str()));
        key.pk == Key::position("").pk && told_of()
    }

    /// True if the partition `pk` is a list of what is in one of their sessions, tasks or workspaces. A row of it may lead to
    /// nothing: rows are written ahead of the commit, and stay where that does not happen.
    fn is_in_own_list(&self, pk: &str) -> bool {
        let list = pk.strip_prefix("LIST#").and_then(|list| list.rsplit_once('/'));
        list.is_some_and(|(_, parent)| self.owners.contains(parent))
    }

    /// What is in the partition `pk`, if it is one of theirs.
    fn partition(&self, pk: &str) -> Option<&'static str> {
        let (kind, id) = pk.split_once('#')?;
        match kind {
            "STREAM" if self.owners.contains(id) => Some("events"),
            "STREAM" if owner_of_stream(id).is_some_and(|id| self.has_invocation(id)) => Some("invocations"),
            "SESSION" if self.has_session(id) => Some("session states"),
            "INVOCATION" if self.has_invocation(id) => Some("invocations"),
            _ => None,
        }
    }

    fn has_session(&self, id: &str) -> bool {
        self.owners.contains(id) || self.sessions.contains(&SessionId::from(id))
    }

    fn has_invocation(&self, id: &str) -> bool {
        self.owners.contains(id) || self.invocations.contains(&InvocationId::from(id))
    }

    /// True if all owners that refer to a blob are erased.
    fn owns_all(&self, item: &Item) -> bool {
        let owners: Option<Vec<(String, String)>> =
            optional_text(item, OWNERS).and_then(|owners| serde_json::from_str(owners).ok());
        let is_ours = |pk: &str| {
            let is_document = || keys::document_key(pk).is_some_and(|key| self.documents.contains(&key));
            let is_signal = || keys::signal_id(pk).is_some_and(|signal| self.is_of_tenant(&signal));
            self.partition(pk).is_some() || is_document() || is_signal()
        };
        owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(|(pk, _)| is_ours(pk)))
    }

    fn is_in_lists(&self, pk: &str) -> bool {
        let list = pk.strip_prefix("LIST#").and_then(|list| list.split_once('/'));
        list.is_some_and(|(tenant, _)| self.tenant.as_deref() == Some(tenant))
    }

    /// True if the partition `pk` is of a feed of the tenant. A row of it may lead to nothing.
    fn is_in_feeds(&self, pk: &str) -> bool {
        let feed = pk.strip_prefix("FEED#").and_then(|feed| feed.split_once('/'));
        feed.is_some_and(|(tenant, _)| self.tenant.as_deref() == Some(tenant))
    }

    /// True if only keys of the tenant bring `signal`.
    fn is_of_tenant(&self, signal: &SignalId) -> bool {
        match (signal.origin().0, &self.tenant) {
            (Some(SignalBringer::Tenant(of)), Some(tenant)) => of == *tenant,
            (Some(SignalBringer::Tenant(_) | SignalBringer::Events(_)) | None, _) => false,
        }
    }

    /// The document that a row of one of the lists names.
    fn named_by_list(&self, key: &Key, item: &Item) -> Option<DocumentKey> {
        if !self.is_in_lists(&key.pk) {
            return None;
        }
        Some(DocumentKey::new(text(item, KIND).ok()?, text(item, RECORD_ID).ok()?))
    }
}

/// True if a session or an invocation is [found](Eraser::find) by the item at `key`. While it is there, whatever else of it an
/// erasure that ended in the midst has left is found as well.
fn is_head(key: &Key) -> bool {
    match key.sk.as_str() {
        keys::HEAD => keys::session_id(&key.pk).is_some(),
        keys::PAUSED => keys::invocation_id(&key.pk).is_some(),
        _ => false,
    }
}

/// True if the row at `key` is what sweeps note of one session. Others beside it have names of their own where a session's
/// would stand, `due` or `ROOT`, and sessions may be called so.
fn is_note_of_a_session(key: &Key) -> bool {
    let session = SessionId::from(key.sk.as_str());
    *key == Key::headless(&session) || *key == Key::root(&session)
}

#[cfg(test)]
mod tests {
    use dormouse_ports::unfit_note;

    use super::*;

    #[test]
    fn a_session_takes_no_row_of_a_sweep_that_has_its_name() {
        let named = |name: &str| Belongings { sessions: [SessionId::from(name)].into(), ..Belongings::default() };
        let kind = |name: &str, key: &Key| named(name).kind_of(key, &Item::new());
        for name in ["ROOT", "due", "everything", "team/7"] {
            let session = SessionId::from(name);
            assert_eq!(kind(name, &Key::headless(&session)), Some("rows"), "{name}");
            assert_eq!(kind(name, &Key::root(&session)), Some("rows"), "{name}");
            assert_eq!(kind(name, &Key::position(name)), None, "{name}");
            assert_eq!(kind(name, &Key::root(&"another".into())), None, "{name}");
        }
        assert_eq!(kind("ROOT", &Key::riddle()), None);
    }

    #[test]
    fn what_is_found_by_another_document_goes_before_that() {
        let [outcome, session, task] = [("outcome", "outcome_1"), ("session", "session_1"), ("task", "task_1")]
            .map(|(kind, id)| DocumentKey::new(kind, id));
        let documents = BTreeSet::from([outcome.clone(), session.clone(), task.clone()]);
        let owners = BTreeSet::from(["session_1".to_owned(), "task_1".to_owned()]);
        let listed = Key::document(&DocumentKey::new("memory", "memory_1"));
        let mut all: BTreeSet<Key> = documents.iter().map(Key::document).collect();
        all.insert(listed.clone());
        let belongings = Belongings { documents, owners, ..Belongings::default() };
        let [first, last] = belongings.in_order(all);
        assert_eq!(first, BTreeSet::from([listed, Key::document(&outcome)]));
        assert_eq!(last, BTreeSet::from([&session, &task].map(Key::document)));
    }

    #[test]
    fn an_invocation_takes_the_notes_of_what_it_was_sent() {
        let belongings = Belongings { invocations: [InvocationId::from("a/b")].into(), ..Belongings::default() };
        let kind = |name: &str| belongings.kind_of(&Key::position(name), &Item::new());
        assert_eq!(kind(&unfit_note(&"a/b".into(), 3)), Some("rows"));
        assert_eq!(kind(&unfit_note(&"a".into(), 3)), None);
        assert_eq!((kind("unfit/a/b"), kind("unfit/a/b/c"), kind("a/b")), (None, None, None));
        assert_eq!(belongings.kind_of(&Key::root(&unfit_note(&"a/b".into(), 3).into()), &Item::new()), None);
    }
}
