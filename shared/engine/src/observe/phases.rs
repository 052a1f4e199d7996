use super::Phase;

/// Phases that an observer receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    started: bool,
    completed: bool,
    suspended: bool,
}

impl Default for Phases {
    /// All phases.
    fn default() -> Self {
        Self { started: true, completed: true, suspended: true }
    }
}

/// An observer was to be registered for no phase at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an observer must want at least one phase")]
pub struct EmptyPhases;

impl Phases {
    /// These phases. An observer of `completed` also receives `suspended`, which takes its place.
    ///
    /// # Errors
    /// If `phases` is empty: no observer registers for nothing (graph-engine §6).
    pub fn of(phases: impl IntoIterator<Item = Phase>) -> Result<Self, EmptyPhases> {
        let nothing = Self { started: false, completed: false, suspended: false };
        let mut wanted = nothing;
        for phase in phases {
            match phase {
                Phase::Started => wanted.started = true,
                Phase::Completed => (wanted.completed, wanted.suspended) = (true, true),
                Phase::Suspended => wanted.suspended = true,
            }
        }
        if wanted == nothing { Err(EmptyPhases) } else { Ok(wanted) }
    }

    pub(crate) fn contains(self, phase: Phase) -> bool {
        match phase {
            Phase::Started => self.started,
            Phase::Completed => self.completed,
            Phase::Suspended => self.suspended,
        }
    }
}
