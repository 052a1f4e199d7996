use aws_sdk_dynamodb::config::Credentials;
use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
use jiff::Timestamp;

use super::*;
use crate::Endpoints;

const KEY: &str = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

/// A key of another region than that of the caller.
fn key(endpoint: Option<&str>) -> (KmsKey, ScriptedFetch) {
    let fetch = ScriptedFetch::default();
    let access = AwsAccess {
        region: "eu-central-1".to_owned(),
        credentials: Credentials::new("AKIDEXAMPLE", "hush-hush", None, None, "test"),
        endpoints: Endpoints { kms: endpoint.map(str::to_owned), ..Endpoints::default() },
    };
    (KmsKey::new(&access, KEY, Arc::new(fetch.clone()), Arc::new(Impatient)), fetch)
}

/// A clock that stands still, and on which every sleep is over at once.
#[derive(Debug)]
struct Impatient;

#[async_trait]
impl Clock for Impatient {
    fn now(&self) -> Timestamp {
        "2027-01-15T08:00:00Z".parse().expect("an instant")
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {}
}

fn refusal(status: u16, code: &str) -> ScriptedAnswer {
    ScriptedAnswer::json(status, &json!({ "__type": code, "message": "so it is" }))
}

#[tokio::test]
async fn a_message_is_signed_as_it_is() {
    let (key, fetch) = key(None);
    fetch.answer(ScriptedAnswer::json(200, &json!({ "KeyId": KEY, "Signature": STANDARD.encode([7; 64]) })));
    let signer = KmsSigner::new(key, "key_1");
    let signature = signer.sign(b"sha256:00").await.expect("a signature");
    assert_eq!((signature, signer.key_id()), (format!("base64:{}", STANDARD.encode([7; 64])), "key_1"));
    let request = &fetch.requests()[0];
    assert_eq!(request.url, "https://kms.eu-west-1.amazonaws.com/");
    let header = |name: &str| {
        let found = request.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.expose().to_owned()).unwrap_or_default()
    };
    assert_eq!(header("x-amz-target"), "TrentService.Sign");
    assert_eq!(header("content-type"), "application/x-amz-json-1.1");
    assert!(header("authorization").contains("/eu-west-1/kms/aws4_request"), "{}", header("authorization"));
    let asked = json!({
        "KeyId": KEY, "Message": STANDARD.encode("sha256:00"), "MessageType": "RAW", "SigningAlgorithm": "ED25519_SHA_512",
    });
    assert_eq!(fetch.bodies(), [asked]);
}

#[tokio::test]
async fn what_passes_is_waited_for_and_what_does_not_is_told() {
    let transient =
        ["ThrottlingException", "KMSInternalException", "DependencyTimeoutException", "KeyUnavailableException"];
    for code in transient {
        let (key, fetch) = key(Some("http://127.0.0.1:4566/"));
        fetch.answer(refusal(400, code)).fail(FetchError::Connect("refused".to_owned()));
        fetch.answer(ScriptedAnswer::json(200, &json!({ "Signature": STANDARD.encode([7; 64]) })));
        assert!(key.signature(b"m").await.is_ok(), "{code}");
        assert_eq!(fetch.requests()[0].url, "http://127.0.0.1:4566/");
    }
    let (away, fetch) = key(None);
    let lost = away.signature(b"m").await;
    assert!(matches!(&lost, Err(SignerError::Unavailable(reason)) if reason.contains(KEY)), "{lost:?}");
    assert_eq!(fetch.requests().len(), 3, "not for ever");
    let final_ones = ["AccessDeniedException", "DisabledException", "NotFoundException", "KMSInvalidStateException"];
    for code in final_ones {
        let (key, fetch) = key(None);
        fetch.answer(refusal(400, code));
        let refused = key.signature(b"m").await;
        let is_told =
            matches!(&refused, Err(SignerError::Refused(reason)) if reason.contains(code) && reason.contains(KEY));
        assert!(is_told && fetch.requests().len() == 1, "{refused:?}");
    }
    for garbled in [json!({}), json!({ "Signature": "AA==" }), json!({ "Signature": 7 })] {
        let (key, fetch) = key(None);
        fetch.answer(ScriptedAnswer::json(200, &garbled));
        assert!(matches!(key.signature(b"m").await, Err(SignerError::Unavailable(_))), "{garbled}");
    }
}

#[tokio::test]
async fn a_public_key_is_one_of_ed25519() {
    let known = [&DER_PREFIX[..], &[9; 32]].concat();
    let answer = |spec: &str, usage: &str, der: &[u8]| {
        ScriptedAnswer::json(200, &json!({ "KeySpec": spec, "KeyUsage": usage, "PublicKey": STANDARD.encode(der) }))
    };
    let (ours, fetch) = key(None);
    fetch.answer(answer("ECC_NIST_EDWARDS25519", "SIGN_VERIFY", &known));
    assert_eq!(ours.public_key().await, Ok(format!("base64:{}", STANDARD.encode([9; 32]))));
    assert_eq!(fetch.bodies(), [json!({ "KeyId": KEY })]);
    for (spec, usage) in [("RSA_2048", "SIGN_VERIFY"), ("ECC_NIST_P256", "KEY_AGREEMENT")] {
        let (key, fetch) = key(None);
        fetch.answer(answer(spec, usage, &known));
        let refused = key.public_key().await;
        assert!(matches!(&refused, Err(SignerError::Refused(reason)) if reason.contains(spec)), "{refused:?}");
    }
    let (key, fetch) = key(None);
    fetch.answer(answer("ECC_NIST_EDWARDS25519", "SIGN_VERIFY", &known[1..]));
    assert!(matches!(key.public_key().await, Err(SignerError::Unavailable(_))));
    assert!(!format!("{key:?}").contains("hush"));
}
