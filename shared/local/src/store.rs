//! A DynamoDB-compatible store inside the process. The real SDK asks it, and no socket is between them: a port of this
//! machine is open to every page of every browser on it, and to all of its users.

mod door;
mod line;
mod obey;
mod soundness;
mod tokens;

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Builder, Credentials, IdentityCache, Region, StalledStreamProtectionConfig,
};
use dynoxide::{Database, ImportOptions};
use serde_json::Value;

pub use door::Door;
use line::InProcessClient;
use obey::EmbeddedDatabase;

use crate::lane::Turns;

/// The file of a data folder that holds everything.
pub(crate) const FILE: &str = "dynamodb.sqlite";

/// Place of the data.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    /// In memory, until the store stops.
    Memory,
    /// In this folder, which is made when it is missing.
    Folder(PathBuf),
}

/// Reason for which the embedded store does not work. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The folder or the port cannot be had.
    #[error("the embedded store cannot start: {0}")]
    Io(#[from] std::io::Error),
    /// The database did not do what it was asked.
    #[error("the embedded store failed: {0}")]
    Database(String),
    /// The file is not what this process wrote. It is left as it is.
    #[error(
        "the store {} is damaged: {reason}. It was left as it is: put a copy of it back, or begin anew with another \
         folder (--data)",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Defect of it.
        reason: String,
    },
    /// The file cannot be opened as things are. Nothing says that its content is wrong.
    #[error("the store {} cannot be opened: {reason}. It was left as it is: {remedy}, and try again", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Error of the database.
        reason: String,
        /// Action that helps.
        remedy: &'static str,
    },
    /// The file is gone from a folder that was in use.
    #[error(
        "the store {} is gone, although the folder was in use. None was made in its place: put a copy of it back, or \
         begin anew with another folder (--data)",
        .0.display()
    )]
    Lost(PathBuf),
}

/// A store. Stops when it is dropped: what is asked of it afterwards is answered as by an unreachable server.
#[derive(Debug)]
pub struct EmbeddedDynamoDb {
    engine: EmbeddedDatabase,
}

impl EmbeddedDynamoDb {
    /// Opens a store, which is made when it is missing.
    ///
    /// # Errors
    /// [`EmbeddedError`] when the folder cannot be had, or what is in it is no sound store.
    pub async fn start(place: &StoreLocation) -> Result<Self, EmbeddedError> {
        let place = place.clone();
        let opened = tokio::task::spawn_blocking(move || match place {
            StoreLocation::Memory => Database::memory().map_err(failed),
            StoreLocation::Folder(folder) => {
                std::fs::create_dir_all(&folder)?;
                open(&folder.join(FILE))
            }
        });
        Ok(Self { engine: EmbeddedDatabase::new(opened.await.map_err(failed)??) })
    }

    /// Opens the store that is in `folder`, and makes none.
    ///
    /// # Errors
    /// [`EmbeddedError::Lost`] when there is none; [`EmbeddedError::Damaged`] when it is not sound.
    pub(crate) async fn existing(folder: &Path) -> Result<Self, EmbeddedError> {
        soundness::check_kept(&folder.join(FILE))?;
        Self::start(&StoreLocation::Folder(folder.to_owned())).await
    }

    /// The configuration of a client of this store, open to additions such as interceptors.
    pub fn config(&self) -> Builder {
        // Signatures are not checked here, and no network loses anything.
        base("http://store.invalid")
            .allow_no_auth()
            .identity_cache(IdentityCache::no_cache())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .http_client(InProcessClient(self.engine.clone()))
    }

    /// A client of this store.
    pub fn client(&self) -> Client {
        Client::from_conf(self.config().build())
    }

    /// A door to this store for other processes that know `secret`.
    pub fn door(&self, secret: &str) -> Door {
        Door::new(self.engine.clone(), secret)
    }

    /// The processor on which this store works beside others.
    pub(crate) fn processor(&self) -> Turns {
        self.engine.processor()
    }

    /// Removes what has outlived its time to live, as DynamoDB does by itself. Gives the number of items removed.
    ///
    /// # Errors
    /// [`EmbeddedError::Database`] when the database failed.
    pub async fn sweep(&self) -> Result<usize, EmbeddedError> {
        self.engine.with(|database| database.sweep_ttl().map_err(failed)).await
    }

    /// Adds `items`, in the JSON of DynamoDB's own requests, to a table as they are: records of other versions, and
    /// more of them than requests would bring there in time.
    ///
    /// # Errors
    /// [`EmbeddedError::Database`] when one of them is no item or the database failed; none of them is there then.
    pub async fn import(&self, table: &str, items: Vec<Value>) -> Result<(), EmbeddedError> {
        let table = table.to_owned();
        let import = move |database: &Database| {
            let items = items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>().map_err(failed)?;
            database.import_items(&table, items, ImportOptions::default()).map(|_| ()).map_err(failed)
        };
        self.engine.with(import).await
    }

    /// Stops the store when it has answered what it was asked.
    ///
    /// # Errors
    /// [`EmbeddedError::Database`] when the runtime ends first.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        let engine = self.engine.clone();
        tokio::task::spawn_blocking(move || engine.stop()).await.map_err(failed)
    }
}

impl Drop for EmbeddedDynamoDb {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// True if there is no store in `folder`.
pub(crate) fn is_missing(folder: &Path) -> std::io::Result<bool> {
    soundness::is_kept(&folder.join(FILE)).map(|kept| !kept)
}

/// Makes `folder` with an empty store, which nobody else may read, whatever the folder around it lets others do. What the
/// database makes beside its file is as private as that.
pub(crate) fn make_private(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(FILE)).map(drop)
}

/// The configuration of a client that goes through the door at `url`, with the secret `secret`.
pub fn through_door(url: &str, secret: &str) -> Builder {
    let credentials = Credentials::new("local", "local", Some(secret.to_owned()), None, "embedded");
    // The secret opens all that is stored, and the door is on this machine: a proxy of the environment is told of neither.
    base(url).credentials_provider(credentials).http_client(aws_smithy_http_client::Builder::new().build_http())
}

fn base(url: &str) -> Builder {
    let config = aws_sdk_dynamodb::Config::builder().behavior_version(BehaviorVersion::latest());
    config.region(Region::from_static("us-east-1")).endpoint_url(url)
}

fn open(file: &Path) -> Result<Database, EmbeddedError> {
    soundness::check(file)?;
    Database::new(&file.to_string_lossy()).map_err(|error| soundness::refused(file, &error))
}

fn failed(error: impl std::fmt::Display) -> EmbeddedError {
    EmbeddedError::Database(error.to_string())
}
