//! The function `socket` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Socket, &own_agent::agents())
}
