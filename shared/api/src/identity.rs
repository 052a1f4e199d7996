//! Callers that another service vouches for: JSON Web Tokens of issuers that an operator trusts (RFC 7519, RFC 8725).
//!
//! A token is checked in this order, and the first objection counts: its form and size, its algorithm, its issuer, its
//! signature by a key that the issuer publishes (RFC 7517), its audience and times, and at last whom it names. A caller
//! is not told which: a wrong token is a wrong token. The log is.
//!
//! # Invariants
//! - Only asymmetric algorithms that the operator allows are looked at: never `none`, and never a MAC, for which a public
//!   key would be the secret.
//! - A key signs by the algorithms of its own type alone; what the token says does not count.
//! - The keys of an issuer are asked for over the `Fetch` port at most once in [`PATIENCE`], however many tokens come,
//!   with a bound on time and size. A token whose issuer answers is checked without any request.
//! - Of those who wait for an issuer to answer there are at most [`MOST_WAITING`] in a process.
//! - Actors of an issuer are called `name@issuer`, which no other issuer's are.

mod claims;
mod issuer;
mod jwks;

use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Fetch, Spawner};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use crate::Actor;
use claims::{Claims, has_demands};
pub use issuer::{ConsoleSignIn, IssuerConfig, IssuersError};
use jwks::{KeySource, WaitingRoom, discovery_url};
pub use jwks::{MOST_WAITING, PATIENCE};

/// The longest token that is looked at, in bytes.
const LONGEST: usize = 16 * 1024;

/// Time by which the clock of an issuer may differ from ours, in seconds.
const LEEWAY: i64 = 60;

/// Reason for which it cannot be said whom a token names: the issuer does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the keys of the issuer {issuer} cannot be had: {reason}")]
pub struct IssuerAway {
    /// The issuer.
    pub issuer: String,
    /// Reason.
    pub reason: String,
}

/// The issuers that are trusted. Cheap to clone.
#[derive(Clone)]
pub struct Issuers(Arc<Vec<TrustedIssuer>>);

struct TrustedIssuer {
    config: IssuerConfig,
    keys: KeySource,
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|one| &one.config.issuer)).finish()
    }
}

impl Issuers {
    /// The issuers that `configs` describe; `fetch` asks for their keys, on tasks of `spawner`.
    pub fn new(configs: Vec<IssuerConfig>, fetch: &Arc<dyn Fetch>, spawner: &Arc<dyn Spawner>) -> Self {
        let waiting = WaitingRoom::default();
        let trusted = |config: IssuerConfig| {
            let keys = KeySource::new(&config, fetch.clone(), spawner.clone(), waiting.clone());
            TrustedIssuer { config, keys }
        };
        Self(Arc::new(configs.into_iter().map(trusted).collect()))
    }

    /// The issuers that the text of a variable describes; `None` where there is no text.
    ///
    /// # Errors
    /// [`IssuersError`] for the first that is wrong.
    pub fn described(
        text: Option<&str>,
        fetch: &Arc<dyn Fetch>,
        spawner: &Arc<dyn Spawner>,
    ) -> Result<Option<Self>, IssuersError> {
        let text = text.filter(|text| !text.trim().is_empty());
        text.map(|text| IssuerConfig::read(text).map(|configs| Self::new(configs, fetch, spawner))).transpose()
    }

    /// The names of the issuers, each with the address at which it publishes what it is, if its keys are found there.
    pub fn published(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let discovery = |config: &IssuerConfig| config.jwks_uri.is_none().then(|| discovery_url(&config.issuer));
        self.0.iter().map(move |one| (one.config.issuer.as_str(), discovery(&one.config)))
    }

    /// The issuers at which people sign in to the console, and how.
    pub fn sign_ins(&self) -> impl Iterator<Item = (&IssuerConfig, &ConsoleSignIn)> {
        self.0.iter().filter_map(|one| Some((&one.config, one.config.console.as_ref()?)))
    }

    /// True if `token` has the form of a JSON Web Token.
    pub fn may_be_token(token: &str) -> bool {
        let mut parts = token.split('.');
        let is_part = |part: Option<&str>| part.is_some_and(|part| !part.is_empty());
        is_part(parts.next()) && is_part(parts.next()) && parts.next().is_some() && parts.next().is_none()
    }

    /// The actor that `token` names at `now`; `None` for a token that is not good.
    ///
    /// # Errors
    /// [`IssuerAway`] when the token may be good, and its issuer does not say by which keys it signs.
    pub async fn actor(&self, token: &str, now: Timestamp) -> Result<Option<Actor>, IssuerAway> {
        match self.check(token, now).await {
            Ok(actor) => Ok(Some(actor)),
            Err(Objection::Away(away)) => Err(away),
            Err(Objection::Bad(reason)) => {
                tracing::info!(reason, "a token was refused");
                Ok(None)
            }
        }
    }

    async fn check(&self, token: &str, now: Timestamp) -> Result<Actor, Objection> {
        if token.len() > LONGEST {
            return Err(Objection::Bad("it is too long"));
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| Objection::Bad("its header cannot be read"))?;
        if has_demands(token) {
            return Err(Objection::Bad("its header asks for what is not done here"));
        }
        let claimed = Claims::unchecked(token).ok_or(Objection::Bad("its claims cannot be read"))?;
        let issuer = self.0.iter().find(|one| claimed.issuer() == Some(one.config.issuer.as_str()));
        let issuer = issuer.ok_or(Objection::Bad("its issuer is not trusted"))?;
        if !issuer.config.algorithms.contains(&header.alg) || is_symmetric(header.alg) {
            return Err(Objection::Bad("its algorithm is not allowed"));
        }
        let key = issuer
            .keys
            .find(header.kid.as_deref(), header.alg, now)
            .await
            .map_err(|reason| Objection::Away(IssuerAway { issuer: issuer.config.issuer.clone(), reason }))?;
        let key = key.ok_or(Objection::Bad("its issuer has no such key"))?;
        let claims = verified(token, header.alg, &key).ok_or(Objection::Bad("its signature is not the issuer's"))?;
        claims.check(&issuer.config, now).map_err(Objection::Bad)?;
        claims.actor(&issuer.config).map_err(Objection::Bad)
    }
}

/// Reason for not taking a token.
enum Objection {
    Bad(&'static str),
    Away(IssuerAway),
}

/// The claims of `token`, if `key` signed them. Their meaning is not looked at.
fn verified(token: &str, algorithm: Algorithm, key: &DecodingKey) -> Option<Claims> {
    let mut validation = Validation::new(algorithm);
    validation.algorithms = vec![algorithm];
    // Time is the port's, and audiences are looked at with everything else.
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    validation.required_spec_claims.clear();
    jsonwebtoken::decode::<Claims>(token, key, &validation).ok().map(|decoded| decoded.claims)
}

fn is_symmetric(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}
