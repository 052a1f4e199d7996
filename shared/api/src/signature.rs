//! Signatures of webhooks to connectors.
//!
//! | scheme | signs | headers |
//! |---|---|---|
//! | `standard_webhooks` | `id.timestamp.body` | `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,BASE64 …` |
//! | `github` | the body | `x-hub-signature-256: sha256=HEX`, `x-github-delivery` |
//! | `slack` | `v0:timestamp:body` | `x-slack-signature: v0=HEX`, `x-slack-request-timestamp` |
//! | `hmac` | the body | one header of the connector's choice, in hexadecimal digits or Base64 |
//!
//! All of them are HMAC-SHA256 over the bytes as they were sent: a body that was written anew on the way, however alike,
//! is another one. Where a timestamp is signed, one that is far from now is refused, so that no old delivery can be
//! repeated.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::Secret;
use hmac::{Hmac, Mac};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Time by which the clock of a sender may differ from ours, and for which a delivery may be under way.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// The longest id of a delivery that is looked at, in bytes.
const LONGEST_ID: usize = 256;

/// Form of the signatures of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignatureScheme {
    /// That of the specification Standard Webhooks.
    StandardWebhooks,
    /// GitHub's.
    Github,
    /// Slack's.
    Slack,
    /// HMAC-SHA256 of the body in a header.
    Hmac,
}

/// A webhook as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignedBody {
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, byte by byte.
    pub body: Vec<u8>,
}

impl SignedBody {
    /// The value of the header `name`, if it is there once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        found.next().filter(|_| found.next().is_none())
    }
}

/// Reason for which a webhook is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// A header is missing, twice there, or has another form.
    Header(&'static str),
    /// The signed instant is far from now.
    Time,
    /// No secret made the signature.
    Signature,
}

impl Distrust {
    /// Message to its sender.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Header(name) => format!("send the header {name} once, as the scheme has it"),
            Self::Time => "the signed time is more than five minutes from now".to_owned(),
            Self::Signature => "the signature is not that of the body; nothing on the way may rewrite it".to_owned(),
        }
    }
}

impl SignatureScheme {
    /// Checks `sent` at `now` by any of `secrets`, and gives the id of the delivery. `header` is that of plain HMAC.
    pub(crate) fn verify(
        self,
        sent: &SignedBody,
        secrets: &[Secret],
        header: &str,
        now: Timestamp,
    ) -> Result<String, Distrust> {
        let needed = |name: &'static str| sent.header(name).ok_or(Distrust::Header(name));
        // By an id without a character all deliveries would be one.
        let id_in = |name: &'static str| needed(name).and_then(|id| named(id).ok_or(Distrust::Header(name)));
        match self {
            Self::StandardWebhooks => {
                let (id, time) = (id_in("webhook-id")?, needed("webhook-timestamp")?);
                check_time(time, "webhook-timestamp", now)?;
                let given = needed("webhook-signature")?.split_ascii_whitespace();
                let given: Vec<Vec<u8>> =
                    given.filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok()).collect();
                let before = format!("{id}.{time}.");
                signed_by(secrets, &[before.as_bytes(), &sent.body], &given, standard_key)?;
                Ok(short(id))
            }
            Self::Github => {
                let given = needed("x-hub-signature-256")?;
                let given = given.strip_prefix("sha256=").and_then(|digits| hex::decode(digits).ok());
                let given = given.ok_or(Distrust::Header("x-hub-signature-256"))?;
                signed_by(secrets, &[&sent.body], &[given], plain_key)?;
                Ok(short(id_in("x-github-delivery")?))
            }
            Self::Slack => {
                let time = needed("x-slack-request-timestamp")?;
                check_time(time, "x-slack-request-timestamp", now)?;
                let given = needed("x-slack-signature")?;
                let digits = given.strip_prefix("v0=");
                let bytes = digits.and_then(|digits| hex::decode(digits).ok());
                let bytes = bytes.ok_or(Distrust::Header("x-slack-signature"))?;
                let before = format!("v0:{time}:");
                // Digits in other letters are the same signature: whoever repeats a delivery could choose them.
                let written = format!("v0={}", hex::encode(&bytes));
                signed_by(secrets, &[before.as_bytes(), &sent.body], &[bytes], plain_key)?;
                // Slack sends the same event again with another time: its own id is in the body.
                let body: serde_json::Value = dormouse_json::read(&sent.body, dormouse_json::ENTRY).unwrap_or_default();
                Ok(body["event_id"].as_str().and_then(named).map_or(written, short))
            }
            Self::Hmac => {
                let given = sent.header(header).ok_or(Distrust::Header("that the connector names"))?;
                let digits = given.strip_prefix("sha256=").unwrap_or(given);
                let bytes = hex::decode(digits).or_else(|_| STANDARD.decode(digits));
                let bytes = bytes.map_err(|_| Distrust::Header("that the connector names"))?;
                signed_by(secrets, &[&sent.body], &[bytes], plain_key)?;
                Ok(hex::encode(Sha256::digest(&sent.body)))
            }
        }
    }
}

/// `id`, if it says anything.
fn named(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.trim().is_empty())
}

fn short(id: &str) -> String {
    if id.len() <= LONGEST_ID { id.to_owned() } else { hex::encode(Sha256::digest(id)) }
}

fn check_time(text: &str, header: &'static str, now: Timestamp) -> Result<(), Distrust> {
    let at = text.parse::<i64>().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let at = at.ok_or(Distrust::Header(header))?;
    if now.duration_since(at).abs() <= TOLERANCE { Ok(()) } else { Err(Distrust::Time) }
}

/// Checks that one of `given` is the code of `parts` by one of `secrets`. Each comparison takes the same time.
fn signed_by(
    secrets: &[Secret],
    parts: &[&[u8]],
    given: &[Vec<u8>],
    key: impl Fn(&Secret) -> Vec<u8>,
) -> Result<(), Distrust> {
    let is_code =
        |secret: &Secret, code: &[u8]| mac(&key(secret), parts).is_some_and(|mac| mac.verify_slice(code).is_ok());
    let is_signed = secrets.iter().any(|secret| given.iter().any(|code| is_code(secret, code)));
    is_signed.then_some(()).ok_or(Distrust::Signature)
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}

fn plain_key(secret: &Secret) -> Vec<u8> {
    secret.expose().as_bytes().to_vec()
}

/// The header `webhook-signature` of Standard Webhooks for `body`, by `secret` (`whsec_` and Base64).
pub fn standard_signature(secret: &Secret, id: &str, seconds: i64, body: &[u8]) -> Option<String> {
    let before = format!("{id}.{seconds}.");
    let code = mac(&standard_key(secret), &[before.as_bytes(), body])?.finalize().into_bytes();
    Some(format!("v1,{}", STANDARD.encode(code)))
}

/// The key of Standard Webhooks: Base64 behind `whsec_`.
fn standard_key(secret: &Secret) -> Vec<u8> {
    let text = secret.expose();
    let decoded = text.strip_prefix("whsec_").and_then(|rest| STANDARD.decode(rest).ok());
    decoded.unwrap_or_else(|| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_614_265_330;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).expect("an instant")
    }

    fn sent(headers: &[(&str, &str)], body: &str) -> SignedBody {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        SignedBody { headers, body: body.as_bytes().to_vec() }
    }

    fn by(secret: &str) -> Vec<Secret> {
        vec![Secret::new("another one"), Secret::new(secret)]
    }

    /// The value of `webhook-signature` for `body`, by each of `secrets`.
    fn standard_signature(secrets: &[Secret], id: &str, seconds: i64, body: &[u8]) -> String {
        let before = format!("{id}.{seconds}.");
        let one = |secret: &Secret| {
            let code = mac(&standard_key(secret), &[before.as_bytes(), body])?.finalize().into_bytes();
            Some(format!("v1,{}", STANDARD.encode(code)))
        };
        secrets.iter().filter_map(one).collect::<Vec<_>>().join(" ")
    }

    /// The example that the documentation of GitHub gives.
    #[test]
    fn github_signs_the_body() {
        let secret = "It's a Secret to Everybody";
        let code = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = [("x-hub-signature-256", code), ("x-github-delivery", "d1")];
        let verify =
            |secret: &str, body: &str| SignatureScheme::Github.verify(&sent(&headers, body), &by(secret), "", now());
        assert_eq!(verify(secret, "Hello, World!"), Ok("d1".to_owned()));
        assert_eq!(verify(secret, "Hello, World! "), Err(Distrust::Signature));
        assert_eq!(verify("wrong", "Hello, World!"), Err(Distrust::Signature));
        for id in ["", " "] {
            let nameless = [headers[0], ("x-github-delivery", id)];
            let verified = SignatureScheme::Github.verify(&sent(&nameless, "Hello, World!"), &by(secret), "", now());
            assert_eq!(verified, Err(Distrust::Header("x-github-delivery")));
        }
        let twice = [headers[0], headers[0], headers[1]];
        let verified = SignatureScheme::Github.verify(&sent(&twice, "Hello, World!"), &by(secret), "", now());
        assert_eq!(verified, Err(Distrust::Header("x-hub-signature-256")));
    }

    /// The example that the specification of Standard Webhooks gives.
    #[test]
    fn standard_webhooks_sign_id_time_and_body() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = r#"{"test": 2432232314}"#;
        let code = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        assert_eq!(standard_signature(&[Secret::new(secret)], id, 1_614_265_330, body.as_bytes()), code);
        let time = NOW.to_string();
        let verify = |id: &str, time: &str, code: &str, body: &str| {
            let headers = [("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", code)];
            SignatureScheme::StandardWebhooks.verify(&sent(&headers, body), &by(secret), "", now())
        };
        assert_eq!(verify(id, &time, &format!("v1,AAAA v1a,x {code}"), body), Ok(id.to_owned()));
        for (id, time, code, body) in [
            ("msg_other", time.as_str(), code, body),
            (id, "1614265331", code, body),
            (id, &time, "v1,AAAA", body),
            (id, &time, &code[3..], body),
            (id, &time, "", body),
            (id, &time, code, r#"{"test":2432232314}"#),
        ] {
            assert_eq!(verify(id, time, code, body), Err(Distrust::Signature), "{id} {time} {code} {body}");
        }
        let nameless = standard_signature(&[Secret::new(secret)], "", NOW, body.as_bytes());
        assert_eq!(verify("", &time, &nameless, body), Err(Distrust::Header("webhook-id")));
        for time in ["1614265029", "1614265631"] {
            assert_eq!(verify(id, time, code, body), Err(Distrust::Time), "{time}");
        }
        for time in ["", "soon", "1e9"] {
            assert_eq!(verify(id, time, code, body), Err(Distrust::Header("webhook-timestamp")), "{time}");
        }
    }

    #[test]
    fn slack_signs_time_and_body_and_names_its_event_there() {
        let body = r#"{"type":"event_callback","event_id":"Ev1"}"#;
        let time = NOW.to_string();
        let key = Secret::new("8f742231b10e8888abcd99yyyzzz85a5");
        let code = mac(&plain_key(&key), &[format!("v0:{time}:{body}").as_bytes()]).expect("a code");
        let code = format!("v0={}", hex::encode(code.finalize().into_bytes()));
        let verify = |time: &str, body: &str| {
            let headers = [("x-slack-signature", code.as_str()), ("x-slack-request-timestamp", time)];
            SignatureScheme::Slack.verify(&sent(&headers, body), std::slice::from_ref(&key), "", now())
        };
        assert_eq!(verify(&time, body), Ok("Ev1".to_owned()));
        assert_eq!(verify("1614265000", body), Err(Distrust::Time));
        assert_eq!(verify(&time, &body.replace("Ev1", "Ev2")), Err(Distrust::Signature));
    }

    #[test]
    fn a_delivery_of_slack_without_an_event_is_known_again_however_its_signature_is_written() {
        let (body, time) = ("{}", NOW.to_string());
        let key = Secret::new("8f742231b10e8888abcd99yyyzzz85a5");
        let code = mac(&plain_key(&key), &[format!("v0:{time}:{body}").as_bytes()]).expect("a code");
        let digits = hex::encode(code.finalize().into_bytes());
        let id = format!("v0={digits}");
        for written in [&digits, &digits.to_uppercase()] {
            let code = format!("v0={written}");
            let headers = [("x-slack-signature", code.as_str()), ("x-slack-request-timestamp", time.as_str())];
            let verified = SignatureScheme::Slack.verify(&sent(&headers, body), std::slice::from_ref(&key), "", now());
            assert_eq!(verified.as_ref(), Ok(&id));
        }
    }

    #[test]
    fn plain_codes_are_hexadecimal_or_base64() {
        let secret = "It's a Secret to Everybody";
        let digits = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let base64 = STANDARD.encode(hex::decode(digits).expect("digits"));
        for code in [digits.to_owned(), format!("sha256={digits}"), base64] {
            let body = sent(&[("x-sig", &code)], "Hello, World!");
            assert!(SignatureScheme::Hmac.verify(&body, &by(secret), "x-sig", now()).is_ok(), "{code}");
            assert!(SignatureScheme::Hmac.verify(&body, &by(secret), "x-other", now()).is_err());
        }
    }
}
