//! Reading the attributes of an item.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::StoreError;
use jiff::Timestamp;

/// An item as the SDK gives it. Only ever looked up by name: its order never reaches a caller.
pub(super) type Item = HashMap<String, AttributeValue>;

pub(super) fn text_value(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(super) fn number_value(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// An instant to the nanosecond, in the type that compares as time does.
pub(super) fn time_value(at: Timestamp) -> AttributeValue {
    AttributeValue::N(at.as_nanosecond().to_string())
}

/// The epoch second at which DynamoDB may remove an item.
pub(super) fn ttl_value(at: Timestamp) -> AttributeValue {
    AttributeValue::N(at.as_second().to_string())
}

pub(super) fn text<'a>(item: &'a Item, name: &str) -> Result<&'a str, StoreError> {
    optional_text(item, name).ok_or_else(|| unreadable(name))
}

pub(super) fn optional_text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

pub(super) fn number(item: &Item, name: &str) -> Result<u64, StoreError> {
    optional_number(item, name)?.ok_or_else(|| unreadable(name))
}

pub(super) fn optional_number(item: &Item, name: &str) -> Result<Option<u64>, StoreError> {
    let Some(value) = item.get(name) else { return Ok(None) };
    let parsed = value.as_n().ok().and_then(|digits| digits.parse().ok());
    parsed.map(Some).ok_or_else(|| unreadable(name))
}

/// The count in the attribute `name`; 0 where none was stored, or a negative one.
pub(super) fn count(item: &Item, name: &str) -> Result<u32, StoreError> {
    let Some(value) = item.get(name) else { return Ok(0) };
    let parsed: Option<i64> = value.as_n().ok().and_then(|digits| digits.parse().ok());
    parsed.map(|count| u32::try_from(count.max(0)).unwrap_or(u32::MAX)).ok_or_else(|| unreadable(name))
}

pub(super) fn time(item: &Item, name: &str) -> Result<Timestamp, StoreError> {
    optional_time(item, name)?.ok_or_else(|| unreadable(name))
}

pub(super) fn optional_time(item: &Item, name: &str) -> Result<Option<Timestamp>, StoreError> {
    let Some(value) = item.get(name) else { return Ok(None) };
    let nanoseconds = value.as_n().ok().and_then(|digits| digits.parse().ok());
    let at = nanoseconds.and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds).ok());
    at.map(Some).ok_or_else(|| unreadable(name))
}

fn unreadable(name: &str) -> StoreError {
    StoreError::Corrupt(format!("attribute {name} is missing or of another type"))
}
