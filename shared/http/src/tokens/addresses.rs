use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::tool::CallbackAddresses;
use dormouse_ports::{Clock, SignalId};
use jiff::Timestamp;

use super::CallbackSigner;
use super::signer::SIGNAL_TOKEN;
use crate::percent;

/// Addresses of signals, for those who work elsewhere for a run: the holder of one may send that signal, and nothing else.
pub struct SignalAddresses {
    base_url: String,
    signer: CallbackSigner,
    clock: Arc<dyn Clock>,
    valid: Duration,
}

impl SignalAddresses {
    /// Addresses below `base_url` that `signer` signs, each good for `valid`.
    pub fn new(base_url: &str, signer: CallbackSigner, clock: Arc<dyn Clock>, valid: Duration) -> Self {
        Self { base_url: base_url.trim_end_matches('/').to_owned(), signer, clock, valid }
    }
}

impl fmt::Debug for SignalAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalAddresses").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl CallbackAddresses for SignalAddresses {
    fn address(&self, signal_id: &SignalId) -> Option<String> {
        let ends = self.clock.now().checked_add(self.valid).unwrap_or(Timestamp::MAX);
        let token = self.signer.signal_token(signal_id, ends);
        let id = percent::encode(signal_id.as_str());
        Some(format!("{}/signals/{id}?token={}", self.base_url, percent::encode(&token)))
    }

    fn is_token(&self, signal_id: &SignalId, text: &str) -> bool {
        text.len() == SIGNAL_TOKEN && self.signer.verify_signal(signal_id, text, self.clock.now()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use dormouse_testkit::ManualClock;

    use super::super::CallbackSecret;
    use super::*;

    #[test]
    fn the_token_of_an_address_is_known_whenever_it_was_made() {
        let clock = Arc::new(ManualClock::default());
        let signer = CallbackSigner::new(CallbackSecret::new("s"));
        let addresses = SignalAddresses::new("https://d.example/", signer, clock.clone(), Duration::from_secs(60));
        let id = SignalId::from("run/1/call-1");
        let address = addresses.address(&id).expect("an address");
        let (_, token) = address.split_once("?token=").expect("a token");
        clock.advance(Duration::from_secs(3600));
        assert!(addresses.is_token(&id, token));
        assert!(!addresses.is_token(&"run/1/call-2".into(), token), "of that signal alone");
        for other in ["", "token", &token[1..], &token.to_lowercase()] {
            assert!(!addresses.is_token(&id, other), "{other}");
        }
    }
}
