//! Errors of the transport and of the provider, in the categories of the specification.

use std::time::Duration;

use dormouse_ports::model::{ModelError, ModelErrorCategory};
use dormouse_ports::{FetchError, SignError};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::wire::{ErrorAnswer, Malformed, Wire};

/// The longest excerpt of a provider's words in an error.
const EXCERPT: usize = 500;
/// The longest time until a limit is whole again that is waited for.
const LONGEST_RESET: Duration = Duration::from_secs(24 * 60 * 60);
/// What is said of money that is used up.
pub(crate) const USED_UP: &str =
    "; the account at the provider needs money, or must be allowed to spend more, before the next call";

/// What is said of a conversation that is too long.
pub(crate) const TOO_LONG: &str = "; the conversation is too long for the model: that of an agent becomes shorter with `/compact`, \
    and does so by itself in time where the model says how many tokens it takes (`metadata.context_window`)";

/// Codes of a request that is too long: of its tokens, and of its bytes, which is Anthropic's.
const OF_LENGTH: [&str; 2] = ["context_length_exceeded", "request_too_large"];

/// Codes of an account that has no money left, or has spent all that it may: OpenAI's, Moonshot's and Alibaba's.
const OF_MONEY: [&str; 4] =
    ["insufficient_quota", "billing_hard_limit_reached", "exceeded_current_quota_error", "Arrearage"];
/// The same in words of Anthropic, with the status of a request that is wrong.
const WORDS_OF_MONEY: [&str; 2] = ["credit balance is too low", "reached your specified API usage limits"];

/// The error for a request that got no answer, or not all of it.
pub(crate) fn of_fetch(error: &FetchError) -> ModelError {
    let category = match error {
        FetchError::Dns(_)
        | FetchError::Connect(_)
        | FetchError::Tls(_)
        | FetchError::Timeout(_)
        | FetchError::Closed(_) => ModelErrorCategory::Unavailable,
        FetchError::TooLarge(_) => ModelErrorCategory::InvalidResponse,
        FetchError::Denied(_) => ModelErrorCategory::InvalidRequest,
    };
    let failed = ModelError::new(category, format!("the model provider could not be asked: {error}"));
    ModelError { may_be_paid: !error.is_unsent(), ..failed }
}

pub(crate) fn of_sign(error: &SignError) -> ModelError {
    let category = match error {
        SignError::NoCredentials(_) => ModelErrorCategory::Authentication,
        SignError::Rejected(_) => ModelErrorCategory::InvalidRequest,
    };
    ModelError::new(category, error.to_string())
}

/// The error for an answer that is no answer of its wire.
pub(crate) fn of_malformed(malformed: Malformed, raw: Option<Value>) -> ModelError {
    let mut error = ModelError::new(
        ModelErrorCategory::InvalidResponse,
        format!("the provider's answer is malformed: {}", malformed.0),
    );
    error.raw = raw.map(Box::new);
    error
}

/// The error for an answer with an error status.
pub(crate) fn of_answer(
    wire: &dyn Wire,
    answer: ErrorAnswer<'_>,
    text: &str,
    retry_after: Option<Duration>,
) -> ModelError {
    let refusal = wire.refusal(answer);
    let words = refusal.message.unwrap_or_else(|| text.trim().to_owned());
    let words = if words.is_empty() { "it gave no reason".to_owned() } else { excerpt(&words) };
    let status = answer.status;
    // Some servers tell it as a failure of their own, or within a stream and without a status.
    let may_be_another =
        matches!(refusal.category, ModelErrorCategory::InvalidRequest | ModelErrorCategory::Unavailable);
    let has_code_of_length = || OF_LENGTH.iter().any(|code| has_code(answer.body, code));
    let too_long = may_be_another && (status == 413 || is_too_long(&words) || has_code_of_length());
    let is_used_up = status == 402
        || OF_MONEY.iter().any(|code| has_code(answer.body, code))
        || WORDS_OF_MONEY.iter().any(|told| words.contains(told));
    let category = if too_long {
        ModelErrorCategory::InvalidRequest
    } else if is_used_up && may_be_another {
        ModelErrorCategory::Authentication
    } else {
        refusal.category
    };
    let advice = match is_used_up {
        true => USED_UP,
        false if too_long => TOO_LONG,
        false => advice(category, status),
    };
    let mut error = ModelError::new(category, format!("the provider answered with status {status}: {words}{advice}"));
    error.status = Some(status);
    error.raw = (!answer.body.is_null()).then(|| Box::new(answer.body.clone()));
    error.retry_after = retry_after;
    error.may_be_paid = is_of_patience(status);
    // Waiting does not help, and less of the conversation does.
    error.too_long = too_long || is_over_limit(status, &words);
    if is_used_up || is_over_limit(status, &words) || is_never_served(status) {
        error.may_pass = Some(false);
    } else if ModelError::tells_of_miscall(answer.body) {
        error.may_pass = Some(true);
    }
    error
}

/// True for a provider, or a server before it, that had a model work and did not wait for the end of it: as Bedrock and routers tell
/// it, as gateways do, and Cloudflare.
fn is_of_patience(status: u16) -> bool {
    matches!(status, 408 | 504 | 524)
}

/// True for what a server cannot do at all, in a status of those that pass.
fn is_never_served(status: u16) -> bool {
    matches!(status, 501 | 505)
}

/// True if the error in `body` is called `code`.
fn has_code(body: &Value, code: &str) -> bool {
    let error = body.get("error").unwrap_or(body);
    ["code", "type"].iter().any(|name| error.get(*name).and_then(Value::as_str) == Some(code))
}

/// True for a request that has more tokens than the limit per minute allows at all, which OpenAI tells as it tells a rate.
fn is_over_limit(status: u16, words: &str) -> bool {
    status == 429 && words.starts_with("Request too large")
}

/// True if `words` complain about the length of a conversation.
fn is_too_long(words: &str) -> bool {
    const SIGNS: [&str; 16] = [
        "context length",
        "context window",
        "context size",
        "context limit",
        "prompt is too long",
        "maximum prompt length",
        "input is too long",
        "maximum number of tokens allowed",
        // Google's, of its bytes.
        "request payload size exceeds the limit",
        // Groq's, of more tokens than its limit per minute.
        "request too large for model",
        // Moonshot's, Alibaba's, Zhipu's, and that of Hugging Face.
        "model token limit",
        "range of input length",
        "prompt exceeds max length",
        "`inputs` tokens + `max_new_tokens`",
        // Those of models of Amazon.
        "input tokens exceeded",
        "too many input tokens",
    ];
    let words = words.to_ascii_lowercase();
    SIGNS.iter().any(|sign| words.contains(sign))
}

/// The beginning of `words`.
pub(crate) fn excerpt(words: &str) -> String {
    if words.chars().count() <= EXCERPT {
        return words.to_owned();
    }
    words.chars().take(EXCERPT).chain(['…']).collect()
}

/// Advice on what to do next, where the provider's own words hardly say it.
fn advice(category: ModelErrorCategory, status: u16) -> &'static str {
    match category {
        ModelErrorCategory::Authentication => "; check the key of the model and what it may do",
        ModelErrorCategory::InvalidModel => "; check the name of the model",
        ModelErrorCategory::RateLimit => "; wait before the next call, or raise the limit at the provider",
        ModelErrorCategory::InvalidRequest if matches!(status, 300..=399 | 404 | 405) => {
            "; check the base URL of the provider"
        }
        ModelErrorCategory::Unavailable
        | ModelErrorCategory::ModelNotLoaded
        | ModelErrorCategory::InvalidResponse
        | ModelErrorCategory::InvalidRequest
        | ModelErrorCategory::UnsupportedContentBlock
        | ModelErrorCategory::StructuredOutputInvalid => "",
    }
}

/// The categories that statuses have on every wire; `None` where the body decides.
pub(crate) fn by_status(status: u16) -> ModelErrorCategory {
    match status {
        401..=403 => ModelErrorCategory::Authentication,
        429 => ModelErrorCategory::RateLimit,
        // The last but one is Google's, for a request that it gave up itself.
        408 | 409 | 425 | 499 | 500.. => ModelErrorCategory::Unavailable,
        _ => ModelErrorCategory::InvalidRequest,
    }
}

/// True if `words` complain about an image: by name, or as about a block that is not supported, or whose source is not or
/// cannot be read.
pub(crate) fn is_about_images(words: &str) -> bool {
    const SIGNS: [&str; 9] =
        ["image", "media type", "mime", "multimodal", "vision", "fileuri", "file uri", "provided url", "download"];
    const KINDS: [&str; 4] = ["content block", "content part", "content type", "source"];
    // Words about something else that have one of these in them.
    const OTHERS: [&str; 3] = ["resource", "provision", "revision"];
    let words = words.to_ascii_lowercase().replace('_', " ");
    let words = OTHERS.iter().fold(words, |words, other| words.replace(other, ""));
    let has_one = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    has_one(&SIGNS) || (words.contains("support") && has_one(&KINDS))
}

/// The time in a `retry-after` header: seconds, or a date.
pub(crate) fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = rfc2822::parse(value).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(now)).unwrap_or_default())
}

/// The time in an `x-ratelimit-reset-…` header: `6m0s`, `250ms`, or seconds. What is longer than any run sleeps is no time to wait, but
/// an instant perhaps.
pub(crate) fn until_reset(value: &str) -> Option<Duration> {
    let value = value.trim();
    let told = match value.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => Duration::try_from(value.parse::<SignedDuration>().ok()?).ok()?,
    };
    (told <= LONGEST_RESET).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_wait_is_in_seconds_or_a_date() {
        let now: Timestamp = "1994-11-06T08:49:00Z".parse().expect("an instant");
        for (value, seconds) in [
            ("30", Some(30)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(37)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("-3", None),
            ("soon", None),
            ("NaN", None),
            ("1e400", None),
        ] {
            assert_eq!(retry_after(value, now).map(|wait| wait.as_secs()), seconds, "{value}");
        }
    }

    #[test]
    fn the_time_until_a_limit_is_whole_again_is_read_in_the_forms_that_servers_write() {
        for (value, millis) in [
            ("1s", Some(1_000)),
            ("6m0s", Some(360_000)),
            ("250ms", Some(250)),
            ("2m59.56s", Some(179_560)),
            ("23h59m1s", Some(86_341_000)),
            (" 12 ", Some(12_000)),
            ("0.5", Some(500)),
            ("25h", None),
            ("1767225600", None),
            ("-1s", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(until_reset(value).map(|wait| wait.as_millis()), millis, "{value}");
        }
    }
}
