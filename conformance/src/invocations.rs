//! Cases that call the engine: `invoke()` and resume, one after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dormouse_engine::{AfterError, DrainSummary, EngineError, Invocation, LeaseTerms, Outcome, Resume};
use dormouse_ports::InvocationId;

use crate::Failure;
use crate::bench::{Bench, Compiled, Ids, Refusal};
use crate::case::{Call, SEEDED_ID};
use crate::evidence::{Earlier, End, Evidence, SeenError, Stage};
use crate::store::Crash;

/// How long a claim of a fixture lasts; longer than any fixture runs.
const CLAIM: Duration = Duration::from_secs(300);

pub(crate) async fn run(mut bench: Bench<'_>, calls: &[Call]) -> Result<(), Failure> {
    let compiled = match bench.compile() {
        Ok(compiled) => compiled,
        Err(Refusal::Runner(failure)) => return Err(failure),
        Err(Refusal::Engine(stage, error)) => {
            let end = End::Errored(*error);
            let seen = bench.evidence(stage, end, Ids::default(), None, DrainSummary::default()).await?;
            return check_refusal(&bench, calls, &seen);
        }
    };
    bench.case.sessions.seed(&bench.store, bench.case.graph.schema_version()).await?;
    seed_checkpoints(&mut bench, &compiled, calls).await?;
    let mut failures = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        if call.expectations.expects("expected_compile_error") {
            return Err(Failure::mismatch("expected a compile error, but the graph compiled"));
        }
        if call.expectations.expects("expected_compile_warning") && !call.runs() {
            let end = End::Completed { state: Default::default() };
            let seen =
                bench.evidence(Stage::Compilation, end, Ids::default(), Some(&compiled), Default::default()).await?;
            return call.expectations.check(&seen);
        }
        bench.round.store(index, Ordering::Relaxed);
        let seen = invoke(&mut bench, &compiled, call).await?;
        let checked = call.expectations.check_end(&seen.end, &seen);
        failures.extend(checked.map_err(|failure| failure.within(&call.name)).err());
        if index + 1 == calls.len() {
            failures.extend(bench.case.expectations.check(&seen).err());
        }
    }
    failures.extend(outlived(&bench));
    Failure::all(failures)
}

/// The failure of a case whose process was to end and did not: it would tell of a resume that never was one.
fn outlived(bench: &Bench<'_>) -> Option<Failure> {
    let is_to_end = bench.case.checkpoints.crash.is_some() || bench.case.graph.abort().is_some();
    let has_ended = bench.checkpointer.as_ref().is_some_and(|checkpointer| !checkpointer.is_armed());
    (is_to_end && !has_ended)
        .then(|| Failure::mismatch("the process was to end after a save, and that save never came"))
}

/// Stores the record that is there already, runs the invocations that come before, and arms the crash.
async fn seed_checkpoints(bench: &mut Bench<'_>, compiled: &Compiled, calls: &[Call]) -> Result<(), Failure> {
    let Some(checkpointer) = bench.checkpointer.clone() else { return Ok(()) };
    let spec = &bench.case.checkpoints;
    if let Some(record) = spec.seeded(SEEDED_ID, bench.case.graph.schema_version())? {
        checkpointer.seed(&record).await.map_err(Failure::mismatch)?;
    }
    for _ in 0..spec.populate {
        let state = calls.first().map(|call| call.state.clone()).unwrap_or_default();
        let call = Invocation { state, ..Invocation::default() };
        let ended = compiled.engine.invoke(&compiled.built.graph, call).await;
        ended.map_err(|error| Failure::mismatch(format!("a run before: {error}")))?;
    }
    let abort = bench.case.graph.abort();
    let abort = abort.map(|(node, index)| Crash::AfterInstance { node: node.to_owned(), index });
    checkpointer.arm(spec.crash.clone().or(abort));
    checkpointer.take_saves();
    Ok(())
}

/// The engine refused the graph or what is registered on it: the first invocation says whether that is expected.
fn check_refusal(bench: &Bench<'_>, calls: &[Call], seen: &Evidence) -> Result<(), Failure> {
    let expectations = match calls {
        [only] if bench.case.expectations.is_empty() => &only.expectations,
        _ => &bench.case.expectations,
    };
    if seen.stage == Stage::Compilation && expectations.expects("expected_compile_error") {
        return expectations.check(seen);
    }
    expectations.check_end(&seen.end, seen)
}

impl Call {
    /// Whether the case wants a run and not only a compilation.
    fn runs(&self) -> bool {
        ["outcome", "final_state", "expected_final_state", "error", "expected_error", "execution_order"]
            .iter()
            .any(|key| self.expectations.expects(key))
    }
}

async fn invoke(bench: &mut Bench<'_>, compiled: &Compiled, call: &Call) -> Result<Evidence, Failure> {
    bench.start_pages();
    let resumed = call.resume.as_ref().map(|id| bench.past.resolve_text(id)).transpose()?;
    // The id of what is resumed from a checkpoint is that of another invocation.
    let paused = resumed.clone().filter(|_| !call.from_checkpoint);
    let ended = tokio::select! {
        ended = bench.capture.around(run_call(bench, compiled, call, resumed.as_deref())) => Some(ended?),
        () = crash(bench) => None,
    };
    let Some(ended) = ended else { return crashed(bench, compiled, call).await };
    let draining = compiled.built.graph.drain(&*bench.ports.clock, call.drain_timeout);
    let drain = bench.ledger.drained(call.drain_timeout, draining).await;
    let mut ids = identify(&ended);
    if let Some(identity) = bench.ledger.identity() {
        ids.invocation_id.get_or_insert_with(|| identity.invocation_id.to_string());
        ids.correlation_id.get_or_insert_with(|| identity.correlation_id.clone());
    }
    ids.session_id = ids.session_id.or_else(|| call.session_id.as_ref().map(ToString::to_string));
    ids.invocation_id = ids.invocation_id.or(paused).or_else(|| call.invocation_id.as_ref().map(ToString::to_string));
    let end = match &ended {
        Ok(outcome) => End::from(outcome),
        Err(error) => End::Errored(error.into()),
    };
    seen(bench, compiled, call, (end, ids, drain)).await
}

async fn run_call(
    bench: &Bench<'_>,
    compiled: &Compiled,
    call: &Call,
    resumed: Option<&str>,
) -> Result<Result<Outcome, EngineError>, Failure> {
    match resumed {
        Some(id) if call.from_checkpoint => recover(bench, compiled, call, id).await,
        Some(id) => resume(bench, compiled, call, id).await,
        None => Ok(compiled.engine.invoke(&compiled.built.graph, fresh(bench, compiled, call)?).await),
    }
}

async fn recover(
    bench: &Bench<'_>,
    compiled: &Compiled,
    call: &Call,
    id: &str,
) -> Result<Result<Outcome, EngineError>, Failure> {
    let id = InvocationId::new(id);
    if let (Some(checkpointer), false) = (&bench.checkpointer, call.modified.is_empty()) {
        checkpointer.change(&id, &call.modified).await.map_err(Failure::mismatch)?;
    }
    let request = fresh(bench, compiled, call)?;
    Ok(compiled.engine.resume_checkpoint(&compiled.built.graph, &id, request).await)
}

/// Waits until the fixture ends the process.
async fn crash(bench: &Bench<'_>) {
    match &bench.checkpointer {
        Some(checkpointer) => checkpointer.crashed().await,
        None => std::future::pending().await,
    }
}

/// The process ended: nothing of the invocation is left but what is stored. Where the fixture lets a fan-out node
/// abort it, that node counts as having raised.
async fn crashed(bench: &mut Bench<'_>, compiled: &Compiled, call: &Call) -> Result<Evidence, Failure> {
    let end = match bench.case.graph.abort() {
        None => End::Crashed,
        Some((node, _)) => End::Errored(SeenError::of_node(node, "the process was aborted")),
    };
    let identity = bench.ledger.identity();
    let ids = Ids {
        invocation_id: identity.as_ref().map(|identity| identity.invocation_id.to_string()),
        correlation_id: identity.as_ref().map(|identity| identity.correlation_id.clone()),
        session_id: call.session_id.as_ref().map(ToString::to_string),
    };
    seen(bench, compiled, call, (end, ids, DrainSummary::default())).await
}

async fn seen(
    bench: &mut Bench<'_>,
    compiled: &Compiled,
    call: &Call,
    (end, ids, drain): (End, Ids, DrainSummary),
) -> Result<Evidence, Failure> {
    if let Some(id) = &ids.invocation_id {
        bench.past.remember(&call.name, end.kind(), id);
    }
    let seen = bench.evidence(Stage::Invocation, end, ids, Some(compiled), drain).await?;
    bench.earlier.push(Earlier {
        invocation_id: seen.invocation_id.clone(),
        correlation_id: seen.correlation_id.clone(),
        checkpoint: seen.checkpoint.clone(),
        drains: seen.pages.drains.clone(),
    });
    Ok(seen)
}

fn fresh(bench: &Bench<'_>, compiled: &Compiled, call: &Call) -> Result<Invocation, Failure> {
    Ok(Invocation {
        state: bench.past.resolve_map(&call.state)?,
        session_id: call.session_id.clone(),
        invocation_id: call.invocation_id.clone(),
        correlation_id: call.correlation_id.clone(),
        metadata: call.metadata.clone(),
        observers: compiled.observers.clone(),
        ..Invocation::default()
    })
}

async fn resume(
    bench: &Bench<'_>,
    compiled: &Compiled,
    call: &Call,
    id: &str,
) -> Result<Result<Outcome, EngineError>, Failure> {
    let request = Resume {
        payload: bench.past.resolve_map(&call.payload)?,
        generation: None,
        claim: LeaseTerms { owner: bench.ports.ids.fresh().into(), duration: CLAIM, yield_after: None },
        observers: compiled.observers.clone(),
        after_error: |_| AfterError::End,
    };
    Ok(compiled.engine.resume(&compiled.built.graph, &InvocationId::new(id), request).await)
}

fn identify(ended: &Result<Outcome, EngineError>) -> Ids {
    match ended {
        Ok(Outcome::Completed(completed)) => Ids {
            invocation_id: Some(completed.invocation_id.to_string()),
            correlation_id: Some(completed.correlation_id.clone()),
            session_id: None,
        },
        Ok(Outcome::Suspended(suspended)) => Ids {
            invocation_id: Some(suspended.invocation_id.to_string()),
            correlation_id: Some(suspended.correlation_id.clone()),
            session_id: suspended.session_id.as_ref().map(ToString::to_string),
        },
        Err(_) => Ids::default(),
    }
}
