//! Assertions over a turn of the harness.

use std::time::Duration;

use dormouse_engine::Identity;
use serde_json::Value;

use super::error::category_is;
use super::outcome::contains;
use super::{Check, Plain, differs, invocation, outcome, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::End;
use crate::turns::TurnEvidence;

/// A turn that takes longer has waited for something.
const NO_WAIT: Duration = Duration::from_secs(5);

/// The assertion of that name; what can be said of an invocation can be said of a turn.
pub(crate) fn find(key: &str) -> Option<Check<TurnEvidence>> {
    let check: Plain<TurnEvidence> = match key {
        "dispatch_path" => path,
        "invoke_args" => arguments,
        "invoke_outcome" => |expected, seen| outcome::kind(expected, &seen.base),
        "error_category" => category,
        "error_bucket" => bucket,
        "outbound_shape" => |expected, seen| same(expected, &seen.outbound.shape.as_str().into(), &seen.base),
        "outbound_payload_includes" => payload,
        "descriptor_read_from_outcome" => {
            |expected, seen| holds(expected, matches!(seen.base.end, End::Suspended { .. }), "a descriptor")
        }
        "signal_subscription_registered" | "harness_signal_subscription_registered" => {
            |expected, seen| holds(expected, seen.is_subscribed, "a registered subscription")
        }
        "harness_did_not_block" => |expected, seen| holds(expected, seen.elapsed < NO_WAIT, "an answer at once"),
        "harness_auto_retried" => |expected, seen| holds(expected, was_retried(seen), "a second attempt"),
        "signal_correlation_resolved" => |expected, seen| holds(expected, seen.claim.is_some(), "a claimed invocation"),
        "resolved_to_invocation_id" => |expected, seen| same(expected, &claimed_id(seen), &seen.base),
        _ => {
            let check = invocation(key)?;
            return Some(Box::new(move |expected, seen| check(expected, &seen.base)));
        }
    };
    Some(Box::new(check))
}

fn holds(expected: &Value, is_so: bool, what: &str) -> Result<(), Failure> {
    if expected.as_bool() == Some(is_so) { Ok(()) } else { Err(differs(format!("{what}: {expected}"), is_so)) }
}

fn path(expected: &Value, seen: &TurnEvidence) -> Result<(), Failure> {
    same(expected, &seen.path.map_or(Value::Null, |path| path.as_str().into()), &seen.base)
}

fn category(expected: &Value, seen: &TurnEvidence) -> Result<(), Failure> {
    match seen.base.end.error() {
        Some(error) => category_is(expected.as_str().unwrap_or_default(), error),
        None => Err(differs(expected, seen.base.end.tell())),
    }
}

fn bucket(expected: &Value, seen: &TurnEvidence) -> Result<(), Failure> {
    same(expected, &seen.bucket.map_or(Value::Null, |bucket| bucket.as_str().into()), &seen.base)
}

fn payload(expected: &Value, seen: &TurnEvidence) -> Result<(), Failure> {
    match expected.as_object() {
        Some(some) => contains(some, &seen.outbound.payload, &seen.base),
        None => Err(Failure::invalid("outbound_payload_includes must be a mapping")),
    }
}

fn was_retried(seen: &TurnEvidence) -> bool {
    let mut entered = seen.base.ran(false).map(|ran| &ran.node);
    let again = entered.next().is_some_and(|first| entered.any(|node| node == first));
    again || seen.base.calls.session_loads > 1
}

fn claimed_id(seen: &TurnEvidence) -> Value {
    seen.claim.as_ref().map_or(Value::Null, |claim| claim.invocation_id.as_str().into())
}

/// What the engine was called with, as the session store, the claim and the nodes saw it.
fn arguments(expected: &Value, seen: &TurnEvidence) -> Result<(), Failure> {
    let mut expected = Directives::new("invoke_args", expected)?;
    let used = seen.used_session.as_ref();
    let given = seen.given_session.as_ref();
    let facts = [
        ("session_id_present", used.is_some()),
        ("session_id_auto_generated", used.is_some() && given.is_none()),
        ("session_id_caller_supplied", used.is_some() && used == given),
        ("session_id_absent_verified", used.is_none() && node_session(seen).is_none()),
    ];
    for (key, is_so) in facts {
        if let Some(wanted) = expected.given(key) {
            holds(wanted, is_so, key)?;
        }
    }
    let session_id = used.map_or(Value::Null, |id| id.as_str().into());
    let signal_payload = seen.claim.as_ref().and_then(|claim| claim.payload.clone()).map_or(Value::Null, Value::Object);
    let given_state = Value::Object(seen.given_state.clone());
    for (key, actual) in [
        ("session_id", session_id),
        ("resume_invocation", claimed_id(seen)),
        ("signal_payload", signal_payload),
        ("initial_state", given_state),
    ] {
        if let Some(wanted) = expected.get(key) {
            same(wanted, &actual, &seen.base).map_err(|failure| failure.within(key))?;
        }
    }
    expected.done()
}

fn node_session(seen: &TurnEvidence) -> Option<String> {
    let identity: Option<&Identity> = seen.base.pages.identity.as_deref();
    identity.and_then(|identity| identity.session_id.as_ref()).map(ToString::to_string)
}
