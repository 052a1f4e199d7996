//! Pauses and their states as the graphs of today take them up (suspension §6): a state of an earlier schema version is
//! migrated here. [`upgrade`](super::upgrade) only judges whether it can be.

use std::sync::Arc;

use dormouse_ports::{Answered, Category, Map, PausedInvocation, RESOLUTION, Resolution};
use serde_json::Value;

use super::answer;
use crate::graph::Migrated;
use crate::{CompiledGraph, EngineError, State, UpgradePolicy};

/// The pause in the present schema version, with what ends it, and the states of all active graphs, outermost first,
/// with the payload laid over the innermost one.
pub(super) fn resumed(
    graph: &CompiledGraph,
    paused: &PausedInvocation,
    payload: Map,
) -> Result<(PausedInvocation, Vec<State>), EngineError> {
    admit(graph, paused)?;
    let alone = restored(graph, paused)?;
    if paused.under_way {
        return Ok((alone.clone(), vec![State::from(alone.state.into_map())]));
    }
    let resolution = Resolution::of(&payload);
    // A default that time decides, and answers that were gathered, are the graph's own or were admitted before.
    let is_answer = resolution == Resolution::Signalled && paused.fan_in.is_none();
    let answered = match &paused.fan_in {
        Some(fan_in) => Some(Answered::by_parts(&payload, &fan_in.into)),
        None => is_answer.then(|| Answered::with(&payload)),
    };
    let payload = if is_answer { answer::placed(paused, payload)? } else { payload };
    let (mut state, payload) = answered_before(graph, paused, &alone, payload)?;
    let payload = resolution.mark(payload);
    let mut paused = alone;
    paused.answered = answered;
    paused.resolution = Some(resolution);
    let innermost = innermost(graph, &paused)?;
    state.extend(innermost.schema().only_declared(payload));
    let state = innermost.schema().owned(State::from(state));
    if let Err(reason) = innermost.schema().validate(&state) {
        check_state(graph, &paused)?;
        return Err(EngineError::new(Category::SuspensionResumePayloadInvalid, reason));
    }
    let states = paused.parent_states.iter().cloned().map(State::from).chain([state]).collect();
    Ok((paused, states))
}

/// The innermost state of `paused`, which is `alone` in the present schema version, in that version with the part of `payload`
/// that is said in the fields of its own, and the rest, which is still to be laid over it. What ends a pause of an earlier
/// version is such a part: migrations are given the state with it, as if it had come before the new version. The pause itself
/// stays without it: from that its session tells what changed since.
fn answered_before(
    graph: &CompiledGraph,
    paused: &PausedInvocation,
    alone: &PausedInvocation,
    payload: Map,
) -> Result<(Map, Map), EngineError> {
    let unanswered = || alone.state.clone().into_map();
    if paused.schema_version == graph.schema().version() {
        return Ok((unanswered(), payload));
    }
    let is_earlier = |(field, _): &(String, Value)| field != RESOLUTION && paused.state.contains_key(field);
    let (earlier, rest): (Map, Map) = payload.into_iter().partition(is_earlier);
    if earlier.is_empty() {
        return Ok((unanswered(), rest));
    }
    let mut answered = paused.clone();
    answered.state.extend(earlier);
    let invalid = |error: EngineError| EngineError::new(Category::SuspensionResumePayloadInvalid, error.message());
    Ok((restored(graph, &answered).map_err(invalid)?.state.into_map(), rest))
}

/// `paused` in the present schema version, if its place is still there.
pub(super) fn restored(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<PausedInvocation, EngineError> {
    let paused = migrated(graph, paused)?;
    let containing = innermost(graph, &paused)?;
    match paused.namespace.last() {
        Some(node) if containing.index_of(node).is_none() => {
            let message =
                format!("the invocation sleeps at node `{node}`, which graph `{}` has no more", containing.name());
            Err(EngineError::new(Category::SuspensionRecordInvalid, message))
        }
        Some(_) | None => Ok(paused),
    }
}

/// Checks that the innermost state of `paused`, which is in the present schema version, fits a graph over a Rust type: of that the
/// digest knows the names of the fields, and not what they hold.
pub(super) fn check_state(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<(), EngineError> {
    let innermost = innermost(graph, paused)?;
    if !innermost.schema().is_closed() || !paused.has_begun() {
        return Ok(());
    }
    let stored = State::from(paused.state.clone().into_map());
    let fits = innermost.schema().validate(&stored);
    fits.map_err(|reason| unchanged_version(graph, &format!("state of graph `{}`: {reason}", innermost.name())))
}

/// The error of a pause whose state does not fit, although it is of the schema version of `graph`.
fn unchanged_version(graph: &CompiledGraph, reason: &str) -> EngineError {
    let version = graph.schema().version();
    let message = format!(
        "{reason}; where the state has changed, graph `{}` needs another version than `{version}`: set that, and register a \
         migration from `{version}`",
        graph.name()
    );
    EngineError::new(Category::SuspensionRecordInvalid, message)
}

/// `paused` with its states brought to the declared schema version by the migrations of checkpoints. Where the graph
/// has another shape, fields that its states do not have yet have their defaults.
fn migrated(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<PausedInvocation, EngineError> {
    let mut paused = paused.clone();
    let declared = graph.schema().version();
    // What has not begun holds the input that it was given, which is no state yet.
    let is_as_it_was = paused.graph_digest == graph.digest() || !paused.has_begun();
    if paused.schema_version == declared && is_as_it_was {
        return Ok(paused);
    }
    let invalid = |reason| EngineError::new(Category::SuspensionRecordInvalid, reason);
    let stored = paused.parent_states.into_iter().chain([paused.state.into_map()]).collect();
    let stored = graph.migrations().migrate(Migrated::Pause, stored, (&paused.schema_version, declared))?;
    let graphs = graphs(graph, &paused.namespace).map_err(invalid)?;
    let states = states(&graphs, stored).map_err(|reason| match paused.schema_version == declared {
        true => unchanged_version(graph, &reason),
        false => invalid(reason),
    })?;
    let mut states: Vec<Map> = states.iter().map(State::to_map).collect();
    paused.state = states.pop().unwrap_or_default().into();
    paused.parent_states = states;
    paused.schema_version = declared.to_owned();
    Ok(paused)
}

fn innermost<'g>(graph: &'g CompiledGraph, paused: &PausedInvocation) -> Result<&'g CompiledGraph, EngineError> {
    let graphs = graphs(graph, &paused.namespace);
    let graphs = graphs.map_err(|reason| EngineError::new(Category::SuspensionRecordInvalid, reason))?;
    Ok(graphs.last().copied().unwrap_or(graph))
}

/// Checks that the graph's policy lets it take `paused` up at all.
pub(super) fn admit(graph: &CompiledGraph, paused: &PausedInvocation) -> Result<(), EngineError> {
    if paused.graph_digest == graph.digest() {
        return Ok(());
    }
    let differ = |what: &str| {
        let name = graph.name();
        let then = &paused.graph_digest;
        let now = graph.digest();
        format!("graph `{name}` {what}; the pause is of shape {then}, the graph of shape {now}")
    };
    match graph.upgrade_policy() {
        UpgradePolicy::Migrate => Ok(()),
        UpgradePolicy::Pin => {
            let message = differ("leaves its pauses to workers of the shape that wrote them");
            Err(EngineError::new(Category::SuspensionPinned, message))
        }
        UpgradePolicy::Refuse => {
            let message = differ("does not go on from pauses of another shape");
            Err(EngineError::new(Category::SuspensionRecordInvalid, message))
        }
    }
}

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
        return Err(format!(
            "the pause holds the states of {} graphs, but its path goes through {}",
            stored.len(),
            graphs.len()
        ));
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
