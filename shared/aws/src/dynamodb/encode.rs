//! What goes into the attributes of an item, and the blobs that must be there before it.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{Map, PausedInvocation, StoreError};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::StoreConfig;
use super::blobs::BlobRef;
use super::codec;
use super::item::Item;
use super::keys::{PAUSE, PAUSE_STATE};

/// Collects the blobs of one change while its items are built. Equal contents are one blob.
#[derive(Debug)]
pub(super) struct Encoder {
    inline_limit: usize,
    state_limit: usize,
    pub(super) blobs: BTreeMap<BlobRef, Vec<u8>>,
}

impl Encoder {
    pub(super) fn new(config: &StoreConfig) -> Self {
        Self { inline_limit: config.inline_limit, state_limit: config.state_limit, blobs: BTreeMap::new() }
    }

    /// The attribute that holds `value`: its bytes, or a reference to a blob.
    pub(super) fn body(&mut self, what: &'static str, value: &impl Serialize) -> Result<AttributeValue, StoreError> {
        let bytes = codec::encode(value)?;
        self.place(what, bytes)
    }

    /// Sets the attributes that hold `paused`. A large pause keeps the state of its outermost graph apart, because the
    /// session that is written together with it often has the very same state and shares the blob then.
    pub(super) fn pause(&mut self, item: &mut Item, paused: &PausedInvocation) -> Result<(), StoreError> {
        let whole = codec::encode(paused)?;
        if whole.len() <= self.inline_limit {
            item.insert(PAUSE.to_owned(), AttributeValue::B(Blob::new(whole)));
            return Ok(());
        }
        let mut rest = paused.clone();
        let state = std::mem::take(outermost(&mut rest));
        item.insert(PAUSE_STATE.to_owned(), self.body("the paused state", &state)?);
        item.insert(PAUSE.to_owned(), self.body("the paused invocation", &rest)?);
        Ok(())
    }

    fn place(&mut self, what: &'static str, bytes: Vec<u8>) -> Result<AttributeValue, StoreError> {
        if bytes.len() > self.state_limit {
            return Err(StoreError::TooLarge { what, size: bytes.len(), limit: self.state_limit });
        }
        if bytes.len() <= self.inline_limit {
            return Ok(AttributeValue::B(Blob::new(bytes)));
        }
        let reference = BlobRef { sha256: codec::hex(&Sha256::digest(&bytes)), size: bytes.len() };
        let attribute = reference.to_attribute();
        self.blobs.insert(reference, bytes);
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
