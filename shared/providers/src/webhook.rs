//! Webhooks of a provider, signed as Standard Webhooks says: for completions that end while nobody waits.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::Secret;
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use serde::Deserialize;
use sha2::Sha256;

/// How far its clock may be from ours.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Headers that a signed delivery carries.
#[derive(Clone, Copy, Debug)]
pub struct WebhookHeaders<'a> {
    /// `webhook-id`: the same for every delivery of one event.
    pub id: &'a str,
    /// `webhook-timestamp`: seconds since 1970.
    pub timestamp: &'a str,
    /// `webhook-signature`: signatures with a space between them.
    pub signature: &'a str,
}

/// What a delivery tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookEvent {
    /// The same for every delivery of the event.
    pub id: String,
    /// Such as `response.completed`.
    pub kind: String,
    /// The job that it is about.
    pub job: String,
}

/// Reason for which a delivery is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The secret has not the form that the provider gives out.
    #[error("the secret of the webhook is no `whsec_…` text; take it over as the provider shows it")]
    Secret,
    /// No signature is right.
    #[error("the signature of the webhook is wrong; check that the secret is that of this endpoint")]
    Signature,
    /// It is from another time: a delivery that somebody repeats, or a clock that is wrong.
    #[error("the webhook was signed more than {} minutes from now", TOLERANCE.as_secs() / 60)]
    Time,
    /// It is signed and makes no sense.
    #[error("the body of the webhook cannot be read: {0}")]
    Body(String),
}

#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "type")]
    kind: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    id: String,
}

/// The event in `body`, if its signature is right and fresh.
///
/// # Errors
/// [`WebhookError`]; then nothing of the body has been read.
pub fn verify(
    secret: &Secret,
    headers: WebhookHeaders<'_>,
    body: &[u8],
    now: Timestamp,
) -> Result<WebhookEvent, WebhookError> {
    let signed = headers.timestamp.parse::<i64>().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let signed = signed.ok_or(WebhookError::Time)?;
    if signed.duration_since(now).unsigned_abs() > TOLERANCE {
        return Err(WebhookError::Time);
    }
    let expected = mac(secret, headers, body)?;
    let offered = headers.signature.split_whitespace().filter_map(|one| one.strip_prefix("v1,"));
    let mut decoded = offered.filter_map(|one| STANDARD.decode(one).ok());
    if !decoded.any(|one| expected.clone().verify_slice(&one).is_ok()) {
        return Err(WebhookError::Signature);
    }
    let payload: Payload =
        dormouse_json::read(body, dormouse_json::ENTRY).map_err(|error| WebhookError::Body(error.to_string()))?;
    Ok(WebhookEvent { id: headers.id.to_owned(), kind: payload.kind, job: payload.data.id })
}

fn mac(secret: &Secret, headers: WebhookHeaders<'_>, body: &[u8]) -> Result<Hmac<Sha256>, WebhookError> {
    let encoded = secret.expose().strip_prefix("whsec_").ok_or(WebhookError::Secret)?;
    let key = STANDARD.decode(encoded).map_err(|_| WebhookError::Secret)?;
    let mut mac = Hmac::new_from_slice(&key).map_err(|_| WebhookError::Secret)?;
    mac.update(format!("{}.{}.", headers.id, headers.timestamp).as_bytes());
    mac.update(body);
    Ok(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"object":"event","id":"evt_1","type":"response.completed","data":{"id":"resp_1"}}"#;

    fn secret() -> Secret {
        Secret::new(format!("whsec_{}", STANDARD.encode("a key of some length")))
    }

    fn headers(signature: &str) -> WebhookHeaders<'_> {
        WebhookHeaders { id: "wh_1", timestamp: "1000000000", signature }
    }

    fn signature() -> String {
        let mac = mac(&secret(), headers(""), BODY).expect("a key").finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(mac))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("an instant")
    }

    #[test]
    fn a_signed_delivery_is_believed_and_told() {
        let signatures = format!("v1,AAAA v2,BBBB {}", signature());
        let event = verify(&secret(), headers(&signatures), BODY, at(1_000_000_299)).expect("an event");
        let told = WebhookEvent { id: "wh_1".into(), kind: "response.completed".into(), job: "resp_1".into() };
        assert_eq!(event, told);
    }

    /// The example of the specification of Standard Webhooks.
    #[test]
    fn the_signature_is_that_of_the_standard() {
        let secret = Secret::new("whsec_plJ3nmyCDGBKInavdOK15jsl");
        let headers = WebhookHeaders {
            id: "msg_loFOjxBNrRLzqYUf",
            timestamp: "1731705121",
            signature: "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        };
        let body = br#"{"event_type":"ping","data":{"success":true}}"#;
        let refused = verify(&secret, headers, body, at(1_731_705_121)).expect_err("it is no event of a response");
        assert!(matches!(refused, WebhookError::Body(_)), "{refused}");
    }

    #[test]
    fn everything_else_is_refused() {
        let right = signature();
        let now = at(1_000_000_000);
        let refused = |secret: &Secret, headers, body, now| verify(secret, headers, body, now).expect_err("refused");
        assert_eq!(refused(&secret(), headers("v1,AAAA"), BODY, now), WebhookError::Signature);
        assert_eq!(refused(&secret(), headers(&right), b"{}", now), WebhookError::Signature);
        let other_id = WebhookHeaders { id: "wh_2", ..headers(&right) };
        assert_eq!(refused(&secret(), other_id, BODY, now), WebhookError::Signature);
        assert_eq!(refused(&Secret::new("whsec_AAAA"), headers(&right), BODY, now), WebhookError::Signature);
        assert_eq!(refused(&Secret::new("AAAA"), headers(&right), BODY, now), WebhookError::Secret);
        for later in [1_000_000_301, 999_999_699] {
            assert_eq!(refused(&secret(), headers(&right), BODY, at(later)), WebhookError::Time);
        }
        let no_time = WebhookHeaders { timestamp: "today", ..headers(&right) };
        assert_eq!(refused(&secret(), no_time, BODY, now), WebhookError::Time);
    }
}
