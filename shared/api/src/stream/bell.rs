use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::oneshot;

/// Tells waiting streams of this process that something was appended. Without a ring they find it by themselves.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<Mutex<Vec<Listener>>>);

/// Completes with the next ring, also with one that came before it was polled.
pub type Ring = oneshot::Receiver<()>;

#[derive(Debug)]
struct Listener {
    /// To which stream; to all without a name.
    stream: Option<String>,
    rings: oneshot::Sender<()>,
}

impl Bell {
    /// Hears of the next append to `stream`, from now on; of any stream's without a name.
    pub fn listen(&self, stream: Option<&str>) -> Ring {
        let (rings, ring) = oneshot::channel();
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|other| !other.rings.is_canceled());
        listeners.push(Listener { stream: stream.map(str::to_owned), rings });
        ring
    }

    /// Something was appended to `stream`.
    pub fn ring(&self, stream: &str) {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hears = |listener: &Listener| listener.stream.as_ref().is_none_or(|name| name == stream);
        let (woken, others) = std::mem::take(&mut *listeners).into_iter().partition(hears);
        *listeners = others;
        drop(listeners);
        let woken: Vec<Listener> = woken;
        for listener in woken {
            // Nobody waits any more: then nobody has to be woken.
            let _ = listener.rings.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn who_listens_to_a_stream_hears_of_that_one_only() {
        let bell = Bell::default();
        let (mut mine, mut other, mut all) = (bell.listen(Some("a")), bell.listen(Some("b")), bell.listen(None));
        bell.ring("a");
        assert_eq!((&mut mine).now_or_never(), Some(Ok(())));
        assert_eq!((&mut all).now_or_never(), Some(Ok(())));
        assert_eq!((&mut other).now_or_never(), None);
    }

    #[test]
    fn who_gave_up_is_forgotten() {
        let bell = Bell::default();
        for stream in ["a", "b", "c"] {
            drop(bell.listen(Some(stream)));
        }
        let _ring = bell.listen(Some("a"));
        assert_eq!(bell.0.lock().expect("a lock").len(), 1);
    }
}
