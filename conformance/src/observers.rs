//! The observers of a case (conformance-adapter §5.5, §6.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_engine::{FrameworkEvent, NodeError, NodeEvent, Observer, Phase, Phases};

use crate::Failure;
use crate::directives::Directives;
use crate::graph::BuiltGraph;
use crate::ledger::{Delivered, Ledger};
use crate::telemetry::Capture;

/// The name of the runner's own observer, which looks where a fixture declares none.
pub(crate) const OWN: &str = "";

/// An observer that is passed to a single call, with what it wants to see.
pub(crate) type PerCall = (Arc<dyn Observer>, Phases);

#[derive(Clone, Debug)]
pub(crate) struct ObserverSpec {
    name: String,
    target: String,
    raises: bool,
    sleep_first: Duration,
    sleep_later: Duration,
    phases: Phases,
    for_one_call: bool,
    makes_spans: bool,
}

impl ObserverSpec {
    /// One that records everything, for a case that declares none.
    pub(crate) fn own() -> Self {
        Self {
            name: OWN.to_owned(),
            target: "outer".to_owned(),
            raises: false,
            sleep_first: Duration::ZERO,
            sleep_later: Duration::ZERO,
            phases: Phases::default(),
            for_one_call: false,
            makes_spans: false,
        }
    }

    /// One that makes spans, for a case that declares none.
    pub(crate) fn own_spans() -> Self {
        Self { makes_spans: true, ..Self::own() }
    }

    /// How the fixture calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The observer's name, if it makes spans.
    pub(crate) fn span_maker(&self) -> Option<&str> {
        self.makes_spans.then_some(self.name.as_str())
    }

    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let name = given.required_text("name")?.to_owned();
        let for_one_call = match given.text("attach")? {
            None | Some("graph") => false,
            Some("invocation") => true,
            Some(other) => return Err(Failure::missing(format!("observers are not attached to `{other}`"))),
        };
        let (raises, makes_spans) = match given.text("behavior")? {
            None | Some("record" | "accumulate") => (false, false),
            Some("raise") => (true, false),
            Some("otel") => (false, true),
            Some(other) => return Err(Failure::missing(format!("observer behaviour `{other}`"))),
        };
        let target = given.text("target")?.unwrap_or("outer").to_owned();
        let (sleep_first, sleep_later) = sleeps(&mut given)?;
        let phases = match given.texts("phases")? {
            None => Phases::default(),
            Some(names) => {
                let phases = names.iter().map(|name| phase(name)).collect::<Result<Vec<_>, _>>()?;
                Phases::of(phases).map_err(|error| Failure::invalid(error.to_string()))?
            }
        };
        given.done()?;
        Ok(Self { name, target, raises, sleep_first, sleep_later, phases, for_one_call, makes_spans })
    }

    /// Attaches the observer to its graph; one of a single call is given back instead.
    pub(crate) fn attach(
        &self,
        built: &BuiltGraph,
        ledger: &Arc<Ledger>,
        round: &Arc<AtomicUsize>,
        capture: &Capture,
    ) -> Result<Option<PerCall>, Failure> {
        let observer: Arc<dyn Observer> = match capture.observer(&self.name).filter(|_| self.makes_spans) {
            Some(spans) => Arc::new(spans),
            None => Arc::new(Recorder { spec: self.clone(), ledger: ledger.clone(), round: round.clone() }),
        };
        if self.for_one_call {
            return Ok(Some((observer, self.phases)));
        }
        let graph = match self.target.as_str() {
            "outer" => Some(&built.graph),
            "inner" => built.inner.values().next().or(Some(&built.graph)),
            name => built.inner.get(name),
        };
        let graph = graph.ok_or_else(|| Failure::invalid(format!("there is no graph `{}` to observe", self.target)))?;
        graph.attach_observer(observer, self.phases);
        Ok(None)
    }
}

fn sleeps(given: &mut Directives<'_>) -> Result<(Duration, Duration), Failure> {
    let key = "sleep_ms_per_event";
    let millis = |number: Option<i64>| Duration::from_millis(number.unwrap_or_default().unsigned_abs());
    if given.given(key).is_some_and(serde_json::Value::is_object) {
        let Some(mut both) = given.nested(key)? else { return Ok(Default::default()) };
        let sleeps = (millis(both.integer("first_invocation")?), millis(both.integer("subsequent_invocations")?));
        both.done()?;
        return Ok(sleeps);
    }
    let always = millis(given.integer(key)?);
    Ok((always, always))
}

fn phase(name: &str) -> Result<Phase, Failure> {
    match name {
        "started" => Ok(Phase::Started),
        "completed" => Ok(Phase::Completed),
        "suspended" => Ok(Phase::Suspended),
        other => Err(Failure::missing(format!("phase `{other}`"))),
    }
}

struct Recorder {
    spec: ObserverSpec,
    ledger: Arc<Ledger>,
    /// Which invocation of the case runs, from 0.
    round: Arc<AtomicUsize>,
}

#[async_trait]
impl Observer for Recorder {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        let is_first = self.round.load(Ordering::Relaxed) == 0;
        let pause = if is_first { self.spec.sleep_first } else { self.spec.sleep_later };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let delivered = Delivered { observer: self.spec.name.clone(), event: event.clone() };
        self.ledger.write(|pages| pages.delivered.push(delivered));
        if self.spec.raises {
            return Err(NodeError::new("the fixture wants this observer to raise"));
        }
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        if let FrameworkEvent::FailureIsolated(event) = event {
            let told = (self.spec.name.clone(), event.clone());
            self.ledger.write(|pages| pages.isolated.push(told));
        }
        Ok(())
    }
}
