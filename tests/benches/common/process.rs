//! The real binary beside a benchmark: local mode, on a data folder.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that is killed with what it serves when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) url: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Serves the folder `data`, with `environment` beside that of this process.
    pub(crate) fn start(data: &Path, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary());
        dormouse_tests::past_proxies(&mut command);
        command.args(["dev", "--port", "0", "--no-tour", "--data"]).arg(data).env("DORMOUSE_LOG", "error");
        command.envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let ready = "dormouse is ready at ";
        let url = lines.find_map(|line| line.split_once(ready).map(|(_, url)| url.trim().to_owned()));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url: url.expect("an address") }
    }
}

/// The program that is measured.
pub(crate) fn binary() -> std::ffi::OsString {
    std::env::var_os("DORMOUSE_BIN").expect("DORMOUSE_BIN names the binary")
}
