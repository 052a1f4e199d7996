//! A wait that cannot be right is told with the node and the graph that ask for it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use crate::stage::Stage;
use dormouse_engine::{Answer, CompiledGraph, END, Graph, Invocation, NodeError, Rule, Update, Wait, state, suspend};
use dormouse_ports::{Category, SignalDescriptor};
use serde::{Deserialize, Serialize};

state! {
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    struct Leave {
        approved: bool,
    }
}

fn asking(ask: impl Fn() -> Result<Wait<Leave>, NodeError> + Send + Sync + 'static) -> CompiledGraph {
    Graph::<Leave>::new("leave").entry("ask").wait("ask", move |_| ask()).edge("ask", END).compile().unwrap()
}

#[tokio::test]
async fn a_wait_that_cannot_be_right_names_its_node_and_graph() {
    let answer = || Answer::new().required(Leave::approved, Rule::boolean());
    let misplaced = asking(move || Ok(Wait::signal("s", answer()).waking_with(Update::none())));
    let labelled = asking(move || Ok(Wait::signal("s", answer()).label("accepts", "anything")));
    let unknown = Graph::<Leave>::new("leave")
        .entry("ask")
        .node("ask", async |()| Err(suspend(SignalDescriptor::new("s").with("into", "decision")).await))
        .edge("ask", END)
        .compile()
        .unwrap();
    for (graph, reason) in
        [(misplaced, "waking_with"), (labelled, "label `accepts`"), (unknown, "the state has no field `decision`")]
    {
        let error = Stage::default().engine().invoke(&Arc::new(graph), Invocation::default()).await.unwrap_err();
        assert_eq!(error.derived_category(), &Category::HarnessSignalSubscriptionFailed);
        let message = error.message();
        assert!(message.starts_with("node `ask` of graph `leave`: the wait for"), "{message}");
        assert!(message.contains(reason), "{message}");
    }
}
