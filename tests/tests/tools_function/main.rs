//! The function for tools: the contract of execution backends through the adapter that calls it, and attacks on its binary
//! from inside.

mod attacks;
mod world;

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::execution::{CommandLimits, ExecutionBackend, ShellCommand};
use dormouse_testkit::contract;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Builder;

use world::World;

fn main() {
    let mut trials: Vec<Trial> = contract::EXECUTION_FILES
        .iter()
        .chain(contract::EXECUTION)
        .map(|&(name, check)| {
            Trial::test(format!("function::{name}"), move || {
                let folder = tempfile::tempdir()?;
                let world = World::with_worker(folder.path());
                runtime().block_on(check(Arc::new(world.backend("bare"))));
                Ok(())
            })
        })
        .collect();
    trials.push(Trial::test("function::an_outcome_tells_the_limits_that_held", || {
        runtime().block_on(limits_that_held());
        Ok(())
    }));
    trials.extend(attacks::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The world gives a call 120 seconds, of which 10 are kept back, and a command 512 MiB.
async fn limits_that_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = World::with_worker(folder.path()).backend("bare");
    let given = CommandLimits { time: Duration::from_secs(600), ..CommandLimits::default() };
    let command = ShellCommand { limits: given, ..ShellCommand::new("true") };
    let held = backend.run(&command).await.expect("it runs").limits.expect("limits");
    assert_eq!(held, CommandLimits { time: Duration::from_secs(110), memory: 512 << 20, ..given });
    let lower = CommandLimits { time: Duration::from_secs(5), memory: 64 << 20, ..given };
    let command = ShellCommand { limits: lower, ..ShellCommand::new("true") };
    assert_eq!(backend.run(&command).await.expect("it runs").limits, Some(lower));
}

fn runtime() -> tokio::runtime::Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
