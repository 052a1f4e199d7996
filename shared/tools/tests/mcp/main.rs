//! MCP servers as sources of tools, against a server made with the official SDK: over HTTP on loopback and as a process,
//! in the newest version of the protocol and in the older ones.

mod answers;
mod conformance;
mod conversation;
mod fetch;
mod official;
mod peer;
mod trouble;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::world::Way;

/// The argument with which this program is a server itself.
const SERVE: &str = "--serve";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(SERVE) {
        run(world::serve(arguments.next().as_deref() == Some("older")));
        return ExitCode::SUCCESS;
    }
    if let Some(url) = conformance::server_of_suite() {
        run(conformance::use_all(url));
        return ExitCode::SUCCESS;
    }
    let mut trials = trouble::trials();
    trials.extend(answers::trials());
    trials.extend(official::trials());
    trials.extend(conformance::trials());
    for way in Way::ALL {
        trials.extend(conversation::trials(way));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A test that runs on a runtime of its own.
fn trial<F>(name: impl Into<String>, test: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = ()> + 'static,
{
    Trial::test(name, move || {
        run(test());
        Ok::<(), Failed>(())
    })
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(future);
}
