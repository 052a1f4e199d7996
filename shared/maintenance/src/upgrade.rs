//! Outcome for the stored pauses, if they were resumed by the graphs of today.

use dormouse_engine::Upgrade;
use dormouse_harness::{GraphRegistry, Harness, TurnError, store_failed};
use dormouse_ports::{
    Category, InvocationId, InvocationRecord, InvocationStatus, LoadedInvocation, MaintenanceStore, PausedInvocation,
    PendingRow, StoreError,
};

use crate::order::TOGETHER;

/// Outcome for a pause, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigrationOutcome {
    /// It goes on in the very graph that wrote it.
    Same,
    /// It goes on in a graph of another shape.
    Reshaped,
    /// It goes on after its states were migrated.
    Migrated,
    /// It waits for a worker of the shape that wrote it.
    Pinned,
    /// It sleeps on until a migration leads from its schema version to the declared one.
    NeedsMigration,
    /// It sleeps on until a worker knows its graph.
    GraphUnknown,
    /// It sleeps on: its graph takes no pauses of another shape, or has no place for this one.
    Refused,
    /// Its record cannot be read.
    Unreadable,
}

impl MigrationOutcome {
    /// True if the graphs of today continue it.
    pub fn goes_on(self) -> bool {
        match self {
            Self::Same | Self::Reshaped | Self::Migrated => true,
            Self::Pinned | Self::NeedsMigration | Self::GraphUnknown | Self::Refused | Self::Unreadable => false,
        }
    }

    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Reshaped => "reshaped",
            Self::Migrated => "migrated",
            Self::Pinned => "pinned",
            Self::NeedsMigration => "needs_migration",
            Self::GraphUnknown => "graph_unknown",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Outcome for one pause.
#[derive(Clone, Debug, PartialEq)]
pub struct PauseUpgrade {
    /// Invocation that is suspended.
    pub invocation_id: InvocationId,
    /// Number of the pause among those of the invocation.
    pub generation: u64,
    /// Its graph; empty when the record cannot be read.
    pub graph: String,
    /// The outcome, in a word.
    pub fate: MigrationOutcome,
    /// Way in which its graph takes it up, or the error with which it would be refused: it would stay suspended.
    pub outcome: Result<Upgrade, TurnError>,
}

/// One page of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationReport {
    /// The pauses of this page; may be empty although more follows.
    pub pauses: Vec<PauseUpgrade>,
    /// Start of the next page; `None` at the end.
    pub next: Option<String>,
}

/// Reports for a page of suspended invocations the outcome if workers of `harness` resumed them now. It changes
/// nothing; migrations of state run and are thrown away.
///
/// # Errors
/// If the store does not answer, or the cursor is not one of its own.
pub async fn migration_report(
    harness: &Harness,
    store: &MaintenanceStore,
    cursor: Option<&str>,
) -> Result<MigrationReport, TurnError> {
    let invocations = &harness.engine().ports().store.invocations;
    let page = store.sleepers.list_pending(None, cursor).await.map_err(store_failed)?;
    let mut pauses = Vec::new();
    for rows in page.items.chunks(TOGETHER) {
        let ids: Vec<InvocationId> = rows.iter().map(|row| row.invocation_id.clone()).collect();
        for (row, loaded) in rows.iter().zip(invocations.load_invocations(&ids).await.map_err(store_failed)?) {
            pauses.extend(upgrade_of_row(harness.graphs(), row, loaded)?);
        }
    }
    Ok(MigrationReport { pauses, next: page.next })
}

fn upgrade_of_row(
    graphs: &GraphRegistry,
    row: &PendingRow,
    loaded: LoadedInvocation,
) -> Result<Option<PauseUpgrade>, TurnError> {
    match loaded {
        Ok(record) => Ok(record.filter(sleeps).map(|record| upgrade_of(graphs, record.paused))),
        Err(error @ StoreError::Corrupt(_)) => Ok(Some(PauseUpgrade {
            invocation_id: row.invocation_id.clone(),
            generation: row.generation,
            graph: String::new(),
            fate: MigrationOutcome::Unreadable,
            outcome: Err(store_failed(error)),
        })),
        Err(error) => Err(store_failed(error)),
    }
}

/// Outcome for `paused` with `graphs`.
pub(crate) fn upgrade_of(graphs: &GraphRegistry, paused: PausedInvocation) -> PauseUpgrade {
    if GraphRegistry::is_versioned(&paused) {
        return same(paused);
    }
    let graph = graphs.get(&paused.graph);
    let has_chain = graph.as_ref().is_ok_and(|graph| graph.takes_pauses_of(&paused.schema_version).is_ok());
    let outcome = graph.and_then(|graph| graph.upgrade(&paused)).map_err(TurnError::from);
    let fate = match &outcome {
        Ok(Upgrade::Same) => MigrationOutcome::Same,
        Ok(Upgrade::Reshaped) => MigrationOutcome::Reshaped,
        Ok(Upgrade::Migrated { .. }) => MigrationOutcome::Migrated,
        Err(error) if error.category == Category::GraphUnknown => MigrationOutcome::GraphUnknown,
        Err(error) if error.category == Category::SuspensionPinned => MigrationOutcome::Pinned,
        Err(_) if !has_chain => MigrationOutcome::NeedsMigration,
        Err(_) => MigrationOutcome::Refused,
    };
    let invocation_id = paused.invocation_id;
    let generation = paused.generation;
    let graph = paused.graph;
    PauseUpgrade { invocation_id, generation, graph, fate, outcome }
}

/// Outcome for a pause that goes on with the version of its graph with which it began.
fn same(paused: PausedInvocation) -> PauseUpgrade {
    let PausedInvocation { invocation_id, generation, graph, .. } = paused;
    PauseUpgrade { invocation_id, generation, graph, fate: MigrationOutcome::Same, outcome: Ok(Upgrade::Same) }
}

fn sleeps(record: &InvocationRecord) -> bool {
    match record.status {
        InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_) => true,
        InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => false,
    }
}
