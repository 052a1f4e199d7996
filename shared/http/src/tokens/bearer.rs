use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A key that a caller presents; two keys while one is being replaced by the other. Only digests are kept, and comparing
/// takes the same time for every wrong key.
#[derive(Clone)]
pub struct BearerKey {
    /// `None` for the key that no caller has.
    digest: Option<[u8; 32]>,
    second: Option<[u8; 32]>,
}

impl BearerKey {
    /// The key `key`.
    pub fn new(key: &str) -> Self {
        Self { digest: Some(Sha256::digest(key).into()), second: None }
    }

    /// The same, where `second` is as good as the key itself.
    #[must_use]
    pub fn accepting(self, second: &str) -> Self {
        Self { second: Some(Sha256::digest(second).into()), ..self }
    }

    /// A key that no caller has.
    pub fn of_nobody() -> Self {
        Self { digest: None, second: None }
    }

    /// True if `presented` is the key.
    pub fn matches(&self, presented: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let is = |own: &Option<[u8; 32]>| own.is_some_and(|own| own.ct_eq(&digest).into());
        // Not `||`: how long it takes must not tell which of them it is.
        is(&self.digest) | is(&self.second)
    }
}

impl fmt::Debug for BearerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_itself_matches() {
        let key = BearerKey::new("open sesame");
        assert!(key.matches("open sesame"));
        assert!(!key.matches("open sesam") && !key.matches("") && !key.matches("open sesame "));
        assert!(!format!("{key:?}").contains("sesame"));
    }

    #[test]
    fn while_a_key_is_replaced_both_match() {
        let key = BearerKey::new("open sesame").accepting("open barley");
        assert!(key.matches("open sesame") && key.matches("open barley"));
        assert!(!key.matches("open") && !key.matches("") && !key.matches("open sesameopen barley"));
    }

    #[test]
    fn nobody_has_the_key_of_nobody() {
        let key = BearerKey::of_nobody();
        assert!(!key.matches("") && !key.matches("open sesame"));
    }
}
