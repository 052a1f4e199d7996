//! What a fixture expects of a call.

mod invariants;
mod outcome;
mod requests;

use serde_json::Value;

use super::end::Seen;
use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;

pub(crate) use invariants::checks_invariant;
pub(super) use requests::ExpectedWire;

type Check = Box<dyn Fn(&Seen<'_>) -> Result<(), Failure> + Send + Sync>;

/// What is expected of the end of a call.
#[derive(Default)]
pub(super) struct Expected {
    checks: Vec<Check>,
    /// Names of what is told and not checked.
    pub(super) unchecked: Vec<String>,
}

impl Expected {
    pub(super) fn read(beside: &mut Directives<'_>) -> Result<Self, Failure> {
        let mut expected = Self::default();
        let Some(mut block) = beside.nested("expected")? else { return Ok(expected) };
        expected.checks.extend(outcome::read(&mut block)?);
        expected.checks.extend(requests::read(&mut block)?);
        invariants::read(&mut block, &mut expected)?;
        block.done()?;
        Ok(expected)
    }

    pub(super) fn check(&self, seen: &Seen<'_>) -> Result<(), Failure> {
        Failure::all(self.checks.iter().filter_map(|check| check(seen).err()).collect())
    }
}

/// Whether `actual` is as `expected` says; `"*"` stands for any text but an empty one.
fn fits(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(wildcard), actual) if wildcard == "*" => actual.as_str().is_some_and(|text| !text.is_empty()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| fits(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| fits(value, other)))
        }
        (expected, actual) => equal(expected, actual),
    }
}

/// A check that `actual` finds what is expected.
fn is(what: &'static str, expected: Value, actual: impl Fn(&Seen<'_>) -> Value + Send + Sync + 'static) -> Check {
    Box::new(move |seen| {
        let actual = actual(seen);
        if fits(&expected, &actual) {
            return Ok(());
        }
        Err(Failure::mismatch(format!("{what}: expected {expected}, got {actual}")))
    })
}
