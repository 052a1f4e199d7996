//! Assertions over measurements (observability §11.5).

use serde_json::Value;

use super::{Plain, differs, items, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;
use crate::telemetry::Measured;

const TOKENS: &str = "openarmature.gen_ai.client.token.usage";
const DURATION: &str = "openarmature.gen_ai.client.operation.duration";
const UTILIZATION: &str = "openarmature.gen_ai.client.token_budget.utilization";
const EXCEEDED: &str = "openarmature.gen_ai.client.token_budget.exceeded";
const BUDGET_KIND: &str = "openarmature.gen_ai.token_budget.kind";
const TOKEN_TYPE: &str = "openarmature.gen_ai.token.type";

/// `metrics`: every observation, in any order. What has no `value` is only there. A list of uses of budgets alone says nothing
/// of the tokens and the time that each call has besides.
pub(super) fn all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let named: Vec<&str> = items(expected)?.iter().filter_map(|one| one.get("instrument")?.as_str()).collect();
    let is_of_budgets = !named.is_empty() && named.iter().all(|name| [UTILIZATION, EXCEEDED].contains(name));
    let is_meant = |measured: &&Measured| !is_of_budgets || ![TOKENS, DURATION].contains(&measured.instrument.as_str());
    let mut left: Vec<&Measured> = seen.captured.measured.iter().filter(is_meant).collect();
    for (at, expected) in items(expected)?.iter().enumerate() {
        let mut expected = Directives::new(format!("metrics[{at}]"), expected)?;
        let instrument = expected.required_text("instrument")?;
        let dimensions = Value::Object(expected.mapping("dimensions")?.cloned().unwrap_or_default());
        let value = expected.number("value")?;
        expected.done()?;
        let fits = |measured: &&Measured| {
            measured.instrument == instrument
                && measured.count == 1
                && value.is_none_or(|value| (value - measured.sum).abs() < f64::EPSILON)
                && same(&dimensions, &Value::Object(measured.dimensions.clone()), seen).is_ok()
        };
        let found = left.iter().position(fits);
        let found = found.ok_or_else(|| differs(format!("`{instrument}` {value:?} {dimensions}"), tell(&left)))?;
        left.remove(found);
    }
    if left.is_empty() { Ok(()) } else { Err(differs("nothing else", tell(&left))) }
}

/// The predicate over measurements of that name.
pub(super) fn invariant(name: &str) -> Option<Plain<Evidence>> {
    Some(match name {
        "two_token_usage_observations_input_and_output" => {
            |wanted, seen| is(wanted, (tokens(seen, "input"), tokens(seen, "output")) == (1, 1), seen)
        }
        "no_input_token_usage_observation_when_prompt_tokens_null" => {
            |wanted, seen| is(wanted, tokens(seen, "input") == 0, seen)
        }
        "output_token_usage_observation_recorded_when_completion_sound" => {
            |wanted, seen| is(wanted, tokens(seen, "output") == 1, seen)
        }
        "no_token_budget_exceeded_observation_when_under_budget" => {
            |wanted, seen| is(wanted, observations(seen, EXCEEDED, |_| true) == 0, seen)
        }
        "utilization_records_under_budget" | "total_bound_evaluated_when_total_tokens_sound" => {
            |wanted, seen| is(wanted, observations(seen, UTILIZATION, |_| true) == 1, seen)
        }
        "input_bound_not_evaluated_when_prompt_tokens_null"
        | "no_input_kind_budget_observation_when_prompt_tokens_null"
        | "no_token_budget_instrument_observation_for_unevaluable_input_bound" => {
            |wanted, seen| is(wanted, budgets(seen, "input") == 0, seen)
        }
        "one_duration_observation_per_call" => {
            |wanted, seen| is(wanted, observations(seen, DURATION, |_| true) == 1, seen)
        }
        _ => return None,
    })
}

fn is(wanted: &Value, actual: bool, seen: &Evidence) -> Result<(), Failure> {
    same(wanted, &actual.into(), seen)
}

fn tokens(seen: &Evidence, kind: &str) -> u64 {
    observations(seen, TOKENS, |measured| is_of(measured, TOKEN_TYPE, kind))
}

/// Observations of a bound of a budget.
fn budgets(seen: &Evidence, kind: &str) -> u64 {
    let is_meant = |measured: &Measured| is_of(measured, BUDGET_KIND, kind);
    observations(seen, UTILIZATION, is_meant) + observations(seen, EXCEEDED, is_meant)
}

fn is_of(measured: &Measured, dimension: &str, kind: &str) -> bool {
    measured.dimensions.get(dimension).and_then(Value::as_str) == Some(kind)
}

fn observations(seen: &Evidence, instrument: &str, is_meant: impl Fn(&Measured) -> bool) -> u64 {
    let meant =
        seen.captured.measured.iter().filter(|measured| measured.instrument == instrument && is_meant(measured));
    meant.map(|measured| measured.count).sum()
}

fn tell(left: &[&Measured]) -> String {
    format!("{left:?}")
}
