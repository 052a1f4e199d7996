//! Middleware of fixtures: the canonical ones and those that only fixtures have (conformance-adapter §5.1, §6.7).

mod canonical;
mod log;
mod mocks;

use std::sync::Arc;

use dormouse_engine::Middleware;
use serde_json::Value;

use self::canonical::{Isolation, Retries, Timed};
use self::log::Logging;
use self::mocks::{Recording, Replacing};
use super::Stage;
use super::context::LogSpec;
use super::raised::Raised;
use crate::Failure;
use crate::directives::Directives;
use crate::models::WrapperCallSpec;

/// A middleware of a fixture.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    Log(Logging),
    /// Makes a log record before it calls on.
    Tell(LogSpec),
    Record(Recording),
    /// Returns an update instead of calling on, or instead of an error.
    Replace(Replacing),
    Raise(Raised),
    Retry(Retries),
    Time(Timed),
    Isolate(Isolation),
    /// Calls a model around the node.
    CallModel(WrapperCallSpec),
}

impl Layer {
    /// Reads the list of middleware at `key`, the outermost first.
    pub(super) fn read_list(given: &mut Directives<'_>, key: &str) -> Result<Vec<Self>, Failure> {
        given.list(key)?.into_iter().map(|(at, layer)| Self::read(&at, layer)).collect()
    }

    /// Reads `{type: retry, …}`, `{retry: {…}}` or the markers of a logging layer.
    fn read(at: &str, value: &Value) -> Result<Self, Failure> {
        let mut layer = Directives::new(at, value)?;
        if let Some(kind) = layer.text("type")? {
            return Self::of_kind(kind, layer);
        }
        match layer.unread()[..] {
            [kind] if KINDS.contains(&kind) => match layer.nested(kind)? {
                Some(inner) => Self::of_kind(kind, inner),
                None => Self::of_kind(kind, Directives::of(at, &dormouse_ports::Map::new())),
            },
            _ => Logging::read(layer).map(Self::Log),
        }
    }

    fn of_kind(kind: &str, mut layer: Directives<'_>) -> Result<Self, Failure> {
        let read = match kind {
            "retry" => Self::Retry(Retries::read(&mut layer)?),
            "timing" => Self::Time(Timed::read(&mut layer)?),
            "failure_isolation" => Self::Isolate(Isolation::read(&mut layer)?),
            "trace_recorder" | "state_inspector" => Self::Record(Recording::read(&mut layer)?),
            "short_circuit" => Self::Replace(Replacing::read(&mut layer, false)?),
            "error_recovery" => Self::Replace(Replacing::read(&mut layer, true)?),
            "error_raiser" => {
                layer.text("name")?;
                Self::Raise(Raised::read_fields(&mut layer)?)
            }
            other => return Err(Failure::missing(format!("middleware `{other}`"))),
        };
        layer.done()?;
        Ok(read)
    }

    pub(super) fn middleware(&self, stage: &Stage) -> Arc<dyn Middleware> {
        match self {
            Self::Log(log) => log.middleware(stage),
            Self::Tell(log) => Arc::new(log.clone()),
            Self::Record(record) => record.middleware(stage),
            Self::Replace(replace) => replace.middleware(),
            Self::Raise(error) => mocks::raising(error.clone()),
            Self::Retry(retry) => retry.middleware(stage),
            Self::Time(timed) => timed.middleware(stage),
            Self::Isolate(isolation) => isolation.middleware(stage),
            Self::CallModel(call) => call.middleware(stage.model.clone()),
        }
    }
}

const KINDS: &[&str] = &[
    "retry",
    "timing",
    "failure_isolation",
    "trace_recorder",
    "state_inspector",
    "short_circuit",
    "error_recovery",
    "error_raiser",
];
