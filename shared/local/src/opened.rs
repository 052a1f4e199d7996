//! A data folder as commands open it: alone, or beside the `dormouse dev` that serves it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use dormouse_ports::{Clock, EventBus, RuleName, SignalSubscriptions};
use dormouse_system::{RandomIds, SystemClock};

use crate::bus::{LocalBus, PendingDeliveries, RULES};
use crate::folder::{DataFolder, FolderError};
use crate::gateway::STORE;
use crate::rules::LocalRules;
use crate::scheduler::LocalScheduler;
use crate::served::ServedBus;
use crate::store::{EmbeddedDynamoDb, EmbeddedError, through_door};
use crate::subscriptions::LocalSubscriptions;

/// Number of attempts at a folder whose process serves nobody: a command is soon done, and a `dormouse dev` soon serves.
const PATIENCE: u32 = 50;
const NAP: Duration = Duration::from_millis(100);

/// Purpose for which a command opens a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It changes nothing, not even a file of the folder.
    Look,
    /// It changes what is stored.
    Change,
}

/// Reason for which a folder cannot be opened. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error(
        "there is no data folder {}: nothing was served or sent here yet (`dormouse dev` makes the folder). If it is \
         elsewhere, name it with --data, or a table with --table",
        .0.display()
    )]
    NoFolder(PathBuf),
    /// The process that has it has just begun.
    #[error("{0}, and it does not serve yet: try again in a moment")]
    NotYet(FolderError),
    /// It cannot be had.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its store cannot run.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The operating system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// This machine cannot make a client of the process that has it.
    #[error("no connection can be made: {0}")]
    Client(#[from] reqwest::Error),
}

/// An open data folder.
pub struct OpenedFolder {
    /// A client of its store; the table is [`TABLE`](crate::TABLE).
    pub client: Client,
    /// Its bus, where something is going to be published.
    pub bus: Option<Arc<dyn EventBus>>,
    /// Subscriptions with which wake-ups are registered, if they can be from this process. Elsewhere that is left to
    /// the sweep of the process that serves the folder.
    pub subscriptions: Option<Arc<dyn SignalSubscriptions>>,
    /// The process that serves it, where there is one and something is to be changed.
    pub served: Option<Arc<ServedBus>>,
    /// Folder in which the rules of its bus are kept.
    rules: PathBuf,
    /// Resources that have to live as long: the folder's lock, its store, and the receiving end of its bus.
    held: Option<(EmbeddedDynamoDb, DataFolder, Option<PendingDeliveries>)>,
}

impl fmt::Debug for OpenedFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedFolder").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl OpenedFolder {
    /// Opens the folder `path` for `purpose`. What another command has, or a process that begins, is waited for a while.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(path: &Path, purpose: Purpose) -> Result<Self, OpenError> {
        let mut patience = PATIENCE;
        loop {
            match Self::at_once(path, purpose).await {
                Err(OpenError::NotYet(_) | OpenError::Folder(FolderError::LookedInto(_))) if patience > 0 => {
                    patience -= 1;
                    tokio::time::sleep(NAP).await;
                }
                opened => return opened,
            }
        }
    }

    async fn at_once(path: &Path, purpose: Purpose) -> Result<Self, OpenError> {
        if !path.is_dir() {
            return Err(OpenError::NoFolder(path.to_owned()));
        }
        let held = match purpose {
            Purpose::Look => DataFolder::look(path),
            Purpose::Change => DataFolder::take(path),
        };
        match held {
            Ok(folder) => Self::alone(folder, purpose).await,
            Err(taken @ FolderError::Taken { .. }) => Self::beside(path, purpose, taken),
            Err(error) => Err(error.into()),
        }
    }

    /// With a store in this process.
    async fn alone(folder: DataFolder, purpose: Purpose) -> Result<Self, OpenError> {
        let embedded = EmbeddedDynamoDb::existing(folder.path()).await?;
        let client = embedded.client();
        let rules = folder.path().join(RULES);
        let (bus, subscriptions, deliveries) = match purpose {
            Purpose::Look => (None, None, None),
            Purpose::Change => {
                let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
                let (bus, deliveries) = LocalBus::open(folder.path(), clock.clone(), Arc::new(RandomIds))?;
                let subscriptions = LocalSubscriptions::new(bus.clone(), LocalScheduler::new(clock));
                let bus: Arc<dyn EventBus> = Arc::new(bus);
                let subscriptions: Arc<dyn SignalSubscriptions> = Arc::new(subscriptions);
                (Some(bus), Some(subscriptions), Some(deliveries))
            }
        };
        let held = Some((embedded, folder, deliveries));
        Ok(Self { client, bus, subscriptions, served: None, rules, held })
    }

    /// Through the process that has it.
    fn beside(path: &Path, purpose: Purpose, taken: FolderError) -> Result<Self, OpenError> {
        let address = DataFolder::address(path).ok().filter(|address| !address.is_empty());
        let (Some(address), Ok(key)) = (address, DataFolder::store_key(path)) else {
            return Err(OpenError::NotYet(taken));
        };
        let served = match purpose {
            Purpose::Look => None,
            Purpose::Change => Some(Arc::new(ServedBus::at(&address, DataFolder::signal_key(path)?)?)),
        };
        let bus = served.clone().map(|served| -> Arc<dyn EventBus> { served });
        let client = Client::from_conf(through_door(&format!("{address}{STORE}"), &key).build());
        Ok(Self { client, bus, subscriptions: None, served, rules: path.join(RULES), held: None })
    }

    /// The rules that its bus has.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn rules(&self) -> io::Result<Vec<RuleName>> {
        LocalRules::kept(&self.rules)
    }

    /// Closes the store, where it is this process's.
    ///
    /// # Errors
    /// If it cannot write what it has.
    pub async fn close(self) -> Result<(), EmbeddedError> {
        drop((self.client, self.bus, self.subscriptions));
        match self.held {
            Some((store, _folder, _deliveries)) => store.stop().await,
            None => Ok(()),
        }
    }
}

/// Address at which the process listens that serves the folder `path`; `None` when none does.
pub fn address_of(path: &Path) -> Option<String> {
    let address = DataFolder::address(path).ok().filter(|address| !address.is_empty());
    // Another process may listen at an old address by now.
    address.filter(|_| DataFolder::is_taken(path))
}

/// Address at which this process serves the folder `path`; `None` while it does not, also where another one does.
pub fn own_address(path: &Path) -> Option<String> {
    address_of(path).filter(|_| DataFolder::is_own(path))
}

/// The key by which the process that has the folder `path` follows its own events, if it does.
pub fn follower_key(path: &Path) -> Option<String> {
    DataFolder::follower_key(path)
}

/// The development key of the folder `path`, if there is one.
pub fn development_key(path: &Path) -> Option<String> {
    DataFolder::api_key(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreLocation;

    #[test]
    fn a_folder_that_another_process_serves_is_not_served_by_this_one() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = DataFolder::open(place.path()).expect("it is free");
        assert_eq!(own_address(place.path()), None, "it starts");
        let address = Some("http://127.0.0.1:8787".to_owned());
        folder.note_address("http://127.0.0.1:8787").expect("a file");
        assert_eq!(own_address(place.path()), address);
        std::fs::write(place.path().join("lock"), format!("{}0", std::process::id())).expect("a file");
        assert_eq!((address_of(place.path()), own_address(place.path())), (address, None));
    }

    #[tokio::test]
    async fn what_another_command_has_for_a_moment_is_waited_for() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("data");
        let folder = DataFolder::open(&path).expect("it is free");
        drop(EmbeddedDynamoDb::start(&StoreLocation::Folder(path.clone())).await.expect("a store"));
        folder.note_address("").expect("a file");
        let held = tokio::spawn(async move {
            tokio::time::sleep(NAP * 3).await;
            drop(folder);
        });
        for purpose in [Purpose::Look, Purpose::Change] {
            OpenedFolder::open(&path, purpose).await.expect("it is free soon").close().await.expect("it closes");
        }
        held.await.expect("it ends");
    }
}
