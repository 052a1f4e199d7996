//! The function for tools: the contract of execution backends through the adapter that calls it, and attacks on its binary
//! from inside.

mod attacks;
mod world;

use std::sync::Arc;

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
    trials.extend(attacks::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn runtime() -> tokio::runtime::Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
