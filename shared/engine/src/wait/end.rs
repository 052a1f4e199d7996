//! How a wait ends when no answer comes, and what is announced on the way there.

use dormouse_ports::limits::RUNGS;
use serde_json::{Value, json};

use super::{Deadline, fields};
use crate::Update;

/// End of a wait when nothing else ends it.
pub(super) enum WaitEnd<S> {
    Never,
    Default(Deadline, Update<S>),
    Fail(Deadline),
    Wake(Deadline, Option<Update<S>>),
}

/// A step on the way to the end of a wait, which is announced on the bus while the invocation sleeps on.
#[derive(Clone, Debug)]
pub struct Step {
    at: Deadline,
    kind: &'static str,
    to: Option<String>,
}

impl Step {
    /// Reminds the people who were asked.
    pub fn remind(at: impl Into<Deadline>) -> Self {
        Self { at: at.into(), kind: "remind", to: None }
    }

    /// Asks `to` instead.
    pub fn reassign(at: impl Into<Deadline>, to: impl Into<String>) -> Self {
        Self { at: at.into(), kind: "reassign", to: Some(to.into()) }
    }

    /// Notifies `to`, who is responsible.
    pub fn escalate(at: impl Into<Deadline>, to: impl Into<String>) -> Self {
        Self { at: at.into(), kind: "escalate", to: Some(to.into()) }
    }

    /// Sends a notification over `channel`, which the operator has described: by e-mail, to Slack or to a webhook, with the
    /// link on which the wait is answered.
    pub fn notify(at: impl Into<Deadline>, channel: impl Into<String>) -> Self {
        Self { at: at.into(), kind: "notify", to: Some(channel.into()) }
    }
}

/// The keys with which a wait ends by itself.
pub(super) fn end<S>(steps: Option<Vec<Step>>, end: WaitEnd<S>) -> Result<Vec<(&'static str, Value)>, String> {
    let (at, then) = match end {
        WaitEnd::Never if steps.as_ref().is_some_and(|steps| !steps.is_empty()) => {
            return Err("its steps lead nowhere: end it with `or_default` or `or_fail`".to_owned());
        }
        WaitEnd::Never => return Ok(Vec::new()),
        WaitEnd::Wake(..) if steps.is_some() => {
            return Err(
                "steps belong to a wait that ends with `or_default` or `or_fail`, not to one that sleeps".to_owned()
            );
        }
        WaitEnd::Wake(at, update) => return wake(&at, update),
        WaitEnd::Default(at, update) => (at, json!({ "resume": fields(update)? })),
        WaitEnd::Fail(at) => (at, "fail".into()),
    };
    let mut last = at.json("the end")?;
    last.insert("then".to_owned(), then);
    let Some(steps) = steps else { return Ok(vec![("timeout", Value::Object(last))]) };
    if steps.len() >= RUNGS {
        return Err(format!("it has {} steps and an end, and may have {RUNGS} in all: leave some out", steps.len()));
    }
    let steps = steps.into_iter().map(step).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![("deadlines", steps.into_iter().chain([Value::Object(last)]).collect())])
}

fn wake<S>(at: &Deadline, update: Option<Update<S>>) -> Result<Vec<(&'static str, Value)>, String> {
    let wake = match at {
        Deadline::After(delay) => ("wake_after", delay.checked("the sleep")?.to_string()),
        Deadline::At(time) => ("wake_at", time.to_string()),
    };
    let payload = update.map(fields).transpose()?.map(|payload| ("wake_payload", payload.into()));
    Ok([(wake.0, wake.1.into())].into_iter().chain(payload).collect())
}

fn step(step: Step) -> Result<Value, String> {
    let mut json = step.at.json("a step")?;
    json.insert("do".to_owned(), step.kind.into());
    match step.to {
        Some(name) if name.is_empty() => {
            return Err(format!("the step `{}` names nobody: say who is told", step.kind));
        }
        Some(name) => {
            json.insert("to".to_owned(), name.into());
        }
        None => {}
    }
    Ok(Value::Object(json))
}
