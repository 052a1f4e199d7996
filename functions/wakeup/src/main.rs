//! Serves the scheduler, pauses that fall due and sweeps, and begins what was accepted.

use std::process::ExitCode;

use dormouse::lambda::{Function, serve};

fn main() -> ExitCode {
    serve(Function::Wakeup, &dormouse_app::agents())
}
