//! Access tokens for servers, without a person (RFC 6749).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::tool::{ToolError, ToolErrorKind};
use dormouse_ports::{Fetch, FetchLimits, FetchRequest, Method, Secret, Template};
use futures::TryStreamExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::config::{ClientAuthentication, OAuth};
use crate::Values;
use crate::failure::{unanswered, unresolved};
use crate::text::{cut, encode};

/// The most that a token endpoint may answer.
const LIMITS: FetchLimits =
    FetchLimits { total: Duration::from_secs(15), idle: Duration::from_secs(15), most_bytes: 64 * 1024 };
/// A token is taken for expired that much before it is.
const EARLY: Duration = Duration::from_secs(30);

/// The access token of one client, fetched where it is missing or expired. It outlives conversations: a refresh token that was
/// replaced is good for nothing any more.
pub(super) struct Tokens {
    oauth: OAuth,
    fetch: Arc<dyn Fetch>,
    held: Mutex<Held>,
    /// True where the endpoint took the secret in the body, and not in the header.
    posts: AtomicBool,
}

#[derive(Default)]
struct Held {
    access: Option<(Secret, Option<Instant>)>,
    /// Refresh token that the server gave in the place of the configured one.
    refresh: Option<Secret>,
}

/// Answer of a token endpoint (RFC 6749, section 5.1).
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// Seconds; some servers write them as a text.
    expires_in: Option<Value>,
    refresh_token: Option<String>,
}

impl Granted {
    /// Until when the token holds, from `now` on. What cannot be read says nothing: a token that is refused is replaced anyway.
    fn until(&self, now: Instant) -> Option<Instant> {
        let seconds = match self.expires_in.as_ref()? {
            Value::String(text) => text.trim().parse().ok(),
            Value::Number(number) => number.as_f64(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let holds = Duration::try_from_secs_f64(seconds?).ok()?;
        // One that holds for seconds alone is used as well.
        now.checked_add(holds.saturating_sub(EARLY.min(holds / 2)))
    }
}

/// Answer of a token endpoint that refuses (section 5.2).
#[derive(Default, Deserialize)]
struct NotGranted {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

/// Reason why there is no token.
struct Refused {
    error: ToolError,
    /// True where it may be the way in which the client shows who it is.
    is_of_client: bool,
}

impl From<ToolError> for Refused {
    fn from(error: ToolError) -> Self {
        Self { error, is_of_client: false }
    }
}

impl Refused {
    /// The refusal in an answer with `status` and `body`.
    fn of(status: u16, body: &[u8]) -> Self {
        let told: NotGranted = serde_json::from_slice(body).unwrap_or_default();
        let may_be = ["", "invalid_client", "invalid_request", "unauthorized_client"].contains(&told.error.as_str());
        let is_of_client = status == 401 || (matches!(status, 400 | 403) && may_be);
        let told = cut(&format!("{} {}", told.error, told.error_description), 300);
        let error = ToolError::denied(format!(
            "the OAuth token endpoint answers {status} ({}); check the client and its grant",
            told.trim()
        ));
        Self { error, is_of_client }
    }
}

impl Tokens {
    pub(super) fn new(oauth: OAuth, fetch: Arc<dyn Fetch>) -> Self {
        Self { oauth, fetch, held: Mutex::default(), posts: AtomicBool::new(false) }
    }

    /// True if it has what cannot be had again, or may have.
    pub(super) fn is_renewed(&self) -> bool {
        self.held.try_lock().map_or(true, |held| held.refresh.is_some())
    }

    /// A token that holds, and is another one than `refused`. What the client's settings refer to is looked up in `values`.
    ///
    /// The endpoint is waited for also where who asked does so no longer: what it answers may have the only refresh token that
    /// holds from then on.
    ///
    /// # Errors
    /// None is granted, or the endpoint does not answer. No request was made to the server itself.
    pub(super) async fn token(
        self: &Arc<Self>,
        values: &Values,
        refused: Option<&Secret>,
    ) -> Result<Secret, ToolError> {
        let (tokens, values, refused) = (self.clone(), values.clone(), refused.cloned());
        let asked = tokio::spawn(async move { tokens.held_or_granted(&values, refused.as_ref()).await });
        asked.await.unwrap_or_else(|error| Err(ToolError::transient(format!("no OAuth token was asked for: {error}"))))
    }

    async fn held_or_granted(&self, values: &Values, refused: Option<&Secret>) -> Result<Secret, ToolError> {
        let mut held = self.held.lock().await;
        if let Some((token, until)) = &held.access
            && refused != Some(token)
            && until.is_none_or(|until| Instant::now() < until)
        {
            values.learn(token);
            return Ok(token.clone());
        }
        let (granted, before) = match self.grant(values, held.refresh.clone()).await {
            Ok(granted) => (granted, held.refresh.take()),
            // The configured one may have been replaced by hand meanwhile.
            Err(error) if error.kind == ToolErrorKind::Denied && held.refresh.is_some() => {
                (self.grant(values, None).await.map_err(|_| error)?, None)
            }
            Err(error) => return Err(error),
        };
        let until = granted.until(Instant::now());
        let token = Secret::new(granted.access_token);
        let newer = granted.refresh_token.map(Secret::new);
        // What a server is shown it may repeat.
        newer.iter().chain([&token]).for_each(|granted| values.learn(granted));
        held.access = Some((token.clone(), until));
        held.refresh = newer.or(before);
        Ok(token)
    }

    /// Asks for a token. A secret that is not taken in the header is shown in the body: many endpoints take it only there.
    async fn grant(&self, values: &Values, newer_refresh: Option<Secret>) -> Result<Granted, ToolError> {
        use ClientAuthentication::{ClientSecretBasic, ClientSecretPost};

        let method = self.oauth.token_endpoint_auth_method;
        let posts = self.posts.load(Ordering::Relaxed);
        let used = method.unwrap_or(if posts { ClientSecretPost } else { ClientSecretBasic });
        let refused = match self.asked(values, newer_refresh.clone(), used).await {
            Ok(granted) => return Ok(granted),
            Err(refused) => refused,
        };
        let may_post = method.is_none() && !posts && self.oauth.client_secret.is_some();
        if !may_post || !refused.is_of_client {
            return Err(refused.error);
        }
        match self.asked(values, newer_refresh, ClientSecretPost).await {
            Ok(granted) => {
                self.posts.store(true, Ordering::Relaxed);
                Ok(granted)
            }
            Err(Refused { is_of_client: true, .. }) => Err(refused.error),
            Err(second) => Err(second.error),
        }
    }

    async fn asked(
        &self,
        values: &Values,
        newer_refresh: Option<Secret>,
        method: ClientAuthentication,
    ) -> Result<Granted, Refused> {
        let request = self.request(values, newer_refresh, method).await?;
        let mut response = self.fetch.fetch(request).await.map_err(|error| certain(unanswered(&error)))?;
        let mut body = Vec::new();
        while let Some(piece) = response.body.try_next().await.map_err(|error| certain(unanswered(&error)))? {
            body.extend_from_slice(&piece);
        }
        match response.status {
            status @ 200..=299 => serde_json::from_slice(&body).map_err(|_| {
                // Some refuse with 200.
                match serde_json::from_slice::<NotGranted>(&body) {
                    Ok(told) if !told.error.is_empty() => Refused::of(status, &body),
                    Ok(_) | Err(_) => {
                        ToolError::permanent("the OAuth token endpoint answers with no token; check `token_url`").into()
                    }
                }
            }),
            status @ 300..=399 => Err(ToolError::permanent(format!(
                "the OAuth token endpoint answers {status} and leads elsewhere, which is not followed; set the address that is \
                 meant as `token_url`"
            ))
            .into()),
            429 | 500.. => {
                Err(ToolError::transient(format!("the OAuth token endpoint answers {}", response.status)).into())
            }
            status => Err(Refused::of(status, &body)),
        }
    }

    async fn request(
        &self,
        values: &Values,
        newer_refresh: Option<Secret>,
        method: ClientAuthentication,
    ) -> Result<FetchRequest, ToolError> {
        let id = value(values, &self.oauth.client_id).await?;
        let mut fields = Vec::new();
        match (newer_refresh, &self.oauth.refresh_token) {
            (Some(refresh), _) => fields.extend(refreshed(refresh)),
            (None, Some(refresh)) => fields.extend(refreshed(value(values, refresh).await?)),
            (None, None) => fields.push(("grant_type", Secret::new("client_credentials"))),
        }
        fields.extend(self.oauth.scope.as_deref().map(|scope| ("scope", Secret::new(scope))));
        fields.extend(self.oauth.resource.as_deref().map(|resource| ("resource", Secret::new(resource))));
        let url = values.address(&self.oauth.token_url).await.map_err(|error| unresolved(&error))?;
        let mut request = FetchRequest::new(Method::Post, url.expose());
        request = request.header("accept", "application/json");
        request = request.header("content-type", "application/x-www-form-urlencoded");
        match (&self.oauth.client_secret, method) {
            (Some(secret), ClientAuthentication::ClientSecretBasic) => {
                let pair = format!("{}:{}", encoded(&id), encoded(&value(values, secret).await?));
                request = request.header("authorization", Secret::new(format!("Basic {}", STANDARD.encode(pair))));
            }
            (Some(secret), ClientAuthentication::ClientSecretPost) => {
                fields.push(("client_id", id));
                fields.push(("client_secret", value(values, secret).await?));
            }
            (None, _) => fields.push(("client_id", id)),
        }
        let fields = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        request.body = fields.collect::<Vec<_>>().join("&").into_bytes();
        request.limits = LIMITS;
        Ok(request)
    }
}

async fn value(values: &Values, template: &Template) -> Result<Secret, ToolError> {
    values.resolve(template).await.map_err(|error| unresolved(&error))
}

fn refreshed(token: Secret) -> [(&'static str, Secret); 2] {
    [("grant_type", Secret::new("refresh_token")), ("refresh_token", token)]
}

/// Asking for a token takes no effect on the server of tools.
fn certain(error: ToolError) -> ToolError {
    ToolError { uncertain: false, ..error }
}

fn encoded(value: &Secret) -> String {
    encode(value.expose())
}

#[cfg(test)]
mod tests {
    use dormouse_ports::{FetchError, FetchResponse};
    use dormouse_testkit::{ScriptedAnswer, ScriptedFetch};
    use serde_json::json;

    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).expect("a template")
    }

    fn tokens(fetch: &ScriptedFetch, refresh: Option<&str>, secret: Option<&str>) -> Arc<Tokens> {
        let oauth = OAuth {
            token_url: template("https://auth.example.com/token"),
            client_id: template("dor mouse"),
            client_secret: secret.map(template),
            token_endpoint_auth_method: None,
            refresh_token: refresh.map(template),
            scope: Some("tools:read tools:call".to_owned()),
            resource: None,
        };
        Arc::new(Tokens::new(oauth, Arc::new(fetch.clone())))
    }

    async fn token(tokens: &Arc<Tokens>, refused: Option<&Secret>) -> Result<Secret, ToolError> {
        let secrets: Arc<dyn dormouse_ports::Secrets> = Arc::new(Secret::new("s:1"));
        tokens.token(&Values::new(secrets.clone(), secrets), refused).await
    }

    fn body(fetch: &ScriptedFetch, at: usize) -> String {
        String::from_utf8(fetch.requests()[at].body.clone()).expect("text")
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_kept_until_it_expires_or_is_refused() {
        let fetch = ScriptedFetch::default();
        for (token, seconds) in [("t1", 3600), ("t2", 3600), ("t3", 3600)] {
            fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": token, "expires_in": seconds })));
        }
        let tokens = tokens(&fetch, None, Some("${secrets.client}"));
        let first = token(&tokens, None).await.expect("a token");
        assert_eq!(token(&tokens, None).await.expect("the same"), first);
        assert_eq!(token(&tokens, Some(&first)).await.expect("another").expose(), "t2");
        tokio::time::advance(Duration::from_secs(3599)).await;
        assert_eq!(token(&tokens, None).await.expect("a third").expose(), "t3");
        assert_eq!(body(&fetch, 0), "grant_type=client_credentials&scope=tools%3Aread%20tools%3Acall");
        let shown = &fetch.requests()[0].headers;
        let basic = format!("Basic {}", STANDARD.encode("dor%20mouse:s%3A1"));
        assert!(shown.contains(&("authorization".to_owned(), Secret::new(basic))));
    }

    #[tokio::test(start_paused = true)]
    async fn how_long_a_token_holds_is_taken_however_it_is_written() {
        for (given, is_kept) in [
            (json!("60"), false),
            (json!(60.5), false),
            (json!(u64::MAX), true),
            (json!("soon"), true),
            (json!(-1), true),
        ] {
            let fetch = ScriptedFetch::default();
            for token in ["t1", "t2"] {
                fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": token, "expires_in": given })));
            }
            let tokens = tokens(&fetch, None, None);
            assert_eq!(token(&tokens, None).await.expect("a token").expose(), "t1", "{given}");
            tokio::time::advance(Duration::from_secs(3600)).await;
            let later = token(&tokens, None).await.expect("a token");
            assert_eq!(later.expose() == "t1", is_kept, "{given}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_holds_for_seconds_alone_is_used_as_well() {
        let fetch = ScriptedFetch::default();
        for token in ["t1", "t2"] {
            fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": token, "expires_in": 20 })));
        }
        let tokens = tokens(&fetch, None, None);
        for (seconds, used) in [(0, "t1"), (5, "t1"), (10, "t2")] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(token(&tokens, None).await.expect("a token").expose(), used);
        }
    }

    fn shows_a_header(fetch: &ScriptedFetch, at: usize) -> bool {
        fetch.requests()[at].headers.iter().any(|(name, _)| name == "authorization")
    }

    #[tokio::test]
    async fn an_endpoint_that_takes_the_secret_in_the_body_alone_is_shown_it_there() {
        for (status, refused) in [
            (401, json!({ "error": "invalid_client" })),
            (400, json!({ "error": "invalid_request" })),
            (403, json!("forbidden")),
        ] {
            let fetch = ScriptedFetch::default();
            fetch.answer(ScriptedAnswer::json(status, &refused));
            for token in ["t1", "t2"] {
                fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": token })));
            }
            let tokens = tokens(&fetch, None, Some("${secrets.client}"));
            let first = token(&tokens, None).await.expect("a token");
            assert!(shows_a_header(&fetch, 0) && !body(&fetch, 0).contains("secret"), "{status}");
            assert_eq!(token(&tokens, Some(&first)).await.expect("another").expose(), "t2");
            assert_eq!(fetch.requests().len(), 3, "{status}: it is known now");
            for at in [1, 2] {
                let sent = body(&fetch, at);
                assert!(!shows_a_header(&fetch, at), "{status}");
                assert!(sent.ends_with("&client_id=dor%20mouse&client_secret=s%3A1"), "{sent}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_refused_in_both_ways_is_told_as_it_was_at_first() {
        for (second, told) in [("invalid_client", "no such client"), ("invalid_grant", "invalid_grant")] {
            let fetch = ScriptedFetch::default();
            let first = json!({ "error": "invalid_client", "error_description": "no such client" });
            fetch.answer(ScriptedAnswer::json(401, &first));
            fetch.answer(ScriptedAnswer::json(400, &json!({ "error": second })));
            let error = token(&tokens(&fetch, None, Some("x")), None).await.expect_err("it is refused");
            assert!(error.kind == ToolErrorKind::Denied && error.message.contains(told), "{error}");
        }
        // The client is known: it has not the right to what it asks for.
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::json(400, &json!({ "error": "invalid_scope" })));
        let error = token(&tokens(&fetch, None, Some("x")), None).await.expect_err("it is refused");
        assert!(error.message.contains("invalid_scope") && fetch.requests().len() == 1, "{error}");
    }

    #[tokio::test]
    async fn a_way_that_is_declared_is_the_only_one() {
        for method in [ClientAuthentication::ClientSecretBasic, ClientAuthentication::ClientSecretPost] {
            let fetch = ScriptedFetch::default();
            fetch.answer(ScriptedAnswer::json(401, &json!({ "error": "invalid_client" })));
            let plain = tokens(&fetch, None, Some("x"));
            let oauth = OAuth { token_endpoint_auth_method: Some(method), ..plain.oauth.clone() };
            let declared = Arc::new(Tokens::new(oauth, plain.fetch.clone()));
            token(&declared, None).await.expect_err("it is refused");
            assert_eq!(fetch.requests().len(), 1, "{method:?}");
            assert_eq!(shows_a_header(&fetch, 0), method == ClientAuthentication::ClientSecretBasic);
        }
    }

    #[tokio::test]
    async fn an_endpoint_that_refuses_with_200_or_has_moved_is_told() {
        for (status, answer, told) in [
            (200, json!({ "error": "bad_verification_code" }), "bad_verification_code"),
            (200, json!({ "ok": true }), "answers with no token"),
            (302, json!({}), "leads elsewhere"),
        ] {
            let fetch = ScriptedFetch::default();
            fetch.answer(ScriptedAnswer::json(status, &answer));
            let error = token(&tokens(&fetch, None, Some("x")), None).await.expect_err("no token");
            assert!(error.message.contains(told) && fetch.requests().len() == 1, "{error}");
        }
    }

    #[tokio::test]
    async fn a_refresh_token_is_replaced_by_a_newer_one() {
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": "t1", "refresh_token": "newer" })));
        fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": "t2" })));
        let tokens = tokens(&fetch, Some("first"), None);
        let first = token(&tokens, None).await.expect("a token");
        token(&tokens, Some(&first)).await.expect("a token");
        assert!(body(&fetch, 0).starts_with("grant_type=refresh_token&refresh_token=first&"));
        assert!(body(&fetch, 1).starts_with("grant_type=refresh_token&refresh_token=newer&"));
        assert!(body(&fetch, 0).ends_with("&client_id=dor%20mouse"));
    }

    /// Takes its time to answer.
    struct Slow(ScriptedFetch);

    #[async_trait::async_trait]
    impl Fetch for Slow {
        async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
            let answer = self.0.fetch(request).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            answer
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refresh_token_that_is_replaced_while_nobody_waits_any_more_is_not_lost() {
        let fetch = ScriptedFetch::default();
        for (access, refresh) in [("t1", "newer"), ("t2", "newest")] {
            let granted = json!({ "access_token": access, "refresh_token": refresh });
            fetch.answer(ScriptedAnswer::json(200, &granted));
        }
        let oauth = tokens(&fetch, Some("first"), None).oauth.clone();
        let tokens = Arc::new(Tokens::new(oauth, Arc::new(Slow(fetch.clone()))));
        tokio::time::timeout(Duration::from_secs(9), token(&tokens, None)).await.expect_err("it gives up");
        let first = token(&tokens, None).await.expect("a token");
        assert_eq!((first.expose(), fetch.requests().len()), ("t1", 1));
        token(&tokens, Some(&first)).await.expect("another");
        assert!(body(&fetch, 1).contains("refresh_token=newer&"), "{}", body(&fetch, 1));
    }

    #[tokio::test]
    async fn what_is_granted_is_a_secret_to_each_server_of_the_client() {
        let fetch = ScriptedFetch::default();
        let granted = json!({ "access_token": "granted-1", "refresh_token": "newer-one" });
        fetch.answer(ScriptedAnswer::json(200, &granted));
        let tokens = tokens(&fetch, Some("first"), None);
        for shown in ["Bearer [secret], [secret]", "Bearer [secret], newer-one"] {
            let (values, mask) = Values::none().watched();
            tokens.token(&values, None).await.expect("a token");
            assert_eq!(mask.text("Bearer granted-1, newer-one".to_owned()), shown, "of what it was shown");
        }
    }

    #[tokio::test]
    async fn a_secret_in_the_query_of_the_endpoint_is_one_value() {
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": "t1" })));
        let plain = tokens(&fetch, None, None);
        let token_url = template("https://auth.example.com/token?key=${secrets.key}");
        let tokens = Arc::new(Tokens::new(OAuth { token_url, ..plain.oauth.clone() }, plain.fetch.clone()));
        let secrets: Arc<dyn dormouse_ports::Secrets> = Arc::new(Secret::new("a&b=1"));
        tokens.token(&Values::new(secrets.clone(), secrets), None).await.expect("a token");
        assert_eq!(fetch.requests()[0].url, "https://auth.example.com/token?key=a%26b%3D1");
    }

    #[tokio::test]
    async fn where_the_newer_refresh_token_is_refused_the_configured_one_is_tried() {
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": "t1", "refresh_token": "newer" })));
        fetch.answer(ScriptedAnswer::json(400, &json!({ "error": "invalid_grant" })));
        fetch.answer(ScriptedAnswer::json(400, &json!({ "error": "unknown" })));
        fetch.answer(ScriptedAnswer::json(400, &json!({ "error": "invalid_grant" })));
        fetch.answer(ScriptedAnswer::json(200, &json!({ "access_token": "t2" })));
        let tokens = tokens(&fetch, Some("first"), None);
        assert!(!tokens.is_renewed());
        let first = token(&tokens, None).await.expect("a token");
        assert!(tokens.is_renewed());
        let error = token(&tokens, Some(&first)).await.expect_err("neither is taken");
        assert!(error.message.contains("invalid_grant") && tokens.is_renewed(), "{error}");
        assert_eq!(token(&tokens, Some(&first)).await.expect("a token").expose(), "t2");
        for (at, sent) in [(1, "newer"), (2, "first"), (3, "newer"), (4, "first")] {
            assert!(body(&fetch, at).contains(&format!("refresh_token={sent}&")), "{at}: {}", body(&fetch, at));
        }
        assert!(!tokens.is_renewed(), "the configured one holds");
    }

    #[tokio::test]
    async fn what_is_not_granted_is_for_the_operator() {
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::json(400, &json!({ "error": "invalid_client" })));
        fetch.answer(ScriptedAnswer::pieces(503, [""]));
        let tokens = tokens(&fetch, None, None);
        let error = token(&tokens, None).await.expect_err("denied");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Denied, false));
        assert!(error.message.contains("invalid_client"));
        let error = token(&tokens, None).await.expect_err("down");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, false));
    }
}
