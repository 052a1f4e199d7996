//! Tokens of issuers: good ones, and every kind that must not be.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use dormouse_api::identity::{IssuerConfig, Issuers, MOST_WAITING, PATIENCE};
use dormouse_api::keys::{AccessPolicy, Grant};
use dormouse_api::{HolderError, Keys, Proof, RateLimits};
use dormouse_ports::{Clock, Fetch, FetchError, FetchRequest, FetchResponse, Spawner};
use dormouse_protocol::Scope;
use dormouse_system::TokioSpawner;
use dormouse_testkit::{ManualClock, MemoryStore, ScriptedAnswer, ScriptedFetch};
use dormouse_tests::{full_grant, make_key};
use futures::FutureExt;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::shared_streams::Counting;

/// Keys that were made for these tests and sign nothing else.
const RSA: &str = "MIIEpAIBAAKCAQEAxj/qTwsBnq9UIY6eQZzF292CF7t1E3o6ACn8vYWaDZs5fciOn1kXAIdy4i6tWoN4mkv7LxABYkLQEBKBk8yS\
    DH1IKRi0reQCVTwUKwbSK0cYEQWRRwzRKJL+bBKxssOa3OL6egpE+gVvkmj52lYYoBWJebrBhmeGA/bO3glasz3JNb8SnD53f15o\
    jZgTJhwrUNHP3Vy8ykBql2+uw5JzHXZXCibzEAt89DG279C+vLfCKlrGQmWytr/Q0mWT6DDn2aOKuMAu23DUn4x/Ca9HKBAZ0L/4\
    oyHkaC/kzcoB2zAv85RM4bjwjp01unwty8Kqk1et22wRwi8XhZbN5cN+kwIDAQABAoIBAFoRA5QxfeTn5qLwNjm8za8brVS213On\
    3d3hNW+s2NZBpRbeHN2MDgUxhCH57svmWs5Ooqk47kgD7p6+qZvKHrgJ2tTA4qT1p5Gtn8QEb0s2G1rwWpYa3pM+ZNQYkh6S+zJK\
    9FypebjU62Fqy8hDwSBJaJGjJPS454u5fzYkrc4sAHAGxDb9CqzcS6P4a1Y/3DX9jkEGmZY56ZkWhBG9/qzcFSnGD8HEWCBR1fMU\
    POXAQdHC7NED2ba+jFTSy8YYu2lqZmVLdbQ/1Gi3D4pZr5tb3DEKkS1d8mWjCCYjdzPs14EMOguNTtRD7Qs3rA76zbP+yX1snw/D\
    l+6qpz5qQhECgYEA9JKCqr3mIBpN6vsthHyM3B2XO9Ys5awb7ZZFuqDN2MI6Dvi4j1QJz2GDmCrdg9e67ABnGrDT0a4CHTgq64Qi\
    MbBHZwRPUPEoRcfWuMvPhUo3vRj7r3FOWgm0Wdr8uP0w5mEvrblMenjUkdChQ/pGEAAOMgCuOPjsxe3NDKN0BTUCgYEAz4NPN2CY\
    eA0dWVZVCJhNPNGS07wrbsxlY2hxf0Sk2uu6jZf2vgzli8JvMmqvgvbCM4E3WXl0fAS7Z7z5FV9tZew6oCx0WV6IqOhKsP4Dk85f\
    hzx/bi8rH3JU+Te6RXNLWeRaPjUjIiMJGP4fkR1ZWIApH/2QHi/PxwGkmDyj1acCgYEA1+xRuHSXq1gN2puPgByGL/9f+dAJK2xb\
    69J0FWTK18gCgh1MtB2524F4MOwHTdM0kA9697GOENzTuQBRxESP+9Zp86V2cTu4FoNsKxKlUERKGYTpD+e1CQDwXTRdUuUWOw8q\
    jPG/d5Ed+u56sg1PteiWn8bCCkKap9Re5/2W/NECgYEAkYtZrk+T4O/h290Pex3HXpbnUpayJ944ZobExCzTK7EWgWVKbHYDMglH\
    kKb/Pu3vu8wvlBP5vVpcTyBd2724rzoGzH0hheUmGMIEUSt4Ot0OZ33pKtDuf/ni24FYpol9GiltmiAO6kyEfwEOBuv81HPfZE6m\
    HGYQZ1YhqZ0ulBUCgYBB74qMW4Pr5KYz46PaSI/EcrHqDiZtVc7ydcpbyvOIjepBbJLVYWI/knTbF4y9+NrImLNqaB7xhtkWvypZ\
    xwC4mY+8/GDjET2aEU8pY+9AH0E2eAcm8JoFyqR183KiNmqcelbxLlWif6Y3kfrVObcXsBqNRDfaPPPPpu363o91iw==";
const RSA_N: &str = "xj_qTwsBnq9UIY6eQZzF292CF7t1E3o6ACn8vYWaDZs5fciOn1kXAIdy4i6tWoN4mkv7LxABYkLQEBKBk8ySDH1IKRi0reQCVTwU\
    KwbSK0cYEQWRRwzRKJL-bBKxssOa3OL6egpE-gVvkmj52lYYoBWJebrBhmeGA_bO3glasz3JNb8SnD53f15ojZgTJhwrUNHP3Vy8\
    ykBql2-uw5JzHXZXCibzEAt89DG279C-\
    vLfCKlrGQmWytr_Q0mWT6DDn2aOKuMAu23DUn4x_Ca9HKBAZ0L_4oyHkaC_kzcoB2zAv85RM4bjwjp01unwty8Kqk1et22wRwi8X\
    hZbN5cN-kw";
/// The public key as it is in a file, which a careless server takes for the secret of a MAC.
const RSA_PEM: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAxj/qTwsBnq9UIY6eQZzF
292CF7t1E3o6ACn8vYWaDZs5fciOn1kXAIdy4i6tWoN4mkv7LxABYkLQEBKBk8yS
DH1IKRi0reQCVTwUKwbSK0cYEQWRRwzRKJL+bBKxssOa3OL6egpE+gVvkmj52lYY
oBWJebrBhmeGA/bO3glasz3JNb8SnD53f15ojZgTJhwrUNHP3Vy8ykBql2+uw5Jz
HXZXCibzEAt89DG279C+vLfCKlrGQmWytr/Q0mWT6DDn2aOKuMAu23DUn4x/Ca9H
KBAZ0L/4oyHkaC/kzcoB2zAv85RM4bjwjp01unwty8Kqk1et22wRwi8XhZbN5cN+
kwIDAQAB
-----END PUBLIC KEY-----
";
const ED: &str = "302e020100300506032b6570042204204e06514791ac26f55c788d5ac8d057af571a38f92b0d463dc6098aef295b2679";
const ED_X: &str = "sSZZqe365MG0d9vXxI54ntvQNQa3Yc2GwCgNxRnN7_o";
const EC: &str = "308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b02010104209ca084d0e5119a6a7f1e479c5c11\
    34359fc8561a53dd7bedb2a96d9c14e29f2ca1440342000405d2ac9d59adcf7a9455469d431db08b2380dc3f57f6b0000a63\
    48dcee64bca3cdfea972267e598e43998c9cbc1755cfd411a213cf721cab02ca4e138600b996";
const EC_X: &str = "BdKsnVmtz3qUVUadQx2wiyOA3D9X9rAACmNI3O5kvKM";
const EC_Y: &str = "zf6pciZ-WY5DmYycvBdVz9QRohPPchyrAspOE4YAuZY";

const ISSUER: &str = "https://id.example.com";

fn key_set() -> Value {
    json!({"keys": [
        {"kty": "RSA", "kid": "rsa", "use": "sig", "n": RSA_N, "e": "AQAB"},
        {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": ED_X},
        {"kty": "EC", "kid": "ec", "crv": "P-256", "x": EC_X, "y": EC_Y, "alg": "ES256"},
        {"kty": "RSA", "kid": "sealing", "use": "enc", "n": RSA_N, "e": "AQAB"},
        {"kty": "RSA", "kid": "wrapping", "key_ops": ["encrypt"], "n": RSA_N, "e": "AQAB"},
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
        {"kty": "what", "kid": "new", "alg": "X9"},
    ]})
}

fn encoding(kid: &str) -> (Algorithm, EncodingKey) {
    match kid {
        "rsa" | "sealing" | "wrapping" | "unknown" => {
            (Algorithm::RS256, EncodingKey::from_rsa_der(&STANDARD.decode(RSA).unwrap()))
        }
        "ec" => (Algorithm::ES256, EncodingKey::from_ec_der(&hex::decode(EC).unwrap())),
        _ => (Algorithm::EdDSA, EncodingKey::from_ed_der(&hex::decode(ED).unwrap())),
    }
}

fn signed(kid: &str, claims: &Value) -> String {
    let (algorithm, key) = encoding(kid);
    let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
    jsonwebtoken::encode(&header, claims, &key).unwrap()
}

/// A token with that header and those claims, signed with `secret` or not at all.
fn forged(header: &Value, claims: &Value, secret: Option<&[u8]>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let said = format!("{}.{}", part(header), part(claims));
    let signature = secret.map(|secret| {
        jsonwebtoken::crypto::sign(said.as_bytes(), &EncodingKey::from_secret(secret), Algorithm::HS256).unwrap()
    });
    format!("{said}.{}", signature.unwrap_or_default())
}

/// A token with that header and those claims, signed by the key `ed`.
fn signed_under(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let said = format!("{}.{}", part(header), part(claims));
    let (algorithm, key) = encoding("ed");
    let signature = jsonwebtoken::crypto::sign(said.as_bytes(), &key, algorithm).unwrap();
    format!("{said}.{signature}")
}

/// Requests to which some hosts never answer.
struct Hanging(ScriptedFetch);

#[async_trait]
impl Fetch for Hanging {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        if request.url.contains("hangs") {
            std::future::pending::<()>().await;
        }
        self.0.fetch(request).await
    }
}

/// Answers of a script that take their time.
struct Slow(ScriptedFetch);

#[async_trait]
impl Fetch for Slow {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let answer = self.0.fetch(request).await;
        tokio::task::yield_now().await;
        answer
    }
}

fn spawner() -> Arc<dyn Spawner> {
    Arc::new(TokioSpawner)
}

struct Desk {
    keys: Keys,
    clock: Arc<ManualClock>,
    fetch: ScriptedFetch,
}

impl Desk {
    fn new(config: Value) -> Self {
        let fetch = ScriptedFetch::default();
        let port: Arc<dyn Fetch> = Arc::new(fetch.clone());
        let issuers = Issuers::new(IssuerConfig::read(&json!([config]).to_string()).unwrap(), &port, &spawner());
        let keys = Keys::new(Arc::new(MemoryStore::default())).trusting(issuers);
        Self { keys, clock: Arc::new(ManualClock::default()), fetch }
    }

    /// A desk that knows where the keys are.
    fn usual() -> Self {
        let desk = Self::new(config());
        desk.fetch.answer(ScriptedAnswer::json(200, &key_set()));
        desk
    }

    fn claims(&self) -> Value {
        let now = self.clock.now().as_second();
        json!({"iss": ISSUER, "aud": ["other", "dormouse"], "sub": "ada", "exp": now + 300, "iat": now, "nbf": now,
            "org": "acme", "scope": "tasks:read tasks:write planets:read", "rooms": ["workspace_1"]})
    }

    async fn actor(&self, token: &str) -> Option<dormouse_api::Actor> {
        self.keys.holder(Some(&format!("Bearer {token}")), self.clock.now()).await.unwrap()
    }
}

fn config() -> Value {
    json!({"name": "corp", "issuer": ISSUER, "audiences": ["dormouse"], "jwks_uri": "https://id.example.com/keys",
        "tenant_claim": "org", "workspaces_claim": "rooms"})
}

#[tokio::test]
async fn a_good_token_names_its_actor_and_asks_for_keys_once() {
    let desk = Desk::usual();
    for kid in ["rsa", "ed", "ec", "rsa"] {
        let actor = desk.actor(&signed(kid, &desk.claims())).await.expect(kid);
        assert_eq!((actor.name.as_str(), actor.tenant.as_str()), ("ada@corp", "acme"));
        assert_eq!(actor.scopes, [Scope::TasksRead, Scope::TasksWrite].into());
        assert_eq!(actor.workspaces, Some(["workspace_1".into()].into()));
        assert_eq!((actor.proof, actor.credential.as_str()), (Proof::Token, "ada@corp"));
        let end = desk.clock.now() + Duration::from_secs(300 + 60);
        assert_eq!(actor.until, Some(end), "when it is refused, clocks that differ a little considered");
    }
    assert_eq!(desk.fetch.requests().len(), 1);
}

#[tokio::test]
async fn the_configuration_of_the_issuer_tells_where_its_keys_are() {
    let mut open = config();
    open.as_object_mut().unwrap().remove("jwks_uri");
    let desk = Desk::new(open.clone());
    let uri = "https://id.example.com/elsewhere";
    desk.fetch.answer(ScriptedAnswer::json(200, &json!({"issuer": ISSUER, "jwks_uri": uri})));
    desk.fetch.answer(ScriptedAnswer::json(200, &key_set()));
    assert!(desk.actor(&signed("rsa", &desk.claims())).await.is_some());
    let asked: Vec<String> = desk.fetch.requests().into_iter().map(|request| request.url).collect();
    assert_eq!(asked, [format!("{ISSUER}/.well-known/openid-configuration"), uri.to_owned()]);
    for wrong in [
        json!({"issuer": "https://evil.example.com", "jwks_uri": uri}),
        json!({"issuer": ISSUER, "jwks_uri": "http://x"}),
    ] {
        let desk = Desk::new(open.clone());
        desk.fetch.answer(ScriptedAnswer::json(200, &wrong));
        let token = format!("Bearer {}", signed("rsa", &desk.claims()));
        assert!(desk.keys.holder(Some(&token), desk.clock.now()).await.is_err());
    }
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused() {
    let desk = Desk::usual();
    let now = desk.clock.now().as_second();
    let good = desk.claims();
    for (field, bad) in [
        ("exp", json!(now - 61)),
        ("exp", json!("soon")),
        ("exp", Value::Null),
        ("nbf", json!(now + 61)),
        ("nbf", json!([])),
        ("iat", json!(now + 3600)),
        ("iss", json!("https://evil.example.com")),
        ("iss", json!([ISSUER])),
        ("aud", json!("dormouse2")),
        ("aud", json!("other dormouse")),
        ("aud", json!([])),
        ("aud", Value::Null),
        ("sub", json!("")),
        ("sub", Value::Null),
        ("org", json!("a/b")),
        ("org", json!(7)),
        ("org", Value::Null),
        ("sub", json!("ada\nroot")),
        ("sub", json!("ada\u{7f}")),
        ("sub", json!("\u{85}ada")),
    ] {
        let mut claims = good.clone();
        claims[field] = bad.clone();
        assert_eq!(desk.actor(&signed("rsa", &claims)).await, None, "{field} {bad}");
        claims.as_object_mut().unwrap().remove(field);
        let needed = !matches!(field, "nbf" | "iat");
        assert_eq!(desk.actor(&signed("rsa", &claims)).await.is_none(), needed, "without {field}");
    }
    let mut late = good.clone();
    late["exp"] = json!(now - 59);
    assert!(desk.actor(&signed("rsa", &late)).await.is_some(), "clocks differ a little");
    let mut alone = good.clone();
    alone.as_object_mut().unwrap().remove("rooms");
    let actor = desk.actor(&signed("rsa", &alone)).await.expect("an actor");
    assert_eq!(actor.workspaces, Some([].into()), "no claim is no workspace");
}

#[tokio::test]
async fn signatures_are_those_of_the_issuer_by_algorithms_that_are_allowed() {
    let desk = Desk::usual();
    let claims = desk.claims();
    let good = signed("rsa", &claims);
    assert!(desk.actor(&good).await.is_some());
    let public = key_set().to_string();
    for (header, secret) in [
        (json!({"alg": "none", "kid": "rsa"}), None),
        (json!({"alg": "None", "kid": "rsa"}), None),
        (json!({"alg": "HS256", "kid": "rsa"}), Some(RSA_N.as_bytes())),
        (json!({"alg": "HS256", "kid": "rsa"}), Some(public.as_bytes())),
        (json!({"alg": "HS256", "kid": "rsa"}), Some(RSA_PEM.as_bytes())),
        (json!({"alg": "HS256"}), Some(RSA_PEM.as_bytes())),
        (json!({"alg": "HS256", "kid": "oct"}), Some(b"secret".as_slice())),
        (json!({"alg": "RS256", "kid": "rsa"}), Some(RSA_N.as_bytes())),
        (json!({"alg": "RS256", "kid": "rsa"}), None),
        (json!({"alg": "EdDSA", "kid": "rsa"}), None),
        (json!({"kid": "rsa"}), None),
        (json!([]), None),
    ] {
        assert_eq!(desk.actor(&forged(&header, &claims, secret)).await, None, "{header}");
    }
    for kid in ["sealing", "wrapping", "unknown"] {
        assert_eq!(desk.actor(&signed(kid, &claims)).await, None, "{kid}");
    }
    // Whatever a header demands beside, even nothing.
    for demands in [
        json!({"crit": ["x"], "x": 1}),
        json!({"crit": ["exp"], "exp": 1}),
        json!({"crit": []}),
        json!({"crit": null}),
        json!({"crit": ["b64"], "b64": false}),
        json!({"b64": false}),
        json!({"b64": true}),
    ] {
        let mut header = json!({"alg": "EdDSA", "kid": "ed"});
        header.as_object_mut().unwrap().extend(demands.as_object().unwrap().clone());
        assert_eq!(desk.actor(&signed_under(&header, &claims)).await, None, "{header}");
    }
    let bare = json!({"alg": "EdDSA", "kid": "ed", "x": 1});
    assert!(desk.actor(&signed_under(&bare, &claims)).await.is_some(), "what is not demanded is passed over");
    // Another key of the issuer than the one that is named, and an algorithm that is not allowed.
    let (_, ed) = encoding("ed");
    let crossed = Header { kid: Some("rsa".to_owned()), ..Header::new(Algorithm::EdDSA) };
    let (_, rsa) = encoding("rsa");
    let larger = Header { kid: Some("rsa".to_owned()), ..Header::new(Algorithm::RS512) };
    for (header, key) in [(crossed, ed), (larger, rsa)] {
        assert_eq!(desk.actor(&jsonwebtoken::encode(&header, &claims, &key).unwrap()).await, None);
    }
    let parts: Vec<&str> = good.split('.').collect();
    let mut more = claims.clone();
    more["scope"] = json!("keys:write");
    let more = URL_SAFE_NO_PAD.encode(more.to_string());
    for bad in [
        format!("{}.{more}.{}", parts[0], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], &parts[2][..parts[2].len() - 4]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        format!("{good}.x"),
        format!("{good}{}", "x".repeat(20_000)),
        "a.b.c".to_owned(),
        "..".to_owned(),
    ] {
        assert_eq!(desk.actor(&bad).await, None, "{}", &bad[..20.min(bad.len())]);
    }
}

#[tokio::test]
async fn an_issuer_that_is_slow_large_or_gone_is_not_asked_all_the_time() {
    let failures: [fn(&ScriptedFetch); 6] = [
        |fetch| {
            fetch.fail(FetchError::Timeout(Duration::from_secs(5)));
        },
        |fetch| {
            fetch.answer(ScriptedAnswer::pieces(200, vec![vec![b' '; 100_000]; 4]));
        },
        |fetch| {
            let crowd = key_set()["keys"].as_array().unwrap().iter().cycle().take(101).cloned().collect::<Vec<_>>();
            fetch.answer(ScriptedAnswer::json(200, &json!({"keys": crowd})));
        },
        |fetch| {
            fetch.answer(ScriptedAnswer::pieces(200, vec!["[".repeat(100_000)]));
        },
        |fetch| {
            fetch.answer(ScriptedAnswer::json(500, &json!({})));
        },
        |fetch| {
            fetch.answer(ScriptedAnswer::pieces(200, ["<html>"]));
        },
    ];
    for fail in failures {
        let desk = Desk::new(config());
        fail(&desk.fetch);
        let token = format!("Bearer {}", signed("rsa", &desk.claims()));
        for _ in 0..5 {
            assert!(desk.keys.holder(Some(&token), desk.clock.now()).await.is_err(), "it cannot be known");
        }
        assert_eq!(desk.fetch.requests().len(), 1);
        desk.clock.advance(PATIENCE.unsigned_abs());
        desk.fetch.answer(ScriptedAnswer::json(200, &key_set()));
        assert!(desk.actor(&signed("rsa", &desk.claims())).await.is_some());
    }
}

#[tokio::test]
async fn few_wait_for_issuers_that_hang_and_the_tokens_of_others_are_not_touched() {
    let scripted = ScriptedFetch::default();
    scripted.answer(ScriptedAnswer::json(200, &key_set()));
    let hanging = |name: &str| {
        json!({"name": name, "issuer": format!("https://{name}.hangs.example.com"),
        "audiences": ["dormouse"], "jwks_uri": format!("https://{name}.hangs.example.com/keys"), "tenant": "acme"})
    };
    let configs = json!([config(), hanging("one"), hanging("two")]);
    let port: Arc<dyn Fetch> = Arc::new(Hanging(scripted));
    let issuers = Issuers::new(IssuerConfig::read(&configs.to_string()).unwrap(), &port, &spawner());
    let keys = Keys::new(Arc::new(MemoryStore::default())).trusting(issuers);
    let clock = ManualClock::default();
    let now = clock.now();
    let of = |issuer: &str| {
        let claims = json!({"iss": issuer, "aud": "dormouse", "sub": "ada", "exp": now.as_second() + 300,
            "org": "acme", "rooms": []});
        format!("Bearer {}", signed("ed", &claims))
    };
    let (good, one, two) = (of(ISSUER), of("https://one.hangs.example.com"), of("https://two.hangs.example.com"));
    assert!(keys.holder(Some(&good), now).await.unwrap().is_some());
    let mut waiting: Vec<_> = (0..MOST_WAITING)
        .map(|place| Box::pin(keys.holder(Some(if place % 2 == 0 { &one } else { &two }), now)))
        .collect();
    assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
    for token in [&one, &two] {
        let refused = keys.holder(Some(token), now).now_or_never().expect("at once").unwrap_err();
        assert!(matches!(refused, HolderError::Issuer(_)), "{refused}");
        assert!(refused.retry_after() > 0 && !refused.told().contains("store"), "{}", refused.told());
    }
    let known = keys.holder(Some(&good), now).now_or_never().expect("at once");
    assert!(known.unwrap().is_some(), "whose keys are known waits for nobody");
    waiting.pop();
    assert!(keys.holder(Some(&one), now).now_or_never().is_none(), "a place that was given back");
}

#[tokio::test]
async fn a_client_that_never_stays_has_the_issuer_asked_once() {
    let scripted = ScriptedFetch::default();
    scripted.answer(ScriptedAnswer::json(200, &key_set()));
    let port: Arc<dyn Fetch> = Arc::new(Slow(scripted.clone()));
    let issuers = Issuers::new(IssuerConfig::read(&json!([config()]).to_string()).unwrap(), &port, &spawner());
    let keys = Keys::new(Arc::new(MemoryStore::default())).trusting(issuers);
    let clock = ManualClock::default();
    let now = clock.now();
    let claims = json!({"iss": ISSUER, "aud": "dormouse", "sub": "ada", "exp": now.as_second() + 300,
        "org": "acme", "rooms": []});
    let [unknown, good] = ["unknown", "ed"].map(|kid| format!("Bearer {}", signed(kid, &claims)));
    for _ in 0..20 {
        assert!(keys.holder(Some(&unknown), now).now_or_never().is_none(), "it leaves before there is an answer");
    }
    assert!(keys.holder(Some(&good), now).await.unwrap().is_some(), "what was asked for is there");
    assert_eq!(keys.holder(Some(&unknown), now).await.unwrap(), None);
    assert_eq!(scripted.requests().len(), 1);
}

#[tokio::test]
async fn new_keys_are_found_and_old_ones_outlast_a_silence() {
    let desk = Desk::new(config());
    let mut first = key_set();
    first["keys"].as_array_mut().unwrap().retain(|key| key["kid"] == "ed");
    desk.fetch.answer(ScriptedAnswer::json(200, &first));
    assert!(desk.actor(&signed("ed", &desk.claims())).await.is_some());
    assert_eq!(desk.actor(&signed("rsa", &desk.claims())).await, None, "not yet published, and not asked at once");
    desk.clock.advance(PATIENCE.unsigned_abs());
    desk.fetch.answer(ScriptedAnswer::json(200, &key_set()));
    assert!(desk.actor(&signed("rsa", &desk.claims())).await.is_some(), "rotated in");
    for _ in 0..20 {
        assert_eq!(desk.actor(&signed("unknown", &desk.claims())).await, None);
    }
    assert_eq!(desk.fetch.requests().len(), 2, "unknown keys make no storm");
    // The script is at its end: the issuer is gone.
    desk.clock.advance(Duration::from_secs(23 * 3600));
    assert!(desk.actor(&signed("rsa", &desk.claims())).await.is_some());
    desk.clock.advance(Duration::from_secs(3600));
    let token = format!("Bearer {}", signed("rsa", &desk.claims()));
    assert!(desk.keys.holder(Some(&token), desk.clock.now()).await.is_err(), "not for ever");
}

#[tokio::test]
async fn who_asks_on_beyond_the_rate_is_refused_without_being_looked_up() {
    let store = Arc::new(MemoryStore::default());
    let clock = ManualClock::default();
    let counting = Arc::new(Counting::of(store.clone()));
    let rates = RateLimits { key: None, tenant: Some(2) };
    let keys = Keys::new(counting.clone()).under(AccessPolicy { rates, audit: None }, false);
    let header = async |number: u8, tenant: &str| {
        let grant = Grant { scopes: [].into(), ..full_grant("ada", tenant) };
        format!("Bearer {}", make_key(&*store, number, grant, clock.now()).await)
    };
    let (noisy, quiet) = (header(1, "noisy").await, header(2, "quiet").await);
    let asks = async |header: &str| {
        if let Some(spent) = keys.spent(Some(header), clock.now()) {
            return spent;
        }
        let actor = keys.holder(Some(header), clock.now()).await.unwrap().unwrap();
        keys.take(Some(header), &actor, clock.now()).await
    };
    for _ in 0..2 {
        assert_eq!(asks(&noisy).await.refused, None);
    }
    let first = asks(&noisy).await;
    assert!(first.refused.is_some());
    counting.taken();
    clock.advance(Duration::from_secs(59));
    let again = asks(&noisy).await;
    assert_eq!((again.refused.as_ref().map(|refused| refused.seconds), counting.taken()), (Some(1), 0));
    assert_eq!((asks(&quiet).await.refused, counting.taken()), (None, 1), "others are looked up and served");
    assert!(keys.spent(Some(&noisy[..noisy.len() - 1]), clock.now()).is_none(), "only who was refused");
    clock.advance(Duration::from_secs(1));
    assert_eq!((asks(&noisy).await.refused, counting.taken()), (None, 1), "a new window");
}
