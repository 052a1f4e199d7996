//! Serves the streams of events, and whatever else of the protocol is asked at its address, piece by piece.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Stream, &dormouse_app::agents())
}
