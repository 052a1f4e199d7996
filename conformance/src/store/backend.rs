use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse_aws::{DynamoDbCheckpointer, DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Checkpointer, StateStore};
use dormouse_testkit::{MemoryCheckpointer, MemoryStore};

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
pub struct Backends {
    /// The embedded server, where one is asked for, and how many tables it has.
    embedded: Option<(EmbeddedDynamoDb, AtomicUsize)>,
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backends").field("embedded", &self.embedded.is_some()).finish()
    }
}

impl Backends {
    /// Starts what `kinds` need.
    ///
    /// # Errors
    /// When the embedded server does not start.
    pub async fn start(kinds: &[PortKind]) -> Result<Self, String> {
        if !kinds.contains(&PortKind::DynamoDb) {
            return Ok(Self { embedded: None });
        }
        let server = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.map_err(|error| error.to_string())?;
        Ok(Self { embedded: Some((server, AtomicUsize::new(0))) })
    }

    /// An empty store and an empty checkpointer: on DynamoDB both in a table of their own.
    pub(crate) async fn empty(&self, kind: PortKind) -> Result<Keeping, String> {
        match (kind, &self.embedded) {
            (PortKind::Memory, _) => Ok(Keeping {
                store: Arc::new(MemoryStore::default()),
                checkpointer: Arc::new(MemoryCheckpointer::default()),
            }),
            (PortKind::DynamoDb, None) => Err("the embedded server was not started".to_owned()),
            (PortKind::DynamoDb, Some((server, tables))) => {
                let client = server.client();
                let table = format!("case-{}", tables.fetch_add(1, Ordering::Relaxed));
                ensure_table(&client, &table).await.map_err(|error| error.to_string())?;
                let checkpointer = DynamoDbCheckpointer::new(&client, table.as_str(), StoreConfig::default());
                let store = DynamoDbStateStore::new(&client, table, StoreConfig::default());
                Ok(Keeping { store: Arc::new(store), checkpointer: Arc::new(checkpointer) })
            }
        }
    }
}

/// Where a case keeps what outlives its process.
pub(crate) struct Keeping {
    pub(crate) store: Arc<dyn StateStore>,
    pub(crate) checkpointer: Arc<dyn Checkpointer>,
}
