use dormouse_ports::{Category, CommitError, StoreError};

use crate::Failure;
use crate::directives::Directives;

/// What the fixture wants the store to fail at: the category that the engine is expected to make of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    load: Option<Category>,
    save: Option<Category>,
    suspend: Option<Category>,
}

impl Faults {
    /// Reads a `behavior:` block.
    pub(crate) fn read(mut behavior: Directives<'_>) -> Result<Self, Failure> {
        let mut fault = |key| Ok::<_, Failure>(behavior.text(key)?.map(Category::from_name));
        let faults =
            Self { load: fault("load_raises")?, save: fault("save_raises")?, suspend: fault("suspend_raises")? };
        behavior.done()?;
        Ok(faults)
    }

    /// These faults and those of `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { load: self.load.or(other.load), save: self.save.or(other.save), suspend: self.suspend.or(other.suspend) }
    }

    pub(super) fn on_load(&self) -> Result<(), StoreError> {
        self.load.as_ref().map_or(Ok(()), |_| Err(StoreError::Corrupt(INJECTED.to_owned())))
    }

    pub(super) fn on_save(&self) -> Result<(), CommitError> {
        match &self.save {
            None => Ok(()),
            Some(Category::SessionWriteConflict) => Err(CommitError::SessionConflict),
            Some(_) => Err(StoreError::Unavailable(INJECTED.to_owned()).into()),
        }
    }

    pub(super) fn on_suspend(&self) -> Result<(), CommitError> {
        self.suspend.as_ref().map_or(Ok(()), |_| Err(StoreError::Unavailable(INJECTED.to_owned()).into()))
    }
}

const INJECTED: &str = "a fault injected by the fixture";
