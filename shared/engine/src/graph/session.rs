use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Category, Map};

use crate::EngineError;

/// A state migration: the record's state in, the next version's state out (sessions §7).
pub type Migrate = Arc<dyn Fn(Map) -> Result<Map, String> + Send + Sync>;

/// What a save assumes of the session that it overwrites (sessions §8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionConcurrency {
    /// Nothing: the last write wins (§8.1).
    #[default]
    LastWriteWins,
    /// That nobody wrote meanwhile; else `session_write_conflict` (§8.2).
    Optimistic,
    /// As `Optimistic`, but a turn that lost is carried over onto the newer record: what it appended is appended
    /// there, what it changed is changed there, what it left alone stays as it is there.
    Rebase,
}

/// Registers session persistence on a graph (sessions §4 to §8).
#[derive(Clone, Default)]
pub struct SessionPolicy {
    pub(crate) projection: Option<Vec<Arc<str>>>,
    pub(crate) without_auto_save: bool,
    pub(crate) concurrency: SessionConcurrency,
    migrations: HashMap<(Arc<str>, Arc<str>), Migrate>,
}

impl fmt::Debug for SessionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPolicy")
            .field("projection", &self.projection)
            .field("auto_save", &!self.without_auto_save)
            .field("concurrency", &self.concurrency)
            .field("migrations", &self.migrations.len())
            .finish()
    }
}

/// One migration with its versions.
type Step = (Arc<str>, Arc<str>, Migrate);

impl SessionPolicy {
    /// The session record holds the whole state (§4.1).
    pub fn full_state() -> Self {
        Self::default()
    }

    /// The session record holds these fields only (§4.2).
    pub fn projected<N: Into<Arc<str>>>(fields: impl IntoIterator<Item = N>) -> Self {
        Self { projection: Some(fields.into_iter().map(Into::into).collect()), ..Self::default() }
    }

    /// Whether the session is saved at END; it is unless this says otherwise (§6.3).
    #[must_use]
    pub fn auto_save(mut self, on: bool) -> Self {
        self.without_auto_save = !on;
        self
    }

    /// Sets what a save assumes.
    #[must_use]
    pub fn concurrency(mut self, concurrency: SessionConcurrency) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Registers a migration.
    ///
    /// # Errors
    /// `session_state_migration_chain_ambiguous` when the pair is registered already.
    pub fn migration(mut self, from: &str, to: &str, migrate: Migrate) -> Result<Self, EngineError> {
        match self.migrations.insert((from.into(), to.into()), migrate) {
            None => Ok(self),
            Some(_) => Err(ambiguous(from, to, "is registered twice")),
        }
    }

    pub(crate) fn project(&self, state: Map) -> Map {
        match &self.projection {
            None => state,
            Some(fields) => state.into_iter().filter(|(name, _)| fields.iter().any(|f| **f == **name)).collect(),
        }
    }

    /// Brings `state` from version `from` to version `to` along the one shortest chain (§7).
    pub(crate) fn migrate(&self, state: Map, from: &str, to: &str) -> Result<Map, EngineError> {
        if from == to {
            return Ok(state);
        }
        let mut state = state;
        for (step_from, step_to, migrate) in self.chain(from, to)? {
            state = migrate(state).map_err(|reason| {
                let message = format!("the session migration from `{step_from}` to `{step_to}` failed: {reason}");
                EngineError::new(Category::SessionStateMigrationFailed, message)
                    .detail("from_version", &*step_from)
                    .detail("to_version", &*step_to)
                    .caused_by(crate::NodeError::new(reason))
            })?;
        }
        Ok(state)
    }

    fn chain(&self, from: &str, to: &str) -> Result<Vec<Step>, EngineError> {
        let mut paths: VecDeque<Vec<Arc<str>>> = VecDeque::from([vec![from.into()]]);
        let mut found: Vec<Vec<Arc<str>>> = Vec::new();
        let mut settled: HashSet<Arc<str>> = HashSet::from([from.into()]);
        while found.is_empty() && !paths.is_empty() {
            let mut reached = HashSet::new();
            for path in std::mem::take(&mut paths) {
                for next in self.steps_from(path.last().map_or("", |v| v)) {
                    if settled.contains(&next) {
                        continue;
                    }
                    let mut longer = path.clone();
                    longer.push(next.clone());
                    if *next == *to {
                        found.push(longer);
                    } else {
                        paths.push_back(longer);
                    }
                    reached.insert(next);
                }
            }
            settled.extend(reached);
        }
        match found.as_slice() {
            [] => Err(self.missing(from, to)),
            [path] => Ok(path.windows(2).filter_map(|pair| self.step(&pair[0], &pair[1])).collect()),
            _ => Err(ambiguous(from, to, "can be reached by more than one shortest chain")),
        }
    }

    fn steps_from(&self, version: &str) -> Vec<Arc<str>> {
        let mut next: Vec<_> =
            self.migrations.keys().filter(|(f, _)| **f == *version).map(|(_, t)| t.clone()).collect();
        next.sort();
        next
    }

    fn step(&self, from: &Arc<str>, to: &Arc<str>) -> Option<Step> {
        let migrate = self.migrations.get(&(from.clone(), to.clone()))?;
        Some((from.clone(), to.clone(), migrate.clone()))
    }

    fn missing(&self, from: &str, to: &str) -> EngineError {
        let mut pairs: Vec<_> = self.migrations.keys().map(|(f, t)| format!("{f} -> {t}")).collect();
        pairs.sort();
        let message = format!("no session migration leads from `{from}` to `{to}`");
        EngineError::new(Category::SessionStateMigrationMissing, message)
            .detail("from_version", from)
            .detail("to_version", to)
            .detail("registered_migrations_count", pairs.len())
            .detail("registry_description", pairs.join(", "))
    }
}

fn ambiguous(from: &str, to: &str, how: &str) -> EngineError {
    let message = format!("the session migration from `{from}` to `{to}` {how}");
    EngineError::new(Category::SessionStateMigrationChainAmbiguous, message)
        .detail("from_version", from)
        .detail("to_version", to)
}
