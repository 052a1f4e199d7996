//! Running a parallel-branches node: different things side by side, merged in order (pipeline-utilities §11).

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::attempts::AttemptConfig;
use super::child::{Child, ChildEnd, PartWork, no_suspension};
use super::dispatch::Dispatch;
use super::fan_out::error_record;
use super::lineage::Boundary;
use super::pause::{Contained, DescriptorPart};
use super::slot::SuspendRequest;
use super::walk::Around;
use crate::ambient;
use crate::graph::{Branch, ErrorPolicy, ParallelBranches};
use crate::observe::ParallelBranchesConfig;
use crate::{NodeError, State, Update};

/// Contribution of a branch: an update of the parent, or the error with which it failed.
type BranchContribution<'b> = (&'b Arc<str>, Result<Update, NodeError>);

/// Context that all branches of a node share.
struct Branches<'b> {
    node: &'b ParallelBranches,
    around: &'b Around,
}

impl Dispatch<'_> {
    pub(super) async fn branches(&self, node: &ParallelBranches, state: State) -> Result<Update, NodeError> {
        let chosen = node.branches.iter().filter(|(_, branch)| branch.when.as_ref().is_none_or(|when| when(&state)));
        let chosen: Vec<_> = chosen.collect();
        let config = ParallelBranchesConfig {
            branch_names: node.branches.iter().map(|(name, _)| name.clone()).collect(),
            calls: node
                .branches
                .iter()
                .filter(|(_, branch)| branch.call.is_some())
                .map(|(name, _)| name.clone())
                .collect(),
            branch_count: chosen.len(),
            error_policy: node.error_policy.as_str(),
            parent_node_name: self.name.clone(),
        };
        self.attempts.resolved(AttemptConfig { branches: Some(Arc::new(config)), ..AttemptConfig::default() });
        let work = async {
            let around = self.around(state.clone());
            let contributions = self.run_branches(&Branches { node, around: &around }, &chosen).await?;
            Ok(merged(node, contributions))
        };
        self.attempt(state.clone(), work).await
    }

    async fn run_branches<'b>(
        &self,
        all: &Branches<'_>,
        chosen: &[&'b (Arc<str>, Branch)],
    ) -> Result<Vec<BranchContribution<'b>>, NodeError> {
        let node = all.node;
        let started = chosen
            .iter()
            .enumerate()
            .map(|(index, (name, branch))| async move { (index, self.run_branch(all, name, branch).await) });
        let mut running: FuturesUnordered<_> = started.collect();
        let mut contributions: Vec<Option<BranchContribution<'b>>> = Vec::new();
        contributions.resize_with(chosen.len(), || None);
        let mut recorded = vec![Vec::new(); chosen.len()];
        while let Some((index, end)) = running.next().await {
            let name = &chosen[index].0;
            match end {
                ChildEnd::Done { update, recorded: own } => {
                    contributions[index] = Some((name, Ok(update)));
                    recorded[index] = own;
                }
                ChildEnd::Failed(error) if node.error_policy == ErrorPolicy::FailFast => {
                    return Err(error.of_branch(name));
                }
                ChildEnd::Failed(error) => contributions[index] = Some((name, Err(error))),
                ChildEnd::Refused(refusal) => return self.stop_by(SuspendRequest::Refused(refusal)).await,
                ChildEnd::Paused(pause) => {
                    let partial = merged(node, contributions.into_iter().flatten().collect());
                    let part = DescriptorPart { key: "branch_name", value: Value::from(&**name) };
                    let recorded = recorded.concat();
                    let contained = Contained { pause, partial, recorded, part };
                    return self.stop_by(SuspendRequest::Contained(Box::new(contained))).await;
                }
            }
        }
        ambient::adopt(recorded.concat());
        Ok(contributions.into_iter().flatten().collect())
    }

    async fn run_branch(&self, all: &Branches<'_>, name: &Arc<str>, branch: &Branch) -> ChildEnd {
        let Branches { node, around } = *all;
        let schema = self.walk.graph.schema();
        let contribution = |end: &State| match &branch.graph {
            Some(graph) => branch.projection.kept(schema, graph, end),
            None => Update::none(),
        };
        let (state, work) = match (&branch.graph, &branch.call) {
            (Some(graph), _) => {
                let work = PartWork::Graph { graph, contribution: &contribution };
                (branch.projection.enter(&around.state, graph), work)
            }
            (None, Some(call)) => (around.state.clone(), PartWork::Call(&**call)),
            (None, None) => return ChildEnd::Failed(NodeError::new("the branch has nothing to do")),
        };
        let child = Child {
            dispatch: self,
            work,
            middleware: &branch.middleware,
            boundary: Boundary::Branch(name.clone()),
            around,
            no_suspension: no_suspension(node.error_policy),
            ticket: None,
        };
        // The middleware of the branch deals in the subgraph's fields; they are projected when it is done (§11.7).
        match (child.run(state).await, &branch.graph) {
            (ChildEnd::Done { update, recorded }, Some(graph)) => {
                ChildEnd::Done { update: branch.projection.outwards(schema, graph, &update), recorded }
            }
            (end, _) => end,
        }
    }
}

/// Merges the contributions in the order of the branches (§11.4).
fn merged(node: &ParallelBranches, contributions: Vec<BranchContribution<'_>>) -> Update {
    let mut update = Update::none();
    let mut errors = Vec::new();
    for (name, contribution) in contributions {
        match contribution {
            Ok(contributed) => update = update.then(contributed),
            Err(error) => errors.push(error_record("branch_name", name.to_string(), &error)),
        }
    }
    match &node.errors_field {
        Some(field) if !errors.is_empty() => update.then(Update::none().with(field.clone(), errors)),
        Some(_) | None => update,
    }
}
