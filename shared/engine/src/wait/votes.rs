use std::collections::BTreeMap;

use dormouse_ports::limits::PARTS;
use dormouse_ports::{Map, SignalId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The answers of all who were asked, as a wait for votes gathers them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "A: Deserialize<'de>"))]
pub struct Votes<A> {
    /// Answers by the names of their parts.
    pub answers: BTreeMap<String, A>,
    /// Parts that have not answered.
    pub missing: Vec<String>,
    /// The part that decided by its answer; absent when time did.
    pub decided_by: Option<String>,
    /// Reason for the decision.
    pub outcome: VoteOutcome,
}

impl<A> Default for Votes<A> {
    fn default() -> Self {
        Self { answers: BTreeMap::new(), missing: Vec::new(), decided_by: None, outcome: VoteOutcome::Open }
    }
}

/// Reason for the decision of a vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoteOutcome {
    /// Nothing yet.
    #[default]
    #[serde(rename = "")]
    Open,
    /// As many answers as were needed.
    Enough,
    /// A veto.
    Veto,
    /// The deadline.
    Time,
}

/// The parts that are asked, and the number that suffices.
pub(super) struct VoteParts {
    into: &'static str,
    pub(super) named: Vec<(String, Option<SignalId>)>,
    pub(super) at_least: Option<usize>,
    pub(super) veto: Option<(&'static str, Result<Value, String>)>,
}

impl VoteParts {
    pub(super) fn into(field: &'static str) -> Self {
        Self { into: field, named: Vec::new(), at_least: None, veto: None }
    }

    /// Its JSON form, stored under `expects`.
    pub(super) fn json(self) -> Result<Value, String> {
        let count = self.named.len();
        let parts = parts(self.named)?;
        let mut expects = Map::from_iter([("parts".to_owned(), Value::Object(parts))]);
        match self.at_least {
            None => {}
            Some(needed) if (1..=count).contains(&needed) => {
                expects.insert("until".to_owned(), json!({ "at_least": needed }));
            }
            Some(needed) => {
                return Err(format!("it needs {needed} answers of {count} parts: `at_least` takes 1 to {count}"));
            }
        }
        if let Some((field, value)) = self.veto {
            expects.insert("veto".to_owned(), json!({ "field": field, "is": value? }));
        }
        expects.insert("into".to_owned(), self.into.into());
        Ok(Value::Object(expects))
    }
}

fn parts(named: Vec<(String, Option<SignalId>)>) -> Result<Map, String> {
    if !(1..=PARTS).contains(&named.len()) {
        let count = named.len();
        return Err(format!("it asks {count} parts, and must ask 1 to {PARTS}: name them with `parts`"));
    }
    let mut parts = Map::new();
    for (name, signal_id) in named {
        let signal = match signal_id {
            Some(id) => json!({ "signal_id": id }),
            None => json!({}),
        };
        if parts.insert(name.clone(), signal).is_some() {
            return Err(format!("the wait asks part `{name}` twice: name each part once"));
        }
    }
    Ok(parts)
}
