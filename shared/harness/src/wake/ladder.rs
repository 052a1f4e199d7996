//! The ladder of deadlines: announcements in the order of time, and an end.

use dormouse_ports::limits::RUNGS;
use dormouse_ports::{Announcement, Due, DueAction, Escalation, Map};
use jiff::Timestamp;
use serde_json::Value;

use super::moment::{ending, moment};

/// Most bytes that a name under `to` may have.
const LONGEST_NAME: usize = 256;

/// The steps under `deadlines`, in the order of time; none when there is no such key.
pub(super) fn read(metadata: &Map, now: Timestamp) -> Result<Vec<Due>, String> {
    let rungs = match metadata.get("deadlines") {
        None => return Ok(Vec::new()),
        Some(Value::Array(rungs)) if (1..=RUNGS).contains(&rungs.len()) => rungs,
        Some(_) => return Err(format!("`deadlines` must be a list of 1 to {RUNGS} steps")),
    };
    let mut read: Vec<Due> = Vec::with_capacity(rungs.len());
    for (rung, step) in (0..).zip(rungs) {
        let key = format!("deadlines[{rung}]");
        let is_last = read.len() + 1 == rungs.len();
        let at = at(&key, step, now)?;
        if read.last().is_some_and(|before| before.at >= at) {
            return Err(format!(
                "step {} of its deadlines (`{key}`; the end of the wait is the last) must come later than the step before it",
                rung + 1
            ));
        }
        read.push(Due { at, action: action(&key, step, is_last)?, rung });
    }
    Ok(read)
}

fn at(key: &str, step: &Value, now: Timestamp) -> Result<Timestamp, String> {
    let fields = step.as_object().ok_or_else(|| format!("`{key}` must be a mapping"))?;
    match fields.keys().find(|name| !["at", "after", "do", "to", "then"].contains(&name.as_str())) {
        Some(unknown) => Err(format!("`{key}.{unknown}` means nothing here")),
        None => moment(key, step, now),
    }
}

fn action(key: &str, step: &Value, is_last: bool) -> Result<DueAction, String> {
    match (step.get("do"), step.get("then")) {
        (None, Some(then)) if is_last => match step.get("to") {
            None => ending(key, Some(then)),
            Some(_) => Err(format!("`{key}.to` needs a `do`")),
        },
        (Some(_), Some(_)) => Err(format!("`{key}` needs either `do` or `then`")),
        (_, None) if is_last => Err(format!("`{key}.then` must say how the last step ends the wait")),
        (step_name, _) => Ok(DueAction::Announce(announcement(key, step_name, step.get("to"))?)),
    }
}

fn announcement(key: &str, step: Option<&Value>, to: Option<&Value>) -> Result<Announcement, String> {
    let step = match step.and_then(Value::as_str) {
        Some("remind") => Escalation::Remind,
        Some("reassign") => Escalation::Reassign,
        Some("escalate") => Escalation::Escalate,
        Some("notify") => Escalation::Notify,
        Some(_) | None => {
            return Err(format!("`{key}.do` must be \"remind\", \"reassign\", \"escalate\" or \"notify\""));
        }
    };
    match to {
        Some(Value::String(name)) if (1..=LONGEST_NAME).contains(&name.len()) => {
            Ok(Announcement { step, to: Some(name.clone()) })
        }
        None if step == Escalation::Remind => Ok(Announcement { step, to: None }),
        Some(_) | None => Err(format!("`{key}.to` must be a name of 1 to {LONGEST_NAME} bytes")),
    }
}
