//! A process that runs commands of strangers, one workspace after the other.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use crate::local::descendants;

/// Rounds in which processes are looked for that were started while others were ended.
const ROUNDS: usize = 200;

/// This process, as one that runs commands of strangers.
#[derive(Debug)]
pub struct Sandbox {
    _private: (),
}

impl Sandbox {
    /// Makes this process one with memory and an environment that its children cannot read, and to which every process
    /// comes back that one of its commands leaves behind.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn enter() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            nix::sys::prctl::set_dumpable(false)?;
            nix::sys::prctl::set_child_subreaper(true)?;
        }
        Ok(Self { _private: () })
    }

    /// Ends every process that a command has left, no matter what it did to get away.
    ///
    /// # Errors
    /// When some do not end: then this process should.
    pub fn clear(&self) -> io::Result<()> {
        for _ in 0..ROUNDS {
            let left = descendants(getpid().as_raw());
            for process in &left {
                // It may have ended meanwhile.
                let _ = kill(Pid::from_raw(*process), Signal::SIGKILL);
            }
            while let Ok(ended) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                if ended == WaitStatus::StillAlive {
                    break;
                }
            }
            if left.is_empty() {
                return Ok(());
            }
        }
        Err(io::Error::other("processes of a command do not end"))
    }
}

/// Removes `folder` with everything in it, also folders without the right to look into them.
///
/// # Errors
/// When something stays.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            fs::remove_dir_all(folder)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}
