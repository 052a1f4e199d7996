//! The database of DynamoDB in the same process, as the SDK's client asks it: without a socket, a thread or a clock. Where
//! requests go is up to who takes them.

use std::time::Duration;

use aws_sdk_dynamodb::config::{
    AsyncSleep, BehaviorVersion, HttpClient, IdentityCache, Region, RuntimeComponents, Sleep,
    StalledStreamProtectionConfig,
};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A request, or what it is answered with.
pub type Body = Vec<u8>;

/// What the database says: a status and a body; or why nobody knows.
pub type Said = Result<(u16, Body), &'static str>;

/// Does what `operation` says.
///
/// # Panics
/// When the store never asks for that.
pub fn obey(database: &Database, operation: &str, body: &[u8]) -> (u16, Body) {
    let answer = match operation {
        "GetItem" => answer(body, |request| database.get_item(request)),
        "PutItem" => answer(body, |request| database.put_item(request)),
        "UpdateItem" => answer(body, |request| database.update_item(request)),
        "DeleteItem" => answer(body, |request| database.delete_item(request)),
        "Query" => answer(body, |request| database.query(request)),
        "Scan" => answer(body, |request| database.scan(request)),
        "BatchGetItem" => answer(body, |request| database.batch_get_item(request)),
        "BatchWriteItem" => answer(body, |request| database.batch_write_item(request)),
        "TransactWriteItems" => answer(body, |request| database.transact_write_items(request)),
        "CreateTable" => answer(body, |request| database.create_table(request)),
        "DescribeTable" => answer(body, |request| database.describe_table(request)),
        "UpdateTable" => answer(body, |request| database.update_table(request)),
        "UpdateTimeToLive" => answer(body, |request| database.update_time_to_live(request)),
        other => panic!("the store asks for {other}, which nobody expects"),
    };
    answer.unwrap_or_else(|error| (error.status_code(), error.to_json().into_bytes()))
}

fn answer<Q: DeserializeOwned, A: Serialize>(
    body: &[u8],
    serve: impl FnOnce(Q) -> Result<A, DynoxideError>,
) -> Result<(u16, Body), DynoxideError> {
    let broken = |error: serde_json::Error| DynoxideError::InternalServerError(error.to_string());
    let answer = serve(serde_json::from_slice(body).map_err(broken)?)?;
    Ok((200, serde_json::to_vec(&answer).map_err(broken)?))
}

/// What a busy table says to `operation`.
pub fn throttled(operation: &str, body: &[u8]) -> (u16, Body) {
    let refusal = match operation {
        // Another transaction holds one of the items.
        "TransactWriteItems" => {
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            let items = body["TransactItems"].as_array().map_or(1, Vec::len);
            let mut reasons = vec![json!({ "Code": "None" }); items];
            reasons[items - 1] = json!({ "Code": "TransactionConflict", "Message": "another transaction is ongoing" });
            json!({ "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "message": "Transaction cancelled", "CancellationReasons": reasons })
        }
        _ => json!({ "__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException", "message": "slow down" }),
    };
    (400, refusal.to_string().into_bytes())
}

/// How a client is configured whose requests go to `destination`; who uses it says how it sleeps.
pub fn config_of(destination: impl Destination) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        // Nobody looks at signatures here, and they take long to make.
        .allow_no_auth()
        .identity_cache(IdentityCache::no_cache())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .endpoint_url("http://dynamodb")
        .http_client(Line(destination))
}

/// Where requests go.
pub trait Destination: std::fmt::Debug + Clone + Send + Sync + 'static {
    /// What is said to the request.
    fn send(self, operation: &'static str, body: Body) -> impl Future<Output = Said> + Send;
}

/// What the SDK sends requests by.
#[derive(Clone, Debug)]
struct Line<D>(D);

impl<D: Destination> HttpClient for Line<D> {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl<D: Destination> HttpConnector for Line<D> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").and_then(|target| target.split_once('.'));
        let operation = target.and_then(|(_, name)| OPERATIONS.into_iter().find(|known| *known == name));
        let body = request.body().bytes().unwrap_or_default().to_vec();
        let destination = self.0.clone();
        HttpConnectorFuture::new(async move {
            let Some(operation) = operation else {
                return Err(ConnectorError::user("a request of an operation that nobody expects".into()));
            };
            let (status, body) =
                destination.send(operation, body).await.map_err(|why| ConnectorError::io(why.into()))?;
            let status = StatusCode::try_from(status).map_err(|error| ConnectorError::user(error.into()))?;
            Ok(HttpResponse::new(status, SdkBody::from(body)))
        })
    }
}

/// What the store asks for.
const OPERATIONS: [&str; 13] = [
    "GetItem",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "Query",
    "Scan",
    "BatchGetItem",
    "BatchWriteItem",
    "TransactWriteItems",
    "CreateTable",
    "DescribeTable",
    "UpdateTable",
    "UpdateTimeToLive",
];

/// For requests that never take any time.
#[derive(Debug)]
pub struct Never;

impl AsyncSleep for Never {
    fn sleep(&self, _: Duration) -> Sleep {
        Sleep::new(std::future::pending())
    }
}
