//! Issuers as an operator describes them.

use std::collections::BTreeMap;

use dormouse_protocol::Scope;
use dormouse_protocol::id::QuotaId;
use jsonwebtoken::Algorithm;
use serde::Deserialize;

use crate::keys::is_name;

/// The longest name of an issuer: the names of its actors end in it.
const LONGEST_NAME: usize = 24;

/// A service that issues trusted tokens, and what their claims mean.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// Short name: the actors of its tokens are called `subject@name`.
    pub name: String,
    /// The claim `iss` of its tokens: an address with `https`, or with `http` on this machine.
    pub issuer: String,
    /// Audiences of which a token has to name one.
    pub audiences: Vec<String>,
    /// Address of its keys; without it, it is what the issuer publishes at `/.well-known/openid-configuration`.
    #[serde(default)]
    pub jwks_uri: Option<String>,
    /// Algorithms by which it signs.
    #[serde(default = "usual_algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// Tenant of all of its actors.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Claim that names the tenant, where they belong to several.
    #[serde(default)]
    pub tenant_claim: Option<String>,
    /// Claim that names the actor.
    #[serde(default = "subject")]
    pub actor_claim: String,
    /// Claim with the scopes: a list, or words with spaces between them.
    #[serde(default = "scope")]
    pub scope_claim: String,
    /// True if its tokens may hold the scopes `operations:*`, which reach what sleeps for all tenants. Without it they are
    /// passed over: an issuer is trusted for its own tenants.
    #[serde(default)]
    pub operations: bool,
    /// Claim with the workspaces that the actor is restricted to. A token without it reaches none. Where no claim is
    /// named, actors reach all workspaces of their tenant.
    #[serde(default)]
    pub workspaces_claim: Option<String>,
    /// Quota that the tasks of its actors count against.
    #[serde(default)]
    pub quota_id: Option<QuotaId>,
    /// Sign-in of people to the console here; without it they do not sign in.
    #[serde(default)]
    pub console: Option<ConsoleSignIn>,
}

/// How the console, a client that keeps no secret, has people sign in at an issuer: by an authorization code with PKCE
/// (RFC 7636).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleSignIn {
    /// The client as which it is registered there, with the redirect address `/console/signed-in` of this server.
    pub client_id: String,
    /// The scopes that it asks for, with spaces between them.
    #[serde(default = "usual_scope")]
    pub scope: String,
    /// Further parameters that the issuer wants, such as `audience`.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Address where people sign in; without it, it is what the issuer publishes.
    #[serde(default)]
    pub authorization_endpoint: Option<String>,
    /// Address where the code is exchanged; without it, it is what the issuer publishes, at its own origin.
    #[serde(default)]
    pub token_endpoint: Option<String>,
}

fn usual_scope() -> String {
    // Those of operators reach over all tenants: they are requested only where the configuration says so.
    let scopes = Scope::ALL.iter().map(|scope| scope.as_str()).filter(|scope| !scope.starts_with("operations:"));
    ["openid"].into_iter().chain(scopes).collect::<Vec<_>>().join(" ")
}

fn usual_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
}

fn subject() -> String {
    "sub".to_owned()
}

fn scope() -> String {
    "scope".to_owned()
}

/// Reason for which a description of issuers cannot be used. Says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuersError {
    /// It is no JSON of that form.
    #[error(
        "expected a JSON array of issuers, each with `name`, `issuer`, `audiences` and `tenant` or `tenant_claim`: {0}"
    )]
    Form(String),
    /// An issuer is wrong.
    #[error("issuer `{0}`: {1}")]
    Issuer(String, &'static str),
}

impl IssuerConfig {
    /// Reads a JSON array of issuers.
    ///
    /// # Errors
    /// [`IssuersError`] for the first that is wrong.
    pub fn read(text: &str) -> Result<Vec<Self>, IssuersError> {
        let all: Vec<Self> = serde_json::from_str(text).map_err(|error| IssuersError::Form(error.to_string()))?;
        for (place, one) in all.iter().enumerate() {
            let wrong = |what| Err(IssuersError::Issuer(one.name.clone(), what));
            if let Some(what) = one.fault() {
                return wrong(what);
            }
            if all.iter().take(place).any(|other| other.name == one.name || other.issuer == one.issuer) {
                return wrong("its `name` and its `issuer` must not be those of another");
            }
        }
        Ok(all)
    }

    fn fault(&self) -> Option<&'static str> {
        let is_short = self.name.len() <= LONGEST_NAME && !self.name.contains('@');
        let is_symmetric = |algorithm: &Algorithm| super::is_symmetric(*algorithm);
        let checks = [
            (is_name(&self.name) && is_short, "its `name` has 1 to 24 letters, digits, `-`, `_`, `.` or `+`"),
            (is_safe(&self.issuer), "its `issuer` begins with https://, or with http://127.0.0.1 on this machine"),
            (self.jwks_uri.as_deref().is_none_or(is_safe), "its `jwks_uri` begins with https://"),
            (!self.audiences.is_empty(), "its `audiences` name at least one"),
            (
                !self.algorithms.is_empty() && !self.algorithms.iter().any(is_symmetric),
                "its `algorithms` are asymmetric",
            ),
            (self.tenant.is_some() != self.tenant_claim.is_some(), "it has `tenant` or `tenant_claim`, one of them"),
            (self.tenant.as_deref().is_none_or(is_name), "its `tenant` is no name of one"),
            (
                self.console.as_ref().is_none_or(ConsoleSignIn::is_sound),
                "its `console` has a `client_id`, and its addresses begin with https://",
            ),
        ];
        checks.into_iter().find_map(|(holds, what)| (!holds).then_some(what))
    }
}

impl ConsoleSignIn {
    fn is_sound(&self) -> bool {
        let mut addresses = [&self.authorization_endpoint, &self.token_endpoint].into_iter().flatten();
        !self.client_id.is_empty() && addresses.all(|address| is_safe(address))
    }
}

/// True for an address with answers that no host on the way can change.
pub(super) fn is_safe(url: &str) -> bool {
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let is_local = local
        .iter()
        .any(|start| url.strip_prefix(start).is_some_and(|rest| rest.starts_with([':', '/']) || rest.is_empty()));
    (url.starts_with("https://") || is_local) && url.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn issuer() -> Value {
        json!({"name": "corp", "issuer": "https://id.example.com", "audiences": ["dormouse"], "tenant": "acme"})
    }

    #[test]
    fn issuers_are_read_with_what_is_usual() {
        let read = IssuerConfig::read(&json!([issuer()]).to_string()).expect("an issuer");
        assert_eq!((read[0].actor_claim.as_str(), read[0].scope_claim.as_str()), ("sub", "scope"));
        assert_eq!(read[0].algorithms, [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]);
    }

    #[test]
    fn what_would_be_unsafe_is_refused_with_what_to_change() {
        for (field, bad) in [
            ("issuer", json!("http://id.example.com")),
            ("issuer", json!("http://localhost.example.com")),
            ("jwks_uri", json!("ftp://x")),
            ("audiences", json!([])),
            ("algorithms", json!(["HS256"])),
            ("algorithms", json!(["none"])),
            ("algorithms", json!([])),
            ("tenant", json!("a/b")),
            ("tenant_claim", json!("org")),
            ("name", json!("a@b")),
            ("name", json!("")),
            ("unknown", json!(1)),
            ("console", json!({"client_id": ""})),
            ("console", json!({"client_id": "c", "client_secret": "s"})),
            ("console", json!({"client_id": "c", "token_endpoint": "http://id.example.com/token"})),
        ] {
            let mut one = issuer();
            one[field] = bad.clone();
            assert!(IssuerConfig::read(&json!([one]).to_string()).is_err(), "{field} {bad}");
        }
        assert!(IssuerConfig::read(&json!([issuer(), issuer()]).to_string()).is_err());
        assert!(IssuerConfig::read("{").is_err());
    }
}
