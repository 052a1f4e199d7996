//! Costs of the engine itself: per node, per step, per instance, per suspension.
//!
//! Run with `make bench`. The times are criterion's; behind them, allocations are counted, which no other program on
//! the machine disturbs.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops when it cannot go on")]

mod graphs;

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use dormouse_engine::{
    CompiledGraph, END, Engine, Field, FieldType, GraphBuilder, Reducer, State, StateSchema, Target, Update,
};
use serde_json::json;

use graphs::{STEPS, engine, fan_out, linear, looping, number, run, schema, sleeping, suspend_and_resume};

/// One node that appends to a history until it has `steps` entries.
fn growing(steps: usize) -> Arc<CompiledGraph> {
    let history = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(Reducer::Append);
    let schema = schema().field("history", history);
    let note = |state: State| {
        let number = number(&state) + 1;
        futures::future::ready(Ok(Update::none().with("n", number).with("history", json!([number]))))
    };
    let most = i64::try_from(steps).unwrap_or(i64::MAX);
    let choose = move |state: &State| Ok(if number(state) < most { Target::from("n") } else { END });
    Arc::new(GraphBuilder::new("growing", schema).entry("n").function("n", note).route("n", choose).compile().unwrap())
}

fn wide(fields: usize) -> StateSchema {
    let field = |schema: StateSchema, index| schema.field(format!("f{index}"), Field::new(FieldType::Int, index));
    (0..fields).fold(schema(), field)
}

fn heavy(bytes: usize) -> StateSchema {
    schema().field("document", Field::new(FieldType::Str, "x".repeat(bytes)))
}

fn main() {
    let mut criterion =
        Criterion::default().configure_from_args().sample_size(20).measurement_time(Duration::from_secs(2));
    let engine = engine();
    let per_step = [
        ("linear graph", linear(schema(), STEPS)),
        ("conditional loop", looping(schema(), STEPS)),
        ("loop that appends to a history", growing(STEPS)),
        ("loop over 100 fields", looping(wide(100), STEPS)),
        ("loop over 1 MB", looping(heavy(1 << 20), STEPS)),
        ("fan-out", fan_out(STEPS)),
    ];
    let mut group = criterion.benchmark_group("1,000 steps");
    group.throughput(Throughput::Elements(STEPS as u64));
    for (name, graph) in &per_step {
        group.bench_function(*name, |bencher| bencher.iter(|| run(&engine, graph)));
    }
    group.finish();
    criterion.bench_function("suspend and resume", |bencher| {
        let graph = sleeping();
        bencher.iter(|| suspend_and_resume(&engine, &graph));
    });
    criterion.final_summary();
    println!("allocations                      per step   bytes per step   growth from 1,000 to 4,000 steps");
    for (name, graph) in &per_step {
        let (count, bytes) = allocations(&engine, graph, STEPS);
        let longer = match *name {
            "linear graph" => allocations(&engine, &linear(schema(), 4 * STEPS), 4 * STEPS).0,
            "loop that appends to a history" => allocations(&engine, &growing(4 * STEPS), 4 * STEPS).0,
            "fan-out" => allocations(&engine, &fan_out(4 * STEPS), 4 * STEPS).0,
            _ => count,
        };
        println!("{name:<32} {count:>8.2} {bytes:>16.0} {:>20.2}", longer / count);
    }
}

/// Allocations and allocated bytes of each of `steps` steps.
fn allocations(engine: &Engine, graph: &Arc<CompiledGraph>, steps: usize) -> (f64, f64) {
    let info = allocation_counter::measure(|| drop(run(engine, graph)));
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let per_step = |total: u64| total as f64 / steps as f64;
    (per_step(info.count_total), per_step(info.bytes_total))
}
