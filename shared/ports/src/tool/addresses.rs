use crate::SignalId;

/// Makes addresses for the outcomes of calls that go on elsewhere.
pub trait CallbackAddresses: Send + Sync {
    /// An address at which one POST becomes the signal `signal_id`; `None` where there is none.
    fn address(&self, signal_id: &SignalId) -> Option<String>;
}
