//! Holds WebSockets: takes their frames, and sends over them what happens.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Socket, &dormouse_app::agents())
}
