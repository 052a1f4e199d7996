use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use dormouse_ports::limits::PARTS;
use dormouse_ports::{Map, SignalId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Answer;
use crate::{FieldKey, IntoField};

/// The answers of all who were asked, as a wait for votes gathers them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, bound(deserialize = "A: Deserialize<'de>"))]
pub struct Votes<A> {
    /// Answers by the names of their parts.
    pub answers: BTreeMap<String, A>,
    /// Voters that have not answered.
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
    /// So many answers do not count that there cannot be enough of those that do.
    OutOfReach,
    /// The deadline.
    Time,
}

/// A field of an answer, and a value of it in JSON.
type FieldValue = (&'static str, Result<Value, String>);

/// The parts that a wait for votes asks, and which of their answers decide. `A` is what each of them answers.
///
/// Names that stand in the program are counted by the compiler:
///
/// ```compile_fail
/// # dormouse_engine::record! {
/// #     #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
/// #     struct Ballot { yes: bool }
/// # }
/// let nobody: [&str; 0] = [];
/// let parts = dormouse_engine::Voters::<Ballot>::of(nobody);
/// ```
#[must_use = "parts are asked by a wait for votes"]
pub struct Voters<A> {
    named: Vec<(String, Option<SignalId>)>,
    at_least: Option<usize>,
    counts: Option<FieldValue>,
    veto: Option<FieldValue>,
    answers: PhantomData<fn(A)>,
}

impl<A> Voters<A> {
    /// Asks these, 1 to 25: each gets an address of its own.
    pub fn of<N: Into<String>, const COUNT: usize>(names: [N; COUNT]) -> Self {
        const { assert!(COUNT > 0 && COUNT <= PARTS, "a wait for votes asks 1 to 25 parts") };
        Self::each(names)
    }

    /// Asks these, whose names the invocation knows. Without any, and with more than 25, the wait is refused when it
    /// begins.
    pub fn each<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::asking(names.into_iter().map(|name| (name.into(), None)))
    }

    /// Asks these, each of whom answers with a signal of its own. As [`each`](Self::each) otherwise.
    pub fn with_signals<N: Into<String>, I: Into<SignalId>>(signals: impl IntoIterator<Item = (N, I)>) -> Self {
        Self::asking(signals.into_iter().map(|(name, signal_id)| (name.into(), Some(signal_id.into()))))
    }

    fn asking(named: impl Iterator<Item = (String, Option<SignalId>)>) -> Self {
        Self { named: named.collect(), at_least: None, counts: None, veto: None, answers: PhantomData }
    }

    /// Goes on when so many of the parts have answered, whatever they say; without it, all of them have to.
    pub fn at_least(mut self, count: usize) -> Self {
        self.at_least = Some(count);
        self
    }

    /// Counts only answers with `value` in `field`: goes on when so many as [`at_least`](Self::at_least) says are such, or
    /// when they cannot become so many any more.
    pub fn counting<V: Serialize>(mut self, field: FieldKey<A, V>, value: impl IntoField<V>) -> Self {
        self.counts = Some(field_value(field, value));
        self
    }

    /// Goes on at once when an answer has `value` in `field`.
    pub fn veto<V: Serialize>(mut self, field: FieldKey<A, V>, value: impl IntoField<V>) -> Self {
        self.veto = Some(field_value(field, value));
        self
    }

    /// Refuses a test of a field that `answer` may not set: no answer could ever pass it.
    pub(super) fn check_tests(&self, answer: &Answer<A>) -> Result<(), String> {
        for (test, does) in [(&self.counts, "counts answers by"), (&self.veto, "takes a veto from")] {
            if let Some((field, _)) = test
                && !answer.sets(field)
            {
                return Err(format!(
                    "it {does} field `{field}`, which the answer may not set: name it in the `Answer`"
                ));
            }
        }
        Ok(())
    }

    /// Its JSON form, stored under `expects`; the answers are gathered in the field `into`.
    pub(super) fn json(self, into: &'static str) -> Result<Value, String> {
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
        for (key, test) in [("counts", self.counts), ("veto", self.veto)] {
            if let Some((field, value)) = test {
                expects.insert(key.to_owned(), json!({ "field": field, "is": value? }));
            }
        }
        expects.insert("into".to_owned(), into.into());
        Ok(Value::Object(expects))
    }
}

impl<A> fmt::Debug for Voters<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Voters").field("named", &self.named).field("at_least", &self.at_least).finish_non_exhaustive()
    }
}

fn field_value<A, V: Serialize>(field: FieldKey<A, V>, value: impl IntoField<V>) -> FieldValue {
    (field.name(), serde_json::to_value(value.into_field()).map_err(|error| error.to_string()))
}

fn parts(named: Vec<(String, Option<SignalId>)>) -> Result<Map, String> {
    if !(1..=PARTS).contains(&named.len()) {
        let count = named.len();
        return Err(format!("it asks {count} parts, and must ask 1 to {PARTS}"));
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
