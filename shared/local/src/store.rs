//! A DynamoDB-compatible store inside the process, reached over loopback by the real SDK.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use dynoxide::{Database, ImportOptions};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Where the data live.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory, until the store stops.
    Memory,
    /// In this folder, which is made when it is missing.
    Folder(PathBuf),
}

/// Why the embedded store does not work.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The folder or the port cannot be had.
    #[error("the embedded store cannot start: {0}")]
    Io(#[from] std::io::Error),
    /// The database did not do what it was asked.
    #[error("the embedded store failed: {0}")]
    Database(String),
}

/// A running store. Stops when it is dropped; [`stop`](Self::stop) also waits for the end.
#[derive(Debug)]
pub struct EmbeddedDynamoDb {
    address: SocketAddr,
    database: Handle,
    shutdown: oneshot::Sender<()>,
    server: JoinHandle<Result<(), String>>,
}

/// The database, which cannot describe itself.
struct Handle(Database);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Database")
    }
}

impl EmbeddedDynamoDb {
    /// Starts a store on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// [`EmbeddedError`] when folder, database or port cannot be had.
    pub async fn start(place: &Place) -> Result<Self, EmbeddedError> {
        let database = open(place)?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (shutdown, stopped) = oneshot::channel::<()>();
        let served = dynoxide::server::serve_with_shutdown(listener, database.clone(), async {
            // An error means that the store was dropped, which stops it as well.
            let _ = stopped.await;
        });
        Ok(Self { address, database: Handle(database), shutdown, server: tokio::spawn(served) })
    }

    /// Where the store answers, as a URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The configuration of a client of this store, open to additions such as interceptors.
    pub fn config(&self) -> Builder {
        loopback(&self.endpoint())
    }

    /// A client of this store.
    pub fn client(&self) -> Client {
        Client::from_conf(self.config().build())
    }

    /// Removes what has outlived its time to live, as DynamoDB does by itself. Gives the number of items removed.
    ///
    /// # Errors
    /// [`EmbeddedError::Database`] when the database failed.
    pub async fn sweep(&self) -> Result<usize, EmbeddedError> {
        let database = self.database.0.clone();
        let swept = tokio::task::spawn_blocking(move || database.sweep_ttl().map_err(failed)).await;
        swept.map_err(failed)?
    }

    /// Adds `items`, in the JSON of DynamoDB's own requests, to a table as they are: records of other versions, and more
    /// of them than requests would bring there in time.
    ///
    /// # Errors
    /// [`EmbeddedError::Database`] when one of them is no item or the database failed; none of them is there then.
    pub async fn import(&self, table: &str, items: Vec<Value>) -> Result<(), EmbeddedError> {
        let (database, table) = (self.database.0.clone(), table.to_owned());
        let import = move || {
            let items = items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>().map_err(failed)?;
            database.import_items(&table, items, ImportOptions::default()).map(|_| ()).map_err(failed)
        };
        tokio::task::spawn_blocking(import).await.map_err(failed)?
    }

    /// Stops the store when it has answered what it was asked.
    ///
    /// # Errors
    /// [`EmbeddedError::Database`] when the server had failed.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        drop(self.shutdown);
        drop(self.database);
        self.server.await.map_err(failed)?.map_err(EmbeddedError::Database)
    }
}

/// A client of a store that another process runs at `endpoint`.
pub(crate) fn loopback_client(endpoint: &str) -> Client {
    Client::from_conf(loopback(endpoint).build())
}

fn loopback(endpoint: &str) -> Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "embedded"))
        .endpoint_url(endpoint)
}

fn open(place: &Place) -> Result<Database, EmbeddedError> {
    match place {
        Place::Memory => Database::memory().map_err(failed),
        Place::Folder(folder) => {
            std::fs::create_dir_all(folder)?;
            Database::new(&file(folder)).map_err(failed)
        }
    }
}

fn file(folder: &Path) -> String {
    folder.join("dynamodb.sqlite").to_string_lossy().into_owned()
}

fn failed(error: impl std::fmt::Display) -> EmbeddedError {
    EmbeddedError::Database(error.to_string())
}
