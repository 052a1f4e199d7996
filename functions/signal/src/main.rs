//! Serves signals: callbacks and signals over HTTP, and events of the bus.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, serve};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    serve(Function::Signal, &dormouse_app::agents())
}
