//! The definitions of a folder while it is served: each run begins with those that are there, and keeps them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use dormouse_agent::bundle::{Bundle, BundleError, BundleStore, BundleStoreError, Publication};
use dormouse_agent::workspace::{Files, load};
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
    /// Those of the start, until they or later ones are kept: when they were read, the store was not this process's yet.
    started: Option<Files>,
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
    /// Those of `folder`, in `store`; at the start they were `started`, by which agents can run.
    pub(crate) fn new(folder: PathBuf, store: BundleStore, started: Option<Files>) -> Self {
        let last = Mutex::new(LastLook { started, ..LastLook::default() });
        Self { folder, store, begun: AtomicU64::new(0), last }
    }

    /// Keeps those that the folder has now.
    async fn look(&self, name: &str, known: &mut FolderFiles) -> Result<(), DefinitionsNotKept> {
        self.keep(name, &known.read(Some(&self.folder)).await?).await
    }

    async fn keep(&self, name: &str, files: &Files) -> Result<(), DefinitionsNotKept> {
        let bundle = Bundle::of_readable(files)?;
        let current = self.store.current(name).await?;
        if current.as_ref().is_some_and(|current| current.digest == bundle.digest()) {
            return Ok(());
        }
        let workspace = load(files, &platform());
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
            let kept = self.look(workspace, &mut last.files).await;
            let is_kept = match &last.started {
                Some(started) if kept.is_err() => self.keep(workspace, started).await.is_ok(),
                Some(_) | None => true,
            };
            if is_kept {
                last.started = None;
            }
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
        let definitions = WorkspaceDefinitions::new(place.path().to_owned(), store.clone(), None);
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

    #[tokio::test]
    async fn a_folder_that_breaks_before_the_first_look_leaves_what_was_read_at_the_start() {
        let place = tempfile::tempdir().expect("a folder");
        let agent = place.path().join(".openharness/agents/clerk.md");
        fs::create_dir_all(agent.parent().expect("a folder")).expect("a folder");
        let models = place.path().join(".openharness/models");
        fs::create_dir_all(&models).expect("a folder");
        let model = "m: {provider: openai-compatible, name: tiny, url: 'http://127.0.0.1:1/v1'}\n";
        fs::write(models.join("m.yaml"), model).expect("a file");
        let store = BundleStore::new(Arc::new(FolderObjects::new(place.path().join("kept"))), "");
        let instructions = async || {
            let current = store.current(NAME).await.expect("an answer").expect("some are kept");
            let bundle = store.load(NAME, &current.digest).await.expect("an answer").expect("a bundle");
            load(&bundle.files(), &platform()).agents["clerk"].prompt.clone()
        };
        let sound = |words: &str| fs::write(&agent, format!("---\nmodel: workspace/m\n---\n{words}\n"));
        for (start, words) in ["You work.", "You work well."].into_iter().enumerate() {
            sound(words).expect("a file");
            let started = FolderFiles::default().read(Some(place.path())).await.expect("the folder is read");
            let definitions = WorkspaceDefinitions::new(place.path().to_owned(), store.clone(), Some(started));
            fs::write(&agent, "---\nmodel: [\n---\n").expect("a file");
            definitions.refresh(NAME).await.expect_err("no agent can run");
            assert!(instructions().await.contains(words), "start {start}");
            sound("You rest.").expect("a file");
            definitions.refresh(NAME).await.expect("they are kept");
            fs::write(&agent, "---\nmodel: [\n---\n").expect("a file");
            definitions.refresh(NAME).await.expect_err("no agent can run");
            assert!(instructions().await.contains("You rest."), "those of start {start} are older");
        }
    }
}
