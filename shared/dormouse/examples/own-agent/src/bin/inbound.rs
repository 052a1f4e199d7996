//! The function `inbound` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Inbound, &own_agent::agents())
}
