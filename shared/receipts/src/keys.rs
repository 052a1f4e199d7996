//! Keys: who may have signed, and since when and until when.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer, VerifyingKey};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// The name of the algorithm in receipts.
pub(crate) const ALGORITHM: &str = "ed25519";
/// Prefix of bytes in base 64.
const BASE64: &str = "base64:";
/// Seconds after its retirement in which a key may still sign: machines that were started before still hold it.
const GRACE: i64 = 24 * 60 * 60;

/// A text that is no public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no public key: it is `base64:` and the 32 bytes of an Ed25519 key, or the same in 64 hexadecimal digits"
)]
pub struct InvalidKey(pub String);

/// A public key, with the times between which it signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// Its id, as signatures name it.
    pub id: String,
    /// The key itself; in JSON `base64:` and its 32 bytes.
    #[serde(rename = "public_key", serialize_with = "written", deserialize_with = "read")]
    key: VerifyingKey,
    /// Since when it signs, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Since when another key signs instead. What it signed before stays valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
    /// Since when nothing that it signed is to be believed: others may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

fn written<S: Serializer>(key: &VerifyingKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&in_base64(key.as_bytes()))
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VerifyingKey, D::Error> {
    let text = String::deserialize(deserializer)?;
    PublicKey::parse(&text).map(|key| key.key).map_err(de::Error::custom)
}

impl PublicKey {
    /// The key of `text`: `base64:` and 32 bytes in base 64, or 64 hexadecimal digits. Its id is made of the key.
    ///
    /// # Errors
    /// [`InvalidKey`] when it is none.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let bytes = match text.strip_prefix(BASE64) {
            Some(rest) => STANDARD.decode(rest).ok(),
            None => hex::decode(text).ok(),
        };
        let bytes: Option<[u8; 32]> = bytes.and_then(|bytes| bytes.try_into().ok());
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok()).filter(|key| !key.is_weak());
        key.map(Self::new).ok_or_else(|| InvalidKey(text.to_owned()))
    }

    fn new(key: VerifyingKey) -> Self {
        let id = format!("key_{}", &hex::encode(Sha256::digest(key.as_bytes()))[..16]);
        Self { id, key, created_at: None, retired_at: None, revoked_at: None }
    }

    /// The key: `base64:` and its 32 bytes in base 64.
    pub fn text(&self) -> String {
        in_base64(self.key.as_bytes())
    }

    /// True if both are the same key, also under different ids.
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.key == other.key
    }

    /// True if `signature`, as receipts write it, is by this key over `message`.
    pub fn has_signed(&self, message: &[u8], signature: &str) -> bool {
        let bytes = signature.strip_prefix(BASE64).and_then(|rest| STANDARD.decode(rest).ok());
        let signature = bytes.and_then(|bytes| Signature::from_slice(&bytes).ok());
        signature.is_some_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }

    /// True if it signed receipts at `at`.
    pub(crate) fn is_in_use(&self, at: Timestamp) -> bool {
        let is_retired = self.retired_at.is_some_and(|retired| at.as_second() > retired.as_second() + GRACE);
        !is_retired && self.created_at.is_none_or(|created| at >= created)
    }
}

/// Keys that are trusted, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(BTreeMap<String, PublicKey>);

impl<I: IntoIterator<Item = PublicKey>> From<I> for Keys {
    fn from(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (key.id.clone(), key)).collect())
    }
}

impl Keys {
    /// The key called `id`.
    pub fn get(&self, id: &str) -> Option<&PublicKey> {
        self.0.get(id)
    }

    /// All of them, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.0.values()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of these, those that `anchor` names: the id of one, or a public key. A public key that is none of these is trusted
    /// by itself.
    ///
    /// # Errors
    /// [`InvalidKey`] when it is neither.
    pub fn anchored(&self, anchor: &str) -> Result<Self, InvalidKey> {
        if let Some(key) = self.get(anchor) {
            return Ok(Self::from([key.clone()]));
        }
        let key = PublicKey::parse(anchor)?;
        let known = self.iter().find(|known| known.is_same_key(&key));
        Ok(Self::from([known.cloned().unwrap_or(key)]))
    }
}

/// A private key. Its debug form does not show it, and its memory is overwritten when it goes.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public().id).finish()
    }
}

impl SigningKey {
    /// The key of 32 bytes of chance.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(&seed))
    }

    /// Its public half, without times.
    pub fn public(&self) -> PublicKey {
        PublicKey::new(self.0.verifying_key())
    }

    /// The signature over `message`: `base64:` and its 64 bytes in base 64.
    pub fn sign(&self, message: &[u8]) -> String {
        in_base64(&self.0.sign(message).to_bytes())
    }
}

fn in_base64(bytes: &[u8]) -> String {
    format!("{BASE64}{}", STANDARD.encode(bytes))
}
