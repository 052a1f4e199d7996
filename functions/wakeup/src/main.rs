//! Serves the scheduler, pauses that fall due and sweeps, and begins what was accepted.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, allocator, serve};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve(Function::Wakeup, &dormouse_app::agents())
}
