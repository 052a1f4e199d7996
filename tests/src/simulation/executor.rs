use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;

use super::world::ProcessId;

/// Polls tasks on one thread, in an order that chance decides. It knows neither time nor threads, so that a run
/// depends on its seed alone.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: BTreeMap<u64, Task>,
    ready: Arc<Mutex<Vec<u64>>>,
    last: u64,
}

struct Task {
    process: ProcessId,
    future: BoxFuture<'static, ()>,
    waker: Waker,
}

struct Alarm {
    task: u64,
    ready: Arc<Mutex<Vec<u64>>>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.contains(&self.task) {
            ready.push(self.task);
        }
    }
}

impl Executor {
    /// The number of the task.
    pub(crate) fn spawn(&mut self, process: ProcessId, future: BoxFuture<'static, ()>) -> u64 {
        self.last += 1;
        let alarm = Arc::new(Alarm { task: self.last, ready: self.ready.clone() });
        self.tasks.insert(self.last, Task { process, future, waker: Waker::from(alarm.clone()) });
        alarm.wake();
        self.last
    }

    /// Polls one task that is ready, after `entering` was told whose it is; its number, or nothing when none is.
    pub(crate) fn poll_one(&mut self, chance: &mut fastrand::Rng, entering: impl FnOnce(ProcessId)) -> Option<u64> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.is_empty() {
            return None;
        }
        let next = chance.usize(..ready.len());
        let id = ready.swap_remove(next);
        drop(ready);
        if let Some(task) = self.tasks.get_mut(&id) {
            entering(task.process);
            let waker = task.waker.clone();
            if let Poll::Ready(()) = task.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.tasks.remove(&id);
            }
        }
        Some(id)
    }

    /// Drops every task of `process`, wherever it is.
    pub(crate) fn kill(&mut self, process: ProcessId) {
        self.tasks.retain(|_, task| task.process != process);
    }

    /// How many tasks there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}
