//! The function `stream` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Stream, &own_agent::agents())
}
