//! Claims of a token, and whom they name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::Map;
use dormouse_protocol::Scope;
use dormouse_protocol::id::WorkspaceId;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{IssuerConfig, LEEWAY};
use crate::Actor;
use crate::audit::Proof;
use crate::keys::is_name;

/// The most workspaces and the most scopes that a token may name.
const MOST: usize = 256;

/// Characters of the longest claim that names an actor.
const LONGEST_SUBJECT: usize = 256;

/// Fields of a header that ask for what is not done here.
const DEMANDS: [&str; 2] = ["b64", "crit"];

/// Claims as they stand in a token.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Claims(Map);

impl Claims {
    /// The claims of `token`, without a check of its signature.
    pub(super) fn unchecked(token: &str) -> Option<Self> {
        part(token, 1).map(Self)
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.text("iss")
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str().filter(|text| !text.is_empty())
    }

    /// An instant in seconds, which may have a fraction (RFC 7519 §2).
    fn seconds(&self, name: &str) -> Option<Option<i64>> {
        let value = self.0.get(name)?;
        let whole = || value.as_f64().filter(|seconds| seconds.is_finite()).map(|seconds| seconds as i64);
        Some(value.as_i64().or_else(whole))
    }

    /// One word or several: a list, or a text with spaces between them.
    fn words(&self, name: &str) -> Option<Vec<&str>> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.split_ascii_whitespace().collect()),
            Value::Array(words) => words.iter().map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        }
    }

    /// Whom they are for: a list, or a text, which is one audience whatever is in it (RFC 7519 §4.1.3).
    fn audiences(&self) -> Option<Vec<&str>> {
        match self.0.get("aud").and_then(Value::as_str) {
            Some(one) => Some(vec![one]),
            None => self.words("aud"),
        }
    }

    /// Checks issuer, audience and times.
    pub(super) fn check(&self, config: &IssuerConfig, now: Timestamp) -> Result<(), &'static str> {
        if self.issuer() != Some(config.issuer.as_str()) {
            return Err("its issuer is not the one of its key");
        }
        let audience = self.audiences().unwrap_or_default();
        if !audience.iter().any(|one| config.audiences.iter().any(|ours| ours == one)) {
            return Err("it is for another audience");
        }
        let now = now.as_second();
        match self.seconds("exp") {
            Some(Some(end)) if now < end.saturating_add(LEEWAY) => {}
            Some(_) => return Err("it has expired"),
            None => return Err("it never expires"),
        }
        let begins = |name: &str| match self.seconds(name) {
            Some(Some(begin)) => begin <= now.saturating_add(LEEWAY),
            Some(None) => false,
            None => true,
        };
        if begins("nbf") && begins("iat") { Ok(()) } else { Err("it is not good yet") }
    }

    /// The actor that they name.
    pub(super) fn actor(&self, config: &IssuerConfig) -> Result<Actor, &'static str> {
        let subject = subject_of(self.text(&config.actor_claim).unwrap_or_default())?;
        let tenant = match (&config.tenant, &config.tenant_claim) {
            (Some(tenant), _) => tenant.as_str(),
            (None, Some(claim)) => self.text(claim).ok_or("it names no tenant")?,
            (None, None) => return Err("its tenant is not known"),
        };
        if !is_name(tenant) {
            return Err("its tenant cannot be the name of one");
        }
        let scopes = self.words(&config.scope_claim).unwrap_or_default();
        // A token without the claim is for no workspace, not for all of them.
        let workspaces = config.workspaces_claim.as_ref().map(|claim| self.words(claim).unwrap_or_default());
        if scopes.len() > MOST || workspaces.as_ref().is_some_and(|all| all.len() > MOST) {
            return Err("it names too many scopes or workspaces");
        }
        let name = name_of(subject, &config.name);
        let may_give = |scope: Scope| config.operations || !scope.as_str().starts_with("operations:");
        let end = self.seconds("exp").flatten().and_then(|end| Timestamp::from_second(end.saturating_add(LEEWAY)).ok());
        Ok(Actor {
            proof: Proof::Token,
            credential: name.clone(),
            until: end,
            name,
            tenant: tenant.to_owned(),
            workspaces: workspaces.map(|all| all.into_iter().map(WorkspaceId::from).collect()),
            scopes: scopes.into_iter().filter_map(Scope::parse).filter(|scope| may_give(*scope)).collect(),
            quota_id: config.quota_id.clone(),
        })
    }
}

/// The object that is the part `place` of `token`, from 0.
fn part(token: &str, place: usize) -> Option<Map> {
    let bytes = URL_SAFE_NO_PAD.decode(token.split('.').nth(place)?).ok()?;
    dormouse_json::read(&bytes, dormouse_json::ENTRY).ok()
}

/// True if the header of `token` says that it means nothing to who does not know some other field (RFC 7515 §4.1.11), or
/// that its claims are signed in another form (RFC 7797).
pub(super) fn has_demands(token: &str) -> bool {
    part(token, 0).is_none_or(|header| DEMANDS.iter().any(|name| header.contains_key(*name)))
}

/// The claim that names an actor. It is compared as it is: with spaces around it, which nobody sees, it is none.
fn subject_of(claim: &str) -> Result<&str, &'static str> {
    if claim.chars().any(|one| one.is_control() || is_unseen(one)) {
        return Err("its actor has control characters, or some that are not seen or turn others around");
    }
    match claim.chars().count() {
        _ if claim.trim().is_empty() => Err("it names no actor"),
        _ if claim.trim() != claim => Err("its actor has spaces around it"),
        ..=LONGEST_SUBJECT => Ok(claim),
        _ => Err("its actor has more than 256 characters"),
    }
}

/// True for characters that nobody sees, or that change how others are shown: two names could look the same.
fn is_unseen(one: char) -> bool {
    matches!(
        one,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Digits of a hash that stand for a subject.
const HASHED: usize = 32;

/// The name of `subject` among actors. One that cannot stand in a name goes by its hash, and so does one that has the form
/// of a hash: it would be called what another is.
fn name_of(subject: &str, issuer: &str) -> String {
    let plain = format!("{subject}@{issuer}");
    let is_hash = subject.len() == HASHED && subject.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_name(&plain) && !subject.contains('@') && !is_hash {
        return plain;
    }
    let digest = hex::encode(Sha256::digest(subject));
    format!("{}@{issuer}", digest.get(..HASHED).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_issuer_makes_operators_only_where_that_is_said() {
        let claims = json!({ "sub": "ada", "scope": "tasks:read operations:read operations:write" });
        let claims: Claims = serde_json::from_value(claims).expect("claims");
        let scopes = |operations: bool| {
            let config = json!({ "name": "corp", "issuer": "https://id.example.com", "audiences": ["dormouse"],
                "tenant": "acme", "operations": operations });
            let config: IssuerConfig = serde_json::from_value(config).expect("an issuer");
            let actor = claims.actor(&config).expect("an actor");
            actor.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(scopes(false), ["tasks:read"]);
        assert_eq!(scopes(true).len(), 3);
    }

    #[test]
    fn an_actor_is_named_by_what_can_be_seen() {
        let config = json!({ "name": "corp", "issuer": "https://id.example.com", "audiences": ["dormouse"],
            "tenant": "acme" });
        let config: IssuerConfig = serde_json::from_value(config).expect("an issuer");
        let actor = |subject: &str| {
            let claims: Claims = serde_json::from_value(json!({ "sub": subject })).expect("claims");
            claims.actor(&config).map(|actor| actor.name)
        };
        assert_eq!(actor("ada"), Ok("ada@corp".to_owned()));
        for good in ["\u{e9}", "\u{5d0}\u{5d1}", "a b", &"x".repeat(256)] {
            assert!(actor(good).is_ok(), "{good:?}");
        }
        let long = "x".repeat(257);
        for bad in [
            "",
            "  ",
            "\u{a0}\u{3000}",
            " ada",
            "ada\u{a0}",
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "a\u{2028}b",
            "a\u{2029}b",
            "a\u{feff}b",
            "a\u{e0041}b",
            "a\nb",
            &long,
        ] {
            assert!(actor(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn subjects_of_any_form_have_names_that_do_not_meet() {
        let hash_of_another = hex::encode(Sha256::digest("ada@corp"));
        let subjects = ["ada", "auth0|1", "ada@corp", "\u{e9}", &"x".repeat(200), "a/b", &hash_of_another[..HASHED]];
        let names = subjects.map(|one| name_of(one, "corp"));
        assert_eq!(names[0], "ada@corp");
        for (place, name) in names.iter().enumerate() {
            assert!(is_name(name), "{name}");
            assert!(!names[place + 1..].contains(name), "{name}");
        }
    }
}
