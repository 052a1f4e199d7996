//! Ending in order: running work is notified of the end, and is waited for.

use tokio::sync::{mpsc, watch};

/// The time in which work may begin. Ended by [`end`](Self::end).
#[derive(Debug)]
pub(crate) struct Shutdown {
    stop: watch::Sender<bool>,
    running: RunningGuard,
    ended: mpsc::Receiver<()>,
}

/// Held by everything that works: as long as one of them lives, the process waits.
#[derive(Clone, Debug)]
pub(crate) struct RunningGuard {
    stopping: watch::Receiver<bool>,
    _alive: mpsc::Sender<()>,
}

impl Shutdown {
    pub(crate) fn new() -> Self {
        let (stop, stopping) = watch::channel(false);
        let (alive, ended) = mpsc::channel(1);
        Self { stop, running: RunningGuard { stopping, _alive: alive }, ended }
    }

    /// To be held by work that must be finished before the end.
    pub(crate) fn running(&self) -> RunningGuard {
        self.running.clone()
    }

    /// Notifies all work of the end.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until nothing works any more.
    pub(crate) async fn end(mut self) {
        self.stop();
        drop(self.running);
        // Nothing is ever sent: it returns when the last sender is gone.
        self.ended.recv().await;
    }
}

impl RunningGuard {
    /// Completes when it is time to end.
    pub(crate) async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the sender is gone: then it is time as well.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_waits_for_what_runs() {
        let shutdown = Shutdown::new();
        let running = shutdown.running();
        let (report, mut reported) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            running.stopping().await;
            tokio::task::yield_now().await;
            report.send(()).expect("somebody listens");
        });
        assert!(!shutdown.running().is_stopping());
        shutdown.end().await;
        assert!(reported.try_recv().is_ok());
    }
}
