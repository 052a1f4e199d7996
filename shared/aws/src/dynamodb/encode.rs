//! The attributes of an item, and the blobs that must be there before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_dynamodb::primitives::Blob as Bytes;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_json::Items;
use dormouse_ports::{GrowingLists, Map, PausedInvocation, SharedBeginning, SharedField, StoreError, StoredList};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::StoreConfig;
use super::blobs::{Blob, BlobOrigin, BlobRef, CHUNK_BYTES};
use super::codec;
use super::item::Item;
use super::keys::{Key, LIST_REFS, PAUSE, PAUSE_STATE};
use super::marks::Marks;
use super::segments::{ToStore, references};

/// A state without knowledge of its growing lists.
const UNKNOWN: &GrowingLists = &GrowingLists { fields: Vec::new(), stored: Vec::new() };

/// Marks of lists that began so.
pub(super) type KnownMarks = Vec<(SharedBeginning, Arc<Marks>)>;

/// Collects the blobs and pieces that must be there before the items of one change while these are built. Equal
/// contents are one blob, or one piece of a list.
#[derive(Debug)]
pub(super) struct Encoder<'g> {
    inline_limit: usize,
    state_limit: usize,
    pub(super) whole_limit: usize,
    pub(super) growing: &'g GrowingLists,
    /// The items that the change changes: they own the blobs that are kept apart from them.
    pub(super) origin: BlobOrigin,
    /// True if the pause that it writes is only to be read with the notes of steps.
    pub(super) is_noted: bool,
    /// Lists that this change stores, and those to which it refers as they are.
    pub(super) referred: Vec<StoredList>,
    /// Marks of lists from which those of its states may have grown.
    pub(super) known: KnownMarks,
    /// Marks of its own lists, which several of its states may share.
    pub(super) marks: Vec<(SharedField, Arc<Marks>)>,
    pub(super) blobs: BTreeMap<BlobRef, Blob>,
    pub(super) pieces: BTreeMap<Key, Item>,
}

impl<'g> Encoder<'g> {
    /// For values of which nothing is known.
    pub(super) fn new(config: &StoreConfig, origin: BlobOrigin) -> Self {
        Self::knowing(config, UNKNOWN, origin)
    }

    /// For states with lists that grow.
    pub(super) fn knowing(config: &StoreConfig, growing: &'g GrowingLists, origin: BlobOrigin) -> Self {
        Self {
            inline_limit: config.inline_limit,
            state_limit: config.state_limit,
            whole_limit: config.whole_limit,
            growing,
            origin,
            is_noted: false,
            referred: Vec::new(),
            known: KnownMarks::new(),
            marks: Vec::new(),
            blobs: BTreeMap::new(),
            pieces: BTreeMap::new(),
        }
    }

    /// The marks of its lists, for those that grow out of these. A list that is shared as a whole is another one when it has
    /// grown.
    pub(super) fn beginnings(&self) -> KnownMarks {
        let beginning = |(list, marks): &(SharedField, Arc<Marks>)| match list {
            SharedField::Items(items) => Some((items.beginning(), marks.clone())),
            SharedField::Value(_) => None,
        };
        self.marks.iter().filter_map(beginning).collect()
    }

    /// The attribute that holds `value`: its bytes, or a reference to a blob.
    pub(super) fn body(&mut self, what: &'static str, value: &impl Serialize) -> Result<AttributeValue, StoreError> {
        let bytes = codec::encode(value)?;
        self.place(what, bytes, self.inline_limit, self.origin.clone())
    }

    /// The attribute that holds the piece `key` of a list. It is larger than an item only where a single item of the
    /// list is.
    pub(super) fn piece_body(&mut self, key: &Key, items: Items<'_>) -> Result<AttributeValue, StoreError> {
        let bytes = codec::encode(&items)?;
        self.place("the appended items", bytes, CHUNK_BYTES, self.origin.of(key.clone()))
    }

    /// The attribute that holds the content of the document `key`.
    pub(super) fn document(&mut self, key: &Key, body: &Map) -> Result<AttributeValue, StoreError> {
        let bytes = codec::encode(body)?;
        self.place("the document", bytes, self.inline_limit, self.origin.of(key.clone()))
    }

    /// The attribute that holds the entries of the batch `key`, in the item itself as far as items go.
    pub(super) fn entries(&mut self, key: &Key, entries: &[Map]) -> Result<AttributeValue, StoreError> {
        let bytes = codec::encode(&entries)?;
        self.place("the appended entries", bytes, CHUNK_BYTES, self.origin.of(key.clone()))
    }

    /// The attributes that hold `state` as `name`; its growing lists are, or will be, in the partition `home`.
    pub(super) fn state(
        &mut self,
        what: &'static str,
        name: &str,
        home: &str,
        state: &Map,
    ) -> Result<Item, StoreError> {
        let (rest, lists) = self.cut(home, ToStore::Whole(state))?;
        let mut item = Item::from([(name.to_owned(), self.body(what, rest.as_ref().unwrap_or(state))?)]);
        item.extend(references(&lists)?.map(|lists| (LIST_REFS.to_owned(), lists)));
        Ok(item)
    }

    /// Sets the attributes that hold `paused`. A large pause keeps the state of its outermost graph apart, because the
    /// session that is written together with it often has the very same state and shares the blob then.
    pub(super) fn pause(&mut self, item: &mut Item, paused: &PausedInvocation) -> Result<(), StoreError> {
        let home = home_of(paused);
        let (state, lists) = match paused.parent_states.first() {
            Some(outermost) => self.cut(&home, ToStore::Whole(outermost))?,
            None => self.cut(&home, ToStore::Shared(&paused.state))?,
        };
        item.extend(references(&lists)?.map(|lists| (LIST_REFS.to_owned(), lists)));
        // It stands beside the body, where an erasure finds it.
        let mut rest = PausedInvocation { begun_for: None, ..paused.clone() };
        match (state, rest.parent_states.first_mut()) {
            (Some(state), Some(outermost)) => *outermost = state,
            (Some(state), None) => rest.state = state.into(),
            (None, _) => {}
        }
        let whole = self.encoded(&rest)?;
        if whole.len() <= self.inline_limit {
            item.insert(PAUSE.to_owned(), AttributeValue::B(Bytes::new(whole)));
            return Ok(());
        }
        let state = std::mem::take(outermost(&mut rest));
        item.insert(PAUSE_STATE.to_owned(), self.body("the paused state", &state)?);
        let rest = self.encoded(&rest)?;
        let rest = self.place("the paused invocation", rest, self.inline_limit, self.origin.clone())?;
        item.insert(PAUSE.to_owned(), rest);
        Ok(())
    }

    fn encoded(&self, paused: &PausedInvocation) -> Result<Vec<u8>, StoreError> {
        let encoded = codec::encode(paused)?;
        Ok(if self.is_noted { codec::noted(&encoded) } else { encoded })
    }

    fn place(
        &mut self,
        what: &'static str,
        bytes: Vec<u8>,
        inline_limit: usize,
        origin: BlobOrigin,
    ) -> Result<AttributeValue, StoreError> {
        if bytes.len() > self.state_limit {
            return Err(StoreError::TooLarge { what, size: bytes.len(), limit: self.state_limit });
        }
        if bytes.len() <= inline_limit {
            return Ok(AttributeValue::B(Bytes::new(bytes)));
        }
        let sha256 = hex::encode(Sha256::digest(&bytes));
        let reference = BlobRef { sha256, size: bytes.len(), place: origin.place() };
        let attribute = reference.to_attribute();
        self.blobs.insert(reference, Blob { bytes, origin });
        Ok(attribute)
    }
}

/// The place of the outermost state in `paused`.
pub(super) fn outermost(paused: &mut PausedInvocation) -> &mut Map {
    match paused.parent_states.first_mut() {
        Some(state) => state,
        None => &mut paused.state,
    }
}

/// The partition of the lists of `paused`: that of its session, which has the same ones, or else its own.
pub(super) fn home_of(paused: &PausedInvocation) -> String {
    match &paused.session_id {
        Some(session) => Key::session(session).pk,
        None => Key::invocation(&paused.invocation_id).pk,
    }
}
