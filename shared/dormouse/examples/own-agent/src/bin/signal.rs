//! The function `signal` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, serve};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    serve(Function::Signal, &own_agent::agents())
}
