use dormouse_engine::Projection;

use super::action::{Actions, SuspendSpec};
use super::branches::BranchesSpec;
use super::context::LogSpec;
use super::fan_out::{FanOutSpec, pairs};
use super::middleware::Layer;
use crate::Failure;
use crate::directives::Directives;
use crate::models::WrapperCallSpec;

/// A node of a fixture.
#[derive(Debug)]
pub(super) struct NodeSpec {
    pub(super) work: Work,
    /// What wraps it, the outermost first.
    pub(super) layers: Vec<Layer>,
}

#[derive(Debug)]
pub(super) enum Work {
    Actions(Actions),
    Subgraph { name: String, projection: Projection },
    FanOut(Box<FanOutSpec>),
    Branches(BranchesSpec),
}

impl NodeSpec {
    pub(super) fn read(mut node: Directives<'_>) -> Result<Self, Failure> {
        let mut layers = Layer::read_list(&mut node, "wrap_with_middleware")?;
        layers.extend(Layer::read_list(&mut node, "middleware")?);
        let work = if let Some(fan_out) = node.nested("fan_out")? {
            Work::FanOut(Box::new(FanOutSpec::read(fan_out)?))
        } else if let Some(branches) = node.nested("parallel_branches")? {
            Work::Branches(BranchesSpec::read(branches)?)
        } else if let Some(subgraph) = node.text("subgraph")? {
            Work::Subgraph { name: subgraph.to_owned(), projection: projection(&mut node)? }
        } else {
            let actions = Actions::read(&mut node)?;
            layers.extend(actions.layers());
            Work::Actions(actions)
        };
        if let Some(call) = node.given("calls_llm_from_wrapper") {
            layers.push(Layer::CallModel(WrapperCallSpec::read(call)?));
        }
        // An action logs for itself, in its turn.
        if let (false, Some(log)) = (matches!(work, Work::Actions(_)), node.given("emits_log")) {
            layers.push(Layer::Tell(LogSpec::read("emits_log", log)?));
        }
        node.done()?;
        Ok(Self { work, layers })
    }
}

pub(super) fn projection(node: &mut Directives<'_>) -> Result<Projection, Failure> {
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
        let Some(names) = from.nested(key)? else { continue };
        let side = if is_input { &mut projection.inputs } else { &mut projection.outputs };
        let names = pairs(Some(names))?.into_iter().map(|(to, from)| (to.into(), from.into()));
        side.get_or_insert_default().extend(names);
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
