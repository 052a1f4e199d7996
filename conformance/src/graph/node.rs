use dormouse_engine::Projection;

use super::action::{Actions, SuspendSpec};
use super::middleware::Layer;
use crate::Failure;
use crate::directives::Directives;

/// A node of a fixture.
#[derive(Debug)]
pub(super) struct NodeSpec {
    pub(super) work: Work,
    /// What wraps it, the outermost first.
    pub(super) middleware: Vec<Layer>,
}

#[derive(Debug)]
pub(super) enum Work {
    Actions(Actions),
    Subgraph { name: String, projection: Projection },
}

/// Node kinds that the engine does not run.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("fan_out", "the engine runs no fan-outs"),
    ("parallel_branches", "the engine runs no parallel branches"),
    ("flaky", "the engine ships no retry middleware"),
    ("flaky_by_index", "the engine runs no fan-outs"),
    ("flaky_per_index", "the engine runs no fan-outs"),
    ("flaky_instance_only", "the engine runs no fan-outs"),
    ("flaky_resume_aware", "the engine keeps no checkpoints"),
    ("invoke_drain_events_for", "the engine drains no single invocations"),
    ("calls_llm", "there is no model provider"),
];

impl NodeSpec {
    pub(super) fn read(name: &str, mut node: Directives<'_>) -> Result<Self, Failure> {
        let keys = node.unread();
        if let Some((kind, why)) = UNSUPPORTED.iter().find(|(kind, _)| keys.contains(kind)) {
            return Err(Failure::missing(format!("node `{name}` is of kind `{kind}`: {why}")));
        }
        let layers = node.list("wrap_with_middleware")?.into_iter();
        let middleware =
            layers.map(|(at, layer)| Layer::read(Directives::new(at, layer)?)).collect::<Result<_, _>>()?;
        let work = match node.text("subgraph")? {
            Some(subgraph) => Work::Subgraph { name: subgraph.to_owned(), projection: projection(&mut node)? },
            None => Work::Actions(Actions::read(&mut node)?),
        };
        node.done()?;
        Ok(Self { work, middleware })
    }
}

fn projection(node: &mut Directives<'_>) -> Result<Projection, Failure> {
    let mut projection = maps(node, Projection::by_name())?;
    if let Some(mut mapping) = node.nested("mapping")? {
        projection = maps(&mut mapping, projection)?;
        mapping.done()?;
    }
    let names = |names: Vec<String>| names.into_iter().map(Into::into).collect();
    projection.projects_in = node.texts("projects_in")?.map(names);
    projection.projects_out = node.texts("projects_out")?.map(names);
    Ok(projection)
}

fn maps(from: &mut Directives<'_>, mut projection: Projection) -> Result<Projection, Failure> {
    for (key, is_input) in [("inputs", true), ("outputs", false)] {
        let Some(mut pairs) = from.nested(key)? else { continue };
        let side = if is_input { &mut projection.inputs } else { &mut projection.outputs };
        let side = side.get_or_insert_default();
        for to in pairs.unread() {
            side.push((to.into(), pairs.required_text(to)?.into()));
        }
    }
    Ok(projection)
}

impl SuspendSpec {
    /// Reads a wait whose `mark_node_completed` may stand inside of it or beside it.
    pub(super) fn read(mut wait: Directives<'_>, beside: Option<bool>) -> Result<Self, Failure> {
        let marked = wait.flag("mark_node_completed")?.or(beside);
        Ok(Self { descriptor: super::descriptor(wait)?, node_completed: marked.unwrap_or(true) })
    }
}
