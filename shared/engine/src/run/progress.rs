//! Progress of the fan-outs of an invocation, instance by instance (pipeline-utilities §10.7, §10.11).
//!
//! An entry lives from the start of its fan-out node until nothing could need it any more: until the node is saved as a
//! whole or, for a node inside of another fan-out's instance, until that instance has contributed. What a record
//! brought from before a crash waits aside until its node is entered again, and is saved along meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use dormouse_ports::{FanOutInstance, FanOutProgress, InstanceProgress, InstanceState};
use serde_json::Value;

use super::lineage::{Boundary, FinishedPosition};
use crate::Update;

/// The entries of an invocation.
#[derive(Default)]
pub(super) struct Progress(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    live: Vec<Live>,
    restored: Vec<FanOutProgress>,
    tickets: u64,
}

struct Live {
    ticket: Ticket,
    /// Positions before this step are not of this execution.
    since: u64,
    progress: FanOutProgress,
}

/// Names one execution of a fan-out node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// A fan-out node, and the instances that it is inside of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FanOutKey(FanOutInstance, Vec<FanOutInstance>);

/// Contribution of an instance: an update by the names of its own fields, or the record of its error.
pub(super) type Contribution = Result<Update, Value>;

impl FanOutKey {
    /// The fan-out node `name` of a graph at `namespace`, inside of the instances of `lineage`.
    pub(super) fn new(namespace: Vec<Arc<str>>, name: Arc<str>, lineage: Vec<FanOutInstance>) -> Self {
        Self(FanOutInstance { namespace, fan_out_node_name: name, fan_out_index: 0 }, lineage)
    }

    /// A `visit` of the node, with its `instances` as far as they have come.
    fn progress(&self, visit: u32, instances: Vec<InstanceProgress>) -> FanOutProgress {
        let Self(node, lineage) = self.clone();
        FanOutProgress {
            namespace: node.namespace,
            fan_out_node_name: node.fan_out_node_name,
            enclosing_fan_out_lineage: lineage,
            visit,
            instance_count: instances.len(),
            instances,
        }
    }

    fn names(&self, progress: &FanOutProgress) -> bool {
        let Self(node, lineage) = self;
        progress.namespace == node.namespace
            && progress.fan_out_node_name == node.fan_out_node_name
            && progress.enclosing_fan_out_lineage == *lineage
    }
}

/// The chain of instances that leads into instance `index` of `progress`.
fn into_instance(progress: &FanOutProgress, index: u32) -> Vec<FanOutInstance> {
    let innermost = FanOutInstance {
        namespace: progress.namespace.clone(),
        fan_out_node_name: progress.fan_out_node_name.clone(),
        fan_out_index: index,
    };
    progress.enclosing_fan_out_lineage.iter().cloned().chain([innermost]).collect()
}

/// True if `progress` belongs to a fan-out inside of any instance of the node that `around` describes.
fn is_inside(progress: &FanOutProgress, around: &FanOutProgress) -> bool {
    let depth = around.enclosing_fan_out_lineage.len();
    let lineage = &progress.enclosing_fan_out_lineage;
    lineage.starts_with(&around.enclosing_fan_out_lineage)
        && lineage
            .get(depth)
            .is_some_and(|at| at.namespace == around.namespace && at.fan_out_node_name == around.fan_out_node_name)
}

impl Progress {
    /// Takes up the progress that a record holds.
    pub(super) fn restore(&self, entries: Vec<FanOutProgress>) {
        self.lock().restored = entries;
    }

    /// A fan-out node begins with `count` instances. Gives its instances as far as they had come before a crash,
    /// or the other count that the record has.
    ///
    /// A record matches when namespace, name, lineage and visit are the same. Of nodes outside of every instance only
    /// the one that runs is in flight, so a second execution starts afresh.
    pub(super) fn begin(
        &self,
        key: &FanOutKey,
        count: usize,
        step: u64,
    ) -> Result<(Ticket, Vec<InstanceProgress>), usize> {
        let mut entries = self.lock();
        let nested = !key.1.is_empty();
        let earlier =
            entries.live.iter().filter(|live| key.names(&live.progress)).map(|live| live.progress.visit).max();
        if !nested && earlier.is_some() {
            entries.forget(key);
        }
        let visit = if nested { earlier.map_or(0, |visit| visit + 1) } else { 0 };
        let matching = |saved: &FanOutProgress| key.names(saved) && (!nested || saved.visit == visit);
        let saved = entries.restored.iter().position(matching).map(|found| entries.restored.remove(found));
        let instances = match saved {
            Some(saved) if saved.instance_count != count || saved.instances.len() != count => {
                return Err(saved.instance_count);
            }
            Some(saved) => saved.instances.into_iter().map(unless_completed).collect(),
            None => vec![InstanceProgress::not_started(); count],
        };
        Ok((entries.open(key, key.progress(visit, instances.clone()), step), instances))
    }

    /// An instance begins, for the first time or again: what earlier attempts of this run did inside of it is void.
    pub(super) fn instance_begins(&self, ticket: Ticket, index: u32) {
        let mut entries = self.lock();
        let Some(progress) = entries.change(ticket) else { return };
        if let Some(instance) = progress.instances.get_mut(index as usize) {
            instance.state = InstanceState::InFlight;
        }
        let inside = into_instance(progress, index);
        entries.live.retain(|live| !live.progress.enclosing_fan_out_lineage.starts_with(&inside));
    }

    /// An instance contributed: it never runs again.
    pub(super) fn contributed(&self, ticket: Ticket, index: u32, contribution: InstanceProgress) {
        let mut entries = self.lock();
        let Some(progress) = entries.change(ticket) else { return };
        if let Some(instance) = progress.instances.get_mut(index as usize) {
            *instance = contribution;
        }
        let inside = into_instance(progress, index);
        entries.live.retain(|live| !live.progress.enclosing_fan_out_lineage.starts_with(&inside));
        entries.restored.retain(|saved| !saved.enclosing_fan_out_lineage.starts_with(&inside));
    }

    /// A fan-out node ended and was saved. Inside of an instance its entry stays until the instance has contributed:
    /// should that run again, the node need not.
    pub(super) fn end(&self, key: &FanOutKey) {
        if key.1.is_empty() {
            self.lock().forget(key);
        }
    }

    /// All entries as they are saved.
    pub(super) fn snapshot(&self, positions: &[FinishedPosition]) -> Vec<FanOutProgress> {
        let entries = self.lock();
        let live = entries.live.iter().map(|live| live.with_positions(positions));
        live.chain(entries.restored.iter().cloned()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Notes a fan-out that begins at the step `since`.
    fn open(&mut self, key: &FanOutKey, progress: FanOutProgress, since: u64) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.live.retain(|live| !key.names(&live.progress));
        self.live.push(Live { ticket, since, progress });
        ticket
    }

    fn change(&mut self, ticket: Ticket) -> Option<&mut FanOutProgress> {
        self.live.iter_mut().find(|live| live.ticket == ticket).map(|live| &mut live.progress)
    }

    /// Drops the entry of `key` and all that is inside of it.
    fn forget(&mut self, key: &FanOutKey) {
        let Some(found) = self.live.iter().position(|live| key.names(&live.progress)) else { return };
        let gone = self.live.remove(found).progress;
        self.live.retain(|live| !is_inside(&live.progress, &gone));
        self.restored.retain(|saved| !is_inside(saved, &gone));
    }
}

impl Live {
    fn with_positions(&self, positions: &[FinishedPosition]) -> FanOutProgress {
        let mut progress = self.progress.clone();
        let depth = progress.namespace.len();
        let mine = positions.iter().filter(|position| {
            position.step >= self.since
                && position.namespace.starts_with(&progress.namespace)
                && position.namespace.get(depth) == Some(&progress.fan_out_node_name)
                && position.lineage.instances(&position.namespace).starts_with(&progress.enclosing_fan_out_lineage)
        });
        for position in mine {
            let Some(Boundary::Instance(index)) = position.lineage.at(depth) else { continue };
            match progress.instances.get_mut(*index as usize) {
                Some(instance) if instance.state == InstanceState::InFlight => {
                    instance.completed_inner_positions.push(position.recorded());
                }
                Some(_) | None => {}
            }
        }
        progress
    }
}

/// An instance that did not contribute starts over.
fn unless_completed(saved: InstanceProgress) -> InstanceProgress {
    match saved.state {
        InstanceState::Completed => saved,
        InstanceState::InFlight | InstanceState::NotStarted => InstanceProgress::not_started(),
    }
}
