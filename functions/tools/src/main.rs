//! The function for native tools and actions of published workspaces: it is called for one operation, works in a copy of
//! the workspace, and may reach nothing of AWS by its own right.

mod environment;
mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    match environment::bare() {
        Ok(()) => serve::serve(),
        Err(error) => environment::complain(&error),
    }
}
