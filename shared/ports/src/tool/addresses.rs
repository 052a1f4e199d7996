use crate::SignalId;

/// Makes addresses for the outcomes of calls that go on elsewhere.
pub trait CallbackAddresses: Send + Sync {
    /// An address at which one POST becomes the signal `signal_id`; `None` where there is none.
    fn address(&self, signal_id: &SignalId) -> Option<String>;

    /// True if `text` is the token of an address for `signal_id`, whenever that was made.
    fn is_token(&self, signal_id: &SignalId, text: &str) -> bool {
        let (_, _) = (signal_id, text);
        false
    }
}
