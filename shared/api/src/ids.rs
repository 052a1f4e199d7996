//! Ids of new resources, and names of documents that what they are about gives.

use dormouse_ports::{DocumentKey, IdSource};
use dormouse_protocol::Identifier;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// A new id of something that is made at `now`.
pub(crate) fn fresh<I: Identifier>(ids: &dyn IdSource, now: Timestamp) -> I {
    derived(now, &ids.fresh())
}

/// The id of what is made at `now` and is the only one of its kind that `seed` names.
pub(crate) fn derived<I: Identifier>(now: Timestamp, seed: &str) -> I {
    let mut random = [0; 10];
    let digest = Sha256::digest(seed);
    random.iter_mut().zip(digest).for_each(|(byte, hashed)| *byte = hashed);
    I::generate(now, random)
}

/// The document of `kind` that `parts` name, by a digest; `domain` tells it from other digests of the same parts.
pub(crate) fn digested(kind: &str, domain: &[u8], parts: &[&str]) -> DocumentKey {
    let mut digest = Sha256::new().chain_update(domain);
    for part in parts {
        digest = digest.chain_update((part.len() as u64).to_be_bytes()).chain_update(part);
    }
    DocumentKey::new(kind, hex::encode(digest.finalize()))
}

/// The id that the `I` of `other` has, where there is exactly one: the same characters behind another word.
pub(crate) fn of<I: Identifier>(other: &impl AsRef<str>) -> I {
    I::from(with_word(I::OBJECT, other.as_ref()))
}

/// The characters of `id` behind another word.
pub(crate) fn with_word(word: &str, id: &str) -> String {
    format!("{word}_{}", own(id))
}

/// The characters of `id` behind its word, which begin with the time of its making.
pub(crate) fn own(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, own)| own)
}
