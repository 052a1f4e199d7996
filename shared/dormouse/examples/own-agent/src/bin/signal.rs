//! The function `signal` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Signal, &own_agent::agents())
}
