//! API keys: who may ask, and for what.
//!
//! A key is `dm_<id>_<secret>`: an id of 16 hexadecimal digits, by which it is listed and revoked, and a secret of 64,
//! which are 256 bits of chance. The store holds a document of the kind `key` with the SHA-256 of the whole key, never
//! the key. A hash without salt and rounds will do: 256 bits cannot be guessed.
//!
//! # Invariants
//! - The key itself is seen once, by its maker. No type here shows it when it is printed for debugging.
//! - A key that is revoked is refused from then on: nothing is cached, each request reads the document.
//! - That a key is used is written once an hour by each process, into a document of its own: no process that serves
//!   requests writes keys.
//! - An unknown id, a wrong secret and an expired key get the same answer for the same work: one read, one hash, one
//!   comparison in constant time.

mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dormouse_ports::{
    Breadth, Clock, Commit, CommitError, Commits, Document, DocumentKey, DocumentWrite, IdSource, Journal, ListRequest,
    Listed, Map, Page, Records, StoreError,
};
use dormouse_protocol::Scope;
use dormouse_protocol::id::{QuotaId, WorkspaceId};
use dormouse_protocol::resource::{Quota, Workspace};
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Actor;
use crate::audit::{AuditLog, BegunEntry, Deed, Proof};
use crate::documents::Stored;
use crate::identity::{IssuerAway, Issuers};
use crate::rates::{RateLimits, Rates, Taken};
pub use token::{CHANCE, KeyToken};

/// The kind of the documents.
pub(crate) const KIND: &str = "key";
/// The kind of the documents that tell when keys were used.
pub(crate) const USE: &str = "key_use";
/// The list that all of them stand in.
const LIST: &str = "keys";

/// Interval at which the use of a key is noted.
const USE_NOTED_EVERY: SignedDuration = SignedDuration::from_hours(1);

/// The field of the instant in such a document.
const USED_AT: &str = "used_at";

/// The longest name of an actor or a tenant.
const LONGEST_NAME: usize = 64;

/// True if `text` can be the name of an actor or a tenant: 1 to 64 ASCII letters, digits and `-_.@+`. Names stand in
/// front of others in the names of lists and in scopes, so they must not run into them.
pub fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+".contains(&byte);
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Rights of the holder of a key, and the actor that it acts as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The [name](is_name) that resources and events give the holder.
    pub actor: String,
    /// The [name](is_name) of the tenant that owns all resources that the holder can see at all.
    pub tenant: String,
    /// Workspaces of the tenant that the holder is restricted to; `None` for all of them.
    pub workspaces: Option<BTreeSet<WorkspaceId>>,
    /// Scopes of the holder there.
    pub scopes: BTreeSet<Scope>,
    /// From when on the key is refused; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// A key as it is listed: everything but the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// By what it is revoked.
    pub id: String,
    /// Instant at which it was made.
    pub created_at: Timestamp,
    /// Instant at which it was used, at most an hour before its last use; `None` for a key that never was.
    pub last_used_at: Option<Timestamp>,
    /// Quota that the tasks of its holder count against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_id: Option<QuotaId>,
    /// Rights of its holder.
    #[serde(flatten)]
    pub grant: Grant,
}

/// A key as it is stored.
#[derive(Clone, Serialize, Deserialize)]
struct StoredKey {
    #[serde(flatten)]
    grant: Grant,
    /// Quota that the tasks of its holder count against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota_id: Option<QuotaId>,
    created_at: Timestamp,
    /// SHA-256 of the whole key in hexadecimal digits.
    hash: String,
    /// Id of the key that takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replaced_by: Option<String>,
}

/// Outcome of replacing a key.
#[derive(Debug)]
pub enum Rotation {
    /// There is no such key.
    NoKey,
    /// It has been replaced already: two of them would be good where one was. The id is that of the key that stands in its
    /// place now, also where that of the first replacement was replaced in turn.
    Replaced(String),
    /// What a store has to commit, the new key, and when the old one ends.
    Made(Box<Journal>, Box<KeyInfo>, Timestamp),
}

/// The way to the store of what is written about callers.
pub struct Writes {
    /// Commits to the store that the keys are in.
    pub commits: Arc<dyn Commits>,
    /// Names the commits.
    pub ids: Arc<dyn IdSource>,
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writes")
    }
}

/// What is asked of callers and noted about them beside who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessPolicy {
    /// Rates of requests that they may send.
    pub rates: RateLimits,
    /// For how long it is kept who did what; nothing is kept without it.
    pub audit: Option<SignedDuration>,
}

/// Reason for which it is not known who a caller is.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The store did not answer.
    #[error("an API key could not be looked up: {0}")]
    Store(#[from] StoreError),
    /// The issuer of a token did not say by which keys it signs, or too many wait for that.
    #[error(transparent)]
    Issuer(#[from] IssuerAway),
}

impl HolderError {
    /// A sentence for the caller.
    pub fn told(&self) -> &'static str {
        match self {
            Self::Store(_) => "the store did not answer when the key was looked up",
            Self::Issuer(_) => "the issuer of the token does not say by which keys it signs; send it again later",
        }
    }

    /// Number of seconds after which the caller may come again.
    pub fn retry_after(&self) -> u32 {
        match self {
            Self::Store(_) => 1,
            Self::Issuer(_) => 5,
        }
    }
}

/// Number of callers that are remembered as refused.
const REFUSED_KEPT: usize = 1_000;

/// Interval at which it is asked for a stream whether its key is still good.
const LOOKS_EVERY: Duration = Duration::from_secs(60);
/// The same, for what requests have shown of keys; and number of keys of which that is remembered.
const SEEN_FOR: SignedDuration = SignedDuration::from_secs(60);
const SEEN_KEPT: usize = 10_000;

/// Knows the callers: by their keys, and by the tokens of issuers that are trusted. Cheap to clone.
#[derive(Clone)]
pub struct Keys {
    records: Arc<dyn Records>,
    issuers: Option<Issuers>,
    writes: Option<Arc<Writes>>,
    rates: Option<Arc<Rates>>,
    /// True if the rates are counted in the store.
    shares: bool,
    audit: Option<AuditLog>,
    /// Times when the use of a key was last noted, by the keys' ids.
    noted: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    /// Who was refused because a rate is used up, by the digest of what they presented: they are refused again without
    /// being looked up.
    refused: Arc<Mutex<BTreeMap<[u8; 32], Actor>>>,
    /// Times when keys were last seen to be good, by their ids.
    seen_good: Arc<Mutex<BTreeMap<String, Timestamp>>>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// The keys that `records` hold.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self {
            records,
            issuers: None,
            writes: None,
            rates: None,
            shares: false,
            audit: None,
            noted: Arc::default(),
            refused: Arc::default(),
            seen_good: Arc::default(),
        }
    }

    /// The same, which notes by `writes` when keys are used.
    #[must_use]
    pub fn writing(self, writes: Writes) -> Self {
        Self { writes: Some(Arc::new(writes)), ..self }
    }

    /// The same under `policy`. Rates are counted in the store where others serve beside this process (`is_shared`) and
    /// it may write, else in memory. The audit log is kept only by one that may write.
    #[must_use]
    pub fn under(self, policy: AccessPolicy, is_shared: bool) -> Self {
        let limited = policy.rates != RateLimits::default();
        let audit = self.writes.clone().zip(policy.audit).map(|(writes, keep)| AuditLog::new(writes, keep));
        Self { rates: limited.then(|| Arc::new(Rates::new(policy.rates))), shares: is_shared, audit, ..self }
    }

    /// The same, which also takes the tokens of `issuers`.
    #[must_use]
    pub fn trusting(self, issuers: Issuers) -> Self {
        Self { issuers: Some(issuers), ..self }
    }

    /// The issuers of accepted tokens.
    pub fn issuers(&self) -> Option<&Issuers> {
        self.issuers.as_ref()
    }

    /// The journal that a store has to commit for `token` to be a key with this `grant` from `now` on. The commit fails
    /// while there is a key with its id.
    pub fn creation(token: &KeyToken, grant: Grant, now: Timestamp) -> Journal {
        Self::creation_limited(token, grant, None, now)
    }

    /// The same; the tasks of the key's holder count against the quota `quota_id`.
    pub fn creation_limited(token: &KeyToken, grant: Grant, quota_id: Option<QuotaId>, now: Timestamp) -> Journal {
        let expires_at = grant.expires_at;
        let stored = StoredKey { grant, quota_id, created_at: now, hash: token.hash(), replaced_by: None };
        Self::write(token.id(), 0, Some(stored.body()), expires_at)
    }

    /// The journal that a store has to commit for `token` to take the place of the key `id` from `now` on, and what is
    /// known of the new key then. It has the rights of the old one, which is refused from `old_until` on, if it does not
    /// end before, and the same end unless `expires_at` names another. A key is replaced once: of several who do it at the same time one does.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn rotation(
        &self,
        id: &str,
        token: &KeyToken,
        expires_at: Option<Timestamp>,
        (old_until, now): (Timestamp, Timestamp),
    ) -> Result<Rotation, StoreError> {
        let found = self.records.document(&DocumentKey::new(KIND, id), now).await?;
        let Some((document, old)) = found.and_then(|document| read(&document).map(|old| (document, old))) else {
            return Ok(Rotation::NoKey);
        };
        if let Some(by) = old.replaced_by {
            return Ok(Rotation::Replaced(self.standing(by, now).await?));
        }
        let grant = Grant { expires_at: expires_at.or(old.grant.expires_at), ..old.grant.clone() };
        let creation = Self::creation_limited(token, grant.clone(), old.quota_id.clone(), now);
        let quota_id = old.quota_id.clone();
        let until = old.grant.expires_at.map_or(old_until, |end| end.min(old_until));
        let replaced_by = Some(token.id().to_owned());
        let old = StoredKey { grant: Grant { expires_at: Some(until), ..old.grant }, replaced_by, ..old };
        let ending = Self::write(id, document.version, Some(old.body()), Some(until));
        let info = KeyInfo { id: token.id().to_owned(), created_at: now, last_used_at: None, quota_id, grant };
        Ok(Rotation::Made(Box::new(creation.merged_with(ending)), Box::new(info), until))
    }

    /// The key that stands at the end of the replacements that begin with the key `id`.
    async fn standing(&self, mut id: String, now: Timestamp) -> Result<String, StoreError> {
        loop {
            let found = self.records.document(&DocumentKey::new(KIND, &id), now).await?;
            match found.and_then(|document| read(&document)).and_then(|key| key.replaced_by) {
                Some(next) => id = next,
                None => return Ok(id),
            }
        }
    }

    /// True if `tenant` has the quota `id`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn has_quota(&self, tenant: &str, id: &QuotaId, now: Timestamp) -> Result<bool, StoreError> {
        let quota = Stored::<Quota>::load(&*self.records, id, now).await?;
        Ok(quota.is_some_and(|quota| quota.kept.tenant == tenant))
    }

    /// True if `tenant` has the workspace `id`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn has_workspace(&self, tenant: &str, id: &WorkspaceId, now: Timestamp) -> Result<bool, StoreError> {
        let workspace = Stored::<Workspace>::load(&*self.records, id, now).await?;
        Ok(workspace.is_some_and(|workspace| workspace.kept.tenant == tenant))
    }

    /// The journal that a store has to commit for the key `id` to be refused from then on; `None` if there is no such
    /// key.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn revocation(&self, id: &str, now: Timestamp) -> Result<Option<Journal>, StoreError> {
        let found = self.records.document(&DocumentKey::new(KIND, id), now).await?;
        Ok(found.map(|document| Self::write(id, document.version, None, None)))
    }

    /// The journal that a store has to commit for the key `id` to be refused from then on, whatever the clock of who serves
    /// it says, while what is known of it stays; `None` if there is no such key, or it is closed.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn closing(&self, id: &str, now: Timestamp) -> Result<Option<Journal>, StoreError> {
        let found = self.records.document(&DocumentKey::new(KIND, id), now).await?;
        let Some((document, key)) = found.and_then(|document| read(&document).map(|key| (document, key))) else {
            return Ok(None);
        };
        if key.grant.expires_at.is_some_and(|end| end <= key.created_at) {
            return Ok(None);
        }
        let grant = Grant { expires_at: Some(key.created_at), ..key.grant };
        Ok(Some(Self::write(id, document.version, Some(StoredKey { grant, ..key }.body()), None)))
    }

    /// A page of keys, in the order of their ids, behind the key `after`; and the id to go on behind.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn list(&self, after: Option<String>, limit: usize, now: Timestamp) -> Result<Page<KeyInfo>, StoreError> {
        let list = LIST.to_owned();
        let breadth = Breadth::Narrow;
        let request = ListRequest { list, breadth, after, limit, newest_first: false, now };
        let page = self.records.documents(&request).await?;
        let info = |document: Document| {
            let StoredKey { grant, created_at, quota_id, .. } = read(&document)?;
            Some(KeyInfo { id: document.key.id, created_at, last_used_at: None, quota_id, grant })
        };
        let known = page.items.into_iter().filter_map(info);
        let used = known.map(async |key| {
            let noted = self.records.document(&DocumentKey::new(USE, &key.id), now).await?;
            let last_used_at = noted.as_ref().and_then(used_at);
            Ok(KeyInfo { last_used_at, ..key })
        });
        Ok(Page { items: try_join_all(used).await?, next: page.next })
    }

    fn write(id: &str, expect: u64, body: Option<Map>, expires_at: Option<Timestamp>) -> Journal {
        let listed = vec![Listed::new(LIST, id)];
        let write = DocumentWrite { key: DocumentKey::new(KIND, id), expect, body, listed, expires_at };
        Journal::new(vec![write], Vec::new())
    }

    /// The caller, by the `authorization` header; `None` for everything that is not the bearer of a good key, or of a
    /// good token of an issuer.
    ///
    /// # Errors
    /// [`HolderError`] when the store did not answer, or an issuer did not say by which keys it signs.
    pub async fn holder(&self, header: Option<&str>, now: Timestamp) -> Result<Option<Actor>, HolderError> {
        let Some(given) = header.and_then(bearer) else { return Ok(None) };
        if let Some(issuers) = self.issuers.as_ref().filter(|_| Issuers::may_be_token(given)) {
            return Ok(issuers.actor(given, now).await?);
        }
        let Some(token) = KeyToken::parse(given) else { return Ok(None) };
        let found = self.records.document(&DocumentKey::new(KIND, token.id()), now).await?;
        let stored = found.as_ref().and_then(read);
        let known = stored.as_ref().map_or("", |stored| stored.hash.as_str());
        let same = padded(known).ct_eq(&padded(&token.hash()));
        let good = stored.filter(|stored| stored.grant.expires_at.is_none_or(|end| now < end));
        let good = good.filter(|_| same.into());
        if good.is_some() {
            self.note_good(token.id(), true, now);
        }
        if good.is_some()
            && let Err(error) = self.note_use(token.id(), now).await
        {
            tracing::debug!(%error, key = token.id(), "the use of a key was not noted");
        }
        Ok(good.map(|StoredKey { grant, quota_id, .. }| Actor {
            quota_id,
            proof: Proof::Key,
            credential: token.id().to_owned(),
            until: grant.expires_at,
            name: grant.actor,
            tenant: grant.tenant,
            workspaces: grant.workspaces,
            scopes: grant.scopes,
        }))
    }
}

impl Keys {
    /// True if the key of `actor` is still good. Tokens of issuers are good until their end. It reads the key, unless this
    /// process has seen it good after `since`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    pub async fn is_still_good(&self, actor: &Actor, since: Timestamp, now: Timestamp) -> Result<bool, StoreError> {
        if actor.proof != Proof::Key {
            return Ok(true);
        }
        let id = actor.credential.as_str();
        if self.seen_good.lock().unwrap_or_else(PoisonError::into_inner).get(id).is_some_and(|at| *at >= since) {
            return Ok(true);
        }
        let found = self.records.document(&DocumentKey::new(KIND, id), now).await?;
        let end = found.as_ref().and_then(read).map(|stored| stored.grant.expires_at);
        let is_good = end.is_some_and(|end| end.is_none_or(|end| now < end));
        self.note_good(id, is_good, now);
        Ok(is_good)
    }

    /// Notes whether the key `id` was good at `now`.
    fn note_good(&self, id: &str, is_good: bool, now: Timestamp) {
        let mut seen = self.seen_good.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= SEEN_KEPT || !is_good {
            seen.retain(|one, at| (is_good || one != id) && now.duration_since(*at) < SEEN_FOR);
        }
        if is_good && seen.len() < SEEN_KEPT {
            seen.insert(id.to_owned(), now);
        }
    }

    /// Completes when the key of `actor` is good no longer: every minute it is read whether it is, where no request with it
    /// has shown that since. A token ends its streams itself.
    pub async fn ended(&self, actor: &Actor, clock: &dyn Clock) {
        loop {
            let since = clock.now();
            clock.sleep(LOOKS_EVERY).await;
            match self.is_still_good(actor, since, clock.now()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::debug!(%error, "it is not known whether a key is still good"),
            }
        }
    }

    /// Writes that the key `id` is used, unless that was written within the hour. Of several that find it so one does.
    async fn note_use(&self, id: &str, now: Timestamp) -> Result<(), StoreError> {
        let Some(writes) = self.writes.as_ref().filter(|_| self.is_due(id, now)) else { return Ok(()) };
        let key = DocumentKey::new(USE, id);
        let before = self.records.document(&key, now).await?;
        if before.as_ref().and_then(used_at).is_some_and(|at| now.duration_since(at) < USE_NOTED_EVERY) {
            return Ok(());
        }
        let body = Map::from_iter([(USED_AT.to_owned(), now.to_string().into())]);
        let expect = before.map_or(0, |document| document.version);
        let write = DocumentWrite { key, expect, body: Some(body), listed: Vec::new(), expires_at: None };
        let journal = Journal::new(vec![write], Vec::new());
        match writes.commits.commit(&Commit { journal, ..Commit::new(writes.ids.fresh(), now) }).await {
            Ok(()) | Err(CommitError::Journal(_)) => Ok(()),
            Err(CommitError::Store(error)) => Err(error),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// True once an hour for each key. A note that fails is made up for an hour later.
    fn is_due(&self, id: &str, now: Timestamp) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(id).is_some_and(|at| now.duration_since(*at) < USE_NOTED_EVERY) {
            return false;
        }
        noted.retain(|_, at| now.duration_since(*at) < USE_NOTED_EVERY);
        noted.insert(id.to_owned(), now);
        true
    }

    /// Takes one request of `actor`, who presented `header`, from what it may send.
    pub async fn take(&self, header: Option<&str>, actor: &Actor, now: Timestamp) -> Taken {
        let Some(rates) = &self.rates else { return Taken::default() };
        let writes = self.writes.as_deref().filter(|_| self.shares);
        let taken = rates.take(&*self.records, writes, actor, now).await;
        if let Some(header) = header.filter(|_| taken.refused.is_some()) {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if refused.len() >= REFUSED_KEPT {
                refused.retain(|_, actor| rates.spent(actor, now).is_some());
            }
            if refused.len() < REFUSED_KEPT {
                refused.insert(Sha256::digest(header).into(), actor.clone());
            }
        }
        taken
    }

    /// The refusal of who presents `header` and was refused with it in a window that is still used up. It asks nobody, so
    /// that one who goes on asking takes little from others. A key that was revoked meanwhile is told of with the next
    /// window.
    pub fn spent(&self, header: Option<&str>, now: Timestamp) -> Option<Taken> {
        let rates = self.rates.as_ref()?;
        let digest: [u8; 32] = Sha256::digest(header?).into();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = rates.spent(refused.get(&digest)?, now);
        if spent.is_none() {
            refused.remove(&digest);
        }
        spent
    }

    /// Writes to the audit log that `deed` is begun; `None` where no log is kept.
    ///
    /// # Errors
    /// [`StoreError`] when it may not have been written: then the deed must not be done.
    pub async fn begin(&self, deed: Deed, now: Timestamp) -> Result<Option<BegunEntry>, StoreError> {
        match &self.audit {
            Some(log) => log.begin(deed, now).await.map(Some),
            None => Ok(None),
        }
    }

    /// Writes to the audit log what came of `begun`.
    pub async fn end(&self, begun: BegunEntry, status: u16, now: Timestamp) {
        if let Some(log) = &self.audit {
            log.end(begun, status, now).await;
        }
    }

    /// Writes to the audit log, where one is kept, that `deed` was refused before anything was begun.
    pub async fn refused(&self, deed: Deed, status: u16, now: Timestamp) {
        if let Some(log) = &self.audit {
            log.refused(deed, status, now).await;
        }
    }
}

impl StoredKey {
    fn body(&self) -> Map {
        match serde_json::to_value(self) {
            Ok(Value::Object(body)) => body,
            // The type is an object, and all of its keys are text.
            Ok(_) | Err(_) => Map::new(),
        }
    }
}

fn used_at(document: &Document) -> Option<Timestamp> {
    document.body.get(USED_AT)?.as_str()?.parse().ok()
}

/// The hash at its full length, so that a comparison takes as long for a document that is not there.
fn padded(hash: &str) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes.iter_mut().zip(hash.bytes()).for_each(|(place, byte)| *place = byte);
    bytes
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn read(document: &Document) -> Option<StoredKey> {
    let read = serde_json::from_value(Value::Object(document.body.clone()));
    read.inspect_err(|_| {
        tracing::error!(
            key = document.key.id,
            "the record of an API key cannot be read; create a new key and revoke this one"
        );
    })
    .ok()
}
