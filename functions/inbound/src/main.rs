//! Serves HTTP requests: turns, chats, and whatever else is asked by path.

use std::process::ExitCode;

use dormouse_lambda::{Function, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    serve(Function::Inbound).await
}
