//! The agents on this machine, and the commands that ask about what sleeps.

use std::process::ExitCode;

fn main() -> ExitCode {
    dormouse::cli(&own_agent::agents())
}
