//! `conformance DIR…`: runs every fixture in directories of the OpenArmature format.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use dormouse_conformance::{Gaps, PortKind, discover, run};

/// Runs conformance fixtures. The last line is `N passed, N failed, N skipped`; the exit code is 1 when any failed.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directories, searched for `*.yaml`, or single files.
    #[arg(required = true)]
    roots: Vec<PathBuf>,
    /// On which ports.
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    ports: Choice,
    /// Only cases whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Lists the cases and runs none.
    #[arg(long)]
    list: bool,
    /// The list of known gaps.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/gaps.json"))]
    gaps: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    Memory,
    Dynamodb,
    Both,
}

impl Choice {
    fn kinds(self) -> &'static [PortKind] {
        match self {
            Self::Memory => &[PortKind::Memory],
            Self::Dynamodb => &[PortKind::DynamoDb],
            Self::Both => &[PortKind::Memory, PortKind::DynamoDb],
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, String> {
    let arguments = Arguments::parse();
    let mut cases = discover(&arguments.roots)?;
    if cases.is_empty() {
        return Err(format!("there is no fixture under {:?}", arguments.roots));
    }
    if let Some(filter) = &arguments.filter {
        cases.retain(|case| case.id.contains(filter));
        if cases.is_empty() {
            return Err(format!("no case has `{filter}` in its name"));
        }
    }
    let mut out = std::io::stdout().lock();
    let written = |error: std::io::Error| error.to_string();
    if arguments.list {
        cases.iter().try_for_each(|case| writeln!(out, "{}", case.id)).map_err(written)?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = run(&cases, arguments.ports.kinds(), &Gaps::load(&arguments.gaps)?, &mut out).await?;
    writeln!(out, "{summary}").map_err(written)?;
    Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
