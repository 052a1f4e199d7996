//! The function `stream` on AWS Lambda: it streams events, and needs no agents for that.

use std::process::ExitCode;

use dormouse::lambda::serve_streams;

fn main() -> ExitCode {
    serve_streams()
}
