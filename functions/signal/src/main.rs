//! Serves signals: callbacks and signals over HTTP, and events of the bus.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, allocator, serve};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve(Function::Signal, &dormouse_app::agents())
}
