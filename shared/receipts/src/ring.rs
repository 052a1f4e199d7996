use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Keys, PublicKey, SigningKey};

/// A text that is no ring of keys. It is not shown: it may hold a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text is no ring of keys: it is 64 hexadecimal digits of chance (`openssl rand -hex 32`), or what the rotation of \
     keys wrote; only functions on AWS sign with a key of AWS KMS"
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

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RingPlace {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kms_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default)]
    former: Vec<PublicKey>,
}

impl RingPlace {
    fn text(&self) -> String {
        // What was made of texts and times can be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A ring of either kind.
#[derive(Clone, Debug)]
pub enum Ring {
    /// The key that signs is in it.
    Held(KeyRing),
    /// The key that signs is in AWS KMS.
    Kms(KmsRing),
}

impl Ring {
    /// Reads what [`text`](Self::text) wrote, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`InvalidRing`] when it is neither.
    pub fn parse(text: &str) -> Result<Self, InvalidRing> {
        let text = text.trim();
        let written = match text.starts_with('{') {
            true => serde_json::from_str(text).map_err(|_| InvalidRing)?,
            false => RingPlace { seed: Some(text.to_owned()), ..RingPlace::default() },
        };
        let RingPlace { seed, kms_key, public_key, created_at, former } = written;
        match (seed, kms_key, public_key) {
            (Some(seed), None, None) => {
                let seed = hex::decode(&seed).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(InvalidRing)?;
                Ok(Self::Held(KeyRing { former, ..KeyRing::new(seed, created_at) }))
            }
            (None, Some(key), Some(public)) => {
                let public = PublicKey::parse(&public).map_err(|_| InvalidRing)?;
                Ok(Self::Kms(KmsRing { former, ..KmsRing::new(&key, public, created_at).ok_or(InvalidRing)? }))
            }
            (_, _, _) => Err(InvalidRing),
        }
    }

    /// The ring as text, with its private key where it has one.
    pub fn text(&self) -> String {
        match self {
            Self::Held(ring) => ring.text(),
            Self::Kms(ring) => ring.text(),
        }
    }

    /// All keys, as they are published.
    pub fn keys(&self) -> Keys {
        match self {
            Self::Held(ring) => ring.keys(),
            Self::Kms(ring) => ring.keys(),
        }
    }

    /// The id of the key that signs.
    pub fn signs(&self) -> String {
        match self {
            Self::Held(ring) => ring.active().public().id,
            Self::Kms(ring) => ring.public.id.clone(),
        }
    }

    /// The same, in which the key of `next` signs from `now` on; `None` if that one is revoked. What it held of the private key
    /// before is gone. A key that signs already, or did before, counts since then: what it signed stays valid.
    #[must_use]
    pub fn replaced(self, next: Self, now: Timestamp) -> Option<Self> {
        let id = next.signs();
        let (mut active, mut former) = match self {
            Self::Held(ring) => (ring.public(), ring.former),
            Self::Kms(ring) => (ring.public, ring.former),
        };
        let known = if active.id == id {
            Some(active)
        } else {
            let place = former.iter().position(|key| key.id == id);
            let known = place.map(|place| former.remove(place));
            active.retired_at = Some(now);
            former.push(active);
            known
        };
        if known.as_ref().is_some_and(|key| key.revoked_at.is_some()) {
            return None;
        }
        Some(match next {
            Self::Held(ring) => {
                let created_at = known.map_or(ring.created_at, |key| key.created_at);
                Self::Held(KeyRing { created_at, former, ..ring })
            }
            Self::Kms(mut ring) => {
                ring.public.created_at = known.map_or(ring.public.created_at, |key| key.created_at);
                Self::Kms(KmsRing { former, ..ring })
            }
        })
    }

    /// The same, in which the former key `id` is revoked from `at` on; `None` if there is none of that id. The active key
    /// has to be rotated first.
    #[must_use]
    pub fn revoked(mut self, id: &str, at: Timestamp) -> Option<Self> {
        let former = match &mut self {
            Self::Held(ring) => &mut ring.former,
            Self::Kms(ring) => &mut ring.former,
        };
        former.iter_mut().find(|key| key.id == id)?.revoked_at = Some(at);
        Some(self)
    }
}

/// A ring whose key that signs is in AWS KMS, which never gives it out: its ARN and its public half, and the public halves of
/// those that signed before it. Nothing of it is secret; whoever could change it could publish another key.
#[derive(Clone, Debug)]
pub struct KmsRing {
    key: String,
    public: PublicKey,
    former: Vec<PublicKey>,
}

impl KmsRing {
    /// The ring of the key with the ARN `key`, whose public half is `public`; `None` if that is no ARN of a key.
    pub fn new(key: &str, mut public: PublicKey, created_at: Option<Timestamp>) -> Option<Self> {
        let parts: Vec<&str> = key.split(':').collect();
        let is_key = matches!(parts.as_slice(), ["arn", _, "kms", region, _, name] if !region.is_empty() && name.starts_with("key/"));
        public.created_at = created_at;
        is_key.then(|| Self { key: key.to_owned(), public, former: Vec::new() })
    }

    /// The ARN of the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The public half of the key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// All keys, as they are published.
    pub fn keys(&self) -> Keys {
        Keys::from(self.former.iter().cloned().chain([self.public.clone()]))
    }

    /// The ring as text.
    pub fn text(&self) -> String {
        let written = RingPlace {
            kms_key: Some(self.key.clone()),
            public_key: Some(self.public.text()),
            created_at: self.public.created_at,
            former: self.former.clone(),
            ..RingPlace::default()
        };
        written.text()
    }
}

impl KeyRing {
    /// The ring of one key, that is made of 32 bytes of chance.
    pub fn new(seed: [u8; 32], created_at: Option<Timestamp>) -> Self {
        Self { active: SigningKey::from_seed(seed), seed: Seed(seed), created_at, former: Vec::new() }
    }

    /// Reads what [`text`](Self::text) wrote, or 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`InvalidRing`] when it is neither, also for a ring whose key is elsewhere.
    pub fn parse(text: &str) -> Result<Self, InvalidRing> {
        match Ring::parse(text)? {
            Ring::Held(ring) => Ok(ring),
            Ring::Kms(_) => Err(InvalidRing),
        }
    }

    /// The ring as text, with its private key.
    pub fn text(&self) -> String {
        let written = RingPlace {
            seed: Some(hex::encode(self.seed.0)),
            created_at: self.created_at,
            former: self.former.clone(),
            ..RingPlace::default()
        };
        written.text()
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
}
