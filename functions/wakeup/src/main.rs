//! Serves the scheduler, pauses that fall due and sweeps, and begins what was accepted.

use std::process::ExitCode;

use dormouse_lambda::{Function, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    serve(Function::Wakeup).await
}
