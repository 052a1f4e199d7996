//! Costs of a typed node beside an untyped one that does the same, and over a state of 1 MB.
//!
//! Run with `make bench`. All graphs take turns within one run, and each is counted by the fastest of its rounds, which
//! is what other programs on the machine disturb least: read the columns beside each other, not against another day.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and stops when it cannot go on")]
#![expect(clippy::disallowed_methods, reason = "it times")]

#[expect(dead_code, reason = "the other benchmarks use the other graphs")]
mod graphs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_engine::{CompiledGraph, END, Engine, Field, FieldType, Graph, Invocation, Target, View, state, view};
use futures::executor::block_on;
use futures::future::ready;
use serde_json::json;

use graphs::{STEPS, engine, linear, looping, schema};

const MEGABYTE: usize = 1 << 20;

state! {
    #[derive(Clone, Debug, Default)]
    struct Counter {
        n: i64,
    }
}

state! {
    #[derive(Clone, Debug, Default)]
    struct Heavy {
        n: i64,
        document: String,
    }
}

state! {
    /// As many fields as the states of usual graphs have.
    #[derive(Clone, Debug, Default)]
    struct Usual {
        n: i64,
        employee: String,
        amount_cents: u64,
        purpose: String,
        decide_within: String,
        tags: Vec<String>,
        is_open: bool,
        decided_by: Option<String>,
        result: String,
    }
}

fn usual_linear() -> Arc<CompiledGraph> {
    let mut graph = Graph::<Usual>::new("linear").entry("n0");
    for index in 0..STEPS {
        let next = if index + 1 == STEPS { END } else { Target::from(format!("n{}", index + 1)) };
        graph = graph
            .node(&format!("n{index}"), async |usual: Usual| Ok(Usual::n.set(usual.n + 1)))
            .edge(&format!("n{index}"), next);
    }
    Arc::new(graph.compile().unwrap())
}

fn usual_loop() -> Arc<CompiledGraph> {
    let graph = Graph::<Usual>::new("looping")
        .entry("n")
        .node("n", async |usual: Usual| Ok(Usual::n.set(usual.n + 1)))
        .route("n", ["n"], |usual| if usual.n < 1000 { Target::from("n") } else { END });
    Arc::new(graph.compile().unwrap())
}

fn untyped_usual() -> dormouse_engine::StateSchema {
    let names = ["employee", "amount_cents", "purpose", "decide_within", "tags", "is_open", "decided_by", "result"];
    names.iter().fold(schema(), |schema, name| schema.field(*name, Field::new(FieldType::Any, "some text")))
}

fn typed_linear() -> Arc<CompiledGraph> {
    let mut graph = Graph::<Counter>::new("linear").entry("n0");
    for index in 0..STEPS {
        let next = if index + 1 == STEPS { END } else { Target::from(format!("n{}", index + 1)) };
        graph = graph
            .node(&format!("n{index}"), async |counter: Counter| Ok(Counter::n.set(counter.n + 1)))
            .edge(&format!("n{index}"), next);
    }
    Arc::new(graph.compile().unwrap())
}

fn typed_loop() -> Arc<CompiledGraph> {
    let graph = Graph::<Counter>::new("looping")
        .entry("n")
        .node("n", async |counter: Counter| Ok(Counter::n.set(counter.n + 1)))
        .route("n", ["n"], |counter| if counter.n < 1000 { Target::from("n") } else { END });
    Arc::new(graph.compile().unwrap())
}

view! {
    struct Number of Heavy {
        n: i64,
    }
}

/// `nodes` that see of their state what a `V` is.
fn heavy_linear<V: View<Heavy> + Send + 'static>(number: fn(&V) -> i64) -> Arc<CompiledGraph> {
    let mut graph = Graph::<Heavy>::new("linear").entry("n0");
    for index in 0..STEPS {
        let next = if index + 1 == STEPS { END } else { Target::from(format!("n{}", index + 1)) };
        graph = graph
            .node(&format!("n{index}"), move |heavy: V| ready(Ok(Heavy::n.set(number(&heavy) + 1))))
            .edge(&format!("n{index}"), next);
    }
    Arc::new(graph.compile().unwrap())
}

fn heavy_loop<V: View<Heavy> + Send + 'static>(number: fn(&V) -> i64) -> Arc<CompiledGraph> {
    let graph = Graph::<Heavy>::new("looping")
        .entry("n")
        .node("n", move |heavy: V| ready(Ok(Heavy::n.set(number(&heavy) + 1))))
        .route("n", ["n"], |heavy| if heavy.n < 1000 { Target::from("n") } else { END });
    Arc::new(graph.compile().unwrap())
}

fn untyped_heavy() -> dormouse_engine::StateSchema {
    schema().field("document", Field::new(FieldType::Str, ""))
}

fn turn(engine: &Engine, graph: &Arc<CompiledGraph>, document: Option<&str>) -> Duration {
    let state = document.map(|document| ("document".to_owned(), json!(document))).into_iter().collect();
    let invocation = Invocation { state, ..Invocation::default() };
    let before = Instant::now();
    drop(block_on(engine.invoke(graph, invocation)).unwrap());
    before.elapsed()
}

fn main() {
    let engine = engine();
    let document = "x".repeat(MEGABYTE);
    let heavy = Some(document.as_str());
    let rows = [
        ("untyped, linear", linear(schema(), STEPS), None, 300),
        ("typed, linear", typed_linear(), None, 300),
        ("untyped, loop with a route", looping(schema(), STEPS), None, 300),
        ("typed, loop with a route", typed_loop(), None, 300),
        ("untyped, linear, 9 fields", linear(untyped_usual(), STEPS), None, 300),
        ("typed, linear, 9 fields", usual_linear(), None, 300),
        ("untyped, loop, 9 fields", looping(untyped_usual(), STEPS), None, 300),
        ("typed, loop, 9 fields", usual_loop(), None, 300),
        ("untyped, linear, 1 MB", linear(untyped_heavy(), STEPS), heavy, 30),
        ("typed, linear, 1 MB, Arc", heavy_linear::<Arc<Heavy>>(|heavy| heavy.n), heavy, 30),
        ("typed, linear, 1 MB, view", heavy_linear::<Number>(|number| number.n), heavy, 30),
        ("typed, linear, 1 MB, owned", heavy_linear::<Heavy>(|heavy| heavy.n), heavy, 5),
        ("untyped, loop, 1 MB", looping(untyped_heavy(), STEPS), heavy, 30),
        ("typed, loop, 1 MB, Arc", heavy_loop::<Arc<Heavy>>(|heavy| heavy.n), heavy, 30),
        ("typed, loop, 1 MB, view", heavy_loop::<Number>(|number| number.n), heavy, 30),
    ];
    println!("µs per node, the fastest of some rounds");
    for (name, graph, document, rounds) in &rows {
        let fastest = (0..*rounds).map(|_| turn(&engine, graph, *document)).min().unwrap();
        println!("{name:<40} {:>10.3}", fastest.as_secs_f64() * 1e6 / f64::from(u32::try_from(STEPS).unwrap()));
    }
}
