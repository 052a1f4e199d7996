use dormouse_ports::Spawner;
use futures::future::BoxFuture;

/// Runs work on the Tokio runtime of the test.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSpawner;

impl Spawner for TokioSpawner {
    /// # Panics
    /// Outside of a Tokio runtime.
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}
