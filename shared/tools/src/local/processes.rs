//! Everything that a command started: its process group, and on Linux also what left the group, which is known by the
//! processes that started it or by a variable of its environment.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use dormouse_ports::execution::{CommandEnd, CommandLimits};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The variable by which a command's processes are known.
pub(super) const MARK: &str = "DORMOUSE_COMMAND";
/// Time between two looks at what a command does.
const LOOK: Duration = Duration::from_millis(20);
/// Time that a command gets to end by itself when it is told to.
const GRACE: Duration = Duration::from_millis(500);
/// Rounds in which processes are looked for that were started while others were ended.
const ROUNDS: usize = 50;

/// The processes of a command. When it is dropped they end.
#[derive(Debug)]
pub(super) struct Processes {
    leader: Pid,
    /// `NAME=VALUE` of the mark.
    mark: Vec<u8>,
    /// Processes that were seen, with the time of their start: numbers are used again.
    known: BTreeSet<(i32, u64)>,
    ended: bool,
}

impl Processes {
    pub(super) fn of(leader: i32, mark: &str) -> Self {
        let mark = format!("{MARK}={mark}").into_bytes();
        Self { leader: Pid::from_raw(leader), mark, known: BTreeSet::new(), ended: false }
    }

    /// Ends when there are too many of them, or they take too much memory.
    pub(super) async fn watch(&mut self, limits: &CommandLimits) -> CommandEnd {
        loop {
            tokio::time::sleep(LOOK).await;
            let seen = self.look();
            if seen.len() > usize::try_from(limits.processes).unwrap_or(usize::MAX) {
                return CommandEnd::TooManyProcesses;
            }
            let memory: u64 = seen.iter().map(|process| process.memory).sum();
            if memory > limits.memory {
                return CommandEnd::TooMuchMemory;
            }
        }
    }

    /// Tells them to end, and ends those that do not.
    pub(super) async fn end(&mut self, ended: impl Future<Output = ()>) {
        // Where there is no process any more, there is nothing to tell.
        let _ = killpg(self.leader, Signal::SIGTERM);
        let _ = tokio::time::timeout(GRACE, ended).await;
        self.kill();
    }

    /// Ends them at once.
    pub(super) fn kill(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let _ = killpg(self.leader, Signal::SIGKILL);
        for _ in 0..ROUNDS {
            let mut left = self.look();
            left.extend(self.marked());
            left.retain(|process| process.state != b'Z');
            if left.is_empty() {
                return;
            }
            for process in left {
                let _ = kill(Pid::from_raw(process.id), Signal::SIGKILL);
            }
        }
        tracing::warn!(
            leader = self.leader.as_raw(),
            "processes of a command could not be ended; look for them by {MARK} in their environment"
        );
    }

    /// The processes that belong to it now.
    fn look(&mut self) -> Vec<Process> {
        let all = processes();
        let mut mine: BTreeSet<i32> = BTreeSet::new();
        let is_known = |process: &Process, known: &BTreeSet<(i32, u64)>| known.contains(&(process.id, process.started));
        loop {
            let before = mine.len();
            for process in &all {
                let is_mine = process.group == self.leader.as_raw()
                    || is_known(process, &self.known)
                    || mine.contains(&process.parent);
                if is_mine {
                    mine.insert(process.id);
                }
            }
            if mine.len() == before {
                break;
            }
        }
        let seen: Vec<Process> = all.into_iter().filter(|process| mine.contains(&process.id)).collect();
        self.known.extend(seen.iter().map(|process| (process.id, process.started)));
        seen
    }

    /// Processes with the mark, wherever they went.
    fn marked(&self) -> Vec<Process> {
        let has_mark = |process: &Process| {
            let environment = fs::read(format!("/proc/{}/environ", process.id)).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == self.mark)
        };
        processes().into_iter().filter(has_mark).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process, as `/proc` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    state: u8,
    parent: i32,
    group: i32,
    /// Ticks from the start of the machine.
    started: u64,
    /// Bytes of memory.
    memory: u64,
}

/// The processes that `ancestor` started, and those that these did.
#[cfg(feature = "copy")]
pub(crate) fn descendants(ancestor: i32) -> Vec<i32> {
    let all = processes();
    let mut found = BTreeSet::from([ancestor]);
    loop {
        let before = found.len();
        found.extend(
            all.iter().filter(|process| found.contains(&process.parent)).map(|process| process.id).collect::<Vec<_>>(),
        );
        if found.len() == before {
            break;
        }
    }
    found.remove(&ancestor);
    found.into_iter().collect()
}

/// All processes; none where there is no `/proc`.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(|id| parsed(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)).collect()
}

/// Reads a line of `/proc/ID/stat`; the name in it may hold anything.
fn parsed(id: i32, stat: &str) -> Option<Process> {
    const PAGE: u64 = 4096;
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Process {
        id,
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        memory: fields.get(21)?.parse::<u64>().ok()?.saturating_mul(PAGE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let stat = "42 (a) b) S 7 42 42 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 9000 1000000 25 18446744073709551615";
        let process = Process { id: 42, state: b'S', parent: 7, group: 42, started: 9000, memory: 25 * 4096 };
        assert_eq!(parsed(42, stat), Some(process));
        assert_eq!(parsed(42, "42 (a"), None);
    }
}
