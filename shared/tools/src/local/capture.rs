//! What a command writes: its beginning and its end are kept, however much it is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dormouse_ports::execution::Captured;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Notify;

/// Bytes of both outputs of a command, and who is told when they are too many.
#[derive(Debug, Default)]
pub(super) struct Flood {
    written: AtomicU64,
    over: Notify,
}

impl Flood {
    fn count(&self, bytes: usize, most: u64) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.written.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > most {
            self.over.notify_one();
        }
    }

    /// Ends when there is too much.
    pub(super) async fn over(&self) {
        self.over.notified().await;
    }
}

/// One output, as far as it has come.
#[derive(Debug)]
pub(super) struct CommandOutput {
    kept: Mutex<CapturedOutput>,
    /// Bytes of the beginning, and as many of the end.
    half: usize,
}

#[derive(Debug, Default)]
struct CapturedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
}

impl CommandOutput {
    pub(super) fn keeping(bytes: usize) -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), half: bytes / 2 })
    }

    fn kept(&self) -> MutexGuard<'_, CapturedOutput> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads `from` to its end.
    pub(super) async fn read(self: Arc<Self>, mut from: impl AsyncRead + Unpin, flood: Arc<Flood>, most: u64) {
        let mut piece = [0; 8 << 10];
        while let Ok(read) = from.read(&mut piece).await {
            if read == 0 {
                return;
            }
            self.add(&piece[..read]);
            flood.count(read, most);
        }
    }

    fn add(&self, piece: &[u8]) {
        let mut kept = self.kept();
        kept.bytes += u64::try_from(piece.len()).unwrap_or_default();
        let room = self.half.saturating_sub(kept.head.len()).min(piece.len());
        let (head, tail) = piece.split_at(room);
        kept.head.extend_from_slice(head);
        kept.tail.extend(tail);
        let over = kept.tail.len().saturating_sub(self.half);
        kept.tail.drain(..over);
    }

    /// Output that has come.
    pub(super) fn captured(&self) -> Captured {
        let kept = self.kept();
        let (one, other) = kept.tail.as_slices();
        let tail = [one, other].concat();
        let whole = u64::try_from(kept.head.len() + tail.len()).unwrap_or(u64::MAX);
        let left_out = kept.bytes.saturating_sub(whole);
        let text = match left_out {
            // A character may lie across the two halves.
            0 => String::from_utf8_lossy(&[kept.head.as_slice(), &tail].concat()).into_owned(),
            bytes => {
                let head = String::from_utf8_lossy(&kept.head);
                format!("{head}\n[{bytes} bytes are left out here]\n{}", String::from_utf8_lossy(&tail))
            }
        };
        Captured { text, bytes: kept.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_beginning_and_the_end_are_kept() {
        let output = CommandOutput::keeping(8);
        output.clone().read(&b"0123456789abcdef"[..], Arc::default(), 100).await;
        let captured = output.captured();
        assert_eq!((captured.text.as_str(), captured.bytes), ("0123\n[8 bytes are left out here]\ncdef", 16));
        let short = CommandOutput::keeping(8);
        short.clone().read("ab€d".as_bytes(), Arc::default(), 100).await;
        assert_eq!(short.captured().text, "ab€d");
    }
}
