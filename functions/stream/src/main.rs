//! Serves the streams of events, and whatever else of the protocol is asked at its address, piece by piece.

use std::process::ExitCode;

use dormouse_lambda::{Function, serve};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    serve(Function::Stream).await
}
