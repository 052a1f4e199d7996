use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::InvocationId;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Separates these tokens from whatever else the secret may ever sign.
const DOMAIN: &[u8] = b"dormouse callback 1\0";
const GENERATION_BYTES: usize = 8;

/// What callback tokens are signed with. At least 32 random bytes.
#[derive(Clone)]
pub struct CallbackSecret(Vec<u8>);

impl CallbackSecret {
    /// The secret `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for whatever else is signed with them and keeps its domain apart.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CallbackSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackSecret(…)")
    }
}

/// Makes and checks callback tokens: whoever holds one may resume exactly one pause of one invocation.
///
/// A token is base64url, without padding, of the generation (eight bytes, big-endian) and an HMAC-SHA256 over
/// invocation and generation.
#[derive(Clone, Debug)]
pub struct CallbackSigner {
    secret: CallbackSecret,
}

impl CallbackSigner {
    /// A signer under `secret`.
    pub fn new(secret: CallbackSecret) -> Self {
        Self { secret }
    }

    /// The token for pause `generation` of `invocation`.
    pub fn token(&self, invocation: &InvocationId, generation: u64) -> String {
        let generation = generation.to_be_bytes();
        let signature = self.signing(invocation, generation).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([generation.as_slice(), signature.as_slice()].concat())
    }

    /// The pause that `token` may resume, or `None` when it was not made for `invocation` under this secret. Takes the
    /// same time for every wrong signature.
    pub fn verify(&self, invocation: &InvocationId, token: &str) -> Option<u64> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (generation, signature) = bytes.split_at_checked(GENERATION_BYTES)?;
        let generation: [u8; GENERATION_BYTES] = generation.try_into().ok()?;
        self.signing(invocation, generation).verify_slice(signature).ok()?;
        Some(u64::from_be_bytes(generation))
    }

    fn signing(&self, invocation: &InvocationId, generation: [u8; GENERATION_BYTES]) -> Hmac<Sha256> {
        // The generation comes first and has a fixed length, so that no two pairs give the same bytes.
        let mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.secret.0);
        let mac = mac.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.chain_update(DOMAIN).chain_update(generation).chain_update(invocation.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(secret: &str) -> CallbackSigner {
        CallbackSigner::new(CallbackSecret::new(secret))
    }

    #[test]
    fn a_token_names_its_pause() {
        let token = signer("s").token(&"i1".into(), 3);
        assert_eq!(signer("s").verify(&"i1".into(), &token), Some(3));
        assert!(token.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{token}");
    }

    #[test]
    fn a_token_is_worth_nothing_elsewhere() {
        let token = signer("s").token(&"i1".into(), 3);
        assert_eq!(signer("s").verify(&"i2".into(), &token), None);
        assert_eq!(signer("other").verify(&"i1".into(), &token), None);
        for wrong in ["", "AAAA", &token[1..], &format!("{token}A"), "not base64!"] {
            assert_eq!(signer("s").verify(&"i1".into(), wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_changed_generation_breaks_the_signature() {
        let mut bytes = URL_SAFE_NO_PAD.decode(signer("s").token(&"i1".into(), 3)).expect("base64url");
        bytes[7] = 4;
        assert_eq!(signer("s").verify(&"i1".into(), &URL_SAFE_NO_PAD.encode(bytes)), None);
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert!(!format!("{:?}", signer("hush")).contains("hush"));
    }
}
