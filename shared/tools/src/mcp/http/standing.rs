//! The stream on which a server says what belongs to no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::calls::{CallStream, HeardCall};

/// Knows whether the stream stands on which a server of an older version tells of changes, the same for all that have a clone
/// of it. It counts its beginnings and its ends: an odd number stands.
#[derive(Clone, Debug, Default)]
pub(in crate::mcp) struct StandingStream {
    numbers: Arc<AtomicU64>,
    /// The stream that takes its place for the time of calls.
    pub(super) calls: CallStream,
}

impl StandingStream {
    /// The number of the one that stands now; another one may have begun after a change that nobody was told of.
    pub(in crate::mcp) fn number(&self) -> Option<u64> {
        let number = self.numbers.load(Ordering::SeqCst);
        (number % 2 == 1).then_some(number)
    }

    /// A call begins, in which the server is heard as long as what is returned is held.
    pub(in crate::mcp) async fn call(&self) -> HeardCall {
        self.calls.begin().await
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
struct Standing(StandingStream);

impl Standing {
    fn begun(stream: StandingStream) -> Self {
        stream.numbers.fetch_add(1, Ordering::SeqCst);
        Self(stream)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.0.numbers.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

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
