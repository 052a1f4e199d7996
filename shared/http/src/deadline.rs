use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::{CutShort, cut_off};
use dormouse_ports::Clock;

/// By how much a turn that keeps its own time may overrun it.
const MOMENT: Duration = Duration::from_millis(100);
/// By how much more what has written something may overrun its time. Less than the functions keep back of theirs.
const GRACE: Duration = Duration::from_millis(900);

/// Does `work` for at most `time_left`, and a moment in which a turn can report itself that its time is over: a waiting
/// caller shall get an answer before the process is stopped. Work that has written something gets a little longer, to
/// report so.
///
/// # Errors
/// [`Cut`] when it was not done by then.
pub(crate) fn in_time<'a, T: 'a>(
    clock: &'a Arc<dyn Clock>,
    time_left: Option<Duration>,
    work: impl Future<Output = T> + Send + 'a,
) -> impl Future<Output = Result<T, CutShort>> + Send + 'a {
    // Boxed before anything holds it: whoever awaits this would have room for it twice.
    let work = Box::pin(work);
    async move {
        let Some(time_left) = time_left else { return Ok(work.await) };
        cut_off(work, clock.sleep(time_left + MOMENT), || clock.sleep(GRACE)).await
    }
}
