//! The signals by which this process is asked to end.

use std::future::pending;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Completes when this process is asked to end: by Ctrl-C, by whoever supervises it, or by a terminal that is closed.
pub(crate) async fn asked_to_end() -> io::Result<()> {
    tokio::select! {
        asked = asked() => asked,
        closed = hung_up() => closed,
    }
}

/// Completes when a program that itself takes Ctrl-C has to end: SIGTERM came, or its terminal was closed.
///
/// # Errors
/// When the operating system lets nobody wait for signals.
pub async fn left() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        closed = hung_up() => closed,
    }
}

/// Ends the process when it is asked for once more.
pub(crate) async fn end_at_once() {
    // A terminal that is closed often says so twice, by the system and by the shell.
    if asked().await.is_ok() {
        tracing::warn!(
            "a second signal ended the process at once; the next start takes over the turns that were running"
        );
        std::process::exit(130);
    }
}

async fn asked() -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Completes when the terminal is closed. Who starts this process with `nohup` wants it to go on then.
async fn hung_up() -> io::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !takes_hangups(&status) {
        return pending().await;
    }
    signal(SignalKind::hangup())?.recv().await;
    Ok(())
}

/// True if the process whose `status` this is does not ignore SIGHUP, the first of the signals. Waiting for one would end that.
fn takes_hangups(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_terminal_is_heard_of_unless_that_is_ignored_or_not_known() {
        // What `sleep` and `nohup sleep` have, both started by a program that ignores SIGPIPE.
        assert!(takes_hangups("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000000\n"));
        assert!(!takes_hangups("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"));
        assert!(!takes_hangups("SigIgn:\tnone\n"));
        assert!(!takes_hangups(""));
    }
}
