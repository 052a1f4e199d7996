//! Servers that want to know who asks, and what they repeat of that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use dormouse_ports::tool::{ToolErrorKind, ToolSource};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::{McpTransport, OAuth};
use libtest_mimic::Trial;
use serde_json::json;

use super::{http, scripted, service};
use crate::peer::Peer;
use crate::trial;
use crate::world::{call, host_router, output, server, template, text};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("trouble::a_key_that_is_sent_and_never_shown", keyed),
        trial("trouble::a_secret_that_a_server_repeats_of_its_tools", repeats),
        trial("trouble::a_secret_that_is_a_value_of_a_parameter", allows),
        trial("trouble::an_authorization_that_is_missing", unauthorized),
        trial("trouble::an_access_token_that_expires", token),
        trial("trouble::a_refresh_token_that_is_replaced", rotated),
    ]
}

/// Lets through what has one of `keys` in its header `authorization`, and remembers what others had.
fn guarded(peer: &Peer, keys: Arc<Mutex<Vec<String>>>) -> Router {
    let guard = move |request: Request, next: Next| {
        let keys = keys.clone();
        async move {
            let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            let is_known = shown.is_some_and(|shown| keys.lock().expect("a lock").iter().any(|key| key == shown));
            match is_known {
                true => next.run(request).await,
                false => challenge(),
            }
        }
    };
    Router::new().fallback_service(service(peer)).layer(axum::middleware::from_fn(guard))
}

fn challenge() -> Response {
    let challenge = r#"Bearer resource_metadata="http://127.0.0.1/.well-known/oauth-protected-resource""#;
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)], "").into_response()
}

async fn keyed() {
    let keys = Arc::new(Mutex::new(vec!["Bearer s3cret".to_owned()]));
    for is_older in [false, true] {
        let peer = Peer::older(is_older);
        let host = host_router(peer.clone(), guarded(&peer, keys.clone()), 0).await;
        let config = http(&host.url).header("Authorization", template("Bearer ${secrets.token}")).expect("a header");
        let (server, _) = server(config);
        assert_eq!(text(server.call(&call("fail", json!({}))).await), "out of paper");
        let shown = format!("{server:?}");
        assert!(!shown.contains("s3cret") && shown.contains("${secrets.token}"), "{shown}");
    }
}

/// What a server says of its tools is without the secrets that it was sent.
async fn repeats() {
    let key = |said: &str| json!({ "type": "string", "description": said });
    let host = scripted(move |method| {
        let schema = json!({ "type": "object", "properties": { "key": key("as s3cret") }, "required": ["key"] });
        let tool = json!({ "name": "a", "title": "A s3cret", "description": "with s3cret", "inputSchema": schema });
        (method == "tools/list").then(|| json!({ "tools": [tool] }))
    })
    .await;
    let (server, _) = server(http(&host.url).header("x-key", template("${secrets.key}")).expect("a header"));
    let listed = server.list().await.expect("a list");
    let spec = listed.first().expect("a tool");
    assert_eq!((spec.title.as_deref(), spec.description.as_str()), (Some("A [secret]"), "with [secret]"));
    assert_eq!(spec.input_schema["properties"]["key"], key("as [secret]"));
    assert_eq!(spec.input_schema["required"], json!(["key"]));
}

/// What a tool takes is told as it is: another value would be refused, and be sent to no use.
async fn allows() {
    let org = |said: &str| json!({ "enum": ["s3cret", "x"], "default": "s3cret", "description": said });
    let host = scripted(move |method| {
        let schema = json!({ "type": "object", "properties": { "org": org("as s3cret") } });
        (method == "tools/list").then(|| json!({ "tools": [{ "name": "a", "inputSchema": schema }] }))
    })
    .await;
    let (server, _) = server(http(&host.url).header("x-org", template("${secrets.org}")).expect("a header"));
    let listed = server.list().await.expect("a list");
    assert_eq!(listed.first().expect("a tool").input_schema["properties"]["org"], org("as [secret]"));
}

async fn unauthorized() {
    for is_older in [false, true] {
        let peer = Peer::older(is_older);
        let host = host_router(peer.clone(), guarded(&peer, Arc::default()), 0).await;
        let (server, _) = server(http(&host.url));
        let error = server.list().await.expect_err("who asks?");
        assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Denied, false), "{error}");
        for told in ["resource_metadata", "authorization: Bearer", "`oauth`", "or does not accept the one"] {
            assert!(error.message.contains(told), "{told}: {error}");
        }
    }
}

async fn token() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let granted = Arc::new(AtomicUsize::new(0));
    let granting = granted.clone();
    let known = keys.clone();
    let grant = move || {
        let token = format!("granted-{}", granting.fetch_add(1, Ordering::SeqCst));
        *known.lock().expect("a lock") = vec![format!("Bearer {token}")];
        async move { axum::Json(json!({ "access_token": token, "token_type": "bearer", "expires_in": 3600 })) }
    };
    let peer = Peer::default();
    let router = Router::new().route("/token", post(grant)).fallback_service(guarded(&peer, keys.clone()));
    let host = host_router(peer.clone(), router, 0).await;
    let oauth = OAuth {
        token_url: template(&host.url.replace("/mcp", "/token")),
        client_id: template("dormouse"),
        client_secret: Some(template("${secrets.client}")),
        refresh_token: None,
        token_endpoint_auth_method: None,
        scope: None,
        resource: None,
    };
    let transport = McpTransport::Http { url: template(&host.url), headers: Vec::new(), oauth: Some(Box::new(oauth)) };
    let (server, _) = server(McpConfig::new("peer", transport));
    assert_eq!(text(server.call(&call("fail", json!({}))).await), "out of paper");
    assert_eq!(granted.load(Ordering::SeqCst), 1);
    let echoed = output(server.call(&call("echo", json!({ "text": "Bearer granted-0" }))).await).structured;
    assert_eq!(echoed, Some(json!({ "said": "Bearer [secret]" })), "what a server is shown it may repeat");
    // The server takes the token back: what it refused is sent again with another one.
    keys.lock().expect("a lock").clear();
    assert_eq!(
        output(server.call(&call("echo", json!({ "text": "a" }))).await).structured,
        Some(json!({ "said": "a" }))
    );
    assert_eq!(granted.load(Ordering::SeqCst), 2);
}

/// Each refresh token is good once, and the next conversation goes on with the last one.
async fn rotated() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let known = keys.clone();
    let granted = Arc::new(AtomicUsize::new(0));
    let granting = granted.clone();
    let grant = move |body: String| {
        let before = granting.load(Ordering::SeqCst);
        let is_last = body.contains(&format!("refresh_token=refresh-{before}&"));
        let now = if is_last { granting.fetch_add(1, Ordering::SeqCst) + 1 } else { before };
        if is_last {
            *known.lock().expect("a lock") = vec![format!("Bearer token-{now}")];
        }
        async move {
            match is_last {
                true => axum::Json(json!({ "access_token": format!("token-{now}"),
                    "refresh_token": format!("refresh-{now}") }))
                .into_response(),
                false => (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": "invalid_grant" }))).into_response(),
            }
        }
    };
    let peer = Peer::older(true);
    let router = Router::new().route("/token", post(grant)).fallback_service(guarded(&peer, keys.clone()));
    let host = host_router(peer.clone(), router, 0).await;
    let oauth = OAuth {
        token_url: template(&host.url.replace("/mcp", "/token")),
        client_id: template("dormouse"),
        client_secret: None,
        refresh_token: Some(template("refresh-0")),
        token_endpoint_auth_method: None,
        scope: None,
        resource: None,
    };
    let transport = McpTransport::Http { url: template(&host.url), headers: Vec::new(), oauth: Some(Box::new(oauth)) };
    let (server, _) = server(McpConfig::new("peer", transport));
    for conversation in 1..=3 {
        assert_eq!(text(server.call(&call("fail", json!({}))).await), "out of paper");
        assert_eq!(granted.load(Ordering::SeqCst), conversation);
        server.close().await;
        keys.lock().expect("a lock").clear();
    }
}
