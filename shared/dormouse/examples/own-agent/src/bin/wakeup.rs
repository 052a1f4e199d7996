//! The function `wakeup` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, allocator, serve};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve(Function::Wakeup, &own_agent::agents())
}
