use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use dormouse_system::SystemClock;
use dynoxide::actions::transact_write_items::TransactWriteItemsRequest;
use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::tokens::RequestTokens;
use super::{EmbeddedError, failed};
use crate::lane::Turns;

/// Answer to a request: a status and a body.
pub(super) type RawAnswer = (u16, Vec<u8>);

/// The database, until it is stopped. Cheap to clone.
#[derive(Clone)]
pub(super) struct EmbeddedDatabase(Arc<OpenDatabase>);

struct OpenDatabase {
    database: RwLock<Option<Database>>,
    tokens: RequestTokens,
    /// It does one thing at a time: who asks much does not have all of it.
    turns: Turns,
    /// The processor on which it does that.
    processor: Turns,
}

impl fmt::Debug for EmbeddedDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EmbeddedDatabase")
    }
}

impl EmbeddedDatabase {
    pub(super) fn new(database: Database) -> Self {
        let processor = Turns::of_processor(Arc::new(SystemClock::default()));
        let turns = Turns::of_store(&processor);
        let database = RwLock::new(Some(database));
        Self(Arc::new(OpenDatabase { database, tokens: RequestTokens::default(), turns, processor }))
    }

    /// The processor of this machine, on which the database works.
    pub(super) fn processor(&self) -> Turns {
        self.0.processor.clone()
    }

    /// Executes `operation` in the turn of its lane; `None` when the store has stopped. Once begun it is done, even if its
    /// caller no longer waits. What writes does so on a thread that may wait for the disk. What reads a few items is done
    /// where it is asked for: to be handed to another thread and back takes longer than most of them, and each time is one at
    /// which all who keep the processor busy come first.
    pub(super) async fn serve(&self, operation: String, body: Vec<u8>) -> Option<RawAnswer> {
        let engine = self.clone();
        let obeying = self.0.turns.beside_steps(async move |turn| {
            let is_read = matches!(operation.as_str(), "GetItem" | "Query");
            let obey = move || {
                let answer = engine.obey(&operation, &body);
                drop(turn);
                answer
            };
            if is_read { obey() } else { tokio::task::spawn_blocking(obey).await.ok().flatten() }
        });
        obeying.await?
    }

    /// Lets `work` have the database.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, EmbeddedError> + Send + 'static,
    ) -> Result<T, EmbeddedError> {
        let engine = self.clone();
        let worked = tokio::task::spawn_blocking(move || {
            let database = engine.0.database.read().unwrap_or_else(PoisonError::into_inner);
            database.as_ref().map(work)
        });
        worked.await.map_err(failed)?.unwrap_or_else(|| Err(failed("it has stopped")))
    }

    /// Waits for what it was asked, and closes the database.
    pub(super) fn stop(&self) {
        self.0.database.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn obey(&self, operation: &str, body: &[u8]) -> Option<RawAnswer> {
        let database = self.0.database.read().unwrap_or_else(PoisonError::into_inner);
        Some(obey(database.as_ref()?, &self.0.tokens, operation, body))
    }
}

/// The operation that an `x-amz-target` names.
pub(super) fn operation_of(target: &str) -> &str {
    target.split_once('.').map_or("", |(_, operation)| operation)
}

fn obey(db: &Database, tokens: &RequestTokens, operation: &str, body: &[u8]) -> RawAnswer {
    match operation {
        "GetItem" => answer(body, |request| db.get_item(request)),
        "PutItem" => answer(body, |request| db.put_item(request)),
        "UpdateItem" => answer(body, |request| db.update_item(request)),
        "DeleteItem" => answer(body, |request| db.delete_item(request)),
        "Query" => answer(body, |request| db.query(request)),
        "Scan" => answer(body, |request| db.scan(request)),
        "BatchGetItem" => answer(body, |request| db.batch_get_item(request)),
        "BatchWriteItem" => answer(body, |request| db.batch_write_item(request)),
        "TransactGetItems" => answer(body, |request| db.transact_get_items(request)),
        "TransactWriteItems" => transact(db, tokens, body),
        "CreateTable" => answer(body, |request| db.create_table(request)),
        "DescribeTable" => answer(body, |request| db.describe_table(request)),
        "DeleteTable" => answer(body, |request| db.delete_table(request)),
        "ListTables" => answer(body, |request| db.list_tables(request)),
        "UpdateTable" => answer(body, |request| db.update_table(request)),
        "UpdateTimeToLive" => answer(body, |request| db.update_time_to_live(request)),
        "DescribeTimeToLive" => answer(body, |request| db.describe_time_to_live(request)),
        _ => refusal(
            400,
            "com.amazon.coral.service#UnknownOperationException",
            "the embedded store has no such operation",
        ),
    }
}

fn transact(db: &Database, tokens: &RequestTokens, body: &[u8]) -> RawAnswer {
    let mut request: TransactWriteItemsRequest = match read(body) {
        Ok(request) => request,
        Err(refusal) => return refusal,
    };
    match request.client_request_token.take() {
        Some(token) => tokens.once(token, body, || answer_of(db.transact_write_items(request))),
        None => answer_of(db.transact_write_items(request)),
    }
}

fn answer<Q: DeserializeOwned, A: Serialize>(
    body: &[u8],
    serve: impl FnOnce(Q) -> Result<A, DynoxideError>,
) -> RawAnswer {
    read(body).map_or_else(|refusal| refusal, |request| answer_of(serve(request)))
}

fn read<Q: DeserializeOwned>(body: &[u8]) -> Result<Q, RawAnswer> {
    let broken =
        |error: serde_json::Error| refusal(400, "com.amazon.coral.service#SerializationException", &error.to_string());
    serde_json::from_slice(body).map_err(broken)
}

fn answer_of<A: Serialize>(served: Result<A, DynoxideError>) -> RawAnswer {
    match served.map(|answer| serde_json::to_vec(&answer)) {
        Ok(Ok(body)) => (200, body),
        Ok(Err(error)) => refusal(500, "com.amazonaws.dynamodb.v20120810#InternalServerError", &error.to_string()),
        Err(error) => (error.status_code(), error.to_json().into_bytes()),
    }
}

/// An error in the words of DynamoDB.
pub(super) fn refusal(status: u16, kind: &str, message: &str) -> RawAnswer {
    (status, json!({ "__type": kind, "message": message }).to_string().into_bytes())
}
