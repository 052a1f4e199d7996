//! Principals that begin turns: how they prove who they are, and which sessions are theirs.

use dormouse_api::{Actor, HolderError, Keys, Proof, Standing, Taken};
use dormouse_harness::{Bucket, TurnError, store_failed};
use dormouse_ports::{Category, SessionId, owned};
use dormouse_protocol::Scope;

use crate::findings::{bearer, holder as holder_of, too_many};
use crate::refusal::{BEARER, RequestRefusal};
use crate::repeat::check_own_id;
use crate::{App, Request};

/// Prefix of the principals of keys.
const OF_KEYS: &str = "key:";

/// Proof of identity that callers of `/graphs` and `/chat` have to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// By an API key, as for the protocol: `KEYS`.
    #[default]
    Keys,
    /// By a signature that the gateway has checked; it names the caller in [`Request::caller`]: `AWS_IAM`.
    AwsIam,
    /// Not at all. Every caller may begin turns and all are the same to us: `NONE`.
    None,
}

impl Authorization {
    /// The setting that `word` names.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "KEYS" => Some(Self::Keys),
            "AWS_IAM" => Some(Self::AwsIam),
            "NONE" => Some(Self::None),
            _ => None,
        }
    }
}

/// Caller. Repeated requests are distinguished by it, and a session belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerName(String);

impl CallerName {
    /// The principal of every caller where no proof of identity is asked for.
    pub(crate) fn nobody() -> Self {
        Self(String::new())
    }

    /// The principal of a key of `actor`. Names of tenants and actors hold no slash.
    fn of_key(actor: &Actor) -> Self {
        Self(owned::owner_of(&actor.tenant, &actor.name))
    }

    /// The principal that the gateway calls `caller`.
    fn of_caller(caller: &str) -> Self {
        Self(format!("iam:{caller}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant of its key.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.0.strip_prefix(OF_KEYS)?.split_once('/').map(|(tenant, _)| tenant)
    }

    pub(crate) fn is_nobody(&self) -> bool {
        self.0.is_empty()
    }

    /// The stored id of the session that this principal calls `id`. Another principal's session of the same name has
    /// another id, so that knowing a name reaches nothing.
    ///
    /// # Errors
    /// For an id that callers may not choose.
    pub(crate) fn session(&self, id: &str) -> Result<SessionId, RequestRefusal> {
        check_own_id("session_id", id)?;
        Ok(if self.is_nobody() { id.into() } else { owned::session(&self.0, id) })
    }
}

/// Knows who may begin turns.
#[derive(Clone, Debug)]
pub(crate) struct Doorkeeper {
    pub(crate) authorization: Authorization,
    pub(crate) keys: Keys,
}

impl App {
    /// Sender of `request`, once it is known that they may send it: a key must have the scopes `needed`. Only the key
    /// is read before.
    ///
    /// # Errors
    /// 401 when no caller is proved, for any reason; 403 when the key is not for this.
    pub(crate) async fn principal(&self, request: &Request, needed: &[Scope]) -> Result<CallerName, RequestRefusal> {
        match self.doorkeeper().authorization {
            Authorization::None => {
                self.began(request, Proof::Nothing, None).await?;
                Ok(CallerName::nobody())
            }
            Authorization::AwsIam => {
                let caller = request.caller.as_deref().ok_or_else(|| {
                    let refusal = RequestRefusal::new(Category::Unauthorized, "send a request that is signed for AWS");
                    refusal.header("www-authenticate", "AWS4-HMAC-SHA256")
                })?;
                self.began(request, Proof::Signature, Some(caller)).await?;
                Ok(CallerName::of_caller(caller))
            }
            Authorization::Keys => Ok(CallerName::of_key(&self.holder(request, needed).await?)),
        }
    }

    /// Holder of the key or token of `request`, under whichever authorization turns are begun.
    ///
    /// # Errors
    /// As [`principal`](Self::principal).
    pub(crate) async fn holder(&self, request: &Request, needed: &[Scope]) -> Result<Actor, RequestRefusal> {
        let keys = &self.doorkeeper().keys;
        let now = self.engine().ports().clock.now();
        let header = request.header("authorization");
        if let Some(spent) = keys.spent(header, now) {
            within_rates(request, spent)?;
        }
        let holder = keys.holder(header, now).await.map_err(|error| {
            tracing::warn!(%error, "it is not known who a caller is");
            let (message, retry_after) = (error.told().to_owned(), Some(error.retry_after()));
            match error {
                HolderError::Store(error) => TurnError { message, ..store_failed(error) },
                HolderError::Issuer(_) => {
                    let away = TurnError::new(Category::Application("issuer_unavailable".into()), message);
                    TurnError { bucket: Bucket::RetryableTransient, retry_after, ..away }
                }
            }
        })?;
        let actor = holder.ok_or_else(|| {
            let refusal =
                RequestRefusal::new(Category::Unauthorized, "send a valid API key as authorization: Bearer <key>");
            refusal.header("www-authenticate", BEARER)
        })?;
        within_rates(request, keys.take(header, &actor, now).await)?;
        request.findings.note_principal(holder_of(&actor));
        check_grant(&actor, needed)?;
        self.begin(request).await?;
        Ok(actor)
    }
}

impl App {
    /// Writes to the audit log, where one is kept, that `request` is begun by a caller who proved by `proof` that it may;
    /// `name` is what the gateway calls it.
    ///
    /// # Errors
    /// 503 when the entry may not be there. The request must not be served then.
    pub(crate) async fn began(
        &self,
        request: &Request,
        proof: Proof,
        name: Option<&str>,
    ) -> Result<(), RequestRefusal> {
        request.findings.note_principal(bearer(proof, name));
        self.begin(request).await
    }

    async fn begin(&self, request: &Request) -> Result<(), RequestRefusal> {
        let begun = request.findings.begin(&self.doorkeeper().keys, request, self.now()).await;
        begun.map_err(|error| {
            tracing::warn!(%error, "an entry of the audit log cannot be written");
            let message = "the audit log cannot be written".to_owned();
            TurnError { message, ..store_failed(error) }.into()
        })
    }
}

/// Notes what is left of the rates, and refuses a request beyond them.
fn within_rates(request: &Request, taken: Taken) -> Result<(), RequestRefusal> {
    request.findings.note_standings(taken.standings);
    taken.refused.as_ref().map_or(Ok(()), |refused| Err(rate_limited(refused)))
}

/// Refusal of a caller that has sent all that it may.
fn rate_limited(refused: &Standing) -> RequestRefusal {
    let error = TurnError::new(Category::Application("rate_limited".into()), too_many(refused));
    let error = TurnError { bucket: Bucket::RetryableTransient, retry_after: Some(refused.seconds), ..error };
    RequestRefusal::from(error).status(429)
}

/// Checks that a key opens these routes: it has the scopes `needed`, and is not for some workspaces only, of which
/// these routes know nothing.
fn check_grant(actor: &Actor, needed: &[Scope]) -> Result<(), RequestRefusal> {
    if let Some(scope) = needed.iter().find(|scope| !actor.scopes.contains(scope)) {
        let message = format!("the key does not have the scope {}, which this needs", scope.as_str());
        let challenge = format!("{BEARER}, error=\"insufficient_scope\", scope=\"{}\"", scope.as_str());
        return Err(RequestRefusal::new(Category::Unauthorized, message)
            .status(403)
            .header("www-authenticate", challenge));
    }
    if actor.workspaces.is_some() {
        let message = "the key is for some workspaces only, and this route belongs to none; use /v1 or another key";
        return Err(RequestRefusal::new(Category::Unauthorized, message).status(403));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> CallerName {
        CallerName::of_caller("arn:aws:iam::123456789012:user/ada")
    }

    #[test]
    fn a_session_of_a_principal_has_an_id_that_only_they_reach() {
        let ada = ada();
        let grace = CallerName::of_caller("arn:aws:iam::123456789012:user/grace");
        let id = ada.session("team/7").expect("a session");
        assert_eq!(ada.session("team/7"), Ok(id.clone()));
        assert_ne!(grace.session("team/7"), Ok(id.clone()));
        assert_eq!(owned::name_of(id.as_str()), "team/7");
        for principal in [&ada, &grace, &CallerName::nobody()] {
            assert!(principal.session(id.as_str()).is_err(), "a stored id is no name");
        }
    }

    #[test]
    fn nobodys_sessions_keep_their_ids() {
        for id in ["team/7", "owned_by_ada:1", "owned_:x"] {
            let stored = CallerName::nobody().session(id).expect("a session");
            assert_eq!((stored.as_str(), owned::name_of(stored.as_str())), (id, id));
        }
    }

    #[test]
    fn principals_of_different_kinds_are_never_the_same() {
        let actor = |tenant: &str, name: &str| Actor {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            workspaces: None,
            scopes: [].into(),
            quota_id: None,
            proof: Proof::Key,
            credential: name.to_owned(),
            until: None,
        };
        let all = [
            CallerName::nobody(),
            ada(),
            CallerName::of_key(&actor("acme", "ada")),
            CallerName::of_key(&actor("ada", "acme")),
            CallerName::of_caller("acme/ada"),
        ];
        for (place, one) in all.iter().enumerate() {
            assert!(all[place + 1..].iter().all(|other| other != one), "{one:?}");
        }
    }
}
