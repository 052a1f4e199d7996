//! The definitions of a folder while it is served: each run begins with those that are there, and keeps them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Number of looks at the folder that were begun.
    begun: AtomicU64,
    /// Held while one caller reads and keeps: two would overtake each other.
    last: Mutex<LastLook>,
}

/// The last look at the folder that was made to its end.
#[derive(Debug, Default)]
struct LastLook {
    files: FolderFiles,
    /// Its number among those that were begun; 0 before the first.
    number: u64,
    /// Why the definitions stay as they were before it, where they do.
    refused: Option<String>,
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
        Self { folder, store, begun: AtomicU64::new(0), last: Mutex::default() }
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
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        // All who came while another one read take one look together, which was begun after they asked.
        if last.number <= before {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let kept = self.keep(workspace, &mut last.files).await;
            last.refused = kept.err().map(|reason| {
                tracing::warn!(folder = %self.folder.display(), %reason, "the definitions that were read last stay in use");
                reason.to_string()
            });
            last.number = number;
        }
        last.refused.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use dormouse_local::FolderObjects;

    use super::*;

    #[tokio::test]
    async fn whoever_comes_while_the_folder_is_read_takes_one_look_with_the_others() {
        let place = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let file = place.path().join(".openharness").join(path);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        };
        write("agents/clerk.md", "---\nmodel: workspace/m\n---\nYou work.\n");
        write("models/m.yaml", "m: {provider: openai-compatible, name: tiny, url: 'http://127.0.0.1:1/v1'}\n");
        let store = BundleStore::new(Arc::new(FolderObjects::new(place.path().join("kept"))), "");
        let definitions = WorkspaceDefinitions::new(place.path().to_owned(), store.clone());
        let current = async || store.current(NAME).await.expect("an answer").map(|current| current.digest);
        let reading = definitions.last.lock().await;
        let mut asking: Vec<_> = (0..10).map(|_| definitions.refresh(NAME)).collect();
        for asked in &mut asking {
            assert!(futures::poll!(asked).is_pending(), "it waits");
        }
        drop(reading);
        for asked in asking {
            asked.await.expect("they are kept");
        }
        let first = current().await;
        assert_eq!((first.is_some(), definitions.begun.load(Ordering::SeqCst)), (true, 1));
        write("agents/clerk.md", "---\nmodel: workspace/m\n---\nYou work well.\n");
        definitions.refresh(NAME).await.expect("they are kept");
        assert_eq!((current().await != first, definitions.begun.load(Ordering::SeqCst)), (true, 2));
    }
}
