//! The definitions of a folder while it is served: each run begins with those that are there, and keeps them.

use std::path::PathBuf;

use async_trait::async_trait;
use dormouse_agent::bundle::{Bundle, BundleError, BundleStore, BundleStoreError, Publication};
use dormouse_agent::workspace::load;
use dormouse_declared::Refresh;
use dormouse_ports::WorkspaceError;
use tokio::sync::Mutex;

use crate::workspace::{FolderFiles, platform};

/// Name under which the definitions of the one folder that is served are kept.
pub(crate) const NAME: &str = "workspace";

/// Keeps the definitions of a folder each time that they have changed.
#[derive(Debug)]
pub(crate) struct WorkspaceDefinitions {
    folder: PathBuf,
    store: BundleStore,
    /// Held while one caller reads and keeps: two would overtake each other.
    known: Mutex<FolderFiles>,
}

/// Reason for which the definitions stay as they were.
#[derive(Debug, thiserror::Error)]
enum DefinitionsNotKept {
    #[error(transparent)]
    Read(#[from] WorkspaceError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Store(#[from] BundleStoreError),
    #[error("no agent in it can run: `dormouse workspace check` says what is wrong")]
    NoAgent,
}

impl WorkspaceDefinitions {
    /// Those of `folder`, in `store`.
    pub(crate) fn new(folder: PathBuf, store: BundleStore) -> Self {
        Self { folder, store, known: Mutex::default() }
    }

    async fn keep(&self, name: &str, known: &mut FolderFiles) -> Result<(), DefinitionsNotKept> {
        let files = known.read(Some(&self.folder)).await?;
        let bundle = Bundle::of_readable(&files)?;
        let current = self.store.current(name).await?;
        if current.as_ref().is_some_and(|current| current.digest == bundle.digest()) {
            return Ok(());
        }
        let workspace = load(&files, &platform());
        if workspace.enabled_agents().next().is_none() {
            // That it has become another kind is why.
            self.store.fits(name, &bundle).await?;
            return Err(DefinitionsNotKept::NoAgent);
        }
        if self.store.publish(name, &bundle, current.as_ref()).await? == Publication::Published && current.is_some() {
            tracing::info!(folder = %self.folder.display(), "the definitions were changed; new runs begin with them");
            for problem in &workspace.problems {
                tracing::warn!(%problem, "a definition is wrong");
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Refresh for WorkspaceDefinitions {
    async fn refresh(&self, workspace: &str) -> Result<(), String> {
        let mut known = self.known.lock().await;
        self.keep(workspace, &mut known).await.map_err(|reason| {
            tracing::warn!(folder = %self.folder.display(), %reason, "the definitions that were read last stay in use");
            reason.to_string()
        })
    }
}
