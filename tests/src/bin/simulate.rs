//! Runs the simulation: many seeds on all cores, or one seed step by step.

use std::fmt;
use std::io::Write;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Parser;
use dormouse_tests::simulation::{Fault, Options, PlantedBug, Report, Simulation, Store};

/// Runs the real handlers, harness and engine on ports that fail, by seed.
#[derive(Parser)]
struct Command {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs this seed only and prints every step.
    #[arg(long)]
    seed: Option<u64>,
    /// What holds the state: memory or dynamodb.
    #[arg(long, default_value = "memory", value_parser = store)]
    store: Store,
    /// Puts a bug in, by its name.
    #[arg(long, value_parser = bug)]
    plant: Option<PlantedBug>,
    /// How many threads; all cores when absent.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
}

fn store(name: &str) -> Result<Store, String> {
    match name {
        "memory" => Ok(Store::Memory),
        "dynamodb" => Ok(Store::DynamoDb),
        _ => Err("there are memory and dynamodb".to_owned()),
    }
}

fn bug(name: &str) -> Result<PlantedBug, String> {
    let known = || PlantedBug::ALL.map(|bug| bug.to_string()).join(", ");
    let found = PlantedBug::ALL.into_iter().find(|bug| bug.to_string() == name);
    found.ok_or_else(|| format!("there is no such bug; there are {}", known()))
}

impl Command {
    fn options(&self, readable: bool) -> Options {
        let store = match self.plant.map(PlantedBug::store) {
            Some(Store::DynamoDb) => Store::DynamoDb,
            Some(Store::Memory) | None => self.store,
        };
        Options { store, planted: self.plant, readable }
    }
}

/// Prints a line, for whoever still reads.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn main() -> ExitCode {
    let command = Command::parse();
    let violated = match command.seed {
        Some(seed) => replay(seed, command.options(true)),
        None => many(&command),
    };
    if violated { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one seed and prints its steps; whether an invariant broke.
fn replay(seed: u64, options: Options) -> bool {
    let report = Simulation::default().run(seed, &options);
    for line in &report.trace {
        say(format_args!("{line}"));
    }
    say(format_args!(""));
    match &report.violation {
        None => say(format_args!(
            "seed {seed}: {} steps, every invariant held; digest {:016x}",
            report.steps, report.digest
        )),
        Some(violation) => {
            say(format_args!("seed {seed}: after {} steps, this invariant broke:\n  {violation}", report.steps));
            say(format_args!("replay it with\n  {}", replay_command(seed, &options)));
        }
    }
    report.violation.is_some()
}

fn replay_command(seed: u64, options: &Options) -> String {
    let plant = options.planted.map(|bug| format!(" --plant {bug}")).unwrap_or_default();
    let store = if options.store == Store::DynamoDb { " --store dynamodb" } else { "" };
    format!("make simulate ARGS='--seed {seed}{store}{plant}'")
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    calls: u64,
    pauses: u64,
    deepest: Option<(usize, u64)>,
    struck: [u64; Fault::ALL.len()],
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.steps += report.steps;
        self.calls += report.calls;
        self.pauses += report.pauses as u64;
        self.deepest = self.deepest.max(Some((report.deepest, report.seed)));
        for (sum, one) in self.struck.iter_mut().zip(report.struck) {
            *sum += one;
        }
    }
}

/// Runs many seeds up to the first that fails, which is then replayed; whether one failed.
fn many(command: &Command) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = command.jobs.map_or(cores, NonZero::get);
    let next = AtomicU64::new(command.from);
    let stop = AtomicBool::new(false);
    let end = command.from.saturating_add(command.seeds);
    let options = command.options(false);
    let (sender, reports) = mpsc::channel();
    let began = Instant::now();
    let (totals, failed) = std::thread::scope(|threads| {
        for _ in 0..jobs {
            let sender = sender.clone();
            let next = &next;
            let stop = &stop;
            threads.spawn(move || {
                let simulation = Simulation::default();
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || sender.send(simulation.run(seed, &options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        collect(reports, command.seeds, began, &stop)
    });
    summary(&totals, began.elapsed());
    match failed {
        None => false,
        Some(report) => {
            say(format_args!("\nseed {} failed; its steps:\n", report.seed));
            replay(report.seed, command.options(true))
        }
    }
}

/// Gathers what threads report, with a line of progress every few seconds.
fn collect(reports: mpsc::Receiver<Report>, seeds: u64, began: Instant, stop: &AtomicBool) -> (Totals, Option<Report>) {
    let mut totals = Totals::default();
    let mut failed = None::<Report>;
    let mut told = began;
    for report in reports {
        totals.add(&report);
        if report.violation.is_some() && failed.as_ref().is_none_or(|other| report.seed < other.seed) {
            stop.store(true, Ordering::Relaxed);
            failed = Some(report);
        }
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            say(format_args!("{:>8} of {seeds} seeds, {:.0} a second", totals.seeds, rate(&totals, began.elapsed())));
        }
    }
    (totals, failed)
}

fn rate(totals: &Totals, took: Duration) -> f64 {
    totals.seeds as f64 / took.as_secs_f64().max(0.001)
}

fn summary(totals: &Totals, took: Duration) {
    say(format_args!(
        "{} seeds in {:.1} s, {:.0} a second; {} steps, {} calls on ports, {} pauses",
        totals.seeds,
        took.as_secs_f64(),
        rate(totals, took),
        totals.steps,
        totals.calls,
        totals.pauses
    ));
    if let Some((deepest, seed)) = totals.deepest {
        say(format_args!("most calls under way at once: {deepest} (seed {seed})"));
    }
    for (fault, struck) in Fault::ALL.iter().zip(totals.struck) {
        say(format_args!("{struck:>10}  {fault}"));
    }
}
