use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dormouse_ports::{Category, Map};
use indexmap::IndexMap;

use crate::{EngineError, NodeError};

/// A state migration: state of one schema version in, state of another one out. It must be pure: the same input gives
/// the same output, and nothing else happens (pipeline-utilities §10.12.2).
pub type Migrate = Arc<dyn Fn(Map) -> Result<Map, String> + Send + Sync>;

/// The registered migrations of stored state: of sessions, checkpoints or pauses (pipeline-utilities §10.12,
/// sessions §7). The order of registration means nothing.
#[derive(Clone, Default)]
pub struct Migrations {
    steps: IndexMap<Versions, Migrate>,
    duplicate: Option<Versions>,
}

/// Versions from which and to which a migration leads.
type Versions = (Arc<str>, Arc<str>);

/// Owner of the migrated state: decides the category of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migrated {
    Session,
    Checkpoint,
    Pause,
}

impl Migrated {
    fn noun(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Checkpoint => "checkpoint",
            Self::Pause => "pause",
        }
    }

    fn missing(self) -> Category {
        match self {
            Self::Session => Category::SessionStateMigrationMissing,
            Self::Checkpoint => Category::CheckpointStateMigrationMissing,
            Self::Pause => Category::SuspensionRecordInvalid,
        }
    }

    fn failed(self) -> Category {
        match self {
            Self::Session => Category::SessionStateMigrationFailed,
            Self::Checkpoint => Category::CheckpointStateMigrationFailed,
            Self::Pause => Category::SuspensionRecordInvalid,
        }
    }

    fn ambiguous(self) -> Category {
        match self {
            Self::Session => Category::SessionStateMigrationChainAmbiguous,
            Self::Checkpoint => Category::CheckpointStateMigrationChainAmbiguous,
            Self::Pause => Category::SuspensionRecordInvalid,
        }
    }
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.described()).finish()
    }
}

impl Migrations {
    /// No migrations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the migration from one version to another. A pair that is registered twice makes every use of the
    /// registry ambiguous.
    #[must_use]
    pub fn with(mut self, from: &str, to: &str, migrate: Migrate) -> Self {
        let versions: Versions = (from.into(), to.into());
        if self.steps.insert(versions.clone(), migrate).is_some() {
            self.duplicate = Some(versions);
        }
        self
    }

    /// Checks that the registry is sound: no pair is registered twice.
    pub(crate) fn check_pairs(&self, whose: Migrated) -> Result<(), EngineError> {
        match &self.duplicate {
            None => Ok(()),
            Some((from, to)) => Err(ambiguous(whose, from, to, "is registered twice")),
        }
    }

    /// Checks that every version that leads to `declared` does so by one shortest chain.
    pub(crate) fn check_chains(&self, whose: Migrated, declared: &str) -> Result<(), EngineError> {
        let sources: BTreeSet<&Arc<str>> = self.steps.keys().map(|(from, _)| from).collect();
        for from in sources {
            if **from != *declared && self.shortest(from, declared).len() > 1 {
                return Err(many(whose, from, declared));
            }
        }
        Ok(())
    }

    /// The versions other than `declared` from which its migrations lead to that.
    pub(super) fn earlier_than(&self, declared: &str) -> BTreeSet<&Arc<str>> {
        let sources = self.steps.keys().map(|(from, _)| from);
        sources.filter(|from| ***from != *declared && !self.shortest(from, declared).is_empty()).collect()
    }

    /// The versions other than `declared` that its migrations know, and from which none leads to that, nor to them from that.
    pub(super) fn astray_of(&self, declared: &str) -> BTreeSet<&Arc<str>> {
        let leads = |from: &str, to: &str| !self.shortest(from, to).is_empty();
        let sources = self.steps.keys().map(|(from, _)| from).filter(|from| ***from != *declared);
        sources.filter(|from| !leads(from, declared) && !leads(declared, from)).collect()
    }

    /// Brings all `states` from version `from` to version `to`, each along the same shortest chain. Equal versions
    /// consult nothing (§10.12.3).
    pub(crate) fn migrate(
        &self,
        whose: Migrated,
        states: Vec<Map>,
        (from, to): (&str, &str),
    ) -> Result<Vec<Map>, EngineError> {
        if from == to {
            return Ok(states);
        }
        let chain = self.chain(whose, from, to)?;
        let through =
            |state| chain.windows(2).try_fold(state, |state, pair| self.step(whose, state, &pair[0], &pair[1]));
        states.into_iter().map(through).collect()
    }

    fn step(&self, whose: Migrated, state: Map, from: &Arc<str>, to: &Arc<str>) -> Result<Map, EngineError> {
        let Some(migrate) = self.steps.get(&(from.clone(), to.clone())) else {
            return Err(self.missing(whose, from, to));
        };
        let migrated = catch_unwind(AssertUnwindSafe(|| migrate(state)));
        migrated.unwrap_or_else(|_| Err("it panicked".to_owned())).map_err(|reason| {
            let message = format!("the {} migration from `{from}` to `{to}` failed: {reason}", whose.noun());
            versions(EngineError::new(whose.failed(), message), from, to).caused_by(NodeError::new(reason))
        })
    }

    fn chain(&self, whose: Migrated, from: &str, to: &str) -> Result<Vec<Arc<str>>, EngineError> {
        self.check_pairs(whose)?;
        let mut paths = self.shortest(from, to);
        match (paths.pop(), paths.is_empty()) {
            (None, _) => Err(self.missing(whose, from, to)),
            (Some(path), true) => Ok(path),
            (Some(_), false) => Err(many(whose, from, to)),
        }
    }

    /// Every shortest path between two versions, breadth first.
    fn shortest(&self, from: &str, to: &str) -> Vec<Vec<Arc<str>>> {
        let mut paths: Vec<Vec<Arc<str>>> = vec![vec![from.into()]];
        let mut settled: BTreeSet<Arc<str>> = BTreeSet::from([from.into()]);
        let mut found = Vec::new();
        while found.is_empty() && !paths.is_empty() {
            let mut longer_paths = Vec::new();
            let mut reached = BTreeSet::new();
            for path in paths {
                for next in self.next(path.last()).filter(|next| !settled.contains(*next)) {
                    let longer = path.iter().chain([next]).cloned().collect();
                    let ends = if **next == *to { &mut found } else { &mut longer_paths };
                    ends.push(longer);
                    reached.insert(next.clone());
                }
            }
            settled.extend(reached);
            paths = longer_paths;
        }
        found
    }

    fn next(&self, version: Option<&Arc<str>>) -> impl Iterator<Item = &Arc<str>> {
        self.steps.keys().filter(move |(from, _)| Some(from) == version).map(|(_, to)| to)
    }

    fn missing(&self, whose: Migrated, from: &str, to: &str) -> EngineError {
        let mut pairs: Vec<_> = self.described().collect();
        pairs.sort();
        let message = format!("no {} migration leads from `{from}` to `{to}`", whose.noun());
        versions(EngineError::new(whose.missing(), message), from, to)
            .detail("registered_migrations_count", pairs.len())
            .detail("registry_description", pairs.join(", "))
    }

    fn described(&self) -> impl Iterator<Item = String> {
        self.steps.keys().map(|(from, to)| format!("{from} -> {to}"))
    }
}

fn many(whose: Migrated, from: &str, to: &str) -> EngineError {
    ambiguous(whose, from, to, "can be made by more than one shortest chain")
}

fn ambiguous(whose: Migrated, from: &str, to: &str, how: &str) -> EngineError {
    let message = format!("the {} migration from `{from}` to `{to}` {how}", whose.noun());
    versions(EngineError::new(whose.ambiguous(), message), from, to)
}

fn versions(error: EngineError, from: &str, to: &str) -> EngineError {
    error.detail("from_version", from).detail("to_version", to)
}
