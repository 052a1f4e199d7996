//! What becomes of a pause when the graph has changed since.

use dormouse_ports::{Category, Map, PausedInvocation};

use super::resume;
use crate::{CompiledGraph, EngineError, UpgradePolicy};

/// What a graph of today makes of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// It was written by a graph of this very shape.
    Same,
    /// The graph has another shape, and what the pause names is still there.
    Reshaped,
    /// Its states are brought from that schema version to the declared one, and fit it.
    Migrated {
        /// The version under which it was written.
        from: String,
    },
}

impl CompiledGraph {
    /// What would happen if `paused` were resumed now by this graph. It runs the migrations of its states, which are
    /// pure, and changes nothing.
    ///
    /// # Errors
    /// What a resume would be refused with, a payload aside; the invocation would sleep on.
    pub fn upgrade(&self, paused: &PausedInvocation) -> Result<Upgrade, EngineError> {
        admit(self, paused)?;
        resume::restored(self, paused)?;
        Ok(if paused.schema_version != self.schema().version() {
            Upgrade::Migrated { from: paused.schema_version.clone() }
        } else if paused.graph_digest == self.digest() {
            Upgrade::Same
        } else {
            Upgrade::Reshaped
        })
    }

    /// Whether `paused` could go on with `payload`: what a coordinator asks that gathers several signals before it
    /// resumes. It changes nothing.
    ///
    /// # Errors
    /// What a resume would be refused with, `suspension_resume_payload_invalid` among it.
    pub fn takes_payload(&self, paused: &PausedInvocation, payload: Map) -> Result<(), EngineError> {
        resume::prepare(self, paused, payload).map(|_| ())
    }
}

/// Whether the graph's policy lets it take `paused` up at all.
pub(super) fn admit(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<(), EngineError> {
    if paused.graph_digest == graph.digest() {
        return Ok(());
    }
    let differ = |what: &str| {
        let (name, then, now) = (graph.name(), &paused.graph_digest, graph.digest());
        format!("graph `{name}` {what}; the pause is of shape {then}, the graph of shape {now}")
    };
    match graph.upgrade_policy() {
        UpgradePolicy::Migrate => Ok(()),
        UpgradePolicy::Pin => {
            let message = differ("leaves its pauses to workers of the shape that wrote them");
            Err(EngineError::new(Category::SuspensionPinned, message))
        }
        UpgradePolicy::Refuse => {
            let message = differ("does not go on from pauses of another shape");
            Err(EngineError::new(Category::SuspensionRecordInvalid, message))
        }
    }
}
