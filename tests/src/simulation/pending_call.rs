use std::fmt;
use std::time::Duration;

use futures::channel::oneshot;

use super::outside::Outside;
use super::world::ProcessId;

/// Why a call fails that never took effect.
pub(crate) const REFUSED: &str = "throttled";

/// A call on a port that is under way.
pub(crate) struct PendingCall {
    pub(crate) process: ProcessId,
    pub(crate) operation: &'static str,
    /// What the call is about, for a reader of the trace.
    pub(crate) about: String,
    pub(crate) phase: Phase,
    /// It rests until then.
    pub(crate) not_before: Duration,
    pub(crate) call: Box<dyn Pending>,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not taken effect.
    Asked,
    /// It has taken effect; nobody was told.
    Done,
    /// Its caller has given up or is dead; it may still take effect.
    Orphaned,
}

impl fmt::Display for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} {} {}", self.process, self.operation, self.about)
    }
}

/// The two halves of a call: its effect, and what the caller is told.
pub(crate) trait Pending: Send {
    fn take_effect(&mut self, outside: &mut Outside);
    /// Tells the caller what came of it.
    fn answer(&mut self);
    /// Tells the caller that nobody knows what came of it.
    fn fail(&mut self, reason: &'static str);
}

/// A call whose effect is `F` and whose answer is `T`.
pub(crate) struct Call<T, F, L> {
    effect: Option<F>,
    done: Option<T>,
    caller: Option<oneshot::Sender<T>>,
    lost: L,
}

impl<T, F, L> Call<T, F, L> {
    pub(crate) fn new(effect: F, lost: L) -> (Self, oneshot::Receiver<T>) {
        let (caller, answered) = oneshot::channel();
        (Self { effect: Some(effect), done: None, caller: Some(caller), lost }, answered)
    }

    fn tell(&mut self, answer: T) {
        if let Some(caller) = self.caller.take() {
            // The caller may be dead, or out of time.
            let _ = caller.send(answer);
        }
    }
}

impl<T: Send, F: FnOnce(&mut Outside) -> T + Send, L: Fn(&'static str) -> T + Send> Pending for Call<T, F, L> {
    fn take_effect(&mut self, outside: &mut Outside) {
        if let Some(effect) = self.effect.take() {
            self.done = Some(effect(outside));
        }
    }

    fn answer(&mut self) {
        if let Some(answer) = self.done.take() {
            self.tell(answer);
        }
    }

    fn fail(&mut self, reason: &'static str) {
        let answer = (self.lost)(reason);
        self.tell(answer);
    }
}
