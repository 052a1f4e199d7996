//! The function `wakeup` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Wakeup, &own_agent::agents())
}
