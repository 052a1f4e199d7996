use std::fmt;
use std::sync::Arc;

use dormouse_ports::StateStore;
use dormouse_testkit::MemoryStore;

/// On which implementation of the ports a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Everything in memory.
    Memory,
    /// DynamoDB, as the embedded server of local mode.
    DynamoDb,
}

impl PortKind {
    /// How reports and command lines call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::DynamoDb => "dynamodb",
        }
    }
}

/// Makes stores; each case gets an empty one.
pub struct Backends {}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backends")
    }
}

impl Backends {
    /// Starts what `kinds` need.
    ///
    /// # Errors
    /// When the embedded server does not start.
    pub async fn start(kinds: &[PortKind]) -> Result<Self, String> {
        let _ = kinds;
        Ok(Self {})
    }

    /// An empty store.
    pub(crate) async fn store(&self, kind: PortKind) -> Result<Arc<dyn StateStore>, String> {
        match kind {
            PortKind::Memory => Ok(Arc::new(MemoryStore::default())),
            PortKind::DynamoDb => Err("the embedded server is not there yet".to_owned()),
        }
    }
}
