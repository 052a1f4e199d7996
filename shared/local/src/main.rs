//! The `dormouse` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    dormouse_local::cli::main()
}
