//! The function that streams: it reads, and writes nothing but who has how many streams open. It knows no agents, and needs
//! no secrets.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use dormouse_api::{Keys, StreamLimits, StreamSeats};
use dormouse_aws::{DynamoDbStateStore, StoreConfig};
use dormouse_fetch::NetworkFetch;
use dormouse_http::{Content, Response, StreamParts, StreamServer, TriggerError};
use dormouse_ports::{Clock, Fetch, Spawner};
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};
use futures::StreamExt;
use futures::future::ready;
use futures::stream;
use serde_json::Value;

use crate::boot::{BootError, callers};
use crate::config::StreamConfig;
use crate::serve::{diagnostic, on_runtime, time_left};
use crate::streaming::{self, PiecewiseResponse};
use crate::tasks::CountedTasks;
use crate::{gateway, telemetry};

/// Life of a stream that is sent as it comes: it is paid for to its end, also when the client has left.
const LIFE: Duration = Duration::from_secs(300);
/// The longest that the next event has to wait for what a stream has left to be done: its seat is given back.
const TO_SETTLE: Duration = Duration::from_secs(1);

/// Serves streams as the function `stream`: boots once, then serves events until Lambda ends the process.
pub fn serve_streams() -> ExitCode {
    on_runtime(boot, serve)
}

async fn boot() -> Result<(StreamServer, CountedTasks), BootError> {
    telemetry::init_without_exporter();
    let tasks = CountedTasks::new();
    Ok((composed(StreamConfig::from_env()?, Arc::new(tasks.clone())), tasks))
}

async fn serve((server, tasks): (StreamServer, CountedTasks)) -> Result<(), lambda_runtime::Error> {
    let handler = |event, deadline| {
        let server = server.clone();
        async move { stream(&server, event, deadline).await.map_err(diagnostic) }
    };
    streaming::serve(handler, async || tasks.settle(TO_SETTLE).await).await
}

/// Answers piece by piece.
async fn stream(server: &StreamServer, event: Value, deadline: u64) -> Result<PiecewiseResponse, TriggerError> {
    let left = time_left(&SystemClock::default(), deadline);
    let response = server.http(gateway::decode(event, Some(left))?).await;
    let prelude = gateway::prelude(&response);
    let Response { content, .. } = response;
    let pieces = match content {
        Content::Whole(bytes) => stream::once(ready(bytes)).boxed(),
        Content::Live(pieces) => pieces,
    };
    Ok(PiecewiseResponse { prelude, pieces: pieces.map(Ok).boxed() })
}

/// The server of streams with `config`. Nothing is asked of AWS before the first request.
pub fn compose_streams(config: StreamConfig) -> StreamServer {
    composed(config, Arc::new(TokioSpawner))
}

/// The same, whose streams have `spawner` do what they leave to be done.
fn composed(config: StreamConfig, spawner: Arc<dyn Spawner>) -> StreamServer {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let ids = Arc::new(RandomIds);
    let store = Arc::new(DynamoDbStateStore::new(&config.access.dynamodb(), config.table, StoreConfig::default()));
    let seats = config.quotas.streams_of_tenant.map(|of_tenant| StreamSeats {
        records: store.clone(),
        documents: store.clone(),
        ids: ids.clone(),
        clock: clock.clone(),
        spawner,
        of_tenant,
    });
    let fetch: Arc<dyn Fetch> = Arc::new(NetworkFetch::new());
    StreamServer::new(StreamParts {
        keys: callers(Keys::new(store.clone()), config.issuers, &fetch).under(config.quotas.access, true),
        records: store,
        clock,
        ids,
        base_url: config.base_url,
        origins: config.origins,
        limits: StreamLimits { life: LIFE, ..StreamLimits::default() },
        seats,
    })
}
