use sha2::{Digest, Sha256};

use super::IDEMPOTENCY_HEADER;
use crate::ProtocolError;
use crate::operation::Method;

/// The longest key, in characters.
const MAX_KEY_CHARS: usize = 255;

/// The key by which a client repeats a write: 1 to 255 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// The key in the header, if there is one.
    ///
    /// # Errors
    /// `invalid_request` if it is empty, too long, or holds control characters or what is no UTF-8.
    pub fn read(header: Option<&str>) -> Result<Option<Self>, ProtocolError> {
        let Some(key) = header else { return Ok(None) };
        // What is no UTF-8 is read as replacement characters: two keys that differ there would be one.
        let is_unread = |one: char| one.is_control() || one == char::REPLACEMENT_CHARACTER;
        if (1..=MAX_KEY_CHARS).contains(&key.chars().count()) && !key.contains(is_unread) {
            Ok(Some(Self(key.to_owned())))
        } else {
            let message = format!("expected 1 to {MAX_KEY_CHARS} printable characters in UTF-8");
            Err(ProtocolError::invalid(IDEMPOTENCY_HEADER, message))
        }
    }

    /// The key as the client sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Scope in which a key is unique: two requests with the same key are the same request only if all of this is the same
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyScope<'a> {
    /// Caller.
    pub actor: &'a str,
    /// The workspace of what is written to; empty where there is none.
    pub workspace_id: &'a str,
    /// Operation.
    pub method: Method,
    /// The path without its query and with its escapes resolved ([`crate::operation::FoundOperation::target`]).
    pub target: &'a str,
    /// By which key.
    pub key: &'a IdempotencyKey,
}

impl IdempotencyScope<'_> {
    /// Names the record of the key: the SHA-256, in 64 hexadecimal digits, of the five parts, each behind its length
    /// as 8 bytes (most significant first). The key itself is not kept.
    pub fn id(&self) -> String {
        let parts = [self.actor, self.workspace_id, self.method.as_str(), self.target, self.key.as_str()];
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        hex::encode(hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_1_to_255_printable_characters() {
        assert_eq!(IdempotencyKey::read(None).expect("no key"), None);
        for good in ["a", "3f2c 1", &"\u{e9}".repeat(255)] {
            assert_eq!(IdempotencyKey::read(Some(good)).expect("a key").expect("a key").as_str(), good);
        }
        for bad in ["", "a\nb", &"x".repeat(256), &String::from_utf8_lossy(b"cl\xe9")] {
            assert_eq!(IdempotencyKey::read(Some(bad)).expect_err("no key").param(), Some(IDEMPOTENCY_HEADER));
        }
    }

    #[test]
    fn every_part_of_the_scope_counts_and_parts_do_not_run_together() {
        let key = |text: &str| IdempotencyKey::read(Some(text)).expect("a key").expect("a key");
        let one = key("1");
        let two = key("2");
        let base =
            IdempotencyScope { actor: "ada", workspace_id: "w", method: Method::Post, target: "/v1/tasks", key: &one };
        let others = [
            IdempotencyScope { actor: "bob", ..base },
            IdempotencyScope { workspace_id: "v", ..base },
            IdempotencyScope { method: Method::Patch, ..base },
            IdempotencyScope { target: "/v1/sessions", ..base },
            IdempotencyScope { key: &two, ..base },
            IdempotencyScope { actor: "adaw", workspace_id: "", ..base },
        ];
        assert_eq!(base.id().len(), 64);
        assert_eq!(base.id(), IdempotencyScope { ..base }.id());
        for other in others {
            assert_ne!(other.id(), base.id(), "{other:?}");
        }
    }
}
