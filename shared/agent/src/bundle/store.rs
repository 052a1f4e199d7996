//! The place where bundles are published.
//!
//! | key below the prefix | holds |
//! |---|---|
//! | `NAME/bundles/DIGEST.json` | a bundle; written once, never changed |
//! | `NAME/current.json` | the digest of the bundle that new runs begin with, and of the one before; the kind of the workspace |
//!
//! A workspace keeps the kind with which it was published first: one that only talks never gets tools later, and no
//! slip removes the tools that runs rely on.

use std::sync::Arc;

use dormouse_json::Bounds;
use dormouse_ports::{ObjectCondition, ObjectError, ObjectVersion, Objects};
use serde::{Deserialize, Serialize};

use super::{ARCHIVE_LIMIT, Bundle, BundleError};
use crate::workspace::{Platform, WorkspaceKind, load};

/// Bytes of the pointer to the current bundle.
const POINTER_LIMIT: u64 = 4096;
const BOUNDS: Bounds = Bounds { depth: 2, values: 8 };
const FORMAT: u32 = 1;

/// Bundles of workspaces by their names, in a store of objects. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BundleStore {
    objects: Arc<dyn Objects>,
    prefix: String,
}

/// The bundle with which runs of a workspace begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentBundle {
    /// Its digest.
    pub digest: String,
    /// Digest of the one before it.
    pub previous: Option<String>,
    /// Kind of the workspace, where it was ever known.
    pub kind: Option<WorkspaceKind>,
    version: ObjectVersion,
}

/// Outcome of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The bundle is current from now on.
    Published,
    /// It was current already: nothing was written.
    Unchanged,
}

/// Error of publishing or loading a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleStoreError {
    /// The name of the workspace cannot be part of a key.
    #[error(
        "{0:?} is no name of a workspace: it has up to 64 lower-case letters, digits and `-`, and begins with a letter"
    )]
    Name(String),
    /// The bundle is broken.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The pointer to the current bundle is broken.
    #[error("{0} cannot be read: {1}; publish the workspace again after it was removed")]
    Pointer(String, String),
    /// The workspace has another kind.
    #[error(
        "{name} is a `{}` workspace and stays one, and these definitions are of a `{}` workspace: set `kind: {}` in \
         `.openharness/settings.yaml`, or use them under another name, or with another data folder",
        kind.as_str(), found.as_str(), kind.as_str()
    )]
    Kind {
        /// The workspace.
        name: String,
        /// Its kind.
        kind: WorkspaceKind,
        /// That of the definitions.
        found: WorkspaceKind,
    },
    /// Another publication took place since the current bundle was read.
    #[error("somebody else has just published {0}: look at what changed, and publish again")]
    Raced(String),
    /// The store.
    #[error(transparent)]
    Objects(#[from] ObjectError),
}

#[derive(Serialize, Deserialize)]
struct Pointer {
    format: u32,
    bundle: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<WorkspaceKind>,
}

/// The kind with which the agents of `bundle` run, and whether its author said so.
fn kind_of(bundle: &Bundle) -> (WorkspaceKind, bool) {
    let workspace = load(&bundle.files(), &Platform::default());
    (workspace.settings.kind, workspace.says_its_kind())
}

/// True for a name that a workspace can be published under.
pub fn sound_workspace_name(name: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&name.len()) && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(is_sound)
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl BundleStore {
    /// Bundles in `objects`, below `prefix`: nothing, or one that ends with `/`.
    pub fn new(objects: Arc<dyn Objects>, prefix: impl Into<String>) -> Self {
        Self { objects, prefix: prefix.into() }
    }

    /// The bundle with which runs of the workspace `name` begin; `None` where none was published.
    ///
    /// # Errors
    /// [`BundleStoreError`].
    pub async fn current(&self, name: &str) -> Result<Option<CurrentBundle>, BundleStoreError> {
        let key = self.pointer_key(name)?;
        let Some(object) = self.objects.get(&key, POINTER_LIMIT).await? else { return Ok(None) };
        let broken = |reason: String| BundleStoreError::Pointer(key.clone(), reason);
        let pointer: Pointer = dormouse_json::read(&object.bytes, BOUNDS).map_err(|error| broken(error.to_string()))?;
        if pointer.format != FORMAT || !is_digest(&pointer.bundle) {
            return Err(broken("it names no bundle of this version".to_owned()));
        }
        let Pointer { bundle: digest, previous, kind, .. } = pointer;
        Ok(Some(CurrentBundle { digest, previous, kind, version: object.version }))
    }

    /// The bundle `digest` of the workspace `name`; `None` where there is none.
    ///
    /// # Errors
    /// [`BundleStoreError`], also when its content is not that of its name.
    pub async fn load(&self, name: &str, digest: &str) -> Result<Option<Bundle>, BundleStoreError> {
        let key = self.bundle_key(name, digest)?;
        let Some(object) = self.objects.get(&key, ARCHIVE_LIMIT).await? else { return Ok(None) };
        Ok(Some(Bundle::from_bytes(&object.bytes, digest)?))
    }

    /// Publishes `bundle` as the current one of the workspace `name`, where `seen` is current still.
    ///
    /// The bundle is written before the pointer, so that the pointer always leads to one. What began with an earlier
    /// bundle finds it where it was.
    ///
    /// # Errors
    /// [`BundleStoreError`]; [`Raced`](BundleStoreError::Raced) when another one is current meanwhile;
    /// [`Kind`](BundleStoreError::Kind) when the workspace has another kind.
    pub async fn publish(
        &self,
        name: &str,
        bundle: &Bundle,
        seen: Option<&CurrentBundle>,
    ) -> Result<Publication, BundleStoreError> {
        if seen.is_some_and(|current| current.digest == bundle.digest()) {
            return Ok(Publication::Unchanged);
        }
        let kind = self.kept_kind(name, bundle, seen).await?;
        let key = self.bundle_key(name, bundle.digest())?;
        match self.objects.put(&key, bundle.to_bytes()?, ObjectCondition::Absent).await {
            // It is named by its content: who was first wrote the same.
            Ok(()) | Err(ObjectError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let previous = seen.map(|current| current.digest.clone());
        let pointer = Pointer { format: FORMAT, bundle: bundle.digest().to_owned(), previous, kind };
        let pointer = serde_json::to_vec(&pointer).map_err(|error| BundleError::Malformed(error.to_string()))?;
        let condition = match seen {
            Some(current) => ObjectCondition::Unchanged(current.version.clone()),
            None => ObjectCondition::Absent,
        };
        match self.objects.put(&self.pointer_key(name)?, pointer, condition).await {
            Ok(()) => Ok(Publication::Published),
            Err(ObjectError::Conflict(_)) => self.after_conflict(name, bundle).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that `bundle` may become the current one of the workspace `name`, without publishing it.
    ///
    /// # Errors
    /// [`BundleStoreError`]; [`Kind`](BundleStoreError::Kind) when the workspace has another kind.
    pub async fn fits(&self, name: &str, bundle: &Bundle) -> Result<(), BundleStoreError> {
        let seen = self.current(name).await?;
        match seen.as_ref().is_some_and(|current| current.digest == bundle.digest()) {
            true => Ok(()),
            false => self.kept_kind(name, bundle, seen.as_ref()).await.map(drop),
        }
    }

    /// The kind of the workspace from this publication on: what it was, or else what `bundle` says.
    async fn kept_kind(
        &self,
        name: &str,
        bundle: &Bundle,
        seen: Option<&CurrentBundle>,
    ) -> Result<Option<WorkspaceKind>, BundleStoreError> {
        let (found, is_said) = kind_of(bundle);
        let known = match seen {
            None => None,
            Some(CurrentBundle { kind: Some(kind), .. }) => Some(*kind),
            // It was published before kinds were kept.
            Some(current) => {
                let before = self.load(name, &current.digest).await?;
                before.as_ref().map(kind_of).and_then(|(kind, is_said)| is_said.then_some(kind))
            }
        };
        match known {
            // A kind that was not stated may take tools away for a while, and never gives any.
            Some(kind) if kind != found && (is_said || found == WorkspaceKind::Project) => {
                Err(BundleStoreError::Kind { name: name.to_owned(), kind, found })
            }
            Some(kind) => Ok(Some(kind)),
            None => Ok(is_said.then_some(found)),
        }
    }

    /// A conflict may be the second attempt at a write that had been done already.
    async fn after_conflict(&self, name: &str, bundle: &Bundle) -> Result<Publication, BundleStoreError> {
        match self.current(name).await? {
            Some(current) if current.digest == bundle.digest() => Ok(Publication::Published),
            Some(_) | None => Err(BundleStoreError::Raced(name.to_owned())),
        }
    }

    fn pointer_key(&self, name: &str) -> Result<String, BundleStoreError> {
        self.key(name, "current.json")
    }

    fn bundle_key(&self, name: &str, digest: &str) -> Result<String, BundleStoreError> {
        if !is_digest(digest) {
            return Err(BundleError::Malformed(format!("{digest:?} is no digest of a bundle")).into());
        }
        self.key(name, &format!("bundles/{digest}.json"))
    }

    fn key(&self, name: &str, rest: &str) -> Result<String, BundleStoreError> {
        match sound_workspace_name(name) {
            true => Ok(format!("{}{name}/{rest}", self.prefix)),
            false => Err(BundleStoreError::Name(name.to_owned())),
        }
    }
}
