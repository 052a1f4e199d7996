//! Running a command.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse_ports::execution::{CommandEnd, CommandLimits, CommandOutcome, ExecutionError, Shell, ShellCommand};
use dormouse_ports::tool::is_variable_of_command;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use super::capture::{CommandOutput, Flood};
use super::confinement::{self, HiddenFolder, Namespace, ProcessGroup};
use super::place::Place;
use super::processes::{MARK, Processes};

/// Sets what a process cannot set for another one: no memory images, the memory of each process, and the group that limits
/// their number.
const LIMITED: &str = r#"ulimit -c 0 2>/dev/null; ulimit -d "$1" 2>/dev/null
test -z "$2" || echo 0 2>/dev/null > "$2/cgroup.procs"
shift 2; exec "$@""#;
/// Runs the command in its shell. It yields to this process, which could not end it otherwise while it starts others as fast as it can.
const YIELDING: &str = r#"command -v nice >/dev/null 2>&1 && exec nice -n 15 "$2" -c "$1"
exec "$2" -c "$1""#;
/// The same as the first process of a namespace, which takes no signals from its own processes and therefore waits for the
/// command; it says nothing itself.
const FIRST: &str = r#"trap "" TERM; exec 3>&2 2>/dev/null
(trap - TERM; command -v nice >/dev/null && exec nice -n 15 "$2" -c "$1" 2>&3 3>&-; exec "$2" -c "$1" 2>&3 3>&-)
exit $?"#;
/// Processes of a command that are ours: what makes a namespace, and its first process.
const OURS: u32 = 2;
/// The status with which [`FIRST`] ends where the command was ended by signal 0, as shells have it.
const SIGNALS: i32 = 128;
const LAST_SIGNAL: i32 = 64;
/// Variables of this process that every command needs.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Variables with the root of the workspace, also under the name that commands written for the Open Agent Harness know.
const ROOT: [&str; 2] = ["DORMOUSE_WORKSPACE_ROOT", "OPENHARNESS_WORKSPACE_ROOT"];
/// Time for which output is waited for that may still be on its way when all processes have ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

const SH: &str = "/bin/sh";
/// Where this machine has `bash`.
static BASH: LazyLock<Option<String>> = LazyLock::new(|| confinement::program("bash"));

/// Runs `command`, which does not see what is `hidden`.
pub(super) async fn run(
    place: &Place,
    hidden: &[HiddenFolder],
    command: &ShellCommand,
) -> Result<CommandOutcome, ExecutionError> {
    let mark = fresh_mark();
    let namespace = confinement::namespace().await;
    let count = command.limits.processes.saturating_add(OURS);
    let group = ProcessGroup::limited(&mark, count);
    let mut child = spawn(place, command, Confined { mark: &mark, namespace, hidden, group: &group })?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok());
    let leader = leader.ok_or_else(|| unavailable("the command has no process", true))?;
    let mut processes = Processes::of(leader, &mark);
    let (stdout, stderr) =
        (CommandOutput::keeping(command.limits.kept_output), CommandOutput::keeping(command.limits.kept_output));
    let flood = Arc::<Flood>::default();
    let most = command.limits.most_output;
    let mut readers = Vec::new();
    readers.extend(child.stdout.take().map(|from| tokio::spawn(stdout.clone().read(from, flood.clone(), most))));
    readers.extend(child.stderr.take().map(|from| tokio::spawn(stderr.clone().read(from, flood.clone(), most))));
    readers.extend(child.stdin.take().map(|to| tokio::spawn(feed(to, command.input.clone()))));
    let limits = CommandLimits { processes: count, ..command.limits };
    let end = ended(&mut child, &mut processes, &flood, &limits).await;
    for reader in readers {
        finish(reader).await;
    }
    let end = if namespace.is_empty() { end? } else { of_first(end?) };
    let limits = Some(command.limits);
    Ok(CommandOutcome { end, stdout: stdout.captured(), stderr: stderr.captured(), limits })
}

/// Waits for the end of the command, or brings it about; nothing of it runs afterwards.
async fn ended(
    child: &mut Child,
    processes: &mut Processes,
    flood: &Flood,
    limits: &CommandLimits,
) -> Result<CommandEnd, ExecutionError> {
    let end = tokio::select! {
        status = child.wait() => {
            processes.kill();
            let status = status.map_err(|error| unavailable(&format!("the command cannot be waited for: {error}"), true))?;
            return Ok(end_of(status));
        }
        () = tokio::time::sleep(limits.time) => CommandEnd::TimedOut,
        () = flood.over() => CommandEnd::TooMuchOutput,
        end = processes.watch(limits) => end,
    };
    match end {
        // It gets the chance to clean up.
        CommandEnd::TimedOut => {
            let gone = async {
                let _ = child.wait().await;
            };
            processes.end(gone).await;
        }
        CommandEnd::Exited { .. }
        | CommandEnd::Signalled { .. }
        | CommandEnd::TooMuchOutput
        | CommandEnd::TooMuchMemory
        | CommandEnd::TooManyProcesses => processes.kill(),
    }
    let _ = child.wait().await;
    Ok(end)
}

/// Means that keep a command together.
struct Confined<'c> {
    mark: &'c str,
    namespace: &'static Namespace,
    hidden: &'c [HiddenFolder],
    group: &'c ProcessGroup,
}

fn spawn(place: &Place, command: &ShellCommand, confined: Confined<'_>) -> Result<Child, ExecutionError> {
    if command.command.contains('\0') {
        return Err(ExecutionError::InvalidRequest { reason: "the command contains a zero byte".to_owned() });
    }
    let folder = place.root.join(place.resolved(&command.folder)?);
    let memory = (command.limits.memory / 1024).to_string();
    let mut shell = Command::new("/bin/sh");
    let script = if confined.namespace.is_empty() { YIELDING } else { FIRST };
    shell
        .args(["-c", LIMITED, "dormouse", &memory])
        .arg(confined.group.folder())
        .args(confined.namespace.before(confined.hidden));
    shell.args(["/bin/sh", "-c", script, "dormouse", &command.command, path_of(command.shell)]).current_dir(&folder);
    shell.env_clear().envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    for (name, value) in &command.environment {
        if !is_variable_of_command(name) || value.expose().contains('\0') {
            return Err(ExecutionError::InvalidRequest { reason: format!("the variable `{name}` cannot be set") });
        }
        shell.env(name, value.expose());
    }
    shell.env(MARK, confined.mark).env("PWD", &folder);
    shell.envs(ROOT.map(|name| (name, &place.root)));
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // If this future is dropped before its processes are known; they are ended as a group otherwise.
    shell.process_group(0).kill_on_drop(true);
    shell.spawn().map_err(|error| not_started(command, &error))
}

/// The best shell of this machine.
pub(super) fn best_shell() -> Shell {
    match *BASH {
        Some(_) => Shell::Bash,
        None => Shell::Sh,
    }
}

fn path_of(shell: Shell) -> &'static str {
    let bash = BASH.as_deref().filter(|_| shell == Shell::Bash);
    bash.unwrap_or(SH)
}

fn not_started(command: &ShellCommand, error: &io::Error) -> ExecutionError {
    let kind = error.kind();
    if matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return ExecutionError::NotFound { path: command.folder.clone() };
    }
    match kind == io::ErrorKind::ArgumentListTooLong {
        true => ExecutionError::InvalidRequest { reason: "the command is too long; write it to a file".to_owned() },
        false => unavailable(&format!("the command cannot be started: {error}"), false),
    }
}

/// Writes `input` and closes the pipe. A command that does not read it is none of our business.
async fn feed(mut to: ChildStdin, input: Vec<u8>) {
    let _ = to.write_all(&input).await;
}

/// Waits for the last output; a pipe that a process still holds is let go.
async fn finish(mut reader: JoinHandle<()>) {
    if tokio::time::timeout(LAST_WORDS, &mut reader).await.is_err() {
        reader.abort();
    }
}

/// The end of a command that the first process of its namespace waited for.
fn of_first(end: CommandEnd) -> CommandEnd {
    match end {
        CommandEnd::Exited { status } if (SIGNALS + 1..=SIGNALS + LAST_SIGNAL).contains(&status) => {
            CommandEnd::Signalled { signal: status - SIGNALS }
        }
        other @ (CommandEnd::Exited { .. }
        | CommandEnd::Signalled { .. }
        | CommandEnd::TimedOut
        | CommandEnd::TooMuchOutput
        | CommandEnd::TooMuchMemory
        | CommandEnd::TooManyProcesses) => other,
    }
}

fn end_of(status: ExitStatus) -> CommandEnd {
    match (status.code(), status.signal()) {
        (Some(status), _) => CommandEnd::Exited { status },
        (None, signal) => CommandEnd::Signalled { signal: signal.unwrap_or_default() },
    }
}

/// A name that no other command on this machine has.
fn fresh_mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{}-{now}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn unavailable(reason: &str, uncertain: bool) -> ExecutionError {
    ExecutionError::Unavailable { reason: reason.to_owned(), uncertain }
}
