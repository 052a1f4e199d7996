//! The session directives of a case (conformance-adapter §5.6).

mod migrations;

use std::sync::Arc;

use dormouse_engine::{EngineError, SessionConcurrency, SessionPolicy};
use dormouse_ports::{Map, SessionId};

use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Ledger;
use crate::store::{Faults, WatchedStore};
pub(crate) use migrations::{Migration, number};

/// How the case's graph persists sessions, and what is stored before it begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionSpec {
    has_store: bool,
    pub(crate) faults: Faults,
    projection: Option<Vec<String>>,
    auto_save: Option<bool>,
    concurrency: SessionConcurrency,
    migrations: Vec<Migration>,
    seeds: Vec<Seed>,
}

#[derive(Clone, Debug)]
struct Seed {
    session_id: SessionId,
    schema_version: Option<String>,
    state: Map,
}

impl SessionSpec {
    /// Reads the session directives; a seed that names no session is for `default_id`.
    pub(crate) fn read(case: &mut Directives<'_>, default_id: Option<&str>) -> Result<Self, Failure> {
        let mut spec = Self { has_store: case.given("session_store").is_some(), ..Self::default() };
        spec.faults = backend(case, "session_store")?;
        if let Some(mut projected) = case.nested("session_state")? {
            spec.projection = projected.texts("fields")?;
            projected.done()?;
        }
        spec.auto_save = case.flag("auto_save")?;
        spec.concurrency = match case.text("session_concurrency")? {
            None | Some("last_write_wins") => SessionConcurrency::LastWriteWins,
            Some("optimistic") => SessionConcurrency::Optimistic,
            Some("rebase") => SessionConcurrency::Rebase,
            Some(other) => return Err(Failure::missing(format!("session concurrency `{other}`"))),
        };
        for (at, migration) in case.list("session_migrations")? {
            spec.migrations.push(Migration::read(Directives::new(at, migration)?)?);
        }
        if let Some(seed) = case.nested("seeded_session")? {
            spec.seeds.push(Seed::read(seed, default_id)?);
        }
        for (at, seed) in case.list("seeded_sessions")? {
            spec.seeds.push(Seed::read(Directives::new(at, seed)?, default_id)?);
        }
        Ok(spec)
    }

    /// The policy to register on the graph, if the case has a session store.
    pub(crate) fn policy(&self, ledger: &Arc<Ledger>) -> Result<Option<SessionPolicy>, EngineError> {
        if !self.has_store {
            return Ok(None);
        }
        let fields = |fields: &Vec<String>| SessionPolicy::projected(fields.iter().map(String::as_str));
        let policy = self.projection.as_ref().map_or_else(SessionPolicy::full_state, fields);
        let policy = policy.auto_save(self.auto_save.unwrap_or(true)).concurrency(self.concurrency);
        self.migrations.iter().try_fold(policy, |policy, migration| migration.register(policy, ledger)).map(Some)
    }

    /// Stores what the case says is there already; a seed without a version has that of the graph.
    pub(crate) async fn seed(&self, store: &WatchedStore, graph_version: &str) -> Result<(), Failure> {
        for seed in &self.seeds {
            let version = seed.schema_version.clone().unwrap_or_else(|| graph_version.to_owned());
            store.seed_session(&seed.session_id, seed.state.clone(), version).await.map_err(Failure::mismatch)?;
        }
        Ok(())
    }
}

impl Seed {
    fn read(mut seed: Directives<'_>, default_id: Option<&str>) -> Result<Self, Failure> {
        let id = seed.text("session_id")?.or(default_id);
        let session_id = id.ok_or_else(|| Failure::invalid("a seeded session has no session_id"))?.into();
        let schema_version = seed.text("schema_version")?.map(str::to_owned);
        let state = seed.mapping("state")?.cloned().unwrap_or_default();
        seed.done()?;
        Ok(Self { session_id, schema_version, state })
    }
}

/// Reads `in_memory`, `sqlite` or a mapping with a type and injected faults. Which store really runs is chosen on the
/// command line, not by the fixture.
fn backend(case: &mut Directives<'_>, key: &str) -> Result<Faults, Failure> {
    let known = |name: &str| match name {
        "in_memory" | "sqlite" => Ok(()),
        other => Err(Failure::missing(format!("{key} `{other}`"))),
    };
    if let Some(name) = case.given(key).and_then(serde_json::Value::as_str) {
        known(name)?;
        return Ok(Faults::default());
    }
    let Some(mut backend) = case.nested(key)? else { return Ok(Faults::default()) };
    known(backend.text("type")?.unwrap_or("in_memory"))?;
    let faults = backend.nested("behavior")?.map_or_else(|| Ok(Faults::default()), Faults::read)?;
    backend.done()?;
    Ok(faults)
}
