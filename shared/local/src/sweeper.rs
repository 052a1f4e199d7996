//! The second line, by the clock: sweeps that find what a killed process left behind.

use std::sync::Arc;
use std::time::Duration;

use dormouse_maintenance::SweepScope;
use dormouse_ports::Clock;

use crate::dispatcher::Functions;
use crate::shutdown::RunningGuard;

const EVERY: Duration = Duration::from_secs(10);
/// One in so many sweeps looks at everything, once what the last process held has expired.
const THOROUGH: u32 = 6;

/// Sweeps now and then until it is time to end.
///
/// Claims of a process that was killed expire within `lease` after this one started. So long every sweep looks at
/// everything, to take them over soon; afterwards most look at what is due only, which costs less with many sleepers.
pub(crate) async fn run(functions: Arc<dyn Functions>, clock: Arc<dyn Clock>, lease: Duration, running: RunningGuard) {
    run_every(EVERY, functions, clock, lease, running).await;
}

/// The same every `every`.
pub(crate) async fn run_every(
    every: Duration,
    functions: Arc<dyn Functions>,
    clock: Arc<dyn Clock>,
    lease: Duration,
    running: RunningGuard,
) {
    let thorough = THOROUGH * u32::try_from(EVERY.as_millis() / every.as_millis().max(1)).unwrap_or(1);
    let started = clock.monotonic();
    for round in 0_u32.. {
        let settled = clock.monotonic().saturating_sub(started) > lease + EVERY;
        let scope = if settled && round % thorough != 0 { SweepScope::Due } else { SweepScope::Everything };
        match functions.sweep(scope).await {
            Ok(summary) if summary.called > 0 => {
                tracing::info!(called = summary.called, "the sweep called for workers");
            }
            Ok(_) => {}
            Err(reason) => tracing::warn!(%reason, "a sweep failed; the next one goes on"),
        }
        tokio::select! {
            () = clock.sleep(every) => {}
            () = running.stopping() => return,
        }
    }
}
