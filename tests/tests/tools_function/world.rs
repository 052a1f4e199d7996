//! As much of S3 and Lambda as the adapter and the function see of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::config::Credentials;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method as HttpMethod, StatusCode, Uri};
use dormouse_aws::{AwsAccess, Endpoints, FunctionBackend, ToolsFunction};
use dormouse_ports::{Fetch, FetchError, FetchRequest, FetchResponse};
use dormouse_system::SystemClock;
use dormouse_tests::lambda::Lambda;
use dormouse_tools::{CopyLimits, CopyWorker};
use futures::StreamExt;
use tokio::net::TcpListener;

/// The digest of the bundle that every workspace has.
pub(crate) const DIGEST: &str = "aa";
/// The secret of the role.
pub(crate) const HUSH: &str = "hush-hush-hush";

/// What is called as the function.
#[derive(Clone)]
pub(crate) enum Called {
    Worker(Arc<CopyWorker>),
    Binary(Arc<Lambda>),
}

/// A store of objects, and a function.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) objects: Objects,
    called: Called,
    address: String,
}

/// Objects by their paths, with a version each.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<BTreeMap<String, Versioned>>>);

/// An object, and the number of its version.
type Versioned = (u64, Vec<u8>);

impl Objects {
    /// With the bundle of the workspaces `desk` and `other`, and one without files for `bare`.
    pub(crate) fn new() -> Self {
        let objects = Self::default();
        let bundle = br##"{"format":1,"files":[{"path":"AGENTS.md","text":"# Rules"},{"path":".openharness/actions/hi/run.sh","text":"echo hi"}]}"##;
        let bare = br#"{"format":1,"files":[]}"#;
        for (name, bundle) in [("desk", &bundle[..]), ("other", &bundle[..]), ("bare", &bare[..])] {
            let path = format!("/bucket/workspaces/{name}/bundles/{DIGEST}.json");
            objects.0.lock().expect("the objects").insert(path, (1, bundle.to_vec()));
        }
        objects
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.0.lock().expect("the objects").keys().cloned().collect()
    }

    /// Status, version and body of the answer to a request.
    fn answer(
        &self,
        method: &str,
        path: &str,
        header: impl Fn(&str) -> Option<String>,
        body: &[u8],
    ) -> (u16, String, Vec<u8>) {
        let mut objects = self.0.lock().expect("the objects");
        let found = objects.get(path).cloned();
        let named = |version: u64| format!("\"{version}\"");
        if method == "GET" {
            return match found {
                Some((version, bytes)) => (200, named(version), bytes),
                None => (404, String::new(), Vec::new()),
            };
        }
        let holds = match (header("if-match"), header("if-none-match")) {
            (Some(version), _) => found.as_ref().is_some_and(|(known, _)| named(*known) == version),
            (None, Some(_)) => found.is_none(),
            (None, None) => false,
        };
        if !holds {
            return (412, String::new(), Vec::new());
        }
        let version = found.map_or(0, |(version, _)| version) + 1;
        objects.insert(path.to_owned(), (version, body.to_vec()));
        (200, named(version), Vec::new())
    }

    /// Serves them over HTTP: the address. A request whose address carries no permission is refused.
    pub(crate) async fn serve(&self) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let routes = Router::new().fallback(over_http).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        address
    }
}

async fn over_http(
    State(objects): State<Objects>,
    method: HttpMethod,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, String); 1], Vec<u8>) {
    if !uri.query().is_some_and(|query| query.contains("X-Amz-Signature=")) {
        return (StatusCode::FORBIDDEN, [("etag", String::new())], Vec::new());
    }
    let header = |name: &str| Some(headers.get(name)?.to_str().expect("a text").to_owned());
    let (status, version, bytes) = objects.answer(method.as_str(), uri.path(), header, &body);
    (StatusCode::from_u16(status).expect("a status"), [("etag", version)], bytes)
}

impl World {
    /// With a worker in this process, whose copies are below `folder`.
    pub(crate) fn with_worker(folder: &Path) -> Self {
        let objects = Objects::new();
        let fetch = Arc::new(OnlyObjects(objects.clone()));
        let worker = CopyWorker::new(fetch, folder, CopyLimits::default());
        Self { objects, called: Called::Worker(Arc::new(worker)), address: "http://127.0.0.1:1".to_owned() }
    }

    /// With the binary of the function, which finds the objects at `address`.
    pub(crate) fn with_binary(objects: Objects, address: String, binary: Lambda) -> Self {
        Self { objects, called: Called::Binary(Arc::new(binary)), address }
    }

    pub(crate) fn backend(&self, workspace: &str) -> FunctionBackend {
        let credentials = Credentials::new("AKIDEXAMPLE", "of-the-caller", None, None, "test");
        let endpoints = Endpoints { all: Some(self.address.clone()), ..Endpoints::default() };
        let access = AwsAccess { region: "eu-central-1".to_owned(), credentials, endpoints };
        let (fetch, clock) = (Arc::new(self.clone()), Arc::new(SystemClock::default()));
        ToolsFunction::new(&access, "tools", ("bucket", "workspaces/"), fetch, clock).of(workspace, DIGEST)
    }
}

/// What the adapter sends goes to the function.
#[async_trait]
impl Fetch for World {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        assert!(request.url.ends_with("/2015-03-31/functions/tools/invocations"), "{}", request.url);
        let event: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        let answer = match &self.called {
            Called::Worker(worker) => {
                let asked = serde_json::from_value(event).expect("a request");
                let reply = worker.handle(asked, Duration::from_secs(120)).await;
                serde_json::to_vec(&reply).expect("JSON")
            }
            Called::Binary(binary) => match binary.invoke(event).await {
                Ok(reply) => serde_json::to_vec(&reply).expect("JSON"),
                Err(error) => panic!("the function failed: {error}"),
            },
        };
        Ok(response(200, Vec::new(), answer))
    }
}

/// HTTP out to the objects and to nothing else.
struct OnlyObjects(Objects);

#[async_trait]
impl Fetch for OnlyObjects {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let rest = request.url.strip_prefix("http://127.0.0.1:1").expect("an address of the objects");
        let (path, query) = rest.split_once('?').expect("a permission");
        assert!(query.contains("X-Amz-Signature="), "{query}");
        let header = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.expose().to_owned())
        };
        let (status, version, bytes) = self.0.answer(request.method.as_str(), path, header, &request.body);
        Ok(response(status, vec![("etag".to_owned(), version)], bytes))
    }
}

fn response(status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> FetchResponse {
    FetchResponse { status, headers, body: futures::stream::iter([Ok(body)]).boxed() }
}
