use serde_json::Value;

use super::{Expected, is};
use crate::Failure;
use crate::directives::Directives;
use crate::models::end::{End, Seen};

/// Whether the invariant of that name is checked. Those beyond are private to their fixture, and follow from what it
/// asserts beside them.
pub(crate) fn checks_invariant(name: &str) -> bool {
    invariant(name).is_some()
}

pub(super) fn read(block: &mut Directives<'_>, expected: &mut Expected) -> Result<(), Failure> {
    let Some(invariants) = block.mapping("invariants")? else { return Ok(()) };
    for (name, value) in invariants {
        match invariant(name) {
            Some(holds) => expected.checks.push(is("invariant", value.clone(), move |seen| holds(seen).into())),
            None => expected.unchecked.push(name.clone()),
        }
    }
    Ok(())
}

fn invariant(name: &str) -> Option<fn(&Seen<'_>) -> bool> {
    Some(match name {
        "no_request_issued" | "no_silent_atomic_fallback" => |seen| seen.requests.is_empty(),
        "no_token_events_on_rejected_stream" => |seen| seen.tokens == 0,
        "caller_messages_unmutated" | "caller_config_unmutated" => |seen| seen.is_unmodified,
        "n_attempts_emit_n_llm_spans" => |seen| seen.attempts.len() == seen.requests.len(),
        "exactly_one_attempt_issued"
        | "non_transient_exits_retry_loop_on_first_occurrence"
        | "exactly_one_attempt_span_for_non_transient" => |seen| seen.requests.len() == 1 && seen.attempts.len() == 1,
        "no_backoff_sleep_invoked" => |seen| seen.waits == 0,
        "second_mock_response_never_consumed" => |seen| seen.left == 1,
        "terminal_chunk_usage_preserved_verbatim_on_raw"
        | "raw_usage_prompt_tokens_verbatim_malformed"
        | "raw_usage_all_counters_verbatim_malformed" => |seen| has_malformed_counter(seen),
        "no_error_raised_on_malformed_extras" => |seen| matches!(seen.end, End::Answered(_)),
        "wire_carries_no_stream_key" => |seen| seen.bodies.iter().all(|body| body.get("stream").is_none()),
        "streamed_request_sends_stream_true_and_include_usage" => |seen| {
            seen.bodies.iter().all(|body| body["stream"] == true && body["stream_options"]["include_usage"] == true)
        },
        _ => return None,
    })
}

/// Whether `raw` still has a counter that is none.
fn has_malformed_counter(seen: &Seen<'_>) -> bool {
    let End::Answered(response) = &seen.end else { return false };
    let usage = response.raw.get("usage").and_then(Value::as_object);
    usage.is_some_and(|usage| usage.values().any(|counter| counter.as_u64().is_none()))
}
