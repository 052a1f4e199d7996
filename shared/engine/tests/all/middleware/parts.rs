//! Middleware around instances and branches (pipeline-utilities §9.7, §11.7).

use std::sync::{Arc, Mutex};

use crate::stage::Stage;
use dormouse_engine::middleware::{FailureIsolation, Retry, is_transient};
use dormouse_engine::{
    Amount, Branch, END, FanOut, FrameworkEvent, GraphBuilder, Middleware, ParallelBranches, Projection, Update,
    augment_metadata, current,
};
use dormouse_ports::Category;
use dormouse_testkit::map;
use serde_json::json;

use super::cast::{Flaky, compiled, down, log, retry, says, schema, single, watched};

fn fanned(node: Flaky, count: i64, middleware: Vec<Arc<dyn Middleware>>) -> GraphBuilder {
    let fan_out = FanOut::over(compiled(single(node)))
        .count(Amount::Fixed(count))
        .concurrency(Some(Amount::Fixed(1)))
        .extra_output("log", "log");
    let fan_out = middleware.into_iter().fold(fan_out, FanOut::wrap);
    GraphBuilder::new("g", schema()).entry("many").fan_out("many", fan_out).edge("many", END)
}

#[tokio::test]
async fn a_retry_around_instances_counts_for_each_by_itself() {
    let stage = Stage::default();
    let graph = fanned(Flaky::raising([down("1")]), 2, vec![Arc::new(retry(&stage, 2))]);
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["done", "done"]));
    let expected = [
        "started many 0",
        "started many/work 0",
        "completed many/work 0 provider_unavailable",
        "started many/work 1",
        "completed many/work 1 ok",
        "started many/work 0",
        "completed many/work 0 ok",
        "completed many 0 ok",
    ];
    assert_eq!(told.lines(), expected);
}

#[tokio::test]
async fn an_isolated_instance_is_told_as_that_instance() {
    let stage = Stage::default();
    let isolation = FailureIsolation::with("unit", says("degraded")).catch([Category::ProviderUnavailable]);
    let layers: Vec<Arc<dyn Middleware>> = vec![Arc::new(isolation), Arc::new(retry(&stage, 2))];
    let graph = fanned(Flaky::raising([down("1"), down("2")]), 2, layers);
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["degraded", "done"]));
    let told = told.framework.lock().unwrap();
    let [FrameworkEvent::FailureIsolated(event)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((event.origin.fan_out_index, event.origin.attempt_index), (Some(0), 1));
    assert_eq!(
        (&event.origin.namespace[..], &event.origin.fan_out_index_chain[..]),
        (&["many".into()][..], &[Some(0)][..])
    );
    let carriers: Vec<bool> = event.caught.chain.iter().map(|link| link.carrier).collect();
    assert_eq!((carriers, &event.caught.derived), (vec![true, false], &Some(Category::ProviderUnavailable)));
}

#[tokio::test]
async fn around_the_fan_out_the_failure_is_one_carrier_deep() {
    let stage = Stage::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let outer = Retry::new(stage.clock.clone(), Arc::new(|| 0.0)).max_attempts(2).classifier(move |error, _| {
        note.lock().unwrap().push((error.category().cloned(), is_transient(error)));
        false
    });
    let graph = fanned(Flaky::raising([down("1")]), 1, Vec::new()).wrap("many", Arc::new(outer));
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(ended.unwrap_err().derived_category(), &Category::ProviderUnavailable);
    assert_eq!(*seen.lock().unwrap(), [(Some(Category::NodeException), true)]);
    assert_eq!(told.lines().last().unwrap(), "completed many 0 provider_unavailable");
    assert!(told.events.lock().unwrap().last().unwrap().fan_out_config.is_some());
}

fn branched(branch: Branch) -> GraphBuilder {
    let branches = ParallelBranches::default().branch("left", branch);
    GraphBuilder::new("g", schema()).entry("both").parallel_branches("both", branches).edge("both", END)
}

#[tokio::test]
async fn a_call_is_told_as_its_branch_once_per_attempt() {
    let stage = Stage::default();
    let call = Branch::call(Arc::new(Flaky::raising([down("1"), down("2")])))
        .wrap(Arc::new(FailureIsolation::with("left", says("degraded"))))
        .wrap(Arc::new(retry(&stage, 2)));
    let (ended, told) = watched(&stage, &compiled(branched(call))).await;
    assert_eq!(log(ended), json!(["degraded"]));
    let expected = [
        "started both 0",
        "started both/left 0",
        "completed both/left 0 provider_unavailable",
        "started both/left 1",
        "completed both/left 1 provider_unavailable",
        "isolated left 1",
        "completed both 0 ok",
    ];
    assert_eq!(told.lines(), expected);
}

#[tokio::test]
async fn a_failed_branch_is_a_carrier_that_may_pass_like_its_cause() {
    let stage = Stage::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for branch in [
        Branch::call(Arc::new(Flaky::raising([down("1")]))),
        Branch::subgraph(compiled(single(Flaky::raising([down("1")]))), Projection::by_name()),
    ] {
        let note = seen.clone();
        let outer = Retry::new(stage.clock.clone(), Arc::new(|| 0.0)).classifier(move |error, _| {
            note.lock().unwrap().push((error.category().cloned(), is_transient(error)));
            false
        });
        let (ended, _) = watched(&stage, &compiled(branched(branch).wrap("both", Arc::new(outer)))).await;
        let error = ended.unwrap_err();
        assert_eq!(error.category(), &Category::ParallelBranchesBranchFailed);
        assert_eq!((error.derived_category(), error.message()), (&Category::ProviderUnavailable, "1"));
        let links = dormouse_engine::cause::classify(&error).chain;
        assert_eq!(
            links.iter().filter(|link| link.category == Some(Category::ParallelBranchesBranchFailed)).count(),
            1
        );
    }
    let expected = (Some(Category::ParallelBranchesBranchFailed), true);
    assert_eq!(*seen.lock().unwrap(), [expected.clone(), expected]);
}

#[tokio::test]
async fn what_an_instance_adds_stays_with_it() {
    let stage = Stage::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let inner = GraphBuilder::new("inner", schema())
        .entry("adds")
        .function("adds", |_| async {
            let fresh = current().unwrap().metadata.is_empty();
            augment_metadata(map(json!({ "product": 1 })))?;
            tokio::task::yield_now().await;
            Ok(Update::none().with("log", json!([if fresh { "fresh" } else { "leaked" }])))
        })
        .edge("adds", END);
    let fan_out = FanOut::over(compiled(inner)).count(Amount::Fixed(3)).extra_output("log", "log");
    let graph = GraphBuilder::new("g", schema())
        .entry("many")
        .fan_out("many", fan_out)
        .function("after", move |_| {
            note.lock().unwrap().push(current().unwrap().metadata.clone());
            async { Ok(Update::none()) }
        })
        .edge("many", "after")
        .edge("after", END);
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["fresh", "fresh", "fresh"]));
    assert_eq!(*seen.lock().unwrap(), [map(json!({}))]);
    let added: Vec<Option<u32>> = told
        .framework
        .lock()
        .unwrap()
        .iter()
        .map(|event| match event {
            FrameworkEvent::MetadataAugmented(event) => event.origin.fan_out_index,
            FrameworkEvent::FailureIsolated(_)
            | FrameworkEvent::CheckpointSaved(_)
            | FrameworkEvent::OperationEnded(_)
            | FrameworkEvent::LlmCompletion(_)
            | FrameworkEvent::LlmFailed(_)
            | FrameworkEvent::LlmToken(_)
            | FrameworkEvent::ToolCall(_)
            | FrameworkEvent::ToolCallFailed(_) => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(added, [Some(0), Some(1), Some(2)]);
}
