//! The checkpoint directives of a case (conformance-adapter §5.6).

use dormouse_ports::{CheckpointRecord, Map};
use serde_json::{Value, json};

use crate::Failure;
use crate::directives::Directives;
use crate::sessions::Migration;
use crate::store::{Crash, Faults};

/// How the case keeps checkpoints, and what is kept before it begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckpointSpec {
    pub(crate) declared: bool,
    pub(crate) faults: Faults,
    /// Progress inside of fan-outs is written down only every so many saves.
    pub(crate) flush_every: Option<usize>,
    pub(crate) migrations: Vec<Migration>,
    pub(crate) seed: Option<Map>,
    pub(crate) crash: Option<Crash>,
    /// So many invocations run before those that count.
    pub(crate) populate: usize,
}

impl CheckpointSpec {
    pub(crate) fn read(case: &mut Directives<'_>) -> Result<Self, Failure> {
        let mut spec = Self { declared: case.given("checkpointer").is_some(), ..Self::default() };
        spec.read_backend(case)?;
        for (at, migration) in case.list("migrations")? {
            spec.migrations.push(Migration::read(Directives::new(at, migration)?)?);
        }
        spec.seed = case.mapping("seeded_record")?.cloned();
        spec.crash = case.nested("crash_injection")?.map(Crash::read).transpose()?;
        let populate = case.integer("populate_checkpointer_via_runs")?.unwrap_or_default();
        spec.populate = usize::try_from(populate).unwrap_or_default();
        if let Some(mut subclass) = case.nested("runtime_state_subclass")? {
            // State is a map of fields: a caller cannot bring a schema, so there is nothing to pass.
            subclass.text("schema_version")?;
            subclass.done()?;
        }
        Ok(spec)
    }

    fn read_backend(&mut self, case: &mut Directives<'_>) -> Result<(), Failure> {
        let key = "checkpointer";
        if case.given(key).is_some_and(Value::is_string) {
            return known(case.text(key)?.unwrap_or_default());
        }
        let Some(mut backend) = case.nested(key)? else { return Ok(()) };
        known(backend.text("type")?.or(backend.text("kind")?).unwrap_or("in_memory"))?;
        self.faults = backend.nested("behavior")?.map_or_else(|| Ok(Faults::default()), Faults::read)?;
        if let Some(mut batching) = backend.nested("fan_out_internal_save_batching")? {
            let every = batching.integer("flush_every")?;
            self.flush_every = every.and_then(|every| usize::try_from(every).ok());
            batching.done()?;
        }
        backend.done()
    }

    /// The record that is there already: what the fixture says, and what every record has.
    pub(crate) fn seeded(&self, id: &str, schema_version: &str) -> Result<Option<CheckpointRecord>, Failure> {
        let Some(seed) = &self.seed else { return Ok(None) };
        let mut record = Map::new();
        record.insert("invocation_id".into(), id.into());
        record.insert("correlation_id".into(), format!("correlation of {id}").into());
        record.insert("schema_version".into(), schema_version.into());
        record.insert("last_saved_at".into(), "2027-01-15T07:59:59Z".into());
        record.extend(seed.clone());
        for key in ["completed_positions", "fan_out_progress"] {
            record.entry(key).or_insert_with(|| json!([]));
        }
        let known = serde_json::from_value::<CheckpointRecord>(Value::Object(record.clone()))
            .map_err(|error| Failure::invalid(format!("seeded_record: {error}")))?;
        let kept = json!(known);
        match seed.keys().find(|key| kept.get(key.as_str()).is_none() && !is_empty(&seed[key.as_str()])) {
            Some(key) => Err(Failure::DirectiveUnknown(format!("`seeded_record.{key}`"))),
            None => Ok(Some(known)),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn known(name: &str) -> Result<(), Failure> {
    match name {
        "in_memory" | "sqlite" | "in_memory_batched" => Ok(()),
        other => Err(Failure::missing(format!("checkpointer `{other}`"))),
    }
}
