use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Map, SharedMap};

use super::Migrate;
use super::migrations::{Migrated, Migrations};
use crate::{EngineError, FieldKeys, State};

/// Assumption of a save about the session that it overwrites (sessions §8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionConcurrency {
    /// Nothing: the last write wins (§8.1).
    #[default]
    LastWriteWins,
    /// No other turn wrote meanwhile; else `session_write_conflict` (§8.2).
    Optimistic,
    /// As `Optimistic`, but a turn that lost is carried over onto the newer record: the items that it put into a list, and the
    /// entries that it merged into a mapping, are put there, as the reducer of the field does, its other changed fields are
    /// changed there, the fields that it left alone stay as they are there.
    Rebase,
}

/// Registers session persistence on a graph (sessions §4 to §8).
#[derive(Clone, Default)]
pub struct SessionPolicy {
    pub(crate) projection: Option<Vec<Arc<str>>>,
    pub(crate) without_auto_save: bool,
    pub(crate) concurrency: SessionConcurrency,
    is_concurrency_chosen: bool,
    by_entry: Vec<Arc<str>>,
    migrations: Migrations,
}

impl fmt::Debug for SessionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPolicy")
            .field("projection", &self.projection)
            .field("auto_save", &!self.without_auto_save)
            .field("concurrency", &self.concurrency)
            .field("is_concurrency_chosen", &self.is_concurrency_chosen)
            .field("by_entry", &self.by_entry)
            .field("migrations", &self.migrations)
            .finish()
    }
}

impl SessionPolicy {
    /// The session record holds the whole state (§4.1).
    pub fn full_state() -> Self {
        Self::default()
    }

    /// The session record holds these fields only (§4.2).
    pub fn projected<N: Into<Arc<str>>>(fields: impl IntoIterator<Item = N>) -> Self {
        Self { projection: Some(fields.into_iter().map(Into::into).collect()), ..Self::default() }
    }

    /// The session record holds these fields of the state `S` only (§4.2).
    pub fn keeping<S>(fields: impl FieldKeys<S>) -> Self {
        Self::projected(fields.names())
    }

    /// Sets whether the session is saved at END; it is by default (§6.3).
    #[must_use]
    pub fn auto_save(mut self, on: bool) -> Self {
        self.without_auto_save = !on;
        self
    }

    /// Sets the assumption of a save.
    #[must_use]
    pub fn concurrency(mut self, concurrency: SessionConcurrency) -> Self {
        self.concurrency = concurrency;
        self.is_concurrency_chosen = true;
        self
    }

    /// Of these fields, which are mappings, a turn that is [carried over](SessionConcurrency::Rebase) changes the entries
    /// that it changed, at any depth, and no others.
    #[must_use]
    pub fn by_entry<S>(mut self, fields: impl FieldKeys<S>) -> Self {
        self.by_entry = fields.names();
        self
    }

    /// True if a save refuses to overwrite what another turn has saved meanwhile
    /// ([`Optimistic`](SessionConcurrency::Optimistic)). An invocation that slept meanwhile is over then.
    pub fn is_optimistic(&self) -> bool {
        self.concurrency == SessionConcurrency::Optimistic
    }

    /// True if the last write wins, and nobody said that it shall.
    pub(super) fn overwrites_unasked(&self) -> bool {
        self.concurrency == SessionConcurrency::LastWriteWins && !self.is_concurrency_chosen
    }

    /// True if the field `name` is carried over by its entries.
    pub(crate) fn is_by_entry(&self, name: &str) -> bool {
        self.by_entry.iter().any(|field| **field == *name)
    }

    /// Registers a migration.
    ///
    /// # Errors
    /// `session_state_migration_chain_ambiguous` when the pair is registered already.
    pub fn migration(mut self, from: &str, to: &str, migrate: Migrate) -> Result<Self, EngineError> {
        self.migrations = self.migrations.with(from, to, migrate);
        self.migrations.check_pairs(Migrated::Session)?;
        Ok(self)
    }

    /// True if a session keeps the field `name`, and no other.
    pub fn keeps_only(&self, name: &str) -> bool {
        self.projection.as_ref().is_some_and(|kept| kept.iter().all(|field| **field == *name))
    }

    /// The fields that the record is restricted to, if it is.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Arc<str>> {
        self.projection.iter().flatten()
    }

    /// True if a session keeps the field `name`.
    pub fn keeps(&self, name: &str) -> bool {
        self.projection.as_ref().is_none_or(|kept| kept.iter().any(|field| **field == *name))
    }

    /// What the record holds of `state`.
    pub(crate) fn project(&self, mut state: Map) -> Map {
        state.retain(|name, _| self.keeps(name));
        state
    }

    /// The same of a copy of it.
    pub(crate) fn kept_of(&self, state: &Map) -> Map {
        let kept = state.iter().filter(|(name, _)| self.keeps(name));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The same of the state of a run, whose fields it shares.
    pub(crate) fn shared_of(&self, state: &State) -> SharedMap {
        state.to_shared(|name| self.keeps(name))
    }

    /// True if sessions of version `from` go on in version `to`.
    pub(super) fn takes_sessions_of(&self, from: &str, to: &str) -> bool {
        self.migrations.migrate(Migrated::Session, Vec::new(), (from, to)).is_ok()
    }

    /// Brings `state` from version `from` to version `to` along the one shortest chain (§7).
    pub(crate) fn migrate(&self, state: Map, from: &str, to: &str) -> Result<Map, EngineError> {
        let states = self.migrations.migrate(Migrated::Session, vec![state], (from, to))?;
        Ok(states.into_iter().next().unwrap_or_default())
    }
}
