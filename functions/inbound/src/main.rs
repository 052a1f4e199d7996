//! Serves HTTP requests: turns, chats, and whatever else is asked by path.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, Function, allocator, serve};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve(Function::Inbound, &dormouse_app::agents())
}
