//! Reading requests: version header, query, body, idempotency key.
//!
//! Strict where the contract is (types, required fields, no null where it has none) and lenient where it is (unknown
//! fields are ignored). Every refusal names the field or parameter that is wrong.

mod body;
mod check;
mod idempotency;
mod query;

use serde::{Deserialize, Deserializer, de};
use serde_json::Number;

pub use body::{Body, MAX_BODY_BYTES, MAX_FILE_BODY_BYTES, MAX_FILE_BYTES, nearest, one_of, read_message};
pub use check::{MAX_INITIAL_MESSAGES, OperationBody};
pub use idempotency::{IdempotencyKey, IdempotencyScope};
pub use query::{DEFAULT_LIMIT, Filters, ListQuery, MAX_LIMIT, Query, RangeQuery, resume_after};

use crate::{PROTOCOL_VERSION, ProtocolError};

/// The header that every request to a route that is not public carries.
pub const VERSION_HEADER: &str = "Harn-Agents-Protocol-Version";

/// The header that makes a write safe to repeat.
pub const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";

/// The header in which a client that lost its stream names the last event that it received.
pub const LAST_EVENT_ID_HEADER: &str = "Last-Event-ID";

/// Refuses a version that is not spoken here, and a request without one.
///
/// # Errors
/// `unsupported_protocol_version` (426), with the versions that are.
pub fn check_version(header: Option<&str>) -> Result<(), ProtocolError> {
    if header.map(str::trim) == Some(PROTOCOL_VERSION) { Ok(()) } else { Err(ProtocolError::unsupported_version()) }
}

/// Reads a count. JSON Schema calls 2.0 an integer too; what is too large for us is as good as the largest.
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Number::deserialize(deserializer)?;
    let whole = number.as_f64().filter(|value| value.fract() == 0.0 && *value >= 0.0);
    // The cast saturates.
    number
        .as_u64()
        .or_else(|| whole.map(|value| value as u64))
        .ok_or_else(|| de::Error::invalid_type(de::Unexpected::Other("another number"), &"a count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_is_spoken() {
        check_version(Some(PROTOCOL_VERSION)).expect("the version");
        for wrong in [None, Some(""), Some("agents-protocol-2025-01-01")] {
            let refusal = check_version(wrong).expect_err("another version");
            assert_eq!(refusal.status(), 426);
            assert_eq!(refusal.param(), Some(VERSION_HEADER));
        }
    }
}
