#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::{Arc, Mutex};

use crate::stage::Stage;
use dormouse_engine::Outcome;
use dormouse_engine::cause::Link;
use dormouse_engine::middleware::FailureIsolation;
use dormouse_engine::{
    END, FailureIsolated, FrameworkEvent, GraphBuilder, NodeError, Phase, Phases, Projection, Target, Update, suspend,
};
use dormouse_ports::{Category, SignalDescriptor};
use futures::FutureExt;
use serde_json::json;

use super::cast::{Flaky, Recorder, Swallows, compiled, down, log, observed, retry, says, schema, single, watched};

fn isolated(told: &Recorder) -> FailureIsolated {
    match &told.framework.lock().unwrap()[..] {
        [FrameworkEvent::FailureIsolated(event)] => event.clone(),
        other => panic!("not one isolated failure: {other:?}"),
    }
}

#[tokio::test]
async fn around_a_retry_it_degrades_what_is_left() {
    let stage = Stage::default();
    let graph = single(Flaky::raising([down("down 1"), down("down 2")]))
        .wrap("work", Arc::new(FailureIsolation::with("work_failed", says("degraded"))))
        .wrap("work", Arc::new(retry(&stage, 2)));
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["degraded"]));
    let expected = [
        "started work 0",
        "completed work 0 provider_unavailable",
        "started work 1",
        "completed work 1 provider_unavailable",
        "isolated work_failed 1",
    ];
    assert_eq!(told.lines(), expected);
    let event = isolated(&told);
    assert_eq!((event.origin.namespace, event.post_state), (vec!["work".into()], says("degraded")));
    assert_eq!(event.pre_state.get("log"), Some(&json!([])));
    assert_eq!((event.caught.derived, &*event.caught.message), (Some(Category::ProviderUnavailable), "down 2"));
}

#[tokio::test]
async fn a_caught_failure_is_the_nodes_own_success_and_every_observer_learns_of_it() {
    let stage = Stage::default();
    let graph = single(Flaky::raising([NodeError::new("boom")]))
        .wrap("work", Arc::new(FailureIsolation::with("caught", says("degraded"))));
    let only_started = Phases::of([Phase::Started]).unwrap();
    let (ended, told) = observed(&stage, &compiled(graph), only_started).await;
    assert_eq!(log(ended), json!(["degraded"]));
    assert_eq!(told.lines(), ["started work 0", "isolated caught 0"]);
    let caught = isolated(&told).caught;
    assert_eq!((caught.derived, &*caught.message, caught.chain.len()), (None, "boom", 1));

    let (ended, told) =
        watched(&stage, &compiled(single(Flaky::raising([down("x")])).wrap("work", Arc::new(Swallows)))).await;
    assert_eq!(log(ended), json!(["recovered"]));
    assert_eq!(told.lines(), ["started work 0", "completed work 0 ok"]);
    assert_eq!(told.events.lock().unwrap()[1].post_state.as_ref().unwrap().get("log"), Some(&json!(["recovered"])));
}

fn nested(middleware: FailureIsolation, error: NodeError) -> GraphBuilder {
    GraphBuilder::new("outer", schema())
        .entry("in")
        .subgraph("in", compiled(single(Flaky::raising([error]))), Projection::by_name())
        .wrap("in", Arc::new(middleware))
        .edge("in", END)
}

#[tokio::test]
async fn it_catches_by_category_through_the_carrier() {
    let stage = Stage::default();
    let catching = |category| FailureIsolation::with("e", says("degraded")).catch([category]);
    let graph = compiled(nested(catching(Category::ProviderUnavailable), down("provider down")));
    let (ended, told) = watched(&stage, &graph).await;
    assert_eq!(log(ended), json!(["degraded"]));
    assert_eq!(told.lines()[1], "completed in/work 0 provider_unavailable");
    let chain = isolated(&told).caught.chain;
    let links: Vec<(bool, &str)> =
        chain.iter().map(|link| (link.carrier, link.category.as_ref().unwrap().as_str())).collect();
    assert_eq!(links, [(true, "node_exception"), (false, "provider_unavailable")]);

    let graph = compiled(nested(catching(Category::ProviderRateLimit), down("provider down")));
    let (ended, told) = watched(&stage, &graph).await;
    assert_eq!(ended.unwrap_err().category(), &Category::NodeException);
    assert!(told.framework.lock().unwrap().is_empty());

    let graph = compiled(nested(catching(Category::ProviderUnavailable), NodeError::new("boom")));
    assert!(watched(&stage, &graph).await.0.is_err(), "a failure without a category is in no set");
}

#[tokio::test]
async fn its_predicate_sees_the_surface_and_its_callback_the_error() {
    let stage = Stage::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let middleware = FailureIsolation::computed("e", |state| {
        Ok(Update::none().with("answer", state.get("log").unwrap().as_array().unwrap().len()))
    })
    .predicate(|error| error.category() == Some(&Category::NodeException))
    .on_caught(move |error| {
        note.lock().unwrap().push(error.message().to_owned());
        async { Ok(()) }.boxed()
    });
    let (ended, _) = watched(&stage, &compiled(nested(middleware, down("provider down")))).await;
    assert_eq!(log(ended), json!([]));
    assert_eq!(*seen.lock().unwrap(), ["provider down"]);
}

#[tokio::test]
async fn a_callback_that_fails_fails_the_node() {
    let stage = Stage::default();
    let middleware = FailureIsolation::with("e", says("degraded"))
        .on_caught(|_| async { Err(NodeError::new("nobody could be told")) }.boxed());
    let graph = compiled(single(Flaky::raising([down("provider down")])).wrap("work", Arc::new(middleware)));
    let failed = watched(&stage, &graph).await.0.unwrap_err();
    assert_eq!(failed.message(), "nobody could be told");
}

#[tokio::test]
async fn it_does_not_see_a_suspension() {
    let stage = Stage::default();
    let graph = GraphBuilder::new("g", schema())
        .entry("ask")
        .function("ask", |_| async { Err(suspend(SignalDescriptor::new("s")).await) })
        .wrap("ask", Arc::new(FailureIsolation::with("e", says("degraded"))))
        .wrap("ask", Arc::new(retry(&stage, 3)))
        .edge("ask", END);
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert!(matches!(ended, Ok(Outcome::Suspended(_))));
    assert_eq!(told.lines(), ["started ask 0", "suspended ask 0"]);
}

#[tokio::test]
async fn a_panic_is_a_failure_like_any_other() {
    let stage = Stage::default();
    let graph = GraphBuilder::new("g", schema())
        .entry("work")
        .function("work", |_| async { panic!("a bug") })
        .wrap("work", Arc::new(FailureIsolation::with("e", says("degraded"))))
        .route("work", |_| Ok(Target::End));
    let (ended, told) = watched(&stage, &compiled(graph)).await;
    assert_eq!(log(ended), json!(["degraded"]));
    let link = Link { category: None, message: "the node panicked: a bug".into(), carrier: false };
    assert_eq!(isolated(&told).caught.chain, [link]);
}

#[tokio::test]
async fn a_degraded_update_that_does_not_merge_fails_the_node_after_the_failure_was_told() {
    let stage = Stage::default();
    let unfit = FailureIsolation::with("e", Update::none().with("log", 1));
    let graph = compiled(single(Flaky::raising([down("x")])).wrap("work", Arc::new(unfit)));
    let (ended, told) = watched(&stage, &graph).await;
    assert_eq!(ended.unwrap_err().category(), &Category::ReducerError);
    assert_eq!(told.lines(), ["started work 0", "isolated e 0", "completed work 0 reducer_error"]);
}
