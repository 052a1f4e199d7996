//! The adapter of DynamoDB over an embedded database in the same process: no socket, no thread, no clock but that of the
//! simulation. Every request of a process is a ticket, as a call on any other port is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{AsyncSleep, Sleep};
use dormouse_aws::{DynamoDbStateStore, RetryPolicy, StoreConfig, ensure_table};
use dormouse_ports::Clock;
use dynoxide::Database;
use jiff::Timestamp;
use serde_json::json;

use super::PAGE_SIZE;
use super::outside::at_once;
use super::planted::{self, PlantedBug};
use super::sim_ports::SimPorts;
use super::world::START;
use crate::in_process::{self, Body, Destination, Never, Said, config_of};

/// The name of the table.
pub(crate) const TABLE: &str = "dormouse";

/// The database, and what is wrong with it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    database: Database,
    planted: Option<PlantedBug>,
}

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
        in_process::obey(&self.database, operation, body)
    }
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
    let client = config_of(sim_ports.clone()).sleep_impl(Naps(sim_ports.clone()));
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
    Client::from_conf(config_of(engine).sleep_impl(Never).timeout_config(timeless).build())
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

/// What the table says to a transaction that came too late.
pub(crate) fn dropped() -> (u16, Body) {
    let refusal = json!({ "__type": "com.amazonaws.dynamodb.v20120810#InternalServerError", "message": "too late" });
    (500, refusal.to_string().into_bytes())
}

/// Sleeps by the clock of a process.
#[derive(Debug)]
struct Naps(Arc<SimPorts>);

impl AsyncSleep for Naps {
    fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(self.0.nap(duration))
    }
}
