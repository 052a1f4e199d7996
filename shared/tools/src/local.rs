//! The folder of a workspace on this machine, in which tools work.
//!
//! Files: no path leaves the folder (`openat2` below its root), whatever links say, and even if they are swapped. What
//! the runs of the workspace keep for themselves (`.openharness/data`, `.openharness/state`, the data folder of the server) is
//! not seen, and definitions of agents are not changed; `.openharness/memory` may be.
//!
//! Commands: a process group of its own, and where the machine has it a process namespace; an environment of its own; limits
//! on time, output, memory and processes. Where the machine has mount namespaces, what the runs keep for themselves is not seen
//! by commands either. Apart from that a command can reach the files and the network that its user can reach: this tier is
//! for the author's own machine.

mod about;
mod capture;
mod command;
mod confinement;
mod files;
mod place;
mod processes;
mod search;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::execution::{
    CommandOutcome, ExecutionBackend, ExecutionError, FileVersion, FileWrite, FoundFiles, GlobRequest, GrepRequest,
    Matches, ReadFile, Shell, ShellCommand,
};

use confinement::HiddenFolder;
use place::Place;
#[cfg(feature = "copy")]
pub(crate) use processes::descendants;

use crate::matching::Abandoned;

/// The folder of a workspace on this machine.
#[derive(Clone, Debug)]
pub struct LocalBackend {
    place: Arc<Place>,
    is_copy: bool,
    hidden: Arc<Vec<HiddenFolder>>,
}

impl LocalBackend {
    /// The folder `root`.
    ///
    /// # Errors
    /// [`ExecutionError`] when there is no such folder, or it may not be read.
    pub fn open(root: &Path) -> Result<Self, ExecutionError> {
        let place = Place::open(root)?;
        let hidden = place.own().map(HiddenFolder::new).collect();
        Ok(Self { place: Arc::new(place), is_copy: false, hidden: Arc::new(hidden) })
    }

    /// The same, in which tools do not see the folder `data` either: those of files in no case, commands as far as the machine
    /// can hide it.
    #[must_use]
    pub fn hiding(self, data: &Path) -> Self {
        self.place.keep(data);
        let hidden = self.place.own().chain([data.to_owned()]).map(HiddenFolder::new);
        Self { hidden: Arc::new(hidden.collect()), ..self }
    }

    /// The same for a folder that is a copy, and another one with the next call.
    #[must_use]
    pub fn as_copy(self) -> Self {
        Self { is_copy: true, ..self }
    }

    /// Runs `work` where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<T, ExecutionError> + Send + 'static,
    ) -> Result<T, ExecutionError> {
        let place = self.place.clone();
        let done = tokio::task::spawn_blocking(move || work(&place)).await;
        done.unwrap_or_else(|error| {
            Err(ExecutionError::Unavailable { reason: format!("the work was broken off: {error}"), uncertain: true })
        })
    }

    /// Runs a search where it may block. It ends soon after this future is dropped.
    async fn searching<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place, &Abandoned) -> Result<T, ExecutionError> + Send + 'static,
    ) -> Result<T, ExecutionError> {
        let abandoned = Abandoned::default();
        let _guard = abandoned.when_dropped();
        self.blocking(move |place| work(place, &abandoned)).await
    }
}

#[async_trait]
impl ExecutionBackend for LocalBackend {
    fn shell(&self) -> Shell {
        command::best_shell()
    }

    fn folder(&self) -> Option<String> {
        (!self.is_copy).then(|| self.place.root.display().to_string())
    }

    async fn facts(&self) -> Vec<(String, String)> {
        let facts = self.blocking(|place| Ok(about::facts(place))).await;
        facts.unwrap_or_default()
    }

    async fn read(&self, path: &str, limit: u64) -> Result<ReadFile, ExecutionError> {
        let path = path.to_owned();
        self.blocking(move |place| files::read(place, &path, limit)).await
    }

    async fn write(&self, write: &FileWrite) -> Result<FileVersion, ExecutionError> {
        let write = write.clone();
        self.blocking(move |place| files::write(place, &write)).await
    }

    async fn glob(&self, request: &GlobRequest) -> Result<FoundFiles, ExecutionError> {
        let request = request.clone();
        self.searching(move |place, abandoned| search::glob(place, &request, abandoned)).await
    }

    async fn grep(&self, request: &GrepRequest) -> Result<Matches, ExecutionError> {
        let request = request.clone();
        self.searching(move |place, abandoned| search::grep(place, &request, abandoned)).await
    }

    async fn run(&self, command: &ShellCommand) -> Result<CommandOutcome, ExecutionError> {
        command::run(&self.place, &self.hidden, command).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_search_ends_when_nobody_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.txt"), "one\n").expect("a file");
        let backend = LocalBackend::open(folder.path()).expect("it opens");
        let (begins, begun) = oneshot::channel();
        let (ends, ended) = mpsc::channel();
        let searching = backend.searching(move |place, abandoned| {
            let grep = GrepRequest {
                expression: "one".to_owned(),
                ignore_case: false,
                path: String::new(),
                files: None,
                most: 10,
            };
            let before = search::grep(place, &grep, abandoned)?.lines.len();
            begins.send(()).expect("it is waited for");
            while !abandoned.is_set() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let in_folder = search::grep(place, &grep, abandoned)?;
            let in_file = search::grep(place, &GrepRequest { path: "a.txt".to_owned(), ..grep }, abandoned)?;
            let glob = GlobRequest { pattern: "**".to_owned(), folder: String::new(), most: 10 };
            let found = search::glob(place, &glob, abandoned)?.paths.len();
            ends.send((before, in_folder.lines.len(), in_file.lines.len(), found)).expect("it is waited for");
            Ok(())
        });
        tokio::select! {
            found = searching => panic!("it goes on until it is dropped: {found:?}"),
            begun = begun => begun.expect("it begins"),
        }
        let looked = ended.recv_timeout(Duration::from_secs(120)).expect("it ends");
        assert_eq!(looked, (1, 0, 0, 0), "nothing is read after that");
    }
}
