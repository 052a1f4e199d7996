//! Agents of a folder, for `dev --workspace` and `chat`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dormouse_agent::graph::DeltaSink;
use dormouse_agent::{Catalog, CatalogEntry, catalog};
use dormouse_api::CatalogLine;
use dormouse_declared::{Declared, DeclaredPorts, agents};
use dormouse_fetch::NetworkFetch;
use dormouse_ports::{Fetch, WorkspaceError};
use dormouse_system::{EnvironmentSecrets, RandomIds, SystemClock};
use dormouse_tools::{DeclaredTools, LocalBackend, Values};

use crate::workspace::{WorkspaceFailure, opened, platform, tell_problems};

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
    let place = LocalBackend::open(folder).map_err(|error| WorkspaceError::Denied(error.to_string()));
    let place = Arc::new(place.map_err(WorkspaceFailure::from)?);
    let clock = Arc::new(SystemClock::default());
    let tools = DeclaredTools::new(fetch.clone(), values).with_processes(folder.to_owned());
    let tools = tools.with_place(place, Arc::new(NetworkFetch::public()), clock.clone());
    let ports = DeclaredPorts {
        fetch,
        clock,
        ids: Arc::new(RandomIds),
        env: Arc::new(EnvironmentSecrets),
        secrets: Arc::new(EnvironmentSecrets),
        tools: Arc::new(tools),
        deltas,
        callbacks: None,
    };
    let mut declared = agents(&workspace, &ports).await;
    declared.agents = declared.agents.with_catalog(lines(&catalog(&workspace, &platform())));
    for sentence in &declared.left_out {
        writeln!(err, "{}", crate::terminal::plain(sentence))?;
    }
    match declared.names.is_empty() {
        true => Err(DeclaredFailure::NoAgent(folder.to_owned())),
        false => Ok(declared),
    }
}

/// What `catalog` lists beside the agents that run, line by line.
fn lines(catalog: &Catalog) -> Vec<CatalogLine> {
    let line = |kind, entry: &CatalogEntry| CatalogLine {
        kind,
        name: entry.name.clone(),
        description: entry.description.clone(),
        enabled: entry.enabled,
        reasons: entry.reasons.clone(),
    };
    let agents = catalog.agents.iter().filter(|agent| !agent.enabled).map(|entry| line("agent", entry));
    let models = catalog.models.iter().map(|entry| line("model", entry));
    let tools = catalog.tools.iter().chain(&catalog.native_tools).map(|entry| line("tool", entry));
    agents.chain(models).chain(tools).collect()
}

/// Where the runs of the agents of `folder` are kept.
pub(crate) fn data_of(folder: &Path) -> PathBuf {
    folder.join(".openharness/data/dormouse")
}
