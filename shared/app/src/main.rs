//! The `dormouse` command, with the agents that ship.

use std::process::ExitCode;

fn main() -> ExitCode {
    dormouse::cli(&dormouse_app::agents())
}
