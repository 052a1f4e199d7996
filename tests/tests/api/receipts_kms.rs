//! Receipts whose key is in AWS KMS: a stand-in on this machine speaks its wire and signs with a key of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::Credentials;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_api::Receipts;
use dormouse_aws::{AwsAccess, Endpoints, KmsKey, KmsSigner};
use dormouse_fetch::NetworkFetch;
use dormouse_ports::SignerError;
use dormouse_protocol::ErrorCode;
use dormouse_receipts::{Export, KmsRing, PublicKey, Ring, SigningKey};
use dormouse_system::SystemClock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::receipts::{approves, done, expense, exported, work};
use crate::world::{World, ada, text};

const ARN: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
/// What stands before a public key in its DER form.
const DER: &str = "302a300506032b6570032100";

/// What the stand-in does.
struct Kms {
    key: SigningKey,
    /// The code with which it refuses, while there is one.
    refuses: Mutex<Option<&'static str>>,
    signed: AtomicUsize,
}

async fn answer(State(kms): State<Arc<Kms>>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert!(header("authorization").contains("/eu-central-1/kms/aws4_request"), "{headers:?}");
    assert_eq!(header("content-type"), "application/x-amz-json-1.1");
    if let Some(code) = *kms.refuses.lock().unwrap() {
        let body = json!({ "__type": code, "message": "not now" });
        return (StatusCode::BAD_REQUEST, body.to_string());
    }
    let asked: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(asked["KeyId"], ARN);
    let body = match header("x-amz-target").as_str() {
        "TrentService.Sign" => {
            assert_eq!((&asked["SigningAlgorithm"], &asked["MessageType"]), (&json!("ED25519_SHA_512"), &json!("RAW")));
            kms.signed.fetch_add(1, Ordering::SeqCst);
            let message = STANDARD.decode(text(&asked["Message"])).unwrap();
            let signature = kms.key.sign(&message);
            json!({ "KeyId": ARN, "Signature": signature.trim_start_matches("base64:"), "SigningAlgorithm": "ED25519_SHA_512" })
        }
        "TrentService.GetPublicKey" => {
            let public = STANDARD.decode(kms.key.public().text().trim_start_matches("base64:")).unwrap();
            let der = STANDARD.encode([hex::decode(DER).unwrap(), public].concat());
            json!({ "KeyId": ARN, "PublicKey": der, "KeySpec": "ECC_NIST_EDWARDS25519", "KeyUsage": "SIGN_VERIFY" })
        }
        other => panic!("KMS is asked for {other}"),
    };
    (StatusCode::OK, body.to_string())
}

/// The stand-in, and the key that it has.
async fn stand_in() -> (Arc<Kms>, KmsKey) {
    let key = SigningKey::from_seed([7; 32]);
    let kms = Arc::new(Kms { key, refuses: Mutex::default(), signed: AtomicUsize::new(0) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let routes = axum::Router::new().fallback(answer).with_state(kms.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let access = AwsAccess {
        region: "us-east-1".to_owned(),
        credentials: Credentials::new("AKIDEXAMPLE", "hush-hush", None, None, "test"),
        endpoints: Endpoints { kms: Some(endpoint), ..Endpoints::default() },
    };
    let fetch = Arc::new(NetworkFetch::past_proxies());
    (kms, KmsKey::new(&access, ARN, fetch, Arc::new(SystemClock::default())))
}

/// A world whose receipts `key` signs, and which publishes `public`.
async fn issuing(key: &KmsKey, public: &PublicKey) -> (Arc<World>, String, Ring) {
    let ring = Ring::Kms(KmsRing::new(ARN, public.clone(), None).unwrap());
    let ring = Ring::parse(&ring.text()).unwrap();
    let receipts = Receipts::by(&ring, |ring| Arc::new(KmsSigner::new(key.clone(), &ring.public().id)));
    let world = World::issuing(receipts);
    let session = world.session().await;
    (world, session, ring)
}

async fn public_key(key: &KmsKey) -> PublicKey {
    PublicKey::parse(&key.public_key().await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_key_of_kms_signs_ends_answers_and_replays_and_is_asked_once_for_each() {
    let (kms, key) = stand_in().await;
    let public = public_key(&key).await;
    let (world, session, ring) = issuing(&key, &public).await;
    let first = done(&world, &session, work("work", "")).await;
    let asked = done(&world, &session, expense()).await;
    world.post(&format!("{asked}/messages"), approves()).await;
    world.work().await;
    world.post(&format!("{first}/replay"), json!({})).await;
    let sleeping = done(&world, &session, expense()).await;
    world.post(&format!("{sleeping}/cancel"), json!({})).await;
    let lines: Vec<String> = exported(&world, &session).await.iter().map(Value::to_string).collect();
    assert_eq!(lines.len(), 5, "an end, an answer and its end, a replay, a cancellation");
    let report = Export::parse(lines.join("\n").as_bytes()).unwrap().verify(&ring.keys(), Timestamp::MAX);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(kms.signed.load(Ordering::SeqCst), lines.len());
}

#[tokio::test]
async fn nothing_ends_while_the_key_does_not_sign_and_everything_does_afterwards() {
    let (kms, key) = stand_in().await;
    let public = public_key(&key).await;
    let (world, session, ring) = issuing(&key, &public).await;
    let sleeping = done(&world, &session, expense()).await;
    for (code, refusal) in [
        ("ThrottlingException", ErrorCode::ServiceUnavailable),
        ("AccessDeniedException", ErrorCode::InternalError),
        ("DisabledException", ErrorCode::InternalError),
    ] {
        *kms.refuses.lock().unwrap() = Some(code);
        let refused = world.refusal(ada(), "POST", &format!("{sleeping}/cancel"), json!({})).await;
        assert_eq!(refused.code(), refusal, "{code}");
        let refused = world.refusal(ada(), "POST", &format!("{sleeping}/messages"), approves()).await;
        assert_eq!(refused.code(), refusal, "{code}");
    }
    *kms.refuses.lock().unwrap() = Some("KMSInternalException");
    let working = done(&world, &session, work("work", "")).await;
    assert_eq!(world.get(&working).await["status"], "WORKING", "its end is not written");
    assert!(exported(&world, &session).await.is_empty());
    *kms.refuses.lock().unwrap() = None;
    world.clock.advance(std::time::Duration::from_secs(3600));
    let scope = dormouse_maintenance::SweepScope::Due;
    dormouse_maintenance::sweep(&world.harness, &world.maintenance, scope).await.unwrap();
    world.work().await;
    assert_eq!(world.get(&working).await["status"], "COMPLETED");
    world.post(&format!("{sleeping}/cancel"), json!({})).await;
    let lines: Vec<String> = exported(&world, &session).await.iter().map(Value::to_string).collect();
    let report = Export::parse(lines.join("\n").as_bytes()).unwrap().verify(&ring.keys(), Timestamp::MAX);
    assert!(report.is_sound() && lines.len() == 2, "{report:?}");
}

#[tokio::test]
async fn what_another_key_signed_is_no_receipt() {
    let (_, key) = stand_in().await;
    let other = SigningKey::from_seed([8; 32]).public();
    let (world, session, ring) = issuing(&key, &other).await;
    let sleeping = done(&world, &session, expense()).await;
    let refused = world.refusal(ada(), "POST", &format!("{sleeping}/cancel"), json!({})).await;
    assert_eq!(refused.code(), ErrorCode::InternalError);
    let signer = Arc::new(KmsSigner::new(key, &other.id));
    let refused = Receipts::new(signer, ring.keys()).sign(b"anything").await;
    assert!(matches!(&refused, Err(SignerError::Refused(reason)) if reason.contains(&other.id)), "{refused:?}");
}
