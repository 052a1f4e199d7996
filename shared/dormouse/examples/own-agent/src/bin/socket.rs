//! The function `socket` on AWS Lambda.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, serve};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    serve(Function::Socket, &own_agent::agents())
}
