//! What keeps the processes of a command together, as far as this machine has it:
//!
//! - a process namespace (`unshare` and `setpriv` of util-linux): everything that a command starts ends when its first
//!   process ends, at once and whatever it does, also when this process is killed; and a command sees no other
//!   processes, nor what stands in their environments;
//! - a control group for process numbers: beyond the limit nothing more can be started.
//!
//! Where there is neither, what a command starts is looked for and ended ([`super::processes`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::OnceCell;

/// Folders of the programs of the system.
const PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
/// Ways to a namespace, the best first: as root, and as any user.
const WAYS: [&[&str]; 4] =
    [&["--mount-proc"], &["--user", "--map-current-user", "--mount-proc"], &[], &["--user", "--map-current-user"]];
/// Control groups of process numbers, by their versions.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
/// Prefix of the names of our groups; behind it stands the number of the process that made it.
const NAME: &str = "dormouse-";
/// Processes beyond the limit of a command that its group still lets it start, so that it is seen to be beyond it.
const BEYOND: u32 = 16;

/// The words before a command that put it into a namespace; none where there is none to be had.
pub(super) async fn namespace() -> &'static [String] {
    static FOUND: OnceCell<Vec<String>> = OnceCell::const_new();
    FOUND.get_or_init(find).await
}

async fn find() -> Vec<String> {
    if let (Some(setpriv), Some(unshare)) = (program("setpriv"), program("unshare")) {
        for way in WAYS {
            let mut words = vec![setpriv.clone(), "--pdeathsig".to_owned(), "KILL".to_owned(), unshare.clone()];
            words.extend(["--pid", "--fork", "--kill-child=KILL"].map(str::to_owned));
            words.extend(way.iter().map(|word| (*word).to_owned()));
            if works(&words).await {
                return words;
            }
        }
    }
    tracing::warn!(
        "this machine gives commands of agents no process namespace (`unshare` and `setpriv` of util-linux): what a \
         command starts is looked for and ended, and may outlive this process if that is killed"
    );
    Vec::new()
}

fn program(name: &str) -> Option<String> {
    let found = PLACES.iter().map(|place| format!("{place}/{name}"));
    found.into_iter().find(|path| Path::new(path).is_file())
}

/// True if a command runs behind `words`.
async fn works(words: &[String]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).args(["/bin/sh", "-c", "exit 7"]).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.code() == Some(7))
}

/// A control group that limits how many processes a command has. It is removed when it is dropped, behind its processes.
#[derive(Debug)]
pub(super) struct ProcessGroup(Option<PathBuf>);

impl ProcessGroup {
    /// A group of that `name` for `most` processes; an empty one where this machine lets us make none.
    pub(super) fn limited(name: &str, most: u32) -> Self {
        Self(GROUPS.iter().find_map(|groups| made(Path::new(groups), name, most.saturating_add(BEYOND))))
    }

    /// Its folder; empty where there is none.
    pub(super) fn folder(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // One in which a process still ends is removed with those that other processes left.
        if let Some(folder) = &self.0 {
            let _ = fs::remove_dir(folder);
        }
    }
}

fn made(groups: &Path, name: &str, most: u32) -> Option<PathBuf> {
    if !groups.join("cgroup.procs").exists() {
        return None;
    }
    sweep(groups);
    let folder = groups.join(format!("{NAME}{name}"));
    fs::create_dir(&folder).ok()?;
    let limited = folder.join("pids.max").exists() && fs::write(folder.join("pids.max"), most.to_string()).is_ok();
    if !limited {
        let _ = fs::remove_dir(&folder);
    }
    limited.then_some(folder)
}

/// Removes the groups of processes that are gone; one that still has processes stays by itself.
fn sweep(groups: &Path) {
    let ours = std::process::id().to_string();
    for entry in fs::read_dir(groups).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next()) else { continue };
        if owner != ours && !Path::new(&format!("/proc/{owner}")).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
