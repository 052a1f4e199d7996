//! The simulation itself: it holds on some hundred seeds, repeats itself, and finds every bug that is put in.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_tests::simulation::{Fault, Options, PlantedBug, Report, Simulation, Store};

/// How many seeds every change has to stand.
const SEEDS: u64 = 300;
/// How many of them on DynamoDB, where each takes as long as many in memory.
const SEEDS_ON_DYNAMODB: u64 = 12;
/// How many seeds may go by until a planted bug shows.
const UNTIL_FOUND: u64 = 1_000;

/// What `work` makes of each number below `count`, in no particular order.
fn on_all_cores<T: Send>(count: u64, work: impl Fn(&Simulation, u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let results = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let simulation = Simulation::default();
                while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count) {
                    let result = work(&simulation, number);
                    results.lock().expect("a lock").push(result);
                }
            });
        }
    });
    results.into_inner().expect("a lock")
}

#[test]
fn every_invariant_holds_on_every_seed() {
    let reports: Vec<Report> = on_all_cores(SEEDS, |simulation, seed| simulation.run(seed, &Options::default()));
    assert_eq!(reports.len() as u64, SEEDS);
    show_the_first_violation(&reports, Store::Memory);
    for (number, fault) in Fault::ALL.iter().enumerate() {
        let struck: u64 = reports.iter().map(|report| report.struck[number]).sum();
        assert!(struck > 0, "in {SEEDS} seeds there was never this fault: {fault}");
    }
    assert!(reports.iter().map(|report| report.tasks).sum::<usize>() > 50, "hardly a task ended");
    assert!(reports.iter().map(|report| report.replayed).sum::<usize>() > 20, "hardly a task was replayed");
    assert!(reports.iter().map(|report| report.aside).sum::<usize>() > 20, "hardly anything was put aside");
    assert!(reports.iter().map(|report| report.agents).sum::<usize>() > 20, "hardly an agent came to its end");
    assert!(reports.iter().map(|report| report.doubts).sum::<usize>() > 5, "hardly a call was in doubt");
    assert!(reports.iter().map(|report| report.rests).sum::<usize>() > 0, "no model had to be mended");
    assert!(reports.iter().map(|report| report.overtaken).sum::<u64>() > 0, "no save was overtaken");
    assert!(reports.iter().any(|report| report.deepest > 5), "calls never overlapped");
}

#[test]
fn every_invariant_holds_on_dynamodb() {
    let options = Options { store: Store::DynamoDb, ..Options::default() };
    let reports: Vec<Report> = on_all_cores(SEEDS_ON_DYNAMODB, |simulation, seed| simulation.run(seed, &options));
    assert_eq!(reports.len() as u64, SEEDS_ON_DYNAMODB);
    show_the_first_violation(&reports, Store::DynamoDb);
    let shortest = reports.iter().min_by_key(|report| report.steps).expect("a report");
    let again = Simulation::default().run(shortest.seed, &options);
    assert_eq!((shortest.digest, shortest.steps), (again.digest, again.steps), "a seed repeats itself there too");
}

/// Fails with the steps of the first seed that broke something.
fn show_the_first_violation(reports: &[Report], store: Store) {
    let broken = reports.iter().filter(|report| report.violation.is_some());
    let Some(report) = broken.min_by_key(|report| report.seed) else { return };
    let options = Options { store, readable: true, ..Options::default() };
    let replayed = Simulation::default().run(report.seed, &options);
    let violation = replayed.violation.as_ref().or(report.violation.as_ref()).expect("a violation");
    let seed = report.seed;
    let trace = replayed.trace.join("\n");
    let where_it_was = if store == Store::DynamoDb { " --store dynamodb" } else { "" };
    panic!("{trace}\n\nseed {seed}: {violation}\nreplay it with: make simulate ARGS='--seed {seed}{where_it_was}'");
}

#[test]
fn a_seed_repeats_itself() {
    let used = Simulation::default();
    for seed in [1, 7, 42, 1_000_003] {
        let fresh = Simulation::default().run(seed, &Options { readable: true, ..Options::default() });
        let readable = used.run(seed, &Options { readable: true, ..Options::default() });
        assert_eq!(fresh.trace, readable.trace);
        let once = used.run(seed, &Options::default());
        let again = used.run(seed, &Options::default());
        assert_eq!((once.digest, once.steps), (again.digest, again.steps));
        assert_eq!((once.digest, once.steps), (fresh.digest, fresh.steps), "reading along changes nothing");
        assert_ne!(once.digest, used.run(seed + 1, &Options::default()).digest);
    }
}

#[test]
fn every_planted_bug_is_found() {
    let missed: Vec<_> = on_all_cores(PlantedBug::ALL.len() as u64, |simulation, number| {
        let bug = PlantedBug::ALL[usize::try_from(number).expect("a small number")];
        let options = Options { store: bug.store(), planted: Some(bug), ..Options::default() };
        // From where it pays to look, and around.
        let mut seeds = (bug.look_from()..UNTIL_FOUND).chain(0..bug.look_from());
        let found = seeds.any(|seed| simulation.run(seed, &options).violation.is_some());
        (!found).then_some(bug)
    });
    let missed: Vec<_> = missed.into_iter().flatten().collect();
    assert!(missed.is_empty(), "{UNTIL_FOUND} seeds did not find {missed:?}");
}
