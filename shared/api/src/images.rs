//! Images of conversations: those that tools gave, each a document that no list has, and those that are artifacts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::{
    Clock, Commit, Commits, DocumentKey, DocumentWrite, IMAGE_BYTES, IdSource, Image, ImageOwner, Images, ImagesError,
    Journal, Records, StoreError, image_type,
};
use dormouse_protocol::Identifier;
use dormouse_protocol::id::{ArtifactId, WorkspaceId};
use dormouse_protocol::resource::{Artifact, PartVisibility};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::artifacts::data;
use crate::deletion::place_write;
use crate::documents::Stored;
use crate::ids;

/// The kind of the documents.
pub(crate) const KIND: &str = "image";
/// Separates the parts that a name of a document is made of.
const DOMAIN: &[u8] = b"dormouse image 1\0";
/// Bytes of the images that a process has at hand: a run names the same ones at each of its steps.
const AT_HAND: usize = 16 * 1024 * 1024;
/// Duration for which an image of a run without a session is kept: as long as the address of a pause is good.
const WITHOUT_SESSION: std::time::Duration = dormouse_ports::limits::ADDRESS;

/// The images of all conversations of a store.
#[derive(Clone)]
pub struct StoredImages {
    records: Arc<dyn Records>,
    commits: Arc<dyn Commits>,
    ids: Arc<dyn IdSource>,
    clock: Arc<dyn Clock>,
    /// Those that were used last, by the names of their documents, the newest at the end.
    at_hand: Arc<Mutex<VecDeque<(DocumentKey, Kept)>>>,
}

/// An image as its document has it.
#[derive(Clone)]
struct Kept {
    workspace: Option<String>,
    image: Image,
}

impl fmt::Debug for StoredImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredImages")
    }
}

/// Name of the document of the image `id` of a tenant.
pub(crate) fn key_of(tenant: Option<&str>, id: &str) -> DocumentKey {
    ids::digested(KIND, DOMAIN, &[tenant.unwrap_or_default(), id])
}

/// The bytes of the image at `key`; `None` where there is none.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn bytes_at(
    records: &dyn Records,
    key: &DocumentKey,
    now: Timestamp,
) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(kept_at(records, key, now).await?.map(|kept| kept.image.bytes))
}

async fn kept_at(records: &dyn Records, key: &DocumentKey, now: Timestamp) -> Result<Option<Kept>, StoreError> {
    let Some(document) = records.document(key, now).await? else { return Ok(None) };
    let text = |name: &str| document.body.get(name).and_then(Value::as_str);
    let bytes = text("data").and_then(|data| STANDARD.decode(data).ok());
    let corrupt = || StoreError::Corrupt(format!("{key}: it is no image"));
    let (bytes, media_type) = bytes.zip(text("media_type")).ok_or_else(corrupt)?;
    let image = Image { media_type: media_type.to_owned(), bytes };
    Ok(Some(Kept { workspace: text("workspace").map(str::to_owned), image }))
}

impl StoredImages {
    /// The images that `records` and `commits` keep.
    pub fn new(
        records: Arc<dyn Records>,
        commits: Arc<dyn Commits>,
        ids: Arc<dyn IdSource>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { records, commits, ids, clock, at_hand: Arc::default() }
    }

    fn have_at_hand(&self, key: &DocumentKey, kept: Kept) {
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        at_hand.retain(|(known, _)| known != key);
        at_hand.push_back((key.clone(), kept));
        while at_hand.iter().map(|(_, kept)| kept.image.bytes.len()).sum::<usize>() > AT_HAND {
            at_hand.pop_front();
        }
    }

    /// The image at `key`, if it is at hand. It is the one that was used last from then on.
    fn known(&self, key: &DocumentKey) -> Option<Kept> {
        let mut at_hand = self.at_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let at = at_hand.iter().position(|(known, _)| known == key)?;
        let known = at_hand.remove(at)?;
        let kept = known.1.clone();
        at_hand.push_back(known);
        Some(kept)
    }

    async fn kept(&self, key: &DocumentKey) -> Result<Option<Kept>, StoreError> {
        if let Some(known) = self.known(key) {
            return Ok(Some(known));
        }
        let found = kept_at(&*self.records, key, self.clock.now()).await?;
        if let Some(kept) = &found {
            self.have_at_hand(key, kept.clone());
        }
        Ok(found)
    }

    /// The bytes of the artifact `id`, if it is an image that `of` may have and that is here.
    async fn of_artifact(&self, of: &ImageOwner, id: &str) -> Result<Option<Image>, StoreError> {
        let found = Stored::<Artifact>::load(&*self.records, &ArtifactId::from(id), self.clock.now()).await?;
        let Some(Stored { kept, .. }) = found else { return Ok(None) };
        let is_theirs = Some(&kept.tenant) == of.tenant.as_ref()
            && kept.workspace.as_ref().map(WorkspaceId::as_str) == of.workspace.as_deref()
            && kept.deleted.is_none()
            && kept.resource.visibility != PartVisibility::ReceiptOnly;
        if !is_theirs {
            return Ok(None);
        }
        let bytes = match (&kept.own.image, &kept.resource.uri) {
            (Some(image), _) => self.kept(&key_of(Some(&kept.tenant), image)).await?.map(|kept| kept.image.bytes),
            (None, Some(uri)) => data(uri),
            (None, None) => None,
        };
        Ok(bytes.map(|bytes| Image { media_type: kept.resource.mime_type, bytes }))
    }
}

#[async_trait]
impl Images for StoredImages {
    async fn keep(&self, of: &ImageOwner, image: &Image) -> Result<String, ImagesError> {
        let owner = of.session.as_ref().map_or_else(|| of.invocation.as_str(), |session| session.as_str());
        let id = format!("{owner}/{}", hex::encode(Sha256::digest(&image.bytes)));
        let key = key_of(of.tenant.as_deref(), &id);
        // The same picture again costs a read at most.
        if self.kept(&key).await.map_err(away)?.is_some() {
            return Ok(id);
        }
        let body = json!({
            "tenant": of.tenant, "workspace": of.workspace, "resource": { "session_id": owner },
            "media_type": image.media_type, "data": STANDARD.encode(&image.bytes),
        });
        let Value::Object(body) = body else { return Err(ImagesError("an object is an object".to_owned())) };
        let now = self.clock.now();
        let expires_at = of.session.is_none().then(|| now + WITHOUT_SESSION);
        let write = DocumentWrite { key: key.clone(), expect: 0, body: Some(body), listed: Vec::new(), expires_at };
        let place = of.workspace.as_deref().map(|workspace| place_write(&WorkspaceId::from(workspace)));
        let journal = Journal::new(std::iter::once(write).chain(place).collect(), Vec::new());
        let commit = Commit { journal, ..Commit::new(self.ids.fresh(), now) };
        let kept = Kept { workspace: of.workspace.clone(), image: image.clone() };
        if let Err(error) = self.commits.commit(&commit).await {
            // It may be there already, or written although nobody said so; else its workspace may be deleted.
            let found = kept_at(&*self.records, &key, now).await.map_err(away)?;
            found.ok_or_else(|| ImagesError(error.to_string()))?;
        }
        self.have_at_hand(&key, kept);
        Ok(id)
    }

    async fn image(&self, of: &ImageOwner, id: &str) -> Result<Option<Image>, ImagesError> {
        let found = if ArtifactId::from(id).is_well_formed() {
            readable(self.of_artifact(of, id).await)?
        } else {
            let found = readable(self.kept(&key_of(of.tenant.as_deref(), id)).await)?;
            found.filter(|kept| kept.workspace == of.workspace).map(|kept| kept.image)
        };
        let found = found.filter(|image| image.bytes.len() <= IMAGE_BYTES);
        Ok(found.and_then(|image| Some(Image { media_type: image_type(&image.bytes)?.to_owned(), ..image })))
    }
}

/// What was read; `None` of what no later attempt reads either, which would end each further run of its conversation.
fn readable<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, ImagesError> {
    match read {
        Ok(found) => Ok(found),
        Err(error @ (StoreError::Unavailable(_) | StoreError::LeaseHeld { .. })) => Err(away(error)),
        Err(
            error @ (StoreError::Denied(_)
            | StoreError::Corrupt(_)
            | StoreError::TooLarge { .. }
            | StoreError::TooComplex { .. }
            | StoreError::Invalid(_)),
        ) => {
            tracing::error!(%error, "an image of a conversation cannot be read; its model is told that it is not here");
            Ok(None)
        }
    }
}

fn away(error: StoreError) -> ImagesError {
    ImagesError(error.to_string())
}
