//! Serves the scheduler: pauses that fall due, and sweeps.

use std::process::ExitCode;

use dormouse_lambda::{Function, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    serve(Function::Wakeup).await
}
