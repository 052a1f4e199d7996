use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Keys, PublicKey, SigningKey};

/// A text that is no ring of keys. It is not shown: it may hold a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text is no ring of keys: it is 64 hexadecimal digits of chance (`openssl rand -hex 32`), or what the rotation of \
     keys wrote"
)]
pub struct InvalidRing;

/// The key that signs, and the public halves of those that signed before it: what an issuer keeps secret.
#[derive(Clone, Debug)]
pub struct KeyRing {
    active: SigningKey,
    /// The seed of the active key, to write it again.
    seed: Seed,
    created_at: Option<Timestamp>,
    former: Vec<PublicKey>,
}

/// 32 bytes of chance, which are not shown.
#[derive(Clone)]
struct Seed([u8; 32]);

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed(…)")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    seed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default)]
    former: Vec<PublicKey>,
}

impl KeyRing {
    /// The ring of one key, that is made of 32 bytes of chance.
    pub fn new(seed: [u8; 32], created_at: Option<Timestamp>) -> Self {
        Self { active: SigningKey::from_seed(seed), seed: Seed(seed), created_at, former: Vec::new() }
    }

    /// Reads what [`text`](Self::text) wrote, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`InvalidRing`] when it is neither.
    pub fn parse(text: &str) -> Result<Self, InvalidRing> {
        let text = text.trim();
        let written = match text.starts_with('{') {
            true => serde_json::from_str(text).map_err(|_| InvalidRing)?,
            false => Written { seed: text.to_owned(), created_at: None, former: Vec::new() },
        };
        let seed = hex::decode(&written.seed).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(InvalidRing)?;
        Ok(Self { former: written.former, ..Self::new(seed, written.created_at) })
    }

    /// The ring as text, with its private key.
    pub fn text(&self) -> String {
        let written =
            Written { seed: hex::encode(self.seed.0), created_at: self.created_at, former: self.former.clone() };
        // What was made of texts and times can be written.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// The key that signs.
    pub fn active(&self) -> &SigningKey {
        &self.active
    }

    /// All keys, as they are published.
    pub fn keys(&self) -> Keys {
        Keys::from(self.former.iter().cloned().chain([self.public()]))
    }

    /// The public half of the key that signs.
    fn public(&self) -> PublicKey {
        let mut public = self.active.public();
        public.created_at = self.created_at;
        public
    }

    /// The same, in which a new key signs from `now` on. The private half of the one before is gone.
    #[must_use]
    pub fn rotated(self, seed: [u8; 32], now: Timestamp) -> Self {
        let mut retired = self.public();
        retired.retired_at = Some(now);
        let former = self.former.into_iter().chain([retired]).collect();
        Self { former, ..Self::new(seed, Some(now)) }
    }

    /// The same, in which the former key `id` is revoked from `at` on; `None` if there is none of that id. The active key
    /// has to be rotated first.
    #[must_use]
    pub fn revoked(mut self, id: &str, at: Timestamp) -> Option<Self> {
        self.former.iter_mut().find(|key| key.id == id)?.revoked_at = Some(at);
        Some(self)
    }
}
