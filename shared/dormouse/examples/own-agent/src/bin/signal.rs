//! The function `signal` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, allocator, serve};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve(Function::Signal, &own_agent::agents())
}
