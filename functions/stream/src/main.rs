//! Serves the streams of events, piece by piece. It knows no agents, and says of everything else where it is served.

use std::process::ExitCode;

use dormouse::lambda::{Allocator, allocator, serve_streams};

#[global_allocator]
static ALLOCATOR: Allocator = allocator();

fn main() -> ExitCode {
    serve_streams()
}
