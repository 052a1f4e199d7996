//! The function `wakeup` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, serve};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    serve(Function::Wakeup, &own_agent::agents())
}
