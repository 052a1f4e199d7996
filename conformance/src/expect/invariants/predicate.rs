//! What is said of events.

use std::collections::{HashMap, HashSet};

use dormouse_engine::{NodeEvent, Phase};
use serde_json::{Value, json};

use super::field::{Field, phase};
use super::scope::Scope;
use super::{Events, sorted};
use crate::Failure;
use crate::sessions::number;

/// What a name says of the events that it is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Predicate {
    /// How many there are, of that phase or of all.
    Count(Option<Phase>),
    /// How many each instance or branch has, if all have as many.
    CountPer(Field),
    /// The values of a field that occur.
    Seen(Field),
    /// The only value of a field that occurs.
    OnlySeen(Field),
    /// Whether each has the first fields and none has the others.
    Have(Vec<Field>, Vec<Field>),
    /// Whether the field of each is the one that the fixture gives for its node.
    Correct(Field),
    /// Whether a chain has no elements in any.
    Empty(Field),
    /// Whether a scalar is the innermost element of its chain in each.
    Innermost(Field),
    /// Whether a scalar tells fewer of them apart than its chain does.
    Ambiguous(Field),
    /// Whether no two are the same, told apart by scalars or by chains.
    Unique { by_chain: bool },
    /// Whether there is one of that phase.
    Present(Phase, bool),
    /// Whether the first phase is followed by the second one wherever there is the second.
    Followed(Phase, Phase),
    /// Whether no node that paused has an event of that phase.
    NoneOfPaused(Phase),
    /// Whether each of that phase has the field.
    OfPhaseHave(Phase, Field),
    /// In which order branches, or nodes, come first in that phase.
    Order(Phase),
    /// Whether each carries the attempt of the node around it.
    CurrentAttempt,
    /// Whether both phases occur in the attempt of that number.
    BothInAttempt(Phase, Phase, i64),
    /// Whether the node that the fixture names has no events.
    NoneOfNode,
}

impl Predicate {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "event_count" | "events_count" => return Some(Self::Count(None)),
            "event_identities_unique" => return Some(Self::Unique { by_chain: false }),
            "event_identities_unique_by_chain" => return Some(Self::Unique { by_chain: true }),
            // The count of pairs that fixtures mean is one of events.
            "event_pair_count_per_instance" | "event_count_per_instance" => {
                return Some(Self::CountPer(Field::FanOutIndex));
            }
            "event_pair_count_per_branch" | "event_count_per_branch" => return Some(Self::CountPer(Field::BranchName)),
            "events_report_current_attempt_index" => return Some(Self::CurrentAttempt),
            "no_events_for_node" => return Some(Self::NoneOfNode),
            _ => {}
        }
        Self::of_fields(name).or_else(|| Self::of_phases(name))
    }

    fn of_fields(name: &str) -> Option<Self> {
        let innermost = "_equals_innermost_chain_element";
        let ambiguous = "_not_unique_across_outer_instances";
        if let Some(seen) = name.strip_suffix("_seen") {
            return Field::of_many(seen).map(Self::Seen).or_else(|| Field::named(seen).map(Self::OnlySeen));
        }
        if let Some(field) = name.strip_suffix("_absent") {
            return Field::named(field).map(|field| Self::Have(Vec::new(), vec![field]));
        }
        if let Some(field) = name.strip_suffix("_present") {
            return Field::named(field).map(|field| Self::Have(vec![field], Vec::new()));
        }
        if let Some(field) = name.strip_suffix("_empty") {
            return Field::named(field).filter(|field| field.chain().is_none()).map(Self::Empty);
        }
        if let Some(field) = name.strip_suffix(innermost) {
            return Field::named(field).filter(|field| field.chain().is_some()).map(Self::Innermost);
        }
        if let Some(field) = name.strip_suffix(ambiguous) {
            return Field::named(field).filter(|field| field.chain().is_some()).map(Self::Ambiguous);
        }
        let rest =
            ["have_", "carry_", "events_have_", "events_carry_"].iter().find_map(|how| name.strip_prefix(how))?;
        if let Some(field) = rest.strip_prefix("correct_") {
            return Field::named(field).map(Self::Correct);
        }
        if let Some(field) = rest.strip_prefix("no_") {
            return Some(Self::Have(Vec::new(), vec![Field::named(field)?]));
        }
        if let Some((with, without)) = rest.split_once("_but_no_") {
            return Some(Self::Have(vec![Field::named(with)?], vec![Field::named(without)?]));
        }
        if let Some((one, other)) = rest.strip_prefix("both_").and_then(|both| both.split_once("_and_")) {
            return Some(Self::Have(vec![Field::named(one)?, Field::named(other)?], Vec::new()));
        }
        Some(Self::Have(vec![Field::named(rest)?], Vec::new()))
    }

    fn of_phases(name: &str) -> Option<Self> {
        if let Some(of) = name.strip_suffix("_event_count").or_else(|| name.strip_suffix("_events_count")) {
            return phase(of).map(|phase| Self::Count(Some(phase)));
        }
        if let Some(of) = name.strip_suffix("_present") {
            return phase(of).map(|phase| Self::Present(phase, true));
        }
        if let Some(of) = name.strip_suffix("_absent") {
            return phase(of).map(|phase| Self::Present(phase, false));
        }
        if let Some(of) = name.strip_suffix("_event_order") {
            return phase(of).map(Self::Order);
        }
        if let Some(of) = name.strip_prefix("no_").and_then(|rest| rest.strip_suffix("_event_for_suspending_node")) {
            return phase(of).map(Self::NoneOfPaused);
        }
        if let Some((first, second)) = name.strip_suffix("_in_order").and_then(|rest| rest.split_once("_followed_by_"))
        {
            return Some(Self::Followed(phase(first)?, phase(second)?));
        }
        if let Some((of, field)) = name.split_once("_event_carries_") {
            return Some(Self::OfPhaseHave(phase(of)?, Field::named(field)?));
        }
        let (phases, attempt) = name.strip_suffix("_on_retry")?.split_once("_carry_attempt_index_")?;
        let (first, second) = phases.split_once("_and_")?;
        Some(Self::BothInAttempt(phase(first)?, phase(second)?, number(attempt)?))
    }

    /// Whether what it gives has no order.
    pub(super) fn is_set(&self) -> bool {
        matches!(self, Self::Seen(_))
    }

    /// What is so of the events `own` of an observer that was told of all `events`.
    pub(super) fn of(
        &self,
        scope: &Scope,
        wanted: &Value,
        own: &Events<'_>,
        events: &Events<'_>,
        is_node: impl Fn(&str) -> bool,
    ) -> Result<Value, Failure> {
        let of_phase = |phase: Phase| own.iter().filter(move |event| event.phase == phase);
        // What is said of each must be said of some.
        let of_each = |holds: &dyn Fn(&NodeEvent) -> bool| !own.is_empty() && own.iter().all(|event| holds(event));
        let paused: Vec<_> = of_phase(Phase::Suspended).copied().collect();
        Ok(match self {
            Self::Count(None) => own.len().into(),
            Self::Count(Some(phase)) => of_phase(*phase).count().into(),
            Self::CountPer(field) => count_per(*field, own),
            // Who reads of fan-outs without a word about whose means what is inside of nodes.
            Self::Seen(field) if *scope == Scope::All => {
                values(*field, events.iter().copied().filter(|event| event.namespace.len() > 1))
            }
            Self::Seen(field) => values(*field, own.iter().copied()),
            Self::OnlySeen(field) => only(&values(*field, own.iter().copied())),
            Self::Have(with, without) => {
                let holds = of_each(&|event| {
                    with.iter().all(|field| field.is_in(event)) && !without.iter().any(|field| field.is_in(event))
                });
                // A list of nodes says of whom.
                if wanted.is_object() { held(wanted, holds) } else { holds.into() }
            }
            Self::Correct(field) => {
                let by_node = wanted.as_object().ok_or_else(|| Failure::invalid("one value for each node"))?;
                if let Some(node) = by_node.keys().find(|node| !is_node(node)) {
                    return Err(Failure::invalid(format!("there is no node `{node}`")));
                }
                let right = |event: &NodeEvent| by_node.get(&*event.node_name).is_none_or(|v| *v == field.of(event));
                let all_occur = by_node.keys().all(|node| own.iter().any(|event| *event.node_name == **node));
                held(wanted, all_occur && of_each(&right))
            }
            Self::Empty(field) => of_each(&|event| field.of(event).as_array().is_some_and(Vec::is_empty)).into(),
            Self::Innermost(field) => of_each(&|event| field.of(event) == innermost(*field, event)).into(),
            Self::Ambiguous(field) => {
                let apart = |field: Field| own.iter().map(|event| field.of(event).to_string()).collect::<HashSet<_>>();
                field.chain().is_some_and(|chain| apart(*field).len() < apart(chain).len()).into()
            }
            Self::Unique { by_chain } => unique(own, *by_chain).into(),
            Self::Present(phase, is_there) => ((of_phase(*phase).count() > 0) == *is_there).into(),
            Self::Followed(first, second) => {
                let mut later = of_phase(*second).peekable();
                (later.peek().is_some() && later.all(|event| follows(event, *first, events))).into()
            }
            Self::NoneOfPaused(phase) => {
                let has =
                    |pause: &&NodeEvent| events.iter().any(|other| other.phase == *phase && is_same(other, pause));
                (!paused.is_empty() && !paused.iter().any(has)).into()
            }
            Self::OfPhaseHave(phase, field) => {
                let mut those = of_phase(*phase).peekable();
                (those.peek().is_some() && those.all(|event| field.is_in(event))).into()
            }
            Self::Order(phase) => order(of_phase(*phase).copied()),
            Self::CurrentAttempt => of_each(&|event| event.attempt_index == attempt_around(event, events)).into(),
            Self::BothInAttempt(first, second, attempt) => {
                let occurs = |phase: Phase| of_phase(phase).any(|event| i64::from(event.attempt_index) == *attempt);
                (occurs(*first) && occurs(*second)).into()
            }
            Self::NoneOfNode => {
                let node = wanted.as_str().filter(|node| is_node(node));
                let node = node.ok_or_else(|| Failure::invalid(format!("there is no node {wanted}")))?;
                held(wanted, !events.iter().any(|event| *event.node_name == *node))
            }
        })
    }
}

/// What a predicate with parameters is compared to.
fn held(wanted: &Value, holds: bool) -> Value {
    if holds { wanted.clone() } else { Value::Bool(false) }
}

/// The values of a field; those that have none say nothing.
fn values<'e>(field: Field, events: impl Iterator<Item = &'e NodeEvent>) -> Value {
    events.map(|event| field.of(event)).filter(|value| !value.is_null()).collect()
}

/// The one value that there is.
fn only(values: &Value) -> Value {
    let all = sorted(values);
    match all.as_array().map(Vec::as_slice) {
        Some([one]) => one.clone(),
        _ => all,
    }
}

fn count_per(field: Field, own: &Events<'_>) -> Value {
    let mut counts: HashMap<String, usize> = HashMap::new();
    own.iter().for_each(|event| *counts.entry(field.of(event).to_string()).or_default() += 1);
    let counts: HashSet<usize> = counts.into_values().collect();
    match counts.into_iter().collect::<Vec<_>>()[..] {
        [count] => count.into(),
        _ => Value::Null,
    }
}

fn innermost(field: Field, event: &NodeEvent) -> Value {
    let chain = field.chain().map_or(Value::Null, |chain| chain.of(event));
    let elements = chain.as_array().into_iter().flatten().rev();
    elements.into_iter().find(|element| !element.is_null()).cloned().unwrap_or_default()
}

fn unique(own: &Events<'_>, by_chain: bool) -> bool {
    let place = match by_chain {
        true => [Field::FanOutIndexChain, Field::BranchNameChain],
        false => [Field::FanOutIndex, Field::BranchName],
    };
    let fields = [Field::Namespace, Field::AttemptIndex, Field::Phase].into_iter().chain(place);
    let fields: Vec<Field> = fields.collect();
    let identity = |event: &NodeEvent| json!(fields.iter().map(|field| field.of(event)).collect::<Vec<_>>());
    let mut identities = HashSet::new();
    !own.is_empty() && own.iter().all(|event| identities.insert(identity(event).to_string()))
}

/// What tells an event from all others of its invocation.
pub(super) fn identity(event: &NodeEvent) -> String {
    let place = [Field::Namespace, Field::FanOutIndexChain, Field::BranchNameChain].map(|field| field.of(event));
    json!([event.step, event.attempt_index, event.phase.as_str(), place]).to_string()
}

/// Whether two are of the same execution of a node.
fn is_same(one: &NodeEvent, other: &NodeEvent) -> bool {
    one.namespace == other.namespace
        && one.step == other.step
        && one.fan_out_index_chain == other.fan_out_index_chain
        && one.branch_name_chain == other.branch_name_chain
}

/// Whether what was told last of the same execution before `event` was of that phase.
fn follows(event: &NodeEvent, phase: Phase, events: &Events<'_>) -> bool {
    let before = events.iter().take_while(|other| !std::ptr::eq(**other, event));
    before.filter(|other| is_same(other, event)).last().is_some_and(|other| other.phase == phase)
}

/// Which attempt of the node around `event` runs when it is told.
fn attempt_around(event: &NodeEvent, events: &Events<'_>) -> u32 {
    let around = event.namespace.split_last().map_or(&[][..], |(_, around)| around);
    let before = events.iter().take_while(|other| !std::ptr::eq(**other, event));
    let started = before.filter(|other| other.phase == Phase::Started && other.namespace == around);
    started.last().map_or(0, |other| other.attempt_index)
}

/// In which order they come first, by branch where they have one.
fn order<'e>(events: impl Iterator<Item = &'e NodeEvent>) -> Value {
    let mut seen: Vec<Value> = Vec::new();
    for event in events {
        let field = if event.branch_name.is_some() { Field::BranchName } else { Field::NodeName };
        let name = field.of(event);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    Value::Array(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_by_their_pattern() {
        for (name, predicate) in [
            ("events_count", Predicate::Count(None)),
            ("completed_event_count", Predicate::Count(Some(Phase::Completed))),
            ("attempt_indices_seen", Predicate::Seen(Field::AttemptIndex)),
            ("fan_out_index_chains_seen", Predicate::Seen(Field::FanOutIndexChain)),
            ("branch_name_seen", Predicate::OnlySeen(Field::BranchName)),
            ("scalar_branch_name_absent", Predicate::Have(vec![], vec![Field::BranchName])),
            (
                "events_carry_branch_name_but_no_fan_out_index",
                Predicate::Have(vec![Field::BranchName], vec![Field::FanOutIndex]),
            ),
            ("started_followed_by_suspended_in_order", Predicate::Followed(Phase::Started, Phase::Suspended)),
            ("suspended_absent", Predicate::Present(Phase::Suspended, false)),
        ] {
            assert_eq!(Predicate::named(name), Some(predicate), "{name}");
        }
        for name in ["dances", "events_dance", "weather_seen", "weather_absent", "paused_present", "seen", ""] {
            assert_eq!(Predicate::named(name), None, "{name}");
        }
    }
}
