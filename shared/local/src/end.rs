//! The signals by which this process is asked to end.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals by which this process is asked to end, listened to from the moment at which this is made: one that came
/// before would end the process as it stands, or be lost where whoever started it ignores them.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    /// None where hangups are ignored.
    hangup: Option<Signal>,
}

impl EndSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the operating system lets nobody wait for signals.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: hangups()?,
        })
    }

    /// Completes when this process is asked to end: by Ctrl-C, by whoever supervises it, or by a terminal that is closed.
    pub(crate) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = closed(&mut self.hangup) => {}
        }
    }

    /// Ends the process when it is asked for once more. A terminal that is closed often says so twice, by the system and by
    /// the shell, and does not count.
    pub(crate) async fn end_at_once(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        tracing::warn!(
            "a second signal ended the process at once; the next start takes over the turns that were running"
        );
        std::process::exit(130);
    }
}

/// Completes when a program that itself takes Ctrl-C has to end: SIGTERM came, or its terminal was closed.
///
/// # Errors
/// When the operating system lets nobody wait for signals.
pub async fn left() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = hangups()?;
    tokio::select! {
        _ = terminate.recv() => {}
        () = closed(&mut hangup) => {}
    }
    Ok(())
}

/// Hangups, where whoever started this process does not have them ignored: with `nohup` it is to go on.
fn hangups() -> io::Result<Option<Signal>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    takes_hangups(&status).then(|| signal(SignalKind::hangup())).transpose()
}

/// Completes when the terminal is closed.
async fn closed(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => pending().await,
    }
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
