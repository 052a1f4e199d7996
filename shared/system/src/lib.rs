//! The machine that the process runs on, as ports: its clock, random ids, tasks of its Tokio runtime, secrets of
//! its environment.
//!
//! Every composition root takes them from here. Imports `dormouse-ports` alone: it knows no store, no vendor and no
//! service.

#![warn(missing_docs)]

mod secrets;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use dormouse_ports::{Clock, IdSource, Spawner};
use futures::future::BoxFuture;
use jiff::Timestamp;

pub use secrets::{EnvironmentSecrets, VaultEnvironment};

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// Random UUIDs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl IdSource for RandomIds {
    fn fresh(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }
}

/// Bytes that cannot be guessed, for a secret that only this process has.
pub fn random_secret() -> [u8; 32] {
    rand::random()
}

/// Runs work on the current Tokio runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSpawner;

impl Spawner for TokioSpawner {
    /// # Panics
    /// Outside of a Tokio runtime.
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
