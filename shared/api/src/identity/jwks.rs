//! The keys that an issuer publishes, and when they are asked for.
//!
//! They are asked for when the first token comes, again when they are older than [`FRESH`], and when a token names one
//! that is not known, for it may be new; but never sooner than [`PATIENCE`] after the last time. An issuer that does not
//! answer is trusted by its last keys for [`STALE`].
//!
//! Who asks does not carry the question: it goes on when its client leaves, so that a client that never stays cannot have the
//! issuer asked again and again.
//!
//! Anybody may name an issuer, so those who wait for a key that is not there are few ([`MOST_WAITING`]): the others are
//! told to come again, and hold no place that somebody else needs.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use dormouse_ports::{Fetch, FetchLimits, FetchRequest, Method, Spawner};
use futures::channel::oneshot;
use futures::lock::{Mutex, OwnedMutexGuard};
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::IssuerConfig;
use super::issuer::is_safe;

/// Age at which keys are asked for again.
const FRESH: SignedDuration = SignedDuration::from_mins(10);

/// Age up to which keys count while the issuer does not answer.
const STALE: SignedDuration = SignedDuration::from_hours(24);

/// Time for which an issuer is not asked again.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// The largest answer, and the most keys in it.
const MOST_BYTES: usize = 256 * 1024;
const MOST_KEYS: usize = 100;

/// The longest that an answer may take.
const TIME: Duration = Duration::from_secs(5);

/// The most requests that wait at a time for keys that are not known, of all issuers together.
pub const MOST_WAITING: usize = 32;

/// Counts the requests that wait for keys. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingRoom(Arc<AtomicUsize>);

/// A place in a [`WaitingRoom`], which is free again when this is dropped.
struct WaitingPlace(Arc<AtomicUsize>);

impl WaitingRoom {
    /// A place, if one is free.
    fn enter(&self) -> Option<WaitingPlace> {
        let taken = |count: usize| (count < MOST_WAITING).then_some(count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).ok()?;
        Some(WaitingPlace(self.0.clone()))
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The keys of one issuer.
pub(super) struct KeySource {
    issuer: Arc<Publisher>,
    spawner: Arc<dyn Spawner>,
    /// Held while the issuer is asked.
    asking: Arc<Mutex<()>>,
    waiting: WaitingRoom,
}

/// An issuer, where it publishes its keys, and those that it gave.
struct Publisher {
    issuer: String,
    jwks_uri: Option<String>,
    fetch: Arc<dyn Fetch>,
    known: std::sync::Mutex<Known>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Arc<Vec<IssuerKey>>,
    /// Instant at which they were given.
    given_at: Option<Timestamp>,
    /// Instant at which they were asked for last.
    asked_at: Option<Timestamp>,
    /// Failure of that time.
    failure: Option<String>,
}

#[derive(Clone)]
struct IssuerKey {
    kid: Option<String>,
    algorithms: Vec<Algorithm>,
    key: Arc<DecodingKey>,
}

impl Known {
    /// The keys that count at `now`; `None` if none do.
    fn usable(&self, now: Timestamp) -> Option<&[IssuerKey]> {
        let counts = self.given_at.is_some_and(|at| now.duration_since(at).abs() < STALE);
        counts.then_some(self.keys.as_slice())
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        self.given_at.is_some_and(|at| now.duration_since(at).abs() < FRESH)
    }
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySource").field("issuer", &self.issuer.issuer).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct PublishedKeys {
    keys: Vec<Value>,
}

impl KeySource {
    /// The keys of the issuer of `config`, which `fetch` asks for on tasks of `spawner`; who waits for them does so in `waiting`.
    pub(super) fn new(
        config: &IssuerConfig,
        fetch: Arc<dyn Fetch>,
        spawner: Arc<dyn Spawner>,
        waiting: WaitingRoom,
    ) -> Self {
        let (issuer, jwks_uri) = (config.issuer.clone(), config.jwks_uri.clone());
        let issuer = Publisher { issuer, jwks_uri, fetch, known: std::sync::Mutex::default() };
        Self { issuer: Arc::new(issuer), spawner, asking: Arc::default(), waiting }
    }

    /// The key called `kid` that signs by `algorithm`; without a name the only one that does. `None` if the issuer has
    /// no such key.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub(super) async fn find(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
        now: Timestamp,
    ) -> Result<Option<Arc<DecodingKey>>, String> {
        let known = self.issuer.known();
        let found = known.usable(now).and_then(|keys| pick(keys, kid, algorithm));
        match found {
            Some(key) if known.is_fresh(now) => return Ok(Some(key)),
            // While one asks again, the others go on with what is known.
            Some(key) => match self.asking.clone().try_lock_owned() {
                Some(asking) => self.refresh(asking, now).await,
                None => return Ok(Some(key)),
            },
            None => {
                let _place = self.waiting.enter().ok_or_else(|| "too many wait for keys already".to_owned())?;
                let asking = self.asking.clone().lock_owned().await;
                self.refresh(asking, now).await;
            }
        }
        let known = self.issuer.known();
        let keys = known.usable(now).ok_or_else(|| known.failure.clone().unwrap_or_default())?;
        Ok(pick(keys, kid, algorithm))
    }

    /// Has the issuer asked, unless that was done a moment ago, and waits until it has answered.
    async fn refresh(&self, asking: OwnedMutexGuard<()>, now: Timestamp) {
        if self.issuer.known().asked_at.is_some_and(|at| now.duration_since(at).abs() < PATIENCE) {
            return;
        }
        let (answered, answer) = oneshot::channel();
        let issuer = self.issuer.clone();
        self.spawner.spawn(Box::pin(async move {
            issuer.refresh(now).await;
            drop(asking);
            // Whoever asked may have left.
            let _ = answered.send(());
        }));
        // Where the task was ended with its runtime, what is known is what there is.
        let _ = answer.await;
    }
}

impl Publisher {
    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for the keys, and notes when, and what came of it.
    async fn refresh(&self, now: Timestamp) {
        let asked = self.ask().await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.asked_at = Some(now);
        match asked {
            Ok(keys) => (known.keys, known.given_at, known.failure) = (Arc::new(keys), Some(now), None),
            Err(reason) => {
                tracing::warn!(issuer = self.issuer, reason, "the keys of an issuer could not be had");
                known.failure = Some(reason);
            }
        }
    }

    async fn ask(&self) -> Result<Vec<IssuerKey>, String> {
        let uri = match &self.jwks_uri {
            Some(uri) => uri.clone(),
            None => self.discover().await?,
        };
        let PublishedKeys { keys } = self.get(&uri).await?;
        if keys.len() > MOST_KEYS {
            return Err(format!("it has more than {MOST_KEYS} keys"));
        }
        // Keys of a kind that is not known do not keep the others from being used.
        let readable = keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(readable.filter_map(|key| IssuerKey::of(&key)).collect())
    }

    /// Address of the keys, as the issuer publishes it.
    async fn discover(&self) -> Result<String, String> {
        let found: Discovered = self.get(&discovery_url(&self.issuer)).await?;
        if found.issuer != self.issuer {
            return Err("its configuration is that of another issuer".to_owned());
        }
        if is_safe(&found.jwks_uri) { Ok(found.jwks_uri) } else { Err("its keys are at an unsafe address".to_owned()) }
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        let limits = FetchLimits { total: TIME, idle: TIME, most_bytes: MOST_BYTES };
        let request =
            FetchRequest { limits, ..FetchRequest::new(Method::Get, url) }.header("accept", "application/json");
        let answer = self.fetch.fetch(request).await.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("it answered {}", answer.status));
        }
        let bytes = answer.whole(MOST_BYTES).await.map_err(|error| error.to_string())?;
        dormouse_json::read(&bytes, dormouse_json::ENTRY).map_err(|error| error.to_string())
    }
}

/// Address at which `issuer` publishes its configuration (OpenID Connect Discovery 1.0 §4).
pub(super) fn discovery_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

fn pick(keys: &[IssuerKey], kid: Option<&str>, algorithm: Algorithm) -> Option<Arc<DecodingKey>> {
    let mut fitting = keys.iter().filter(|key| key.algorithms.contains(&algorithm));
    match kid {
        Some(kid) => fitting.find(|key| key.kid.as_deref() == Some(kid)).map(|key| key.key.clone()),
        None => {
            let only = fitting.next()?;
            fitting.next().is_none().then(|| only.key.clone())
        }
    }
}

impl IssuerKey {
    /// The key that `jwk` describes, if it is a public one for signatures.
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        if !matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        if common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
            return None;
        }
        let by_type = algorithms_of(&jwk.algorithm);
        let named = common.key_algorithm.map(|algorithm| algorithm.to_string());
        let is_named = |algorithm: &Algorithm| named.as_ref().is_none_or(|name| *name == format!("{algorithm:?}"));
        let algorithms: Vec<Algorithm> = by_type.iter().copied().filter(is_named).collect();
        let key = DecodingKey::from_jwk(jwk).ok()?;
        (!algorithms.is_empty()).then(|| Self { kid: common.key_id.clone(), algorithms, key: Arc::new(key) })
    }
}

/// The algorithms by which keys of this type sign. A symmetric key signs by none: it would be no public one.
fn algorithms_of(parameters: &AlgorithmParameters) -> &'static [Algorithm] {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match parameters {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            EllipticCurve::P521 | EllipticCurve::Ed25519 | _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(_) => &[EdDSA],
        AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_) | _ => &[],
    }
}
