//! Every save is a place where the process may die or the backend may fail, before or after the effect.

use std::sync::Arc;

use dormouse_engine::{
    Amount, Branch, CompiledGraph, END, ErrorPolicy, FanOut, GraphBuilder, Invocation, NodeError, ParallelBranches,
    Projection, State, StateSchema, Target, Update,
};
use dormouse_ports::{Category, Checkpointer, InvocationId};
use dormouse_testkit::{Fault, FaultyCheckpointer};
use serde_json::{Value, json};

use super::world::{World, compiled, end, first, int, list, schema};

fn number(state: &State, field: &str) -> i64 {
    state.get(field).and_then(Value::as_i64).unwrap_or_default()
}

/// `out` is ten times `item`; one item of the first round fails.
fn leaf(world: &World) -> Arc<CompiledGraph> {
    let ran = world.ran.clone();
    let schema = StateSchema::new().field("item", int(0)).field("half", int(0)).field("out", int(0));
    let graph = GraphBuilder::new("leaf", schema)
        .entry("half")
        .function("half", |state: State| async move {
            tokio::task::yield_now().await;
            Ok(Update::none().with("half", number(&state, "item") * 5))
        })
        .function("whole", move |state: State| {
            let item = number(&state, "item");
            ran.lock().unwrap().push(format!("leaf {item}"));
            std::future::ready(match item {
                13 => Err(NodeError::new("always")),
                _ => Ok(Update::none().with("out", number(&state, "half") * 2)),
            })
        })
        .edge("half", "whole")
        .edge("whole", END);
    compiled(graph)
}

/// Runs the leaves of its item twice: once for the item's list, then for the same list with 100 added.
fn looping(world: &World) -> Arc<CompiledGraph> {
    let schema = StateSchema::new()
        .field("items", super::world::list(json!([])).reduced_by(dormouse_engine::Reducer::LastWriteWins))
        .field("outs", list(json!([])))
        .field("rounds", int(0));
    let leaves = FanOut::over(leaf(world)).items("items", "item").collect("out", "outs").extra_output("rounds", "half");
    let leaves = leaves.error_policy(ErrorPolicy::Collect).concurrency(Some(Amount::Fixed(2)));
    let graph = GraphBuilder::new("looping", schema)
        .entry("leaves")
        .fan_out("leaves", leaves)
        .function("next", |state: State| async move {
            let items: Vec<i64> = serde_json::from_value(state.get("items").cloned().unwrap_or_default())?;
            let items: Vec<i64> = items.into_iter().map(|item| item + 100).collect();
            Ok(Update::none().with("items", items))
        })
        .edge("leaves", "next")
        .route("next", |state| {
            let second = state.get("outs").and_then(Value::as_array).is_some_and(|outs| outs.len() > 3);
            Ok(if second { Target::End } else { "leaves".into() })
        });
    compiled(graph)
}

/// Everything that a graph can be made of, twice around.
fn everything(world: &World) -> GraphBuilder {
    let outer = schema()
        .field("batches", list(json!([[1, 2, 3], [4, 13, 5]])))
        .field("all", list(json!([])))
        .field("round", int(0));
    let inner = GraphBuilder::new("inner", schema())
        .entry("one")
        .function("one", world.says("one"))
        .function("two", world.says("two"))
        .edge("one", "two")
        .edge("two", END);
    let middle = GraphBuilder::new("middle", schema())
        .entry("in")
        .subgraph("in", compiled(inner), Projection::by_name())
        .edge("in", END);
    let batches = FanOut::over(looping(world)).items("batches", "items").collect("outs", "all");
    let branch =
        |word| compiled(GraphBuilder::new(word, schema()).entry(word).function(word, world.says(word)).edge(word, END));
    let branches = ParallelBranches::new()
        .branch("left", Branch::subgraph(branch("left"), Projection::by_name()))
        .branch("right", Branch::subgraph(branch("right"), Projection::by_name()));
    GraphBuilder::new("everything", outer)
        .entry("before")
        .function("before", world.says("before"))
        .subgraph("sub", compiled(middle), Projection::by_name())
        .fan_out("batches", batches)
        .parallel_branches("branches", branches)
        .function("count", |state: State| async move { Ok(Update::none().with("round", number(&state, "round") + 1)) })
        .edge("before", "sub")
        .edge("sub", "batches")
        .edge("batches", "branches")
        .edge("branches", "count")
        .route("count", |state| Ok(if number(state, "round") < 2 { "before".into() } else { Target::End }))
}

/// Gives up some time after the fault has struck: what has not ended by then never will.
async fn has_died(faulty: &FaultyCheckpointer) {
    while !faulty.has_struck() {
        tokio::task::yield_now().await;
    }
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn whichever_save_breaks_in_whichever_way_the_end_is_the_same() {
    let sound = World::default();
    let whole = sound.run(&sound.graph(everything(&sound)), json!({})).await.unwrap();
    let saves = sound.memory.saves().len();
    assert!(saves > 60, "{saves}");
    let once = sound.ran().len();
    for fault in Fault::ALL {
        for save in 0..saves {
            let world = World::default();
            let faulty = Arc::new(FaultyCheckpointer::broken_at(world.memory.clone(), save, fault));
            let breaking = compiled(everything(&world).checkpointer(faulty.clone()));
            let engine = world.stage.engine();
            let ended = tokio::select! {
                biased;
                ended = engine.invoke(&breaking, first(json!({}))) => Some(ended),
                () = has_died(&faulty) => None,
            };
            if let Some(Ok(done)) = ended {
                assert_eq!(end(done), whole, "a failure of a failure's save breaks nothing: {fault:?} at {save}");
                continue;
            }
            let graph = world.graph(everything(&world));
            let resumed = match engine.resume_checkpoint(&graph, &"first".into(), Invocation::default()).await {
                Err(error) if error.category() == &Category::CheckpointNotFound => world.run(&graph, json!({})).await,
                resumed => resumed.map(end),
            };
            assert_eq!(resumed.unwrap(), whole, "{fault:?} at save {save}");
            let ran = world.ran().len();
            // Two instances may repeat their first round of three leaves, and what was in flight.
            assert!(ran <= once + 10, "{fault:?} at save {save}: {ran} runs instead of {once}");
            assert!(world.memory.load(&"first".into()).await.unwrap().is_none_or(|r| r.schema_version == "7"));
        }
    }
}

/// Runs until the end or the fault; the id under which the latest attempt saved.
async fn until_broken(world: &World, from: Option<InvocationId>, save: usize) -> Result<Value, Option<InvocationId>> {
    let faulty = Arc::new(FaultyCheckpointer::broken_at(world.memory.clone(), save, Fault::DieAfter));
    let graph = compiled(everything(world).checkpointer(faulty.clone()));
    let engine = world.stage.engine();
    let before = world.memory.saves().len();
    let run = async {
        match &from {
            Some(id) => engine.resume_checkpoint(&graph, id, Invocation::default()).await,
            None => engine.invoke(&graph, first(json!({}))).await,
        }
    };
    let ended = tokio::select! {
        biased;
        ended = run => Some(ended.map(end).expect("nothing but death ends it")),
        () = has_died(&faulty) => None,
    };
    let saved = world.memory.saves()[before..].last().map(|(record, _)| record.invocation_id.clone());
    ended.ok_or(saved.or(from))
}

#[tokio::test]
async fn it_may_die_again_while_it_recovers() {
    let sound = World::default();
    let whole = sound.run(&sound.graph(everything(&sound)), json!({})).await.unwrap();
    for first_save in (0..60).step_by(4) {
        for second_save in (0..24).step_by(3) {
            let world = World::default();
            let mut from = None;
            let mut saves = [first_save, second_save].into_iter();
            let state = loop {
                match until_broken(&world, from, saves.next().unwrap_or(usize::MAX)).await {
                    Ok(state) => break state,
                    Err(id) => from = id,
                }
            };
            assert_eq!(state, whole, "died at save {first_save}, then at save {second_save} of the second attempt");
        }
    }
}
