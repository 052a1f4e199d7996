//! The command line of agents one of which kills whoever runs it, until it is mended: for tests with real processes.

use std::process::ExitCode;

use dormouse_api::Outside;
use dormouse_engine::{CompiledGraph, END, EngineError, Graph, state, suspend};
use dormouse_ports::SignalDescriptor;

/// Set where the node is mended.
const MENDED: &str = "POISON_IS_MENDED";

state! {
    #[derive(Clone, Debug, Default)]
    struct Meal {
        answer: String,
        digested: bool,
    }
}

fn main() -> ExitCode {
    dormouse_cli::main(&dormouse_app::agents().graph(poison))
}

/// Asks, and dies of the answer.
fn poison(_: &Outside) -> Result<CompiledGraph, EngineError> {
    Graph::<Meal>::new("poison")
        .entry("ask")
        .node("ask", async |()| {
            let id = dormouse_engine::current().map(|identity| identity.invocation_id.to_string());
            Err(suspend(SignalDescriptor::new(format!("meal-{}", id.unwrap_or_default()))).await)
        })
        .node("swallow", async |()| match std::env::var_os(MENDED) {
            Some(_) => Ok(Meal::digested.set(true)),
            None => std::process::abort(),
        })
        .edge("ask", "swallow")
        .edge("swallow", END)
        .compile()
}
