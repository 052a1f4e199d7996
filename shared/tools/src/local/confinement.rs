//! What keeps the processes of a command together, as far as this machine has it:
//!
//! - a process namespace (`unshare` and `setpriv` of util-linux): everything that a command starts ends when its first
//!   process ends, at once and whatever it does, also when this process is killed; and a command sees no other
//!   processes, nor what stands in their environments;
//! - a mount namespace: what is to be hidden from commands stands in it under an empty folder, and a command has not the
//!   rights to look behind that; the settings of the kernel can be read there, and not written, also by root;
//! - a control group for process numbers: beyond the limit nothing more can be started.
//!
//! Where there is none of them, what a command starts is looked for and ended ([`super::processes`]), and nothing is hidden.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use tokio::process::Command;
use tokio::sync::OnceCell;

/// Folders of the programs of the system.
const PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
/// Ways to a namespace, the best first, each as root, and as any user.
const WAYS: [(&[&str], Hides); 8] = [
    (&["--mount-proc"], Hides::Yes),
    (&["--user", "--map-current-user", "--keep-caps", "--mount-proc"], Hides::Yes),
    (&["--mount-proc"], Hides::No),
    (&["--user", "--map-current-user", "--mount-proc"], Hides::No),
    (&["--mount"], Hides::Yes),
    (&["--user", "--map-current-user", "--keep-caps", "--mount"], Hides::Yes),
    (&[], Hides::No),
    (&["--user", "--map-current-user"], Hides::No),
];
/// Where root writes what the kernel does, for all of the machine.
const SETTINGS_OF_KERNEL: &str = "/proc/sys /proc/sysrq-trigger /sys";
/// Lets the places that its first argument names be read and not written, puts empty folders over those that the other ones
/// name, up to `--`, and goes on with what stands behind by the program that is its name (`setpriv`): what stands there can
/// take none of that away again, neither by mounts, nor by another name of the disk, nor by a handle of a file.
const HIDING: &str = r#"for place in $1; do
test ! -e "$place" || command -p mount -o bind,ro "$place" "$place" || exit 126
done; shift
while test "$1" != --; do
test ! -d "$1" || command -p mount -t tmpfs -o size=4k,mode=0555 dormouse "$1" || exit 126
shift; done; shift
exec "$0" --ambient-caps -all --inh-caps -all \
--bounding-set -sys_admin,-mknod,-dac_read_search,-sys_rawio,-sys_module "$@""#;
/// Control groups of process numbers, by their versions.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
/// Prefix of the names of our groups; behind it stands the number of the process that made it.
const NAME: &str = "dormouse-";
/// Processes beyond the limit of a command that its group still lets it start, so that it is seen to be beyond it.
const BEYOND: u32 = 16;

/// Whether a way lets folders be hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hides {
    Yes,
    No,
}

/// What puts a command into a namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    /// The words before the command; none where there is no namespace to be had.
    words: Vec<String>,
    hides: Hides,
}

impl Namespace {
    /// True if there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The words before a command from which `hidden` is hidden, where that can be.
    pub(super) fn before(&self, hidden: &[HiddenFolder]) -> Vec<String> {
        let mut words = self.words.clone();
        if self.hides == Hides::Yes {
            words.extend(["/bin/sh", "-c", HIDING].map(str::to_owned));
            words.extend(self.words.first().cloned());
            // Root of a user namespace of its own writes no settings anyway.
            let is_root = !self.words.iter().any(|word| word == "--user");
            words.push(if is_root { SETTINGS_OF_KERNEL } else { "" }.to_owned());
            words.extend(hidden.iter().flat_map(HiddenFolder::places));
            words.push("--".to_owned());
        }
        words
    }
}

/// A folder that commands must not see. It is held from the time when it is first there, so that it is found wherever a
/// command has moved it.
#[derive(Debug)]
pub(super) struct HiddenFolder {
    path: PathBuf,
    held: OnceLock<File>,
}

impl HiddenFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        // A command has another folder of work than this process.
        let path = std::path::absolute(&path).unwrap_or(path);
        let folder = Self { path, held: OnceLock::new() };
        folder.hold();
        folder
    }

    fn hold(&self) -> Option<&File> {
        if self.held.get().is_none()
            && let Ok(opened) = File::open(&self.path)
        {
            let _ = self.held.set(opened);
        }
        self.held.get()
    }

    /// Where it is now, and where it was at first: another one may have been made there. What is not there is passed over.
    fn places(&self) -> impl Iterator<Item = String> {
        let now = self.hold().and_then(|held| fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).ok());
        let now = now.filter(|now| *now != self.path);
        now.into_iter().chain([self.path.clone()]).map(|path| path.display().to_string())
    }
}

/// The namespace of commands on this machine.
pub(super) async fn namespace() -> &'static Namespace {
    static FOUND: OnceCell<Namespace> = OnceCell::const_new();
    FOUND.get_or_init(find).await
}

async fn find() -> Namespace {
    if let (Some(setpriv), Some(unshare)) = (program("setpriv"), program("unshare")) {
        for (way, hides) in WAYS {
            let mut words = vec![setpriv.clone(), "--pdeathsig".to_owned(), "KILL".to_owned(), unshare.clone()];
            words.extend(["--pid", "--fork", "--kill-child=KILL"].map(str::to_owned));
            words.extend(way.iter().map(|word| (*word).to_owned()));
            let namespace = Namespace { words, hides };
            if !works(&namespace).await {
                continue;
            }
            if hides == Hides::No {
                tracing::warn!(
                    "this machine gives commands of agents no mount namespace (`unshare`, `setpriv` and `mount` of \
                     util-linux): they can read the data folder as their user can"
                );
            }
            return namespace;
        }
    }
    tracing::warn!(
        "this machine gives commands of agents no process namespace (`unshare` and `setpriv` of util-linux): what a \
         command starts is looked for and ended, and may outlive this process if that is killed; and a command can read \
         the data folder as its user can"
    );
    Namespace { words: Vec::new(), hides: Hides::No }
}

/// The path of a program of the system.
pub(super) fn program(name: &str) -> Option<String> {
    let found = PLACES.iter().map(|place| format!("{place}/{name}"));
    found.into_iter().find(|path| Path::new(path).is_file())
}

/// True if a command runs in `namespace`, with something hidden from it where that can be.
async fn works(namespace: &Namespace) -> bool {
    let words = namespace.before(&[HiddenFolder::new(std::env::temp_dir())]);
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).args(["/bin/sh", "-c", "exit 7"]).env_clear().env("PATH", PLACES.join(":"));
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
