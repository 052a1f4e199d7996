//! Stored states as states of the graphs of today.

use std::sync::Arc;

use dormouse_ports::Map;

use crate::{CompiledGraph, State};

/// The graphs along `path`, the outermost first: one per name. The last name is a node of the last graph; every other
/// one is a subgraph of the graph before.
pub(super) fn graphs<'g>(graph: &'g CompiledGraph, path: &[Arc<str>]) -> Result<Vec<&'g CompiledGraph>, String> {
    let mut graphs = vec![graph];
    let containing = path.split_last().map_or(&[][..], |(_, containing)| containing);
    for name in containing {
        let around = graphs[graphs.len() - 1];
        let inner = around.inner(name);
        graphs
            .push(inner.ok_or_else(|| format!("node `{name}` of graph `{}` is no subgraph any more", around.name()))?);
    }
    Ok(graphs)
}

/// `stored` as states of `graphs`: fields that are missing have their defaults, and every field fits.
pub(super) fn states(graphs: &[&CompiledGraph], stored: Vec<Map>) -> Result<Vec<State>, String> {
    if graphs.len() != stored.len() {
        return Err(format!("there are states of {} graphs for {} active ones", stored.len(), graphs.len()));
    }
    let restored = graphs.iter().zip(stored).map(|(graph, stored)| {
        let mut state = graph.schema().defaults();
        for (name, value) in stored {
            state.set(&name.into(), Arc::new(value));
        }
        let valid = graph.schema().validate(&state);
        valid.map(|()| state).map_err(|reason| format!("state of graph `{}`: {reason}", graph.name()))
    });
    restored.collect()
}
