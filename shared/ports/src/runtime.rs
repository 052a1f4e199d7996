use std::time::Duration;

use async_trait::async_trait;
use futures_core::future::BoxFuture;
use jiff::Timestamp;

/// Wall time and waiting. The one place where time enters.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The current instant.
    fn now(&self) -> Timestamp;

    /// A monotonic reading; only differences mean something.
    fn monotonic(&self) -> Duration;

    /// Completes after `duration`.
    async fn sleep(&self, duration: Duration);
}

/// A source of fresh identifiers.
pub trait IdSource: Send + Sync {
    /// A new identifier that no other call anywhere returns: a UUIDv4 in its hyphenated form in production.
    fn fresh(&self) -> String;
}

/// Runs work beside the caller.
pub trait Spawner: Send + Sync {
    /// Starts `task`; it makes progress without being awaited.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}
