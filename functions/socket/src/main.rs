//! Holds WebSockets: takes their frames, and sends over them what happens.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, allocator, serve};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve(Function::Socket, &dormouse_app::agents())
}
