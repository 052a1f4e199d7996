//! Tasks beside the events of a function: they stop where they are when it asks for its next event and is frozen, and go on
//! with that.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::Spawner;
use dormouse_system::TokioSpawner;
use futures::future::BoxFuture;
use tokio::sync::watch;

/// Runs tasks on the current Tokio runtime, and knows how many are not done. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CountedTasks(Arc<watch::Sender<usize>>);

/// A task that is not done.
struct UnderWay(CountedTasks);

impl CountedTasks {
    /// Without tasks.
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Waits until all tasks are done, those that they begin too, for at most the time `most`.
    pub(crate) async fn settle(&self, most: Duration) {
        let mut count = self.0.subscribe();
        let done = count.wait_for(|count| *count == 0);
        if tokio::time::timeout(most, done).await.is_err() {
            tracing::debug!("what a stream has left to be done goes on with the next event");
        }
    }
}

impl UnderWay {
    fn of(tasks: &CountedTasks) -> Self {
        tasks.0.send_modify(|count| *count += 1);
        Self(tasks.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Self(CountedTasks(count)) = self;
        count.send_modify(|count| *count -= 1);
    }
}

impl Spawner for CountedTasks {
    /// # Panics
    /// Outside of a Tokio runtime.
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let under_way = UnderWay::of(self);
        TokioSpawner.spawn(Box::pin(async move {
            task.await;
            drop(under_way);
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;
    use futures::channel::oneshot;
    use futures::future::pending;
    use tokio::task::yield_now;

    use super::*;

    /// Longer than any test.
    const EVER: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn it_waits_for_all_tasks_and_for_those_that_they_begin() {
        let tasks = CountedTasks::new();
        tasks.settle(EVER).await;
        let (end, ended) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let others = tasks.clone();
        tasks.spawn(Box::pin(async move {
            ended.await.expect("it is told to end");
            others.spawn(Box::pin(async move {
                yield_now().await;
                done.send(()).expect("somebody asks");
            }));
        }));
        let mut settles = pin!(tasks.settle(EVER));
        yield_now().await;
        assert!(futures::poll!(&mut settles).is_pending());
        end.send(()).expect("it waits");
        settles.await;
        assert_eq!(is_done.now_or_never(), Some(Ok(())));
    }

    #[tokio::test]
    async fn it_waits_no_longer_than_it_may() {
        let tasks = CountedTasks::new();
        tasks.spawn(Box::pin(pending()));
        tasks.settle(Duration::from_millis(10)).await;
        assert_eq!(*tasks.0.borrow(), 1);
    }
}
