use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::tool::InputRequest;

/// A person who is there while a call runs: at a terminal, for example. The person is asked what a server of an older
/// version asks in the midst of a call that cannot end for it; the call waits meanwhile, and no longer than its
/// timeout.
#[async_trait]
pub trait Asker: Send + Sync {
    /// Puts `question` of the server `server` to him. `None` where he does not answer.
    async fn ask(&self, server: &str, question: InputRequest) -> Option<Map>;
}

/// The one who is asked, if there is one.
#[derive(Clone, Default)]
pub(super) struct Present(pub(super) Option<Arc<dyn Asker>>);

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Present" } else { "Absent" })
    }
}
