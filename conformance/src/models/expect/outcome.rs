use dormouse_ports::Map;
use dormouse_ports::model::{ModelError, Response, Usage};
use serde_json::{Value, json};

use super::{Check, is};
use crate::Failure;
use crate::directives::Directives;
use crate::matching::equal;
use crate::models::end::{End, Seen};

/// What the call returns or raises.
pub(super) fn read(block: &mut Directives<'_>) -> Result<Vec<Check>, Failure> {
    let mut checks: Vec<Check> = Vec::new();
    if let Some(success) = block.flag("success")? {
        checks.push(is("success", success.into(), |seen| matches!(seen.end, End::Ready).into()));
    }
    if let Some(mut response) = block.nested("response")? {
        response_checks(&mut response, &mut checks)?;
        response.done()?;
    }
    if let Some(mut raises) = block.nested("raises")? {
        error_checks(&mut raises, &mut checks)?;
        raises.done()?;
    }
    Ok(checks)
}

/// A check of the response; the call must have one.
fn answered(what: &'static str, check: impl Fn(&Response) -> Result<(), Value> + Send + Sync + 'static) -> Check {
    Box::new(move |seen| match &seen.end {
        End::Answered(response) => check(response).map_err(|got| Failure::mismatch(format!("{what}: got {got}"))),
        End::Failed(error) => Err(Failure::mismatch(format!("expected a response, raised {error}"))),
        End::Ready => Err(Failure::mismatch("expected a response, but nothing was asked")),
    })
}

fn response_checks(response: &mut Directives<'_>, checks: &mut Vec<Check>) -> Result<(), Failure> {
    checks.push(answered("response", |_| Ok(())));
    checks.push(Box::new(raw_is_verbatim));
    for name in ["finish_reason", "parsed"] {
        if let Some(expected) = response.get(name).cloned() {
            checks.push(answered(name, move |response| {
                let actual = serde_json::to_value(response).unwrap_or_default();
                same(&expected, actual.get(name).unwrap_or(&Value::Null))
            }));
        }
    }
    if let Some(usage) = response.mapping("usage")?.cloned() {
        checks.push(answered("usage", move |response| usage_is(&usage, &response.usage)));
    }
    if let Some(mut message) = response.nested("message")? {
        message_checks(&mut message, checks)?;
        message.done()?;
    }
    if let Some(mut raw) = response.nested("raw_check")? {
        for key in raw.texts("required_keys")?.unwrap_or_default() {
            checks.push(answered("raw", move |response| match response.raw.get(&key) {
                Some(_) => Ok(()),
                None => Err(json!(format!("no `{key}`"))),
            }));
        }
        raw.done()?;
    }
    Ok(())
}

/// What the provider sent in one piece comes back as it came (§6).
fn raw_is_verbatim(seen: &Seen<'_>) -> Result<(), Failure> {
    match (&seen.end, seen.answered) {
        (End::Answered(response), Some(body)) if !equal(body, &response.raw) => {
            Err(Failure::mismatch(format!("raw: got {}", response.raw)))
        }
        _ => Ok(()),
    }
}

fn message_checks(message: &mut Directives<'_>, checks: &mut Vec<Check>) -> Result<(), Failure> {
    for name in ["role", "content", "tool_calls"] {
        let Some(expected) = message.get(name).cloned() else { continue };
        checks.push(answered(name, move |response| {
            let form = serde_json::to_value(response).unwrap_or_default();
            let actual = &form["message"][name];
            // No content is none, in whichever way it is written.
            let is_none = |value: &Value| value.is_null() || value == "";
            if is_none(&expected) && is_none(actual) { Ok(()) } else { same(&expected, actual) }
        }));
    }
    Ok(())
}

fn same(expected: &Value, actual: &Value) -> Result<(), Value> {
    if equal(expected, actual) { Ok(()) } else { Err(actual.clone()) }
}

/// Each counter that is named must be as it is said; one that is not reported is null.
fn usage_is(expected: &Map, actual: &Usage) -> Result<(), Value> {
    let form = json!({
        "prompt_tokens": actual.prompt_tokens,
        "completion_tokens": actual.completion_tokens,
        "total_tokens": actual.total_tokens,
        "cached_tokens": actual.cached_tokens,
        "cache_creation_tokens": actual.cache_creation_tokens,
    });
    let holds = expected.iter().all(|(name, value)| form.get(name).is_some_and(|counter| equal(value, counter)));
    if holds { Ok(()) } else { Err(form) }
}

/// A check of the error; the call must have raised one.
fn raised(what: &'static str, check: impl Fn(&ModelError) -> Result<(), Value> + Send + Sync + 'static) -> Check {
    Box::new(move |seen| match &seen.end {
        End::Failed(error) => check(error).map_err(|got| Failure::mismatch(format!("{what}: got {got}"))),
        End::Answered(_) | End::Ready => {
            Err(Failure::mismatch(format!("expected an error ({what}), but it succeeded")))
        }
    })
}

fn error_checks(raises: &mut Directives<'_>, checks: &mut Vec<Check>) -> Result<(), Failure> {
    let category = raises.required_text("category")?.to_owned();
    checks.push(raised("category", move |error| {
        if error.category.category().as_str() == category { Ok(()) } else { Err(json!(error.to_string())) }
    }));
    if let Some(words) = raises.text("message")?.map(str::to_owned) {
        checks.push(raised("message", move |error| contains(&error.message, &words)));
    }
    if let Some(seconds) = raises.number("retry_after_seconds")? {
        checks.push(raised("retry_after", move |error| {
            same(&seconds.into(), &error.retry_after.map_or(Value::Null, |wait| wait.as_secs_f64().into()))
        }));
    }
    if let Some(mut carries) = raises.nested("carries")? {
        structured_checks(&mut carries, checks)?;
        carries.done()?;
    }
    if let Some(calls) = raises.get("rejected_tool_calls").cloned() {
        checks.push(raised("rejected", move |error| {
            let calls_of = |response: &Response| serde_json::to_value(&response.message.tool_calls).unwrap_or_default();
            same(&calls, &error.rejected.as_deref().map_or(Value::Null, calls_of))
        }));
    }
    Ok(())
}

fn contains(text: &str, words: &str) -> Result<(), Value> {
    if text.contains(words) { Ok(()) } else { Err(json!(text)) }
}

fn structured_checks(carries: &mut Directives<'_>, checks: &mut Vec<Check>) -> Result<(), Failure> {
    let form = |error: &ModelError| match error.structured.as_deref() {
        None => Value::Null,
        Some(failure) => json!({
            "output_content": failure.output_content,
            "finish_reason": failure.finish_reason,
            "response_schema_present": failure.response_schema.is_object(),
            "error_message_present": !failure.error_message.is_empty(),
        }),
    };
    for name in ["output_content", "finish_reason", "response_schema_present", "error_message_present"] {
        if let Some(expected) = carries.get(name).cloned() {
            checks.push(raised(name, move |error| same(&expected, &form(error)[name])));
        }
    }
    if let Some(words) = carries.text("error_message_mentions")?.map(str::to_owned) {
        checks.push(raised("error_message", move |error| {
            contains(error.structured.as_ref().map_or("", |failure| failure.error_message.as_str()), &words)
        }));
    }
    if let Some(usage) = carries.mapping("usage")?.cloned() {
        checks.push(raised("usage", move |error| match &error.structured {
            Some(failure) => usage_is(&usage, &failure.usage),
            None => Err(Value::Null),
        }));
    }
    Ok(())
}
