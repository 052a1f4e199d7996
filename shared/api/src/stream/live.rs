use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_protocol::id::{SessionId, TaskId};
use futures::channel::oneshot;
use serde::Serialize;

/// Bytes of text that wait for a stream whose client reads slowly. What comes beyond is not shown: the message itself is
/// an event, whatever was shown of it.
const MOST_WAITING: usize = 256 * 1024;

/// A piece of an answer that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextDelta {
    /// The session that the answer is for.
    pub session_id: SessionId,
    /// The task that the answer is for.
    pub task_id: TaskId,
    /// Which call of the model by the task it answers, from 1.
    pub step: u64,
    /// Number of characters of the answer before this piece. 0 where an answer begins, also again: what was shown of it
    /// before is void then. A larger number than that of the characters shown means that pieces are missing.
    pub from: u64,
    /// The piece.
    pub text: String,
}

/// Pieces of answers of models, on their way to the streams of this process while they arrive. Nothing of them is stored.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LiveText(Arc<Mutex<Vec<Arc<Listening>>>>);

/// What a stream shows of answers under way, and what of that waits.
#[derive(Debug)]
struct Listening {
    session: SessionId,
    task: Option<TaskId>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    pieces: VecDeque<TextDelta>,
    bytes: usize,
    /// Completes with the next piece.
    signal: Option<oneshot::Sender<()>>,
}

/// Pieces for one stream, until it is dropped.
#[derive(Debug)]
pub(super) struct LiveListener {
    live: LiveText,
    own: Arc<Listening>,
}

impl LiveText {
    /// Shows `delta` to the streams of its session and its task. It never waits.
    pub fn show(&self, delta: &TextDelta) {
        let listeners = self.listeners().clone();
        for listening in listeners.iter().filter(|listening| listening.shows(delta)) {
            listening.add(delta);
        }
    }

    /// Pieces from now on for a stream of `session`; of one `task` where it is given.
    pub(super) fn listen(&self, session: SessionId, task: Option<TaskId>) -> LiveListener {
        let own = Arc::new(Listening { session, task, waiting: Mutex::default() });
        self.listeners().push(own.clone());
        LiveListener { live: self.clone(), own }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Arc<Listening>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listening {
    fn shows(&self, delta: &TextDelta) -> bool {
        self.session == delta.session_id && self.task.as_ref().is_none_or(|own| *own == delta.task_id)
    }

    fn add(&self, delta: &TextDelta) {
        let mut waiting = self.waiting();
        if waiting.bytes + delta.text.len() <= MOST_WAITING {
            waiting.bytes += delta.text.len();
            match waiting.pieces.back_mut().filter(|last| last.is_followed_by(delta)) {
                Some(last) => last.text.push_str(&delta.text),
                None => waiting.pieces.push_back(delta.clone()),
            }
        }
        if let Some(signal) = waiting.signal.take() {
            // The stream is gone: then there is none to wake.
            let _ = signal.send(());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TextDelta {
    /// True if `next` goes on where this one ends.
    fn is_followed_by(&self, next: &Self) -> bool {
        let end = self.from + self.text.chars().count() as u64;
        (&self.task_id, self.step, end) == (&next.task_id, next.step, next.from)
    }
}

impl LiveListener {
    /// Everything that waits, in order, each answer in one piece.
    pub(super) fn take(&self) -> Vec<TextDelta> {
        let mut waiting = self.own.waiting();
        waiting.bytes = 0;
        waiting.pieces.drain(..).collect()
    }

    /// Completes with the next piece, and at once where one waits.
    pub(super) fn signal(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.own.waiting();
        if waiting.pieces.is_empty() {
            waiting.signal = Some(sender);
        } else {
            // Its receiver is here.
            let _ = sender.send(());
        }
        receiver
    }
}

impl Drop for LiveListener {
    fn drop(&mut self) {
        self.live.listeners().retain(|other| !Arc::ptr_eq(other, &self.own));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn delta(task: &str, from: u64, text: &str) -> TextDelta {
        TextDelta { session_id: "s".into(), task_id: task.into(), step: 1, from, text: text.to_owned() }
    }

    #[test]
    fn pieces_that_wait_are_put_together_and_an_answer_that_begins_again_is_another_one() {
        let live = LiveText::default();
        let listener = live.listen("s".into(), None);
        let mut signal = listener.signal();
        assert_eq!((&mut signal).now_or_never(), None);
        for (from, text) in [(0, "Hé"), (2, "llo"), (0, "Again")] {
            live.show(&delta("t", from, text));
        }
        assert_eq!(signal.now_or_never(), Some(Ok(())));
        assert_eq!(listener.take(), [delta("t", 0, "Héllo"), delta("t", 0, "Again")]);
        assert_eq!(listener.take(), []);
    }

    #[test]
    fn a_stream_is_shown_its_own_session_and_task_and_nothing_when_it_is_gone() {
        let live = LiveText::default();
        let whole = live.listen("s".into(), None);
        let one = live.listen("s".into(), Some("t".into()));
        let other = live.listen("other".into(), None);
        live.show(&delta("t", 0, "a"));
        live.show(&delta("u", 0, "b"));
        assert_eq!([whole.take().len(), one.take().len(), other.take().len()], [2, 1, 0]);
        drop((whole, other));
        assert_eq!(live.listeners().len(), 1);
    }

    #[test]
    fn a_client_that_reads_nothing_costs_a_bounded_amount() {
        let live = LiveText::default();
        let listener = live.listen("s".into(), None);
        let text = "x".repeat(1024);
        (0..1000).for_each(|piece| live.show(&delta("t", piece * 1024, &text)));
        let shown = listener.take();
        assert_eq!((shown.len(), shown[0].text.len()), (1, MOST_WAITING));
        live.show(&delta("t", 1000 * 1024, "y"));
        assert_eq!(listener.take(), [delta("t", 1000 * 1024, "y")], "the place tells that pieces are missing");
    }
}
