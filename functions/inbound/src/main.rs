//! Serves HTTP requests: turns, chats, and whatever else is asked by path.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Inbound, &dormouse_app::agents())
}
