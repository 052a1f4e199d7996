//! Cursors of lists: the end of a page, sealed so that only the list that gave it out takes it back, and no client
//! reads it: a page may end behind an element that its reader may not know of.
//!
//! A cursor holds the key of the last element, not a count, so writes between two pages neither repeat nor hide an
//! element. It is opaque to clients; one that was changed, or belongs to another list, is refused.

use aes_siv::siv::Aes128Siv;
use aes_siv::{Key, KeyInit};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ProtocolError;

/// Separates the key of cursors from everything else that the secret signs.
const DOMAIN: &[u8] = b"dormouse cursor 2\0";

/// The form of cursors; the first byte of each.
const FORM: u8 = 2;

/// Number of bytes of the time.
const TIME_BYTES: usize = 8;

/// Makes cursors with one secret, and reads those of that one and, while a secret is being replaced, of a second one.
#[derive(Clone)]
pub struct Cursors {
    key: Key<Aes128Siv>,
    second: Option<Key<Aes128Siv>>,
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cursors")
    }
}

impl Cursors {
    /// All servers that shall take each other's cursors need the same `secret`. It may sign other things too: the key
    /// of cursors is a hash of it.
    pub fn new(secret: &[u8]) -> Self {
        Self { key: key(secret), second: None }
    }

    /// The same, which also reads cursors that were made with `second`.
    #[must_use]
    pub fn accepting(self, second: &[u8]) -> Self {
        Self { second: Some(key(second)), ..self }
    }

    /// A cursor of the list `scope` (who asks for which list, narrowed how) behind the element at `position`, good
    /// until `expires`; without a character where it cannot be made, which no list takes back.
    pub fn seal(&self, scope: &str, position: &[String], expires: Timestamp) -> String {
        let mut content = expires.as_second().to_be_bytes().to_vec();
        content.extend(Value::from(position).to_string().bytes());
        let sealed = Aes128Siv::new(&self.key).encrypt([&[FORM][..], scope.as_bytes()], &content);
        let sealed = sealed.map(|sealed| [&[FORM][..], &sealed[..]].concat());
        URL_SAFE_NO_PAD.encode(sealed.unwrap_or_default())
    }

    /// The position that [`Cursors::seal`] put into `cursor` for the same `scope`.
    ///
    /// # Errors
    /// `invalid_request` if the cursor is not ours, was changed or belongs to another list; `cursor_expired` if it is
    /// not good any more.
    pub fn open(&self, scope: &str, cursor: &str, now: Timestamp) -> Result<Vec<String>, ProtocolError> {
        let (expires, position) = self.unseal(scope, cursor).ok_or_else(|| {
            let message = "expected a cursor that this list gave out with the same filters; without one it begins anew";
            ProtocolError::invalid("cursor", message)
        })?;
        if now.as_second() < expires { Ok(position) } else { Err(ProtocolError::cursor_expired("cursor")) }
    }

    fn unseal(&self, scope: &str, cursor: &str) -> Option<(i64, Vec<String>)> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (&FORM, sealed) = bytes.split_first()? else { return None };
        let mut keys = [Some(&self.key), self.second.as_ref()].into_iter().flatten();
        let content = keys.find_map(|key| Aes128Siv::new(key).decrypt([&[FORM][..], scope.as_bytes()], sealed).ok())?;
        let (time, position) = content.split_at_checked(TIME_BYTES)?;
        Some((i64::from_be_bytes(time.try_into().ok()?), serde_json::from_slice(position).ok()?))
    }
}

/// The key that the secret `secret` gives.
fn key(secret: &[u8]) -> Key<Aes128Siv> {
    Sha256::new().chain_update(DOMAIN).chain_update(secret).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const LATER: Timestamp = Timestamp::constant(3_600, 0);

    fn position() -> Vec<String> {
        vec!["session_1".to_owned(), "message \u{e9}".to_owned()]
    }

    #[test]
    fn a_cursor_leads_back_to_its_position() {
        let cursors = Cursors::new(b"secret");
        let cursor = cursors.seal("ada listTasks", &position(), LATER);
        assert!(cursor.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{cursor}");
        assert_eq!(cursors.open("ada listTasks", &cursor, NOW), Ok(position()));
        assert_eq!(
            cursors.open("ada listTasks", &cursor, LATER).expect_err("too late").code(),
            ErrorCode::CursorExpired
        );
    }

    #[test]
    fn a_second_secret_reads_and_does_not_make() {
        let old = Cursors::new(b"old");
        let new = Cursors::new(b"new").accepting(b"old");
        let cursor = old.seal("ada listTasks", &position(), LATER);
        assert_eq!(new.open("ada listTasks", &cursor, NOW), Ok(position()));
        let cursor = new.seal("ada listTasks", &position(), LATER);
        assert_eq!(Cursors::new(b"new").open("ada listTasks", &cursor, NOW), Ok(position()));
        assert!(old.open("ada listTasks", &cursor, NOW).is_err());
        assert_eq!(old.accepting(b"new").open("ada listTasks", &cursor, NOW), Ok(position()));
    }

    #[test]
    fn nobody_reads_where_a_cursor_leads() {
        let long = ["x".repeat(200), "session_1".to_owned()];
        for position in [&position()[..], &long] {
            let cursor = Cursors::new(b"secret").seal("ada listTasks", position, LATER);
            let bytes = URL_SAFE_NO_PAD.decode(&cursor).expect("Base64");
            let shown = String::from_utf8_lossy(&bytes);
            assert!(!shown.contains("session") && !shown.contains("xx"), "{shown}");
            assert_eq!(Cursors::new(b"secret").open("ada listTasks", &cursor, NOW).as_deref(), Ok(position));
        }
    }

    #[test]
    fn changed_foreign_and_invented_cursors_are_refused() {
        let cursors = Cursors::new(b"secret");
        let cursor = cursors.seal("ada listTasks", &position(), LATER);
        let refused = |scope: &str, cursor: &str| {
            let refusal = cursors.open(scope, cursor, NOW).expect_err(cursor);
            assert_eq!((refusal.code(), refusal.param()), (ErrorCode::InvalidRequest, Some("cursor")), "{cursor}");
            assert!(refusal.message().contains("without one it begins anew"), "{refusal}");
        };
        refused("bob listTasks", &cursor);
        refused("ada listTasks", &Cursors::new(b"another").seal("ada listTasks", &position(), LATER));
        for invented in ["", "x", "!!", "null", &"A".repeat(80)] {
            refused("ada listTasks", invented);
        }
        for at in 0..cursor.len() {
            let mut changed = cursor.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            refused("ada listTasks", &String::from_utf8(changed).expect("ASCII"));
        }
    }
}
