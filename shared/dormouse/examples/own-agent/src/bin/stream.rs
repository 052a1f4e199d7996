//! The function `stream` on AWS Lambda: it streams events, and needs no agents for that.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, allocator, serve_streams};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve_streams()
}
