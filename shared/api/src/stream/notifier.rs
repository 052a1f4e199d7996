use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::oneshot;

/// Notifies waiting streams of this process of appends. Without a signal they find them by themselves. A stream of one
/// session listens to that, one of all sessions to the feed of its tenant: what others do wakes nobody.
#[derive(Clone, Debug, Default)]
pub struct AppendNotifier(Arc<Mutex<Vec<AppendListener>>>);

/// Completes with the next signal, also with one that came before it was polled.
pub type AppendSignal = oneshot::Receiver<()>;

#[derive(Debug)]
struct AppendListener {
    /// To which stream or feed.
    name: String,
    sender: oneshot::Sender<()>,
}

impl AppendNotifier {
    /// Hears of the next append to the stream or feed `name`, from now on.
    pub fn listen(&self, name: &str) -> AppendSignal {
        let (sender, signal) = oneshot::channel();
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|other| !other.sender.is_canceled());
        listeners.push(AppendListener { name: name.to_owned(), sender });
        signal
    }

    /// Wakes every reader that listens to the stream or feed `name`, because something was appended to it.
    pub fn notify(&self, name: &str) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hears = |listener: &AppendListener| listener.name == name;
        let (woken, others): (Vec<_>, Vec<_>) = std::mem::take(&mut *listeners).into_iter().partition(hears);
        *listeners = others;
        // All are told before one of them can listen anew: what several share is not known to one and unknown to the other.
        for listener in woken {
            // The stream is gone: then there is none to wake.
            let _ = listener.sender.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_listens_to_a_stream_hears_of_that_one_only() {
        let notifier = AppendNotifier::default();
        let mut mine = notifier.listen("a");
        let mut other = notifier.listen("b");
        notifier.notify("a");
        assert_eq!((&mut mine).now_or_never(), Some(Ok(())));
        assert_eq!((&mut other).now_or_never(), None);
    }

    #[test]
    fn who_gave_up_is_forgotten() {
        let notifier = AppendNotifier::default();
        for stream in ["a", "b", "c"] {
            drop(notifier.listen(stream));
        }
        let _ring = notifier.listen("a");
        assert_eq!(notifier.0.lock().expect("a lock").len(), 1);
    }
}
