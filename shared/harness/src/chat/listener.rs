use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_engine::CompiledGraph;
use dormouse_ports::{Map, SessionId};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::history::{MESSAGES, history_length};
use super::outcome::ChatTurnOutcome;
use crate::error::TurnError;
use crate::outcome::TurnOutcome;

/// Receives the outcome of a resumed turn of a session (harness-chat §8.2).
pub type Listener = Arc<dyn Fn(ChatTurnOutcome) -> BoxFuture<'static, ()> + Send + Sync>;

/// The listeners of this process, by session.
#[derive(Default)]
pub(crate) struct Listeners(Arc<Mutex<RegisteredListener>>);

#[derive(Default)]
struct RegisteredListener {
    by_session: HashMap<SessionId, Vec<(u64, Listener)>>,
    next: u64,
}

/// Keeps a listener subscribed until it is dropped.
#[must_use = "dropping the handle unsubscribes the listener"]
pub struct ListenerHandle {
    listeners: Arc<Mutex<RegisteredListener>>,
    session_id: SessionId,
    id: u64,
}

impl fmt::Debug for ListenerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerHandle").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        let mut registered = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listeners) = registered.by_session.get_mut(&self.session_id) {
            listeners.retain(|(id, _)| *id != self.id);
            if listeners.is_empty() {
                registered.by_session.remove(&self.session_id);
            }
        }
    }
}

impl Listeners {
    pub(super) fn subscribe(&self, session_id: SessionId, listener: Listener) -> ListenerHandle {
        let mut registered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registered.next += 1;
        let id = registered.next;
        registered.by_session.entry(session_id.clone()).or_default().push((id, listener));
        ListenerHandle { listeners: self.0.clone(), session_id, id }
    }

    /// Notifies the listeners of the session of the outcome of the resumed turn. `paused` is the state out of which it
    /// was resumed: the messages behind its own are new. Only the worker that ran the turn comes here, so they are
    /// notified once.
    pub(crate) async fn notify(
        &self,
        graph: &CompiledGraph,
        session_id: Option<&SessionId>,
        paused: &Map,
        turn: &Result<TurnOutcome, TurnError>,
    ) {
        let Some(session_id) = session_id.filter(|_| graph.schema().declares(MESSAGES)) else { return };
        let outcome = match turn {
            Ok(outcome @ TurnOutcome::Completed(_)) => ChatTurnOutcome::of(outcome, history_length(paused)),
            Err(error) => ChatTurnOutcome::errored(error),
            Ok(
                TurnOutcome::Suspended(_)
                | TurnOutcome::Errored(_)
                | TurnOutcome::Buffered { .. }
                | TurnOutcome::Stale { .. },
            ) => return,
        };
        for listener in self.of(session_id) {
            let outcome = outcome.clone();
            let heard = AssertUnwindSafe(async move { listener(outcome).await }).catch_unwind();
            if heard.await.is_err() {
                tracing::error!(
                    session_id = session_id.as_str(),
                    "a listener panicked; the turn that it heard of is written"
                );
            }
        }
    }

    fn of(&self, session_id: &SessionId) -> Vec<Listener> {
        let registered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = registered.by_session.get(session_id);
        listeners.into_iter().flatten().map(|(_, listener)| listener.clone()).collect()
    }
}
