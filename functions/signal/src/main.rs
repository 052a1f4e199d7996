//! Serves signals: callbacks and signals over HTTP, and events of the bus.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Signal, &dormouse_app::agents())
}
