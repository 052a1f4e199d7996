//! API keys: who may ask, and for what.
//!
//! A key is `dm_<id>_<secret>`: an id of 16 hexadecimal digits, by which it is listed and revoked, and a secret of 64,
//! which are 256 bits of chance. The store holds a document of the kind `key` with the SHA-256 of the whole key, never
//! the key. A hash without salt and rounds will do: 256 bits cannot be guessed.
//!
//! # Invariants
//! - The key itself is seen once, by its maker. No type here shows it when it is printed for debugging.
//! - A key that is revoked is refused from then on: nothing is cached, each request reads the document.
//! - An unknown id, a wrong secret and an expired key get the same answer for the same work: one read, one hash, one
//!   comparison in constant time.

mod token;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use dormouse_ports::{
    Breadth, Document, DocumentKey, DocumentWrite, Journal, ListRequest, Listed, Map, Page, Records, StoreError,
};
use dormouse_protocol::Scope;
use dormouse_protocol::id::{QuotaId, WorkspaceId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtle::ConstantTimeEq;

use crate::Actor;
use crate::identity::Issuers;
pub use token::{CHANCE, KeyToken};

/// The kind of the documents.
const KIND: &str = "key";
/// The list that all of them stand in.
const LIST: &str = "keys";

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
}

/// Knows the callers: by their keys, and by the tokens of issuers that are trusted. Cheap to clone.
#[derive(Clone)]
pub struct Keys {
    records: Arc<dyn Records>,
    issuers: Option<Issuers>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// The keys that `records` hold.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records, issuers: None }
    }

    /// The same, which also takes the tokens of `issuers`.
    #[must_use]
    pub fn trusting(self, issuers: Issuers) -> Self {
        Self { issuers: Some(issuers), ..self }
    }

    /// The issuers whose tokens are taken.
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
        let stored = StoredKey { grant, quota_id, created_at: now, hash: token.hash() };
        let body = match serde_json::to_value(stored) {
            Ok(Value::Object(body)) => body,
            // The type is an object, and all of its keys are text.
            Ok(_) | Err(_) => Map::new(),
        };
        Self::write(token.id(), 0, Some(body), expires_at)
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
            let StoredKey { grant, created_at, .. } = read(&document)?;
            Some(KeyInfo { id: document.key.id, created_at, grant })
        };
        Ok(Page { items: page.items.into_iter().filter_map(info).collect(), next: page.next })
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
    /// [`StoreError`] when the store did not answer, or an issuer did not say by which keys it signs.
    pub async fn holder(&self, header: Option<&str>, now: Timestamp) -> Result<Option<Actor>, StoreError> {
        let Some(given) = header.and_then(bearer) else { return Ok(None) };
        if let Some(issuers) = self.issuers.as_ref().filter(|_| Issuers::may_be_token(given)) {
            return issuers.actor(given, now).await.map_err(|away| StoreError::Unavailable(away.to_string()));
        }
        let Some(token) = KeyToken::parse(given) else { return Ok(None) };
        let found = self.records.document(&DocumentKey::new(KIND, token.id()), now).await?;
        let stored = found.as_ref().and_then(read);
        let known = stored.as_ref().map_or("", |stored| stored.hash.as_str());
        let same = padded(known).ct_eq(&padded(&token.hash()));
        let good = stored.filter(|stored| stored.grant.expires_at.is_none_or(|end| now < end));
        Ok(good.filter(|_| same.into()).map(|StoredKey { grant, quota_id, .. }| Actor {
            quota_id,
            name: grant.actor,
            tenant: grant.tenant,
            workspaces: grant.workspaces,
            scopes: grant.scopes,
        }))
    }
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
