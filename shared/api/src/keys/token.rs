use std::fmt;

use sha2::{Digest, Sha256};

/// Number of random bytes that a key needs: 8 for its id, 32 for its secret.
pub const CHANCE: usize = 40;

const PREFIX: &str = "dm";
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;

/// A key as its holder has it. Not shown when it is printed for debugging.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyToken {
    id: String,
    secret: String,
}

impl KeyToken {
    /// A key made of `chance`.
    pub fn generate(chance: [u8; CHANCE]) -> Self {
        let digits = hex::encode(chance);
        let (id, secret) = digits.split_at(ID_DIGITS);
        Self { id: id.to_owned(), secret: secret.to_owned() }
    }

    /// The key that `text` spells, if it has the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
        let digits =
            |text: &str, count| text.len() == count && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let whole = digits(id, ID_DIGITS) && digits(secret, SECRET_DIGITS);
        whole.then(|| Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// By what the key is listed and revoked.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The whole key, to be shown to its holder.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}_{}_{}", self.id, self.secret)
    }

    /// The hash that is stored, in 64 hexadecimal digits.
    pub(super) fn hash(&self) -> String {
        hex::encode(Sha256::digest(self.reveal()))
    }
}

impl fmt::Debug for KeyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyToken({PREFIX}_{}_…)", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> KeyToken {
        KeyToken::generate(std::array::from_fn(|place| place as u8))
    }

    #[test]
    fn what_is_revealed_is_read_again() {
        let revealed = token().reveal();
        assert_eq!(revealed.len(), "dm__".len() + ID_DIGITS + SECRET_DIGITS);
        assert_eq!(KeyToken::parse(&revealed), Some(token()));
        assert_eq!(token().id(), "0001020304050607");
    }

    #[test]
    fn other_texts_are_no_keys() {
        let revealed = token().reveal();
        for text in ["", "dm", "dm_", "dm__", &revealed[1..], &revealed[..revealed.len() - 1], &revealed.to_uppercase()]
        {
            assert_eq!(KeyToken::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", token());
        assert_eq!(shown, "KeyToken(dm_0001020304050607_…)");
    }
}
