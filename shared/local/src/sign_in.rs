//! The link that signs in at the console once: its code is changed for the development key, and is nothing from then on.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::TryRngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::keys::KeyError;

/// Bytes of chance of a code.
const CHANCE: usize = 24;

/// Gives a key for a code, once. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SignIn {
    /// The digest of the code, until it is used.
    unused: Arc<Mutex<Option<[u8; 32]>>>,
    key: Arc<str>,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignIn")
    }
}

impl SignIn {
    /// A sign-in that gives `key`, and its code.
    ///
    /// # Errors
    /// [`KeyError::NoChance`].
    pub(crate) fn new(key: &str) -> Result<(Self, String), KeyError> {
        let mut chance = [0; CHANCE];
        OsRng.try_fill_bytes(&mut chance).map_err(|error| KeyError::NoChance(error.to_string()))?;
        let code = hex::encode(chance);
        let unused = Arc::new(Mutex::new(Some(Sha256::digest(&code).into())));
        Ok((Self { unused, key: key.into() }, code))
    }

    /// The key, if `code` is the one that was given out and was not used.
    pub(crate) fn exchange(&self, code: &str) -> Option<String> {
        let given: [u8; 32] = Sha256::digest(code).into();
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = unused.as_ref().is_some_and(|digest| digest.ct_eq(&given).into());
        if !is_it {
            return None;
        }
        *unused = None;
        Some(self.key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once() {
        let (sign_in, code) = SignIn::new("dm_key").expect("chance");
        assert_eq!(sign_in.exchange("other"), None);
        assert_eq!(sign_in.clone().exchange(&code).as_deref(), Some("dm_key"));
        assert_eq!(sign_in.exchange(&code), None, "and then gone");
        assert!(!format!("{sign_in:?}").contains("dm_key"));
    }
}
