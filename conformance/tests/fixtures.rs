//! Every fixture of ours, always; those of the specification where they are, and a line that says so where they are
//! not. A test with its own harness: each case is told by name, as by the `conformance` command.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use dormouse_conformance::{Gaps, PortKind, discover, run};

/// The capabilities that this implementation is held to; to the last one as far as the others rest on it.
const CAPABILITIES: &[&str] = &[
    "graph-engine",
    "sessions",
    "suspension",
    "harness",
    "harness-chat",
    "pipeline-utilities",
    "observability",
    "llm-provider",
];

const BOTH: &[PortKind] = &[PortKind::Memory, PortKind::DynamoDb];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut out = std::io::stdout().lock();
    let mut roots = vec![folder.join("fixtures")];
    let specification = folder.join("../../shared/openarmature/spec");
    if specification.is_dir() {
        roots.extend(CAPABILITIES.iter().map(|capability| specification.join(capability)));
    } else {
        let line = format!("ignored: the specification's own fixtures; there is no {}", specification.display());
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    // A folder that is missing is told, and not passed over as one without fixtures.
    let mut cases = discover(&roots)?;
    // `cargo test NAME` filters; options of other test harnesses mean nothing here.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    cases.retain(|case| filters.is_empty() || filters.iter().any(|filter| case.id.contains(*filter)));
    if arguments.iter().any(|argument| argument == "--list") {
        let list = |out: &mut dyn Write| cases.iter().try_for_each(|case| writeln!(out, "{}: test", case.id));
        list(&mut out).map_err(|error| error.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let gaps = Gaps::load(&folder.join("gaps.json"))?;
    let summary = run(&cases, BOTH, &gaps, &mut out).await?;
    let mut names_all = true;
    if specification.is_dir() && filters.is_empty() {
        for key in gaps.unused(&discover(&[folder.join("fixtures"), specification])?) {
            names_all = false;
            writeln!(out, "gaps.json: `{key}` names no case: FAILED").map_err(|error| error.to_string())?;
        }
    }
    writeln!(out, "{summary}").map_err(|error| error.to_string())?;
    Ok(if summary.failed == 0 && names_all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
