//! What would become of the pauses that are stored, if they were resumed by the graphs of today.

use dormouse_engine::Upgrade;
use dormouse_ports::{InvocationId, InvocationStatus};

use crate::signal::store_failed;
use crate::{Harness, TurnError};

/// What would become of one pause.
#[derive(Clone, Debug, PartialEq)]
pub struct PauseUpgrade {
    /// Who sleeps.
    pub invocation_id: InvocationId,
    /// In which of its pauses.
    pub generation: u64,
    /// Of which graph.
    pub graph: String,
    /// What its graph makes of it, or with what it would be refused: it would sleep on.
    pub outcome: Result<Upgrade, TurnError>,
}

/// One page of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationReport {
    /// The pauses of this page; may be empty although more follows.
    pub pauses: Vec<PauseUpgrade>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
}

impl Harness {
    /// Tells of a page of what sleeps what would happen if it were resumed now. It changes nothing; migrations of
    /// state run and are thrown away.
    ///
    /// # Errors
    /// When the index or a record cannot be read, or the cursor is not one of its own.
    pub async fn migration_report(&self, cursor: Option<&str>) -> Result<MigrationReport, TurnError> {
        let store = &self.engine().ports().store;
        let page = store.list_pending(None, cursor).await.map_err(store_failed)?;
        let mut pauses = Vec::new();
        for row in page.items {
            let Some(record) = self.load_invocation(&row.invocation_id).await? else { continue };
            match record.status {
                InvocationStatus::Suspended | InvocationStatus::Resuming(_) => {}
                InvocationStatus::Completed { .. } | InvocationStatus::Errored(_) | InvocationStatus::Canceled(_) => {
                    continue;
                }
            }
            let paused = record.paused;
            let graph = self.graphs().get(&paused.graph);
            let outcome = graph.and_then(|graph| graph.upgrade(&paused)).map_err(TurnError::from);
            let (invocation_id, generation, graph) = (paused.invocation_id, paused.generation, paused.graph);
            pauses.push(PauseUpgrade { invocation_id, generation, graph, outcome });
        }
        Ok(MigrationReport { pauses, next: page.next })
    }
}
