//! The adapter of DynamoDB over an embedded database in the same process: no socket, no thread, no clock but that of the
//! simulation. Every request of a process is a ticket, as a call on any other port is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
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
use dormouse_aws::{DynamoDbStateStore, RetryPolicy, StoreConfig, ensure_table};
use dormouse_ports::Clock;
use dynoxide::{Database, DynoxideError};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::PAGE_SIZE;
use super::outside::at_once;
use super::planted::{self, PlantedBug};
use super::sim_ports::SimPorts;
use super::world::START;

/// The name of the table.
pub(crate) const TABLE: &str = "dormouse";

/// A request, or what it is answered with.
pub(crate) type Body = Vec<u8>;

/// The database, and what is wrong with it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    database: Database,
    planted: Option<PlantedBug>,
}

/// What the database says: a status and a body; or why nobody knows.
pub(crate) type Said = Result<(u16, Body), &'static str>;

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// A database with the empty table.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub(crate) fn new(planted: Option<PlantedBug>) -> Self {
        let engine = Self { database: Database::memory().expect("a database in memory"), planted };
        at_once(ensure_table(&client(engine.clone()), TABLE)).expect("a table");
        engine
    }

    /// The store as it is, past all that happens to requests.
    pub(crate) fn truth(&self) -> DynamoDbStateStore {
        let config = StoreConfig { page_size: 1000, ..config() };
        DynamoDbStateStore::new(&client(self.clone()), TABLE, config).timed_by(Arc::new(Dawn))
    }

    /// Does what `operation` says, as far as no bug is in the way.
    pub(crate) fn serve(&self, operation: &str, body: &[u8]) -> (u16, Body) {
        planted::serve(self, self.planted, operation, body)
    }

    /// Does what `operation` says.
    pub(crate) fn obey(&self, operation: &str, body: &[u8]) -> (u16, Body) {
        let db = &self.database;
        let answer = match operation {
            "GetItem" => answer(body, |request| db.get_item(request)),
            "PutItem" => answer(body, |request| db.put_item(request)),
            "UpdateItem" => answer(body, |request| db.update_item(request)),
            "DeleteItem" => answer(body, |request| db.delete_item(request)),
            "Query" => answer(body, |request| db.query(request)),
            "Scan" => answer(body, |request| db.scan(request)),
            "BatchGetItem" => answer(body, |request| db.batch_get_item(request)),
            "BatchWriteItem" => answer(body, |request| db.batch_write_item(request)),
            "TransactWriteItems" => answer(body, |request| db.transact_write_items(request)),
            "CreateTable" => answer(body, |request| db.create_table(request)),
            "DescribeTable" => answer(body, |request| db.describe_table(request)),
            "UpdateTable" => answer(body, |request| db.update_table(request)),
            "UpdateTimeToLive" => answer(body, |request| db.update_time_to_live(request)),
            other => panic!("the store asks for {other}, which nobody expects"),
        };
        answer.unwrap_or_else(|error| (error.status_code(), error.to_json().into_bytes()))
    }
}

fn answer<Q: DeserializeOwned, A: Serialize>(
    body: &[u8],
    serve: impl FnOnce(Q) -> Result<A, DynoxideError>,
) -> Result<(u16, Body), DynoxideError> {
    let broken = |error: serde_json::Error| DynoxideError::InternalServerError(error.to_string());
    let answer = serve(serde_json::from_slice(body).map_err(broken)?)?;
    Ok((200, serde_json::to_vec(&answer).map_err(broken)?))
}

/// States of a few words are blobs, lists are in pieces, and listings have several pages.
fn config() -> StoreConfig {
    let retry = RetryPolicy { attempts: 3, base: Duration::ZERO, cap: Duration::ZERO };
    StoreConfig {
        inline_limit: 96,
        whole_limit: 64,
        page_size: i32::from(PAGE_SIZE),
        retry,
        under_way: UNDER_WAY,
        ..StoreConfig::default()
    }
}

/// How long after it was sent a commit may take effect, by the clocks of processes.
const UNDER_WAY: Duration = Duration::from_secs(12);

/// After which time a transaction is dropped that has not begun.
pub(crate) const DROPPED: Duration = Duration::from_secs(7);

/// The store as a process has it.
pub(crate) fn store(sim_ports: &Arc<SimPorts>) -> DynamoDbStateStore {
    let client = builder().sleep_impl(Naps(sim_ports.clone())).http_client(Line(sim_ports.clone()));
    DynamoDbStateStore::new(&Client::from_conf(client.build()), TABLE, config())
        .timed_by(Arc::new(Sent(sim_ports.clone())))
}

/// The clock by which commits are sent.
struct Sent(Arc<SimPorts>);

#[async_trait]
impl Clock for Sent {
    fn now(&self) -> Timestamp {
        self.0.sent_at()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration).await;
    }
}

/// The clock of what was there before the run.
struct Dawn;

#[async_trait]
impl Clock for Dawn {
    fn now(&self) -> Timestamp {
        START
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {}
}

fn client(engine: Engine) -> Client {
    let timeless = aws_smithy_types::timeout::TimeoutConfig::disabled();
    Client::from_conf(builder().sleep_impl(Never).timeout_config(timeless).http_client(Line(engine)).build())
}

fn builder() -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        // Nobody looks at signatures here, and they take long to make.
        .allow_no_auth()
        .identity_cache(IdentityCache::no_cache())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .endpoint_url("http://dynamodb")
}

/// Where requests go.
trait Destination: std::fmt::Debug + Clone + Send + Sync + 'static {
    fn send(self, operation: &'static str, body: Body) -> impl Future<Output = Said> + Send;
}

impl Destination for Engine {
    async fn send(self, operation: &'static str, body: Body) -> Said {
        Ok(self.serve(operation, &body))
    }
}

impl Destination for Arc<SimPorts> {
    async fn send(self, operation: &'static str, body: Body) -> Said {
        self.ask_dynamodb(operation, body).await
    }
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

/// What the table says to a transaction that came too late.
pub(crate) fn dropped() -> (u16, Body) {
    let refusal = json!({ "__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "too late" });
    (500, refusal.to_string().into_bytes())
}

/// What a busy table says to `operation`.
pub(crate) fn throttled(operation: &str, body: &[u8]) -> (u16, Body) {
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

/// Sleeps by the clock of a process.
#[derive(Debug)]
struct Naps(Arc<SimPorts>);

impl AsyncSleep for Naps {
    fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(self.0.nap(duration))
    }
}

/// For requests that never take any time.
#[derive(Debug)]
struct Never;

impl AsyncSleep for Never {
    fn sleep(&self, _: Duration) -> Sleep {
        Sleep::new(std::future::pending())
    }
}
