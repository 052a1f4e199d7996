//! The engine and the Python reference implementation on the same graphs, side by side in one run.
//!
//! Run with `make bench-compare`, which installs the reference beside the build and names its interpreter in
//! `REFERENCE_PYTHON`. Both sides count the fastest of several calls, which is what other programs disturb least.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops when it cannot go on")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it times, and starts the reference")]

mod graphs;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use graphs::{STEPS, engine, fan_out, linear, looping, run, schema, sleeping, suspend_and_resume};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/reference/reference.py");

fn main() {
    let engine = engine();
    let steps = u32::try_from(STEPS).unwrap();
    let ours = |name: &'static str, work: &dyn Fn(), parts: u32| (name, fastest(work) / parts);
    let line = linear(schema(), STEPS);
    let looped = looping(schema(), STEPS);
    let fanned = fan_out(STEPS);
    let asleep = sleeping();
    let ours = [
        ours("linear graph", &|| drop(run(&engine, &line)), steps),
        ours("conditional loop", &|| drop(run(&engine, &looped)), steps),
        ours("fan-out", &|| drop(run(&engine, &fanned)), steps),
        ours("suspend and resume", &|| suspend_and_resume(&engine, &asleep), 1),
    ];
    let reference = reference();
    println!("µs per step, instance or suspension   Dormouse   reference   times faster");
    for (name, own) in ours {
        let own = micros(own);
        match reference.as_ref().map(|results| seconds(results, name)) {
            Ok(Some(theirs)) => {
                let theirs = theirs * 1e6 / f64::from(steps);
                println!("{name:<37} {own:>8.2} {theirs:>11.1} {:>14.0}", theirs / own);
            }
            Ok(None) => println!("{name:<37} {own:>8.2}     ignored: the reference does not offer it"),
            Err(_) => println!("{name:<37} {own:>8.2}     ignored"),
        }
    }
    match &reference {
        Ok(results) => println!("reference: {}", results[0]["reference"].as_str().unwrap_or("unknown")),
        Err(reason) => println!("ignored: {reason}"),
    }
}

fn fastest(work: &dyn Fn()) -> Duration {
    let time = |()| {
        let before = Instant::now();
        work();
        before.elapsed()
    };
    std::iter::repeat_n((), 200).map(time).min().unwrap_or_default()
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Output of the reference, or the reason for which there is none.
fn reference() -> Result<Vec<Value>, String> {
    let python = std::env::var("REFERENCE_PYTHON").map_err(|_| "REFERENCE_PYTHON names no interpreter".to_owned())?;
    let output = Command::new(&python).arg(SCRIPT).output().map_err(|error| format!("{python}: {error}"))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(reason.lines().last().unwrap_or("the reference failed").to_owned());
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).map_err(|error| error.to_string())).collect()
}

fn seconds(results: &[Value], name: &str) -> Option<f64> {
    results.iter().find(|result| result["name"] == name)?["seconds"].as_f64()
}
