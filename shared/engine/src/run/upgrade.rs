//! Judges what becomes of a pause if its graph has changed since; [`restore`](super::restore) is what migrates its
//! state.

use dormouse_ports::{Map, PausedInvocation};

use super::restore;
use crate::{CompiledGraph, EngineError};

/// Way in which a graph of today takes up a pause.
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
    /// Outcome of resuming `paused` now by this graph. It runs the migrations of its states, which are pure, and
    /// changes nothing.
    ///
    /// # Errors
    /// The error with which a resume would be refused, a payload aside; the invocation would stay suspended.
    pub fn upgrade(&self, paused: &PausedInvocation) -> Result<Upgrade, EngineError> {
        restore::admit(self, paused)?;
        restore::check_state(self, &restore::restored(self, paused)?)?;
        Ok(if paused.schema_version != self.schema().version() {
            Upgrade::Migrated { from: paused.schema_version.clone() }
        } else if paused.graph_digest == self.digest() {
            Upgrade::Same
        } else {
            Upgrade::Reshaped
        })
    }

    /// Checks that `paused` could be resumed with `payload` by this graph. It changes nothing.
    ///
    /// # Errors
    /// The error with which the resume would be refused: `suspension_resume_payload_invalid` when the payload does not
    /// fit the state.
    pub fn takes(&self, paused: &PausedInvocation, payload: &Map) -> Result<(), EngineError> {
        restore::resumed(self, paused, payload.clone()).map(|_| ())
    }
}
