//! The folder on this machine keeps the contract of execution backends.

use std::sync::Arc;

use dormouse_testkit::contract;
use dormouse_tools::LocalBackend;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let trial = |(name, check): &(&'static str, contract::ExecutionCheck)| {
        let check = *check;
        Trial::test(*name, move || {
            let folder = tempfile::tempdir()?;
            let backend = Arc::new(LocalBackend::open(folder.path())?);
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?
                .block_on(check(backend));
            Ok(())
        })
    };
    libtest_mimic::run(
        &Arguments::from_args(),
        contract::EXECUTION_FILES
            .iter()
            .chain(contract::EXECUTION)
            .chain(contract::EXECUTION_IN_PLACE)
            .map(trial)
            .collect(),
    )
    .exit();
}
