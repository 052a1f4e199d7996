//! The terminal while a person edits lines in it: each key comes as it is pressed, and none is shown by the system.

use std::env::var_os;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{self, getpgrp, getpid, getsid, kill_process};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::screen::Screen;
use super::typed_area::TerminalSize;

/// Asks the terminal to say what is pasted, and ends that.
const PASTES_ARE_TOLD: &str = "\x1b[?2004h";
const PASTES_ARE_TYPED: &str = "\x1b[?2004l";

/// Time for which a terminal stays as wide as it is before what is typed is shown anew.
const RESIZED: Duration = Duration::from_millis(60);

/// How the terminal was, and how it is for the keys.
#[derive(Clone)]
pub(super) struct TerminalModes {
    before: Termios,
    raw: Termios,
}

impl TerminalModes {
    /// Those of the standard input; `None` where it has none, or where no line is edited: what is shown goes elsewhere, or the
    /// terminal moves no cursor.
    fn of_input() -> Option<Self> {
        let is_moved = var_os("TERM").is_none_or(|term| !term.is_empty() && term != "dumb");
        if !is_moved || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        // Ctrl-C and Ctrl-Z are signals, as ever. What was typed before stays.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN;
        raw.local_modes |= LocalModes::NOFLSH;
        raw.input_modes -= InputModes::ICRNL | InputModes::INLCR | InputModes::IGNCR;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        // It would end the program, and leave the terminal like this.
        raw.special_codes[SpecialCodeIndex::VQUIT] = 0;
        Some(Self { before, raw })
    }

    fn begin(&self) {
        // What was typed before stays to be read.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.raw);
        send(PASTES_ARE_TOLD);
    }

    fn end(&self) {
        send(PASTES_ARE_TYPED);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }

    /// Ends the program as it stands.
    pub(super) fn quit(&self) {
        self.end();
        let _ = kill_process(getpid(), process::Signal::QUIT);
    }
}

/// True if a shell has made this program a job of its own, and lets it go on when it was stopped. One that a terminal, `ssh` or a
/// container began with would stand still for ever.
fn is_job() -> bool {
    getsid(None).is_ok_and(|session| session != getpgrp())
}

/// A terminal that is gone hears nothing.
fn send(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Columns and rows of the terminal of the standard output.
pub(super) fn size() -> TerminalSize {
    let usual = TerminalSize { columns: 80, rows: 24 };
    let Ok(size) = tcgetwinsize(io::stdout()) else { return usual };
    let or = |number: u16, usual| if number == 0 { usual } else { usize::from(number) };
    TerminalSize { columns: or(size.ws_col, usual.columns), rows: or(size.ws_row, usual.rows) }
}

/// The terminal of the standard input, as it is for keys until this is dropped.
pub(super) struct RawTerminal {
    modes: TerminalModes,
    screen: Arc<Screen>,
    signals: JoinHandle<()>,
}

impl RawTerminal {
    /// That behind `screen`, in which lines are edited from now on; `None` where none are.
    pub(super) fn begin(screen: &Arc<Screen>) -> Option<Self> {
        let modes = TerminalModes::of_input()?;
        let signals = TerminalSignals::listen().ok()?;
        let signals = tokio::spawn(signals.heed(modes.clone(), screen.clone()));
        modes.begin();
        screen.edit();
        Some(Self { modes, screen: screen.clone(), signals })
    }

    pub(super) fn modes(&self) -> &TerminalModes {
        &self.modes
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        self.signals.abort();
        self.screen.end_editing();
        self.modes.end();
    }
}

/// The signals of a terminal, listened to from the moment at which this is made: one that came before would leave the terminal as it is
/// for keys.
struct TerminalSignals {
    resized: Signal,
    stopped: Signal,
    goes_on: Signal,
    /// Whoever waits for Ctrl-C hears of it, too.
    _interrupted: Signal,
}

impl TerminalSignals {
    fn listen() -> io::Result<Self> {
        let listen = |raw: process::Signal| signal(SignalKind::from_raw(raw.as_raw()));
        Ok(Self {
            resized: listen(process::Signal::WINCH)?,
            stopped: listen(process::Signal::TSTP)?,
            goes_on: listen(process::Signal::CONT)?,
            _interrupted: listen(process::Signal::INT)?,
        })
    }

    /// Gives the terminal to whoever has it while this program is stopped, and shows the lines as wide as the terminal is.
    async fn heed(mut self, modes: TerminalModes, screen: Arc<Screen>) {
        loop {
            tokio::select! {
                Some(()) = self.resized.recv() => {
                    // One that is being drawn wider or narrower breaks what is there by itself, again and again.
                    while timeout(RESIZED, self.resized.recv()).await.is_ok_and(|again| again.is_some()) {}
                    screen.repaint();
                }
                Some(()) = self.stopped.recv(), if is_job() => {
                    screen.give_away();
                    modes.end();
                    let _ = kill_process(getpid(), process::Signal::STOP);
                }
                Some(()) = self.goes_on.recv() => {
                    modes.begin();
                    screen.take_back();
                }
                else => return,
            }
        }
    }
}
