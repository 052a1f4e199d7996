//! Agents of a folder, for `dev --workspace` and `chat`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_agent::graph::DeltaSink;
use dormouse_declared::{Declared, DeclaredPorts, agents};
use dormouse_fetch::NetworkFetch;
use dormouse_ports::Fetch;
use dormouse_system::{EnvironmentSecrets, RandomIds, SystemClock};
use dormouse_tools::{DeclaredTools, Values};

use crate::workspace::{WorkspaceFailure, opened, tell_problems};

/// Reason for which the agents of a folder do not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeclaredFailure {
    #[error(transparent)]
    Workspace(#[from] WorkspaceFailure),
    #[error("no agent of {} can run: `dormouse workspace check` says what is wrong", .0.display())]
    NoAgent(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The agents of `folder`; what is wrong with the others is told on the standard error stream.
pub(crate) async fn declared(folder: &Path, deltas: Option<Arc<dyn DeltaSink>>) -> Result<Declared, DeclaredFailure> {
    let workspace = opened(folder).await?;
    let mut err = io::stderr();
    tell_problems(&workspace, &mut err)?;
    let fetch: Arc<dyn Fetch> = Arc::new(NetworkFetch::new());
    // On this machine a secret is a variable of the environment.
    let values = Values::new(Arc::new(EnvironmentSecrets), Arc::new(EnvironmentSecrets));
    let ports = DeclaredPorts {
        fetch: fetch.clone(),
        clock: Arc::new(SystemClock::default()),
        ids: Arc::new(RandomIds),
        env: Arc::new(EnvironmentSecrets),
        secrets: Arc::new(EnvironmentSecrets),
        tools: Arc::new(DeclaredTools::new(fetch, values).with_processes(folder.to_owned())),
        deltas,
        callbacks: None,
    };
    let declared = agents(&workspace, &ports).await;
    for sentence in &declared.left_out {
        writeln!(err, "{}", crate::terminal::plain(sentence))?;
    }
    match declared.names.is_empty() {
        true => Err(DeclaredFailure::NoAgent(folder.to_owned())),
        false => Ok(declared),
    }
}

/// Where the runs of the agents of `folder` are kept.
pub(crate) fn data_of(folder: &Path) -> PathBuf {
    folder.join(".openharness/data/dormouse")
}
