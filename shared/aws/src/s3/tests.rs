use aws_sdk_dynamodb::config::Credentials;
use dormouse_ports::{FetchError, ObjectVersion};
use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
use jiff::Timestamp;

use super::*;
use crate::Endpoints;

fn objects(endpoint: Option<&str>) -> (S3Objects, ScriptedFetch) {
    let fetch = ScriptedFetch::default();
    let access = AwsAccess {
        region: "eu-central-1".to_owned(),
        credentials: Credentials::new("AKIDEXAMPLE", "hush-hush", None, None, "test"),
        endpoints: Endpoints { s3: endpoint.map(str::to_owned), ..Endpoints::default() },
    };
    (S3Objects::new(&access, "agents", Arc::new(fetch.clone()), Arc::new(Impatient)), fetch)
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

fn said(status: u16, code: &str) -> ScriptedAnswer {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>so it is</Message></Error>");
    ScriptedAnswer::pieces(status, [body])
}

fn header(request: &FetchRequest, name: &str) -> Option<String> {
    request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose().to_owned())
}

/// The signature is the one that botocore makes of the same request.
#[tokio::test]
async fn an_object_is_read_with_a_signature() {
    let (objects, fetch) = objects(None);
    fetch.answer(ScriptedAnswer::pieces(200, ["{}"]).header("etag", "\"e1\""));
    let found = objects.get("w/current.json", 10).await.expect("an answer").expect("an object");
    assert_eq!((found.bytes.as_slice(), found.version.as_str()), (b"{}".as_slice(), "\"e1\""));
    let request = &fetch.requests()[0];
    assert_eq!(request.url, "https://s3.eu-central-1.amazonaws.com/agents/w/current.json");
    assert_eq!(header(request, "x-amz-date").as_deref(), Some("20270115T080000Z"));
    let signature = header(request, "authorization").expect("a signature");
    assert!(
        signature.ends_with("Signature=c70e1d4c684664a1afb3e4bfab084d41589efcc7641dfdeb571bf8fc774a2594"),
        "{signature}"
    );
}

#[tokio::test]
async fn an_endpoint_counts_and_what_is_not_there_is_none() {
    let (objects, fetch) = objects(Some("http://127.0.0.1:4566/"));
    fetch.answer(said(404, "NoSuchKey"));
    assert_eq!(objects.get("w/current.json", 10).await, Ok(None));
    assert_eq!(fetch.requests()[0].url, "http://127.0.0.1:4566/agents/w/current.json");
}

#[tokio::test]
async fn writes_are_conditional() {
    let (objects, fetch) = objects(None);
    fetch.answer(ScriptedAnswer::pieces(200, [""])).answer(said(412, "PreconditionFailed"));
    let version = ObjectVersion::new("\"e1\"");
    assert_eq!(objects.put("a", b"1".to_vec(), ObjectCondition::Absent).await, Ok(()));
    let refused = objects.put("a", b"2".to_vec(), ObjectCondition::Unchanged(version)).await;
    assert_eq!(refused, Err(ObjectError::Conflict("a".to_owned())));
    let requests = fetch.requests();
    assert_eq!(header(&requests[0], "if-none-match").as_deref(), Some("*"));
    assert_eq!(header(&requests[1], "if-match").as_deref(), Some("\"e1\""));
    for request in &requests {
        let signed = header(request, "authorization").expect("a signature");
        assert!(signed.contains("content-type;host;if-"), "the condition is signed: {signed}");
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_named() {
    let (objects, fetch) = objects(None);
    fetch.answer(said(503, "SlowDown")).fail(FetchError::Closed("cut".to_owned()));
    fetch.answer(ScriptedAnswer::pieces(200, ["ok"]));
    assert!(objects.get("a", 10).await.expect("an answer").is_some());
    for _ in 0..ATTEMPTS {
        fetch.answer(said(500, "InternalError"));
    }
    assert!(matches!(objects.get("a", 10).await, Err(ObjectError::Transient(_))));
    assert_eq!(fetch.left(), 0);
    fetch.answer(said(403, "AccessDenied")).answer(said(404, "NoSuchBucket")).answer(said(400, "InvalidRequest"));
    assert!(matches!(objects.get("a", 10).await, Err(ObjectError::Denied(_))));
    assert!(matches!(objects.get("a", 10).await, Err(ObjectError::Denied(_))));
    assert!(matches!(objects.get("a", 10).await, Err(ObjectError::Rejected(_))));
    fetch.answer(said(400, "ExpiredToken"));
    let expired = objects.get("a", 10).await.expect_err("credentials of yesterday");
    assert!(matches!(&expired, ObjectError::Denied(told) if told.contains("new credentials")), "{expired}");
    fetch.answer(said(301, "PermanentRedirect"));
    let elsewhere = objects.get("a", 10).await.expect_err("a bucket of another region");
    assert!(matches!(&elsewhere, ObjectError::Rejected(told) if told.contains("AWS_REGION")), "{elsewhere}");
    fetch.answer(ScriptedAnswer::pieces(200, ["too much for it"]));
    assert!(matches!(objects.get("a", 10).await, Err(ObjectError::TooLarge { .. })));
}

#[tokio::test]
async fn keys_that_would_have_to_be_encoded_are_refused() {
    let (objects, fetch) = objects(None);
    for key in ["", "/a", "a//b", "a/../b", "a b", "a?b", "ä"] {
        assert!(matches!(objects.get(key, 10).await, Err(ObjectError::Rejected(_))), "{key}");
    }
    assert_eq!(fetch.requests().len(), 0);
    assert!(!format!("{objects:?}").contains("hush"));
}
