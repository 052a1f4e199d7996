//! The stream on which a server says what belongs to no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::time::{Instant, sleep};

use super::calls::{CallStream, HeardCall};

/// A stream that ends sooner has stood for nothing.
const BRIEF: Duration = Duration::from_secs(5);
/// The pause behind two such streams in a row. It doubles with each further one, up to a minute or so.
const PAUSE: Duration = Duration::from_secs(2);
const MOST_DOUBLED: u32 = 5;

/// Knows whether the stream stands on which a server of an older version tells of changes, the same for all that have a clone
/// of it. It counts its beginnings and its ends: an odd number stands.
#[derive(Clone, Debug, Default)]
pub(in crate::mcp) struct StandingStream {
    numbers: Arc<AtomicU64>,
    /// Counts those in a row that ended at once.
    brief: Arc<AtomicU32>,
    /// The stream that takes its place for the time of calls.
    pub(super) calls: CallStream,
}

impl StandingStream {
    /// The number of the one that stands now; another one may have begun after a change that nobody was told of.
    pub(in crate::mcp) fn number(&self) -> Option<u64> {
        let number = self.numbers.load(Ordering::SeqCst);
        (number % 2 == 1).then_some(number)
    }

    /// Waits before one is asked for: some servers end each of them at once.
    pub(super) async fn pause(&self) {
        if let Some(doubled) = self.brief.load(Ordering::SeqCst).checked_sub(2) {
            sleep(PAUSE * 2_u32.pow(doubled.min(MOST_DOUBLED))).await;
        }
    }

    /// A call begins, in which the server is heard as long as what is returned is held.
    pub(in crate::mcp) async fn call(&self) -> HeardCall {
        self.calls.begin().await
    }

    /// True if the server may still say something that stands in no answer, where somebody `listens` all the time or in calls alone.
    pub(super) fn may_hear(&self, listens: bool) -> bool {
        self.calls.may_hear(listens, self.number().is_some())
    }

    /// `events`, which stand until they are dropped.
    pub(super) fn over(
        &self,
        events: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let standing = Standing::begun(self.clone());
        let held = move |_: &Result<Sse, SseError>| {
            let _ = &standing;
        };
        events.inspect(held).boxed()
    }
}

/// Ends when it is dropped.
struct Standing(StandingStream, Instant);

impl Standing {
    fn begun(stream: StandingStream) -> Self {
        stream.numbers.fetch_add(1, Ordering::SeqCst);
        Self(stream, Instant::now())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let Self(stream, since) = self;
        stream.numbers.fetch_add(1, Ordering::SeqCst);
        let in_a_row = stream.brief.load(Ordering::SeqCst).saturating_add(1);
        stream.brief.store(if since.elapsed() < BRIEF { in_a_row } else { 0 }, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ends_at_once_again_and_again_is_asked_for_less_and_less() {
        let standing = StandingStream::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let began = Instant::now();
            standing.pause().await;
            pauses.push(began.elapsed().as_secs());
            drop(standing.over(stream::empty().boxed()));
        }
        assert_eq!(pauses, [0, 0, 2, 4, 8, 16, 32, 64, 64]);
        let stands = standing.over(stream::pending().boxed());
        tokio::time::advance(BRIEF).await;
        drop(stands);
        let began = Instant::now();
        standing.pause().await;
        assert!(began.elapsed().is_zero(), "it has stood");
    }

    #[test]
    fn a_stream_stands_until_it_is_dropped_and_the_next_one_has_another_number() {
        let standing = StandingStream::default();
        assert_eq!(standing.number(), None);
        let first = standing.over(stream::pending().boxed());
        let number = standing.number();
        assert!(number.is_some());
        drop(first);
        assert_eq!(standing.number(), None);
        let _second = standing.over(stream::pending().boxed());
        assert!(standing.number().is_some_and(|second| Some(second) != number));
    }
}
