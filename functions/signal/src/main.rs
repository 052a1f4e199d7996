//! Serves signals: callbacks and signals over HTTP, and events of the bus.

use std::process::ExitCode;

use dormouse_lambda::{Function, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    serve(Function::Signal).await
}
