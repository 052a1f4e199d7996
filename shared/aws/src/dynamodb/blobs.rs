//! Bytes that are too large for the item that refers to them, addressed by their content and by their owners.
//!
//! A blob is written before the transaction that points at it and never changes, so that writing it twice is harmless.
//! Chunks carry no `ttl`: an invocation may sleep on one for years. They name the items that may refer to them instead:
//! those that the change which wrote them changes, and no others, because the address distinguishes equal bytes of
//! different owners. A session and the pause that is written with it share theirs. A blob that none of its owners
//! refers to is removed (`collect`).

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_dynamodb::primitives::Blob as Bytes;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::StoreError;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::item::{Item, time_value};
use super::keys::{CHUNK, Key, OWNERS, WRITTEN_AT};
use super::requests::{CONCURRENT, Table};
use super::write::ItemWrite;
use super::{StoreConfig, codec};

/// Below the 400 KB of an item, with room for its keys.
pub(super) const CHUNK_BYTES: usize = 350 * 1024;

/// Place of a blob, and the proof that it is whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlobRef {
    /// Digest of the bytes, in hexadecimal.
    pub(super) sha256: String,
    /// Number of bytes.
    pub(super) size: usize,
    /// Distinguishes equal bytes of different owners; empty in the blobs of the first versions.
    pub(super) place: String,
}

/// The bytes of a blob, and the items that may refer to them.
#[derive(Clone, Debug)]
pub(super) struct Blob {
    pub(super) bytes: Vec<u8>,
    pub(super) origin: BlobOrigin,
}

/// Owners and instant of a write.
#[derive(Clone, Debug)]
pub(super) struct BlobOrigin {
    /// The items that may refer to it. The first one gives the blobs their place.
    pub(super) owners: Vec<Key>,
    pub(super) now: Timestamp,
}

impl BlobOrigin {
    /// The same time, another owner.
    pub(super) fn of(&self, owner: Key) -> Self {
        Self { owners: vec![owner], now: self.now }
    }

    /// Place of the blobs of the first owner.
    pub(super) fn place(&self) -> String {
        let owner = self.owners.first().map(|key| format!("{}|{}", key.pk, key.sk)).unwrap_or_default();
        hex::encode(&Sha256::digest(owner)[..8])
    }

    /// The owners as an attribute.
    fn attribute(&self) -> AttributeValue {
        let keys: Vec<_> = self.owners.iter().map(|key| (&key.pk, &key.sk)).collect();
        AttributeValue::S(serde_json::json!(keys).to_string())
    }
}

impl BlobRef {
    pub(super) fn to_attribute(&self) -> AttributeValue {
        AttributeValue::S(match self.place.as_str() {
            "" => format!("{}:{}", self.sha256, self.size),
            place => format!("{}:{}:{place}", self.sha256, self.size),
        })
    }

    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let parts = text.split_once(':').and_then(|(sha256, rest)| {
            let (size, place) = rest.split_once(':').unwrap_or((rest, ""));
            Some(Self { sha256: sha256.to_owned(), size: size.parse().ok()?, place: place.to_owned() })
        });
        parts.ok_or_else(|| StoreError::Corrupt(format!("{text:?} refers to no blob")))
    }

    fn key(&self, chunk: usize) -> Key {
        Key::blob(&self.sha256, &self.place, chunk)
    }

    /// The text in the partition keys of its chunks.
    pub(super) fn address(&self) -> String {
        format!("{}{}", self.sha256, self.place)
    }

    fn chunks(&self) -> usize {
        self.size.div_ceil(CHUNK_BYTES)
    }
}

/// Reads and writes the values of attributes, wherever their bytes are.
#[derive(Debug)]
pub(super) struct Bodies {
    pub(super) table: Arc<Table>,
    pub(super) config: StoreConfig,
}

impl Bodies {
    /// Writes `blobs`, chunk by chunk.
    pub(super) async fn put_blobs(&self, blobs: BTreeMap<BlobRef, Blob>) -> Result<(), StoreError> {
        self.table.put_all(blobs.iter().flat_map(|(reference, blob)| chunk_writes(reference, blob)).collect()).await
    }

    /// The value of the attribute `name`, wherever its bytes are.
    pub(super) async fn body<T: DeserializeOwned>(&self, item: &Item, name: &str) -> Result<T, StoreError> {
        self.optional_body(item, name).await?.ok_or_else(|| StoreError::Corrupt(format!("{name} is missing")))
    }

    /// The value of the attribute `name`, if there is one.
    pub(super) async fn optional_body<T: DeserializeOwned>(
        &self,
        item: &Item,
        name: &str,
    ) -> Result<Option<T>, StoreError> {
        let read = match item.get(name) {
            None => return Ok(None),
            Some(AttributeValue::B(bytes)) => codec::decode(bytes.as_ref()),
            Some(AttributeValue::S(reference)) => codec::decode(&self.get_blob(&BlobRef::parse(reference)?).await?),
            Some(_) => Err(StoreError::Corrupt("neither bytes nor a reference".to_owned())),
        };
        read.map(Some).map_err(|error| in_attribute(name, error))
    }

    /// Removes the blob that the attribute text `reference` names. Only for bytes that nothing else can refer to.
    pub(super) async fn remove_blob(&self, reference: &str) -> Result<(), StoreError> {
        let reference = BlobRef::parse(reference)?;
        let deletes = (0..reference.chunks()).map(|chunk| ItemWrite::delete(&reference.key(chunk)));
        stream::iter(deletes)
            .map(|delete| self.table.put_plainly(delete))
            .buffer_unordered(CONCURRENT)
            .try_collect()
            .await
    }

    async fn get_blob(&self, reference: &BlobRef) -> Result<Vec<u8>, StoreError> {
        let keys = (0..reference.chunks()).map(|chunk| reference.key(chunk));
        let chunks: Vec<Option<Item>> =
            stream::iter(keys).map(|key| self.table.get_item(key)).buffered(CONCURRENT).try_collect().await?;
        let mut bytes = Vec::with_capacity(reference.size);
        for chunk in &chunks {
            match chunk.as_ref().and_then(|item| item.get(CHUNK)) {
                Some(AttributeValue::B(part)) => bytes.extend_from_slice(part.as_ref()),
                _ => return Err(StoreError::Corrupt(format!("a chunk of blob {} is missing", reference.sha256))),
            }
        }
        if hex::encode(Sha256::digest(&bytes)) != reference.sha256 {
            return Err(StoreError::Corrupt(format!("blob {} does not match its digest", reference.sha256)));
        }
        Ok(bytes)
    }
}

fn chunk_writes(reference: &BlobRef, blob: &Blob) -> Vec<ItemWrite> {
    let put = |(number, part): (usize, &[u8])| {
        let item = Item::from([
            (CHUNK.to_owned(), AttributeValue::B(Bytes::new(part))),
            (OWNERS.to_owned(), blob.origin.attribute()),
            (WRITTEN_AT.to_owned(), time_value(blob.origin.now)),
        ]);
        ItemWrite::put(&reference.key(number), item)
    };
    blob.bytes.chunks(CHUNK_BYTES).enumerate().map(put).collect()
}

fn in_attribute(name: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(reason) => StoreError::Corrupt(format!("{name}: {reason}")),
        other @ (StoreError::Unavailable(_)
        | StoreError::Denied(_)
        | StoreError::TooLarge { .. }
        | StoreError::TooComplex { .. }
        | StoreError::LeaseHeld { .. }
        | StoreError::Invalid(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_survives_its_attribute() {
        for place in ["", "0123456789abcdef"] {
            let reference = BlobRef { sha256: "ab".repeat(32), size: CHUNK_BYTES + 1, place: place.to_owned() };
            let AttributeValue::S(text) = reference.to_attribute() else { panic!("not text") };
            assert_eq!(BlobRef::parse(&text).expect("parses"), reference);
            assert_eq!(reference.chunks(), 2);
        }
        assert!(BlobRef::parse("nothing").is_err());
    }

    #[test]
    fn chunks_cover_the_bytes() {
        let bytes = vec![7; 2 * CHUNK_BYTES + 5];
        let reference = BlobRef { sha256: "s".to_owned(), size: bytes.len(), place: String::new() };
        let origin = BlobOrigin { owners: Vec::new(), now: Timestamp::UNIX_EPOCH };
        assert_eq!(chunk_writes(&reference, &Blob { bytes, origin }).len(), reference.chunks());
    }
}
