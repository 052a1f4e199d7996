use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::{InvocationId, Secret, SignalId};
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use sha2::Sha256;

/// Separates these tokens from everything else that the secret may ever sign.
const DOMAIN: &[u8] = b"dormouse callback 2\0";
/// The same for tokens of one part of a pause.
const PART_DOMAIN: &[u8] = b"dormouse callback part 2\0";
/// The same for tokens that stand in the addresses of pages.
const PAGE_DOMAIN: &[u8] = b"dormouse page 1\0";
const PAGE_PART_DOMAIN: &[u8] = b"dormouse page part 1\0";
/// The same for tokens of signals.
const SIGNAL_DOMAIN: &[u8] = b"dormouse signal 1\0";
/// The same for tokens of earlier versions, which never ended.
const ENDLESS: &[u8] = b"dormouse callback 1\0";
const ENDLESS_PART: &[u8] = b"dormouse callback part 1\0";
const GENERATION_BYTES: usize = 8;
const END_BYTES: usize = 8;
/// Bytes of what a token says.
const SAID_BYTES: usize = GENERATION_BYTES + END_BYTES;
const SIGNATURE_BYTES: usize = 32;
/// Characters of the token of a signal.
pub(super) const SIGNAL_TOKEN: usize = ((END_BYTES + SIGNATURE_BYTES) * 4).div_ceil(3);

/// Meaning of a genuine token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// It opens the pause of this generation.
    Good(u64),
    /// The same from the page of one question: whoever has it is told nothing of what comes behind that.
    OfPage(u64),
    /// It opened one, until its time was over.
    Ended,
}

/// Secret with which callback tokens are signed. At least 32 random bytes.
#[derive(Clone)]
pub struct CallbackSecret(Vec<u8>);

impl CallbackSecret {
    /// The secret `bytes`.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for other signatures that keep their domain apart.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same as text, for what keys are made of.
    pub fn to_secret(&self) -> Secret {
        Secret::new(String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for CallbackSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackSecret(…)")
    }
}

/// Makes and checks callback tokens: the holder of one may resume exactly one pause of one invocation, or, where that
/// expects several signals, send exactly one of them.
///
/// A token is base64url, without padding, of the generation and the second at which it ends (eight bytes each,
/// big-endian, the second since 1970), and an HMAC-SHA256 over these, the invocation, and the part if it is for one.
///
/// While a secret is being replaced there are two: one signs, and what either of them signed is genuine.
#[derive(Clone, Debug)]
pub struct CallbackSigner {
    secret: CallbackSecret,
    second: Option<CallbackSecret>,
}

impl CallbackSigner {
    /// A signer under `secret`.
    pub fn new(secret: CallbackSecret) -> Self {
        Self { secret, second: None }
    }

    /// The same signer, which also takes what was signed with `second`.
    #[must_use]
    pub fn accepting(self, second: CallbackSecret) -> Self {
        Self { second: Some(second), ..self }
    }

    /// The token for pause `generation` of `invocation`, good until `ends`; with `part`, for that one of several
    /// signals.
    pub fn token(&self, invocation: &InvocationId, generation: u64, part: Option<&str>, ends: Timestamp) -> String {
        let domain = if part.is_some() { PART_DOMAIN } else { DOMAIN };
        self.made(domain, (invocation, generation, part), ends)
    }

    /// The same for the address of a page, on which a person answers this one question.
    pub fn page_token(
        &self,
        invocation: &InvocationId,
        generation: u64,
        part: Option<&str>,
        ends: Timestamp,
    ) -> String {
        let domain = if part.is_some() { PAGE_PART_DOMAIN } else { PAGE_DOMAIN };
        self.made(domain, (invocation, generation, part), ends)
    }

    fn made(
        &self,
        domain: &[u8],
        (invocation, generation, part): (&InvocationId, u64, Option<&str>),
        ends: Timestamp,
    ) -> String {
        let said = [generation.to_be_bytes(), seconds(ends).to_be_bytes()].concat();
        let signature = signing(&self.secret, domain, invocation.as_str(), &said, part).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([said.as_slice(), signature.as_slice()].concat())
    }

    /// The meaning of `token` at `now`, or `None` when it was not made for `invocation` and `part` under a secret that
    /// is accepted. Takes the same time for every wrong signature. Tokens of earlier versions do not end.
    pub fn verify(&self, invocation: &InvocationId, part: Option<&str>, token: &str, now: Timestamp) -> Option<Token> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (said, signature) = bytes.split_at_checked(bytes.len().checked_sub(SIGNATURE_BYTES)?)?;
        let (domain, of_page): (&[u8], Option<&[u8]>) = match (said.len(), part.is_some()) {
            (GENERATION_BYTES, false) => (ENDLESS, None),
            (GENERATION_BYTES, true) => (ENDLESS_PART, None),
            (SAID_BYTES, false) => (DOMAIN, Some(PAGE_DOMAIN)),
            (SAID_BYTES, true) => (PART_DOMAIN, Some(PAGE_PART_DOMAIN)),
            // What is longer may hold the beginning of another id, and what is shorter may have left its end to one.
            (_, _) => return None,
        };
        let is_made_for = |domain: &[u8]| {
            self.is_genuine(signature, |secret| signing(secret, domain, invocation.as_str(), said, part))
        };
        let is_of_page = !is_made_for(domain);
        if is_of_page && !of_page.is_some_and(is_made_for) {
            return None;
        }
        let (generation, end) = said.split_first_chunk::<GENERATION_BYTES>()?;
        let ended = match end.first_chunk::<END_BYTES>() {
            Some(end) => seconds(now) >= u64::from_be_bytes(*end),
            None => false,
        };
        let generation = u64::from_be_bytes(*generation);
        Some(match (ended, is_of_page) {
            (true, _) => Token::Ended,
            (false, true) => Token::OfPage(generation),
            (false, false) => Token::Good(generation),
        })
    }

    /// The token for the signal `id`, good until `ends`: base64url, without padding, of the second at which it ends, and an
    /// HMAC-SHA256 over that and the signal.
    pub fn signal_token(&self, id: &SignalId, ends: Timestamp) -> String {
        let said = seconds(ends).to_be_bytes();
        let signature = signing(&self.secret, SIGNAL_DOMAIN, id.as_str(), &said, None).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([said.as_slice(), signature.as_slice()].concat())
    }

    /// Whether `token` may send the signal `id` at `now`: `Some(false)` for one whose time is over, `None` for one that was
    /// not made for that signal under a secret that is accepted.
    pub fn verify_signal(&self, id: &SignalId, token: &str, now: Timestamp) -> Option<bool> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (said, signature) = bytes.split_first_chunk::<END_BYTES>()?;
        let is_genuine = self.is_genuine(signature, |secret| signing(secret, SIGNAL_DOMAIN, id.as_str(), said, None));
        is_genuine.then(|| seconds(now) < u64::from_be_bytes(*said))
    }

    fn is_genuine(&self, signature: &[u8], made: impl Fn(&CallbackSecret) -> Hmac<Sha256>) -> bool {
        let is_signed_with = |secret| made(secret).verify_slice(signature).is_ok();
        is_signed_with(&self.secret) || self.second.as_ref().is_some_and(is_signed_with)
    }
}

fn signing(secret: &CallbackSecret, domain: &[u8], id: &str, said: &[u8], part: Option<&str>) -> Hmac<Sha256> {
    // Everything before the id has a length that its domain fixes or that it states, so that nothing else gives the
    // same bytes.
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(&secret.0);
    let mac = mac.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    let mac = mac.chain_update(domain).chain_update(said);
    let mac = match part {
        None => mac,
        Some(part) => mac.chain_update((part.len() as u64).to_be_bytes()).chain_update(part),
    };
    mac.chain_update(id)
}

/// Seconds since 1970; 0 for every instant before.
fn seconds(instant: Timestamp) -> u64 {
    instant.as_second().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(secret: &str) -> CallbackSigner {
        CallbackSigner::new(CallbackSecret::new(secret))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("an instant")
    }

    #[test]
    fn a_token_is_good_until_it_ends() {
        let id = "i1".into();
        let signer = signer("s");
        for part in [None, Some("ada")] {
            let token = signer.token(&id, 3, part, at(60));
            assert_eq!(signer.verify(&id, part, &token, at(59)), Some(Token::Good(3)));
            assert_eq!(signer.verify(&id, part, &token, at(60)), Some(Token::Ended));
            let mut bytes = URL_SAFE_NO_PAD.decode(&token).expect("base64url");
            bytes[14] = 1;
            assert_eq!(
                signer.verify(&id, part, &URL_SAFE_NO_PAD.encode(&bytes), at(60)),
                None,
                "nobody makes it longer"
            );
            bytes.drain(GENERATION_BYTES..GENERATION_BYTES + END_BYTES);
            assert_eq!(signer.verify(&id, part, &URL_SAFE_NO_PAD.encode(&bytes), at(0)), None, "nor endless");
        }
    }

    /// They stand in mails and tickets.
    #[test]
    fn tokens_of_earlier_versions_are_good_still() {
        let id = InvocationId::from("i1");
        let signer = signer("s");
        for (domain, part) in [(ENDLESS, None), (ENDLESS_PART, Some("ada"))] {
            let said = 3_u64.to_be_bytes();
            let signature = signing(&signer.secret, domain, id.as_str(), &said, part).finalize().into_bytes();
            let token = URL_SAFE_NO_PAD.encode([said.as_slice(), signature.as_slice()].concat());
            assert_eq!(signer.verify(&id, part, &token, Timestamp::MAX), Some(Token::Good(3)));
        }
    }

    /// Of two processes one may know the new secret already and sign with it, while the other still signs with the old
    /// one: as long as each accepts the other's, no address is refused.
    #[test]
    fn a_second_secret_verifies_and_does_not_sign() {
        let id = InvocationId::from("i1");
        let old = signer("old").accepting(CallbackSecret::new("new"));
        let new = signer("new").accepting(CallbackSecret::new("old"));
        for part in [None, Some("ada")] {
            for (made_by, read_by) in [(&old, &new), (&new, &old)] {
                let token = made_by.token(&id, 3, part, at(60));
                assert_eq!(read_by.verify(&id, part, &token, at(0)), Some(Token::Good(3)));
                assert_eq!(read_by.verify(&id, part, &token, at(60)), Some(Token::Ended));
            }
            let token = new.token(&id, 3, part, at(60));
            assert_eq!(signer("old").verify(&id, part, &token, at(0)), None, "the new one signs");
            assert_eq!(signer("new").verify(&id, part, &token, at(0)), Some(Token::Good(3)));
            assert_eq!(new.verify(&id, part, &signer("other").token(&id, 3, part, at(60)), at(0)), None);
        }
    }

    #[test]
    fn a_token_names_its_pause() {
        let token = signer("s").token(&"i1".into(), 3, None, at(60));
        assert_eq!(signer("s").verify(&"i1".into(), None, &token, at(0)), Some(Token::Good(3)));
        assert!(token.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{token}");
    }

    #[test]
    fn a_token_is_worth_nothing_elsewhere() {
        let token = signer("s").token(&"i1".into(), 3, None, at(60));
        assert_eq!(signer("s").verify(&"i2".into(), None, &token, at(0)), None);
        assert_eq!(signer("other").verify(&"i1".into(), None, &token, at(0)), None);
        for wrong in ["", "AAAA", &token[1..], &format!("{token}A"), "not base64!"] {
            assert_eq!(signer("s").verify(&"i1".into(), None, wrong, at(0)), None, "{wrong}");
        }
    }

    /// What is signed is the same bytes, wherever what is said ends and the id begins.
    #[test]
    fn a_token_is_worth_nothing_for_an_id_that_ends_like_its_own_or_that_its_own_ends() {
        let signer = signer("s");
        let own = InvocationId::from("evil-i1");
        for token in [signer.token(&own, 3, None, at(97)), signer.page_token(&own, 3, None, at(97))] {
            let bytes = URL_SAFE_NO_PAD.decode(token).expect("base64url");
            let (said, signature) = bytes.split_at(SAID_BYTES);
            let longer = URL_SAFE_NO_PAD.encode([said, b"evil-", signature].concat());
            assert_eq!(signer.verify(&"i1".into(), None, &longer, at(0)), None);
            // The last byte of its end is an `a`.
            let shorter = URL_SAFE_NO_PAD.encode([&said[..SAID_BYTES - 1], signature].concat());
            assert_eq!(signer.verify(&"aevil-i1".into(), None, &shorter, at(0)), None);
        }
    }

    #[test]
    fn a_token_of_a_part_is_for_that_part_only() {
        let id = "i1".into();
        let signer = signer("s");
        let token = signer.token(&id, 3, Some("ada"), at(60));
        assert_eq!(signer.verify(&id, Some("ada"), &token, at(0)), Some(Token::Good(3)));
        assert_eq!(signer.verify(&id, Some("grace"), &token, at(0)), None);
        assert_eq!(signer.verify(&id, None, &token, at(0)), None, "it does not open the pause");
        assert_eq!(signer.verify(&id, Some("ada"), &signer.token(&id, 3, None, at(60)), at(0)), None);
        assert_eq!(signer.verify(&"ai1".into(), Some("ad"), &token, at(0)), None);
    }

    #[test]
    fn a_token_of_a_page_opens_its_pause_as_that() {
        let id = "i1".into();
        let signer = signer("s");
        for part in [None, Some("ada")] {
            let token = signer.page_token(&id, 3, part, at(60));
            assert_ne!(token, signer.token(&id, 3, part, at(60)));
            assert_eq!(signer.verify(&id, part, &token, at(59)), Some(Token::OfPage(3)));
            assert_eq!(signer.verify(&id, part, &token, at(60)), Some(Token::Ended));
            assert_eq!(signer.verify(&"i2".into(), part, &token, at(0)), None);
            assert_eq!(signer.verify(&id, Some("grace"), &token, at(0)), None);
        }
        assert_eq!(signer.verify(&id, None, &signer.page_token(&id, 3, Some("ada"), at(60)), at(0)), None);
    }

    #[test]
    fn a_changed_generation_breaks_the_signature() {
        let mut bytes = URL_SAFE_NO_PAD.decode(signer("s").token(&"i1".into(), 3, None, at(60))).expect("base64url");
        bytes[7] = 4;
        assert_eq!(signer("s").verify(&"i1".into(), None, &URL_SAFE_NO_PAD.encode(bytes), at(0)), None);
    }

    #[test]
    fn a_token_of_a_signal_sends_that_signal_until_it_ends() {
        let id = SignalId::from("run/1/call-1");
        let new = signer("new").accepting(CallbackSecret::new("old"));
        for made_by in [signer("new"), signer("old")] {
            let token = made_by.signal_token(&id, at(60));
            assert_eq!(token.len(), SIGNAL_TOKEN);
            assert_eq!(new.verify_signal(&id, &token, at(59)), Some(true));
            assert_eq!(new.verify_signal(&id, &token, at(60)), Some(false));
            assert_eq!(new.verify_signal(&"run/1/call-2".into(), &token, at(0)), None);
            assert_eq!(signer("other").verify_signal(&id, &token, at(0)), None);
            let of_a_pause = made_by.token(&"run/1/call-1".into(), 0, None, at(60));
            assert_eq!(new.verify_signal(&id, &of_a_pause, at(0)), None);
            assert_eq!(new.verify(&"run/1/call-1".into(), None, &token, at(0)), None);
        }
        for wrong in ["", "AAAA", "not base64!"] {
            assert_eq!(new.verify_signal(&id, wrong, at(0)), None, "{wrong}");
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let signer = signer("hush").accepting(CallbackSecret::new("hush too"));
        assert!(!format!("{signer:?}").contains("hush"));
    }
}
