//! Running cases and telling how they went.

use std::io::{self, Write};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

use crate::bench::Bench;
use crate::case::{CaseSpec, Plan};
use crate::fixture::Case;
use crate::spec::Spec;
use crate::store::{Backends, PortKind};
use crate::{Failure, Gaps, chat, invocations, models, turns};

/// No case takes longer; one that does hangs.
const MOST_TIME: Duration = Duration::from_secs(60);

/// How one case went on one kind of ports.
enum Verdict {
    Passed,
    Failed(String),
    /// It did not pass, for a reason that is known.
    Skipped(String),
}

/// How many cases went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Did what their fixture expects.
    pub passed: usize,
    /// Did not.
    pub failed: usize,
    /// Did not, as the list of gaps says.
    pub skipped: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Runs every case on every kind of ports and writes one line for each to `out`, and the reasons below it.
///
/// # Errors
/// When the ports cannot be started or `out` cannot be written to.
pub async fn run(cases: &[Case], kinds: &[PortKind], gaps: &Gaps, out: &mut dyn Write) -> Result<Summary, String> {
    let backends = Backends::start(kinds).await?;
    let mut summary = Summary::default();
    for case in cases {
        // A model is called without any store.
        let is_stored = !matches!(case.spec, Ok(Spec::Model(_)));
        for kind in kinds.iter().take(if is_stored { kinds.len() } else { 1 }) {
            let result = run_case(case, *kind, &backends).await;
            let verdict = judge(result, gaps.reason(&case.id));
            summary.count(&verdict);
            tell(out, case, *kind, &verdict).map_err(|error| error.to_string())?;
        }
    }
    Ok(summary)
}

/// Whether the case does what its fixture expects, with everything in memory.
///
/// # Errors
/// When the ports cannot be started.
pub async fn passes(case: &Case) -> Result<bool, String> {
    let backends = Backends::start(&[PortKind::Memory]).await?;
    Ok(run_case(case, PortKind::Memory, &backends).await.is_ok())
}

impl Summary {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
        }
    }
}

/// A listed gap that passes is a failure as well: the list would lie.
fn judge(result: Result<(), Failure>, gap: Option<&str>) -> Verdict {
    match (result, gap) {
        (Ok(()), None) => Verdict::Passed,
        (Ok(()), Some(_)) => Verdict::Failed("listed as a gap but passes".to_owned()),
        (Err(failure), None) => Verdict::Failed(failure.to_string()),
        (Err(_), Some(reason)) => Verdict::Skipped(reason.to_owned()),
    }
}

fn tell(out: &mut dyn Write, case: &Case, kind: PortKind, verdict: &Verdict) -> io::Result<()> {
    let name = format!("{} [{}]", case.id, kind.as_str());
    match verdict {
        Verdict::Passed => {
            writeln!(out, "{name} ... ok")?;
            let unchecked = case.spec.as_ref().map_or_else(|_| Vec::new(), Spec::unchecked);
            if unchecked.is_empty() { Ok(()) } else { writeln!(out, "    unchecked: {}", unchecked.join(", ")) }
        }
        Verdict::Skipped(reason) => writeln!(out, "{name} ... skipped: {reason}"),
        Verdict::Failed(text) => {
            writeln!(out, "{name} ... FAILED")?;
            text.lines().try_for_each(|line| writeln!(out, "    {line}"))
        }
    }
}

async fn run_case(case: &Case, kind: PortKind, backends: &Backends) -> Result<(), Failure> {
    match case.spec.as_ref().map_err(Clone::clone)? {
        Spec::Model(case) => in_time(models::run(case)).await,
        Spec::Graph(spec) => {
            for _ in 0..spec.runs {
                run_once(spec, kind, backends).await?;
            }
            Ok(())
        }
    }
}

async fn run_once(spec: &CaseSpec, kind: PortKind, backends: &Backends) -> Result<(), Failure> {
    let keeping = backends.empty(kind).await.map_err(Failure::missing)?;
    let bench = Bench::new(spec, keeping);
    in_time(run_plan(spec, bench)).await
}

async fn in_time(running: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let running = AssertUnwindSafe(tokio::time::timeout(MOST_TIME, running)).catch_unwind();
    match running.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Failure::mismatch(format!("it did not end within {} seconds", MOST_TIME.as_secs()))),
        Err(_) => Err(Failure::mismatch("it panicked")),
    }
}

async fn run_plan(spec: &CaseSpec, bench: Bench<'_>) -> Result<(), Failure> {
    match &spec.plan {
        Plan::Invocations(calls) => invocations::run(bench, calls).await,
        Plan::Transmissions(harness, transmissions) => turns::run(bench, harness, transmissions).await,
        Plan::Chat(harness, messages, arrivals) => chat::run(bench, harness, messages, arrivals).await,
    }
}
