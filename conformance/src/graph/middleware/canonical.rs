//! Retry, timing and failure isolation as fixtures configure them (pipeline-utilities §6).

use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::cause::classify;
use dormouse_engine::middleware::{FailureIsolation, Retry, Timing, TimingRecord};
use dormouse_engine::{Middleware, NodeError, State, Update};
use dormouse_ports::{Category, Map};
use futures::FutureExt;
use serde_json::{Value, json};

use super::super::Stage;
use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Pages;

/// `type: retry`. Without a backoff of its own it does not wait: fixtures are deterministic.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Retries {
    max_attempts: Option<i64>,
    classifier: Classifier,
    backoff: Duration,
    on_retry: Option<String>,
}

#[derive(Clone, Debug)]
enum Classifier {
    Default,
    Categories(Vec<Category>),
    /// Retries as long as this field of the state is above zero.
    FieldAboveZero(String),
    Always(bool),
}

impl Retries {
    pub(super) fn read(layer: &mut Directives<'_>) -> Result<Self, Failure> {
        layer.text("name")?;
        let max_attempts = layer.integer("max_attempts")?;
        let classifier = layer.nested("classifier")?.map_or(Ok(Classifier::Default), Classifier::read)?;
        let backoff = layer.nested("backoff")?.map_or(Ok(Duration::ZERO), backoff)?;
        Ok(Self { max_attempts, classifier, backoff, on_retry: capture(layer, "on_retry")? })
    }
}

impl Retries {
    pub(super) fn middleware(&self, stage: &Stage) -> Arc<dyn Middleware> {
        // Nothing is drawn: the backoff is fixed.
        let mut retry = Retry::new(stage.clock.clone(), Arc::new(|| 0.0));
        if let Some(attempts) = self.max_attempts {
            retry = retry.max_attempts(u32::try_from(attempts).unwrap_or_default());
        }
        let wait = self.backoff;
        retry = retry.backoff(move |_| wait);
        if let Some(name) = self.on_retry.clone() {
            let ledger = stage.ledger.clone();
            retry = retry.on_retry(move |error, attempt| {
                let call = json!({
                    "attempt_index": attempt,
                    "category": classify(error).derived,
                    "message": error.message(),
                });
                ledger.write(|pages| pages.record(&name, call));
                futures::future::ready(Ok(())).boxed()
            });
        }
        let retry = match self.classifier.clone() {
            Classifier::Default => retry,
            Classifier::Always(again) => retry.classifier(move |_, _| again),
            Classifier::Categories(categories) => {
                retry.classifier(move |error, _| classify(error).derived.is_some_and(|own| categories.contains(&own)))
            }
            Classifier::FieldAboveZero(field) => retry.classifier(move |_, state| {
                state.get(&field).and_then(Value::as_f64).is_some_and(|number| number > 0.0)
            }),
        };
        Arc::new(retry)
    }
}

impl Classifier {
    fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let read = match given.text("type")? {
            None | Some("transient_categories") => {
                let names = given.texts("transient_categories")?.or(given.texts("categories")?).unwrap_or_default();
                Self::Categories(names.iter().map(|name| Category::from_name(name)).collect())
            }
            Some("default") => Self::Default,
            Some("always") => Self::Always(true),
            Some("never") => Self::Always(false),
            Some(other) => match other.strip_prefix("state_aware_") {
                Some(field) => Self::FieldAboveZero(field.to_owned()),
                None => return Err(Failure::missing(format!("retry classifier `{other}`"))),
            },
        };
        given.done()?;
        Ok(read)
    }
}

fn backoff(mut given: Directives<'_>) -> Result<Duration, Failure> {
    let wait = given.seconds("seconds")?.unwrap_or_default();
    match given.text("type")? {
        None | Some("deterministic" | "constant" | "fixed") => {}
        Some(other) => return Err(Failure::missing(format!("backoff `{other}`"))),
    }
    given.done()?;
    Ok(wait)
}

/// A callback of which the fixture says under what name its calls are written down.
fn capture(layer: &mut Directives<'_>, key: &str) -> Result<Option<String>, Failure> {
    let Some(mut callback) = layer.nested(key)? else { return Ok(None) };
    let name = callback.required_text("capture_to")?.to_owned();
    callback.done()?;
    Ok(Some(name))
}

/// `type: timing`.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Timed {
    /// Absent: that of each node of the graph.
    node_name: Option<String>,
    capture_to: String,
}

impl Timed {
    pub(super) fn read(layer: &mut Directives<'_>) -> Result<Self, Failure> {
        let node_name = layer.text("node_name")?.or(layer.text("name")?).map(str::to_owned);
        let capture_to = capture(layer, "on_complete")?.unwrap_or_else(|| "timing_records".to_owned());
        Ok(Self { node_name, capture_to })
    }
}

impl Timed {
    pub(super) fn middleware(&self, stage: &Stage) -> Arc<dyn Middleware> {
        let name = self.capture_to.clone();
        let ledger = stage.ledger.clone();
        let on_complete = move |record: TimingRecord| {
            let record = json!({
                "node_name": &*record.node_name,
                "duration_ms": record.duration_ms,
                "outcome": record.outcome.as_str(),
                "exception_category": record.exception_category,
            });
            ledger.write(|pages| pages.record(&name, record));
            futures::future::ready(Ok(())).boxed()
        };
        Arc::new(match &self.node_name {
            Some(node_name) => Timing::new(node_name.as_str(), stage.clock.clone(), on_complete),
            None => Timing::for_graph(stage.clock.clone(), on_complete),
        })
    }
}

/// `type: failure_isolation`.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Isolation {
    event_name: String,
    degraded: Degraded,
    catch: Option<Vec<Category>>,
    /// The category that the surface error must have.
    predicate: Option<Category>,
    on_caught: Option<Caught>,
}

#[derive(Clone, Debug)]
enum Degraded {
    Fixed(Map),
    /// A field is set to a text in which `{{ state.FIELD }}` stands for values.
    Template {
        field: String,
        text: String,
    },
}

/// What a callback does with what was caught.
#[derive(Clone, Debug, Default)]
struct Caught {
    increment_field: Option<String>,
    message_field: Option<String>,
    capture_to: Option<String>,
}

impl Isolation {
    pub(super) fn read(layer: &mut Directives<'_>) -> Result<Self, Failure> {
        layer.text("name")?;
        let catch = layer.texts("catch")?.map(|names| names.iter().map(|name| Category::from_name(name)).collect());
        let predicate = match layer.nested("predicate")? {
            None => None,
            Some(mut predicate) => {
                let category = Category::from_name(predicate.required_text("matches_category")?);
                predicate.done()?;
                Some(category)
            }
        };
        Ok(Self {
            event_name: layer.text("event_name")?.unwrap_or_default().to_owned(),
            degraded: Degraded::read(layer)?,
            catch,
            predicate,
            on_caught: layer.nested("on_caught")?.map(Caught::read).transpose()?,
        })
    }
}

impl Isolation {
    pub(super) fn middleware(&self, stage: &Stage) -> Arc<dyn Middleware> {
        let mut isolation = match self.degraded.clone() {
            Degraded::Fixed(update) => FailureIsolation::with(self.event_name.as_str(), Update::from(update)),
            Degraded::Template { field, text } => FailureIsolation::computed(self.event_name.as_str(), move |state| {
                Ok(Update::none().with(field.as_str(), fill(&text, state)))
            }),
        };
        if let Some(categories) = self.catch.clone() {
            isolation = isolation.catch(categories);
        }
        if let Some(category) = self.predicate.clone() {
            isolation = isolation.predicate(move |error| error.category() == Some(&category));
        }
        if let Some(caught) = self.on_caught.clone() {
            let ledger = stage.ledger.clone();
            isolation = isolation.on_caught(move |error| {
                ledger.write(|pages| caught.note(pages, error));
                futures::future::ready(Ok(())).boxed()
            });
        }
        Arc::new(isolation)
    }
}

impl Degraded {
    fn read(layer: &mut Directives<'_>) -> Result<Self, Failure> {
        let key = "degraded_update";
        let update = layer.mapping(key)?.cloned().unwrap_or_default();
        let Some(callable) = update.get("callable").and_then(Value::as_str) else { return Ok(Self::Fixed(update)) };
        if callable != "state_derived" {
            return Err(Failure::missing(format!("degraded update `{callable}`")));
        }
        let mut given = Directives::of(key, &update);
        given.text("callable")?;
        let field = given.required_text("target_field")?.to_owned();
        let text = given.required_text("template")?;
        let read = Self::Template { field, text: text.to_owned() };
        given.done()?;
        Ok(read)
    }
}

/// Fills in every `{{ state.FIELD }}`.
fn fill(template: &str, state: &State) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let value = state.get(name.trim().trim_start_matches("state."));
        text +=
            &value.map_or_else(String::new, |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        text += rest;
    }
    text
}

impl Caught {
    fn note(&self, pages: &mut Pages, error: &NodeError) {
        if let Some(field) = &self.increment_field {
            let count = pages.beside.get(field).and_then(Value::as_i64).unwrap_or_default();
            pages.beside.insert(field.clone(), (count + 1).into());
        }
        if let Some(field) = &self.message_field {
            pages.beside.insert(field.clone(), error.message().into());
        }
        if let Some(name) = &self.capture_to {
            pages.record(name, json!({"category": classify(error).derived, "message": error.message()}));
        }
    }

    fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        match given.text("kind")? {
            None | Some("record_to_state_side_channel") => {}
            Some(other) => return Err(Failure::missing(format!("on_caught `{other}`"))),
        }
        let read = Self {
            increment_field: owned(given.text("increment_field")?),
            message_field: owned(given.text("capture_message_field")?),
            capture_to: owned(given.text("capture_to")?),
        };
        given.done()?;
        Ok(read)
    }
}
