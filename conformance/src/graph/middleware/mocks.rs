//! Middleware that only fixtures have.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{Middleware, Next, NodeError, State, Update};
use dormouse_ports::Map;
use serde_json::{Value, json};

use super::super::{Raised, Stage};
use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Ledger;

/// Writes down what goes in and what comes out; its markers go around what the update has in `trace`.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Recording {
    name: String,
    pre_marker: Option<String>,
    post_marker: Option<String>,
}

/// The field that markers are put into.
const TRACE: &str = "trace";

impl Recording {
    pub(super) fn read(layer: &mut Directives<'_>) -> Result<Self, Failure> {
        Ok(Self {
            name: layer.text("name")?.unwrap_or_default().to_owned(),
            pre_marker: layer.text("pre_marker")?.map(str::to_owned),
            post_marker: layer.text("post_marker")?.map(str::to_owned),
        })
    }

    pub(super) fn middleware(&self, stage: &Stage) -> Arc<dyn Middleware> {
        Arc::new(Recorder { layer: self.clone(), ledger: stage.ledger.clone() })
    }

    fn mark(&self, update: Map) -> Map {
        if self.pre_marker.is_none() && self.post_marker.is_none() {
            return update;
        }
        let mut update = update;
        let inner = update.shift_remove(TRACE).and_then(|value| value.as_array().cloned()).unwrap_or_default();
        let marker = |text: &Option<String>| text.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>();
        let trace = marker(&self.pre_marker).into_iter().chain(inner).chain(marker(&self.post_marker));
        let trace = Value::Array(trace.collect());
        update.insert(TRACE.to_owned(), trace);
        update
    }
}

fn fields_of(update: &Update) -> Map {
    update.iter().map(|(field, value)| (field.to_string(), value.clone())).collect()
}

struct Recorder {
    layer: Recording,
    ledger: Arc<Ledger>,
}

#[async_trait]
impl Middleware for Recorder {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        let before = Value::Object(state.to_map());
        let result = next.run(state.clone()).await;
        let mut record = json!({
            "state_in": before,
            "pre_seen": true,
            "post_seen": result.is_ok(),
            "state_unchanged": Value::Object(state.to_map()) == before,
        });
        let result = result.map(|update| Update::from(self.layer.mark(fields_of(&update))));
        if let Ok(update) = &result {
            record["state_seen_in_post_phase"] = Value::Object(state.to_map());
            record["partial_update_returned"] = Value::Object(fields_of(update));
        }
        self.ledger.write(|pages| pages.record(&self.layer.name, record));
        result
    }
}

/// An update that a layer returns in the place of the node's.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Replacing {
    update: Map,
    /// Only when the rest of the chain raised; otherwise the rest is never called.
    after_error: bool,
}

impl Replacing {
    pub(super) fn read(layer: &mut Directives<'_>, after_error: bool) -> Result<Self, Failure> {
        layer.text("name")?;
        Ok(Self { update: layer.mapping("partial_update")?.cloned().unwrap_or_default(), after_error })
    }

    pub(super) fn middleware(&self) -> Arc<dyn Middleware> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl Middleware for Replacing {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        if self.after_error
            && let Ok(update) = next.run(state).await
        {
            return Ok(update);
        }
        Ok(Update::from(self.update.clone()))
    }
}

/// A layer that raises before it calls on.
pub(super) fn raising(error: Raised) -> Arc<dyn Middleware> {
    Arc::new(Raiser(error))
}

struct Raiser(Raised);

#[async_trait]
impl Middleware for Raiser {
    async fn around(&self, _: State, _: Next<'_>) -> Result<Update, NodeError> {
        Err(self.0.error())
    }
}
