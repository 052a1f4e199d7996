//! Check that an awaited event would be carried to its invocation.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_harness::Harness;
use dormouse_ports::{ListedRule, PausedInvocation, RuleEntry, RuleNeed, ShapeId};
use jiff::Timestamp;

use super::finding::{Finding, LATE, Observation, remark};
use crate::time::since;

/// The rules that were on the event bus at the time of a look.
#[derive(Clone, Debug)]
pub struct RulesSeen {
    at: Timestamp,
    /// Those of the enabled ones.
    shapes: Result<BTreeSet<ShapeId>, String>,
    /// Instants since which rules stand, as far as that was noted.
    standing: BTreeMap<ShapeId, Timestamp>,
}

impl RulesSeen {
    /// Looks which rules there are on the bus of `harness`.
    pub async fn look(harness: &Harness) -> Self {
        let ports = harness.engine().ports();
        let at = ports.clock.now();
        let seen = Self::new(at, harness.rules().list().await.map_err(|error| error.to_string()));
        match ports.store.rules.rule_entries().await {
            Ok(entries) => seen.noted(entries),
            Err(_) => seen,
        }
    }

    /// The result of a look at `at`: the rules, or the reason for which they cannot be seen.
    pub fn new(at: Timestamp, rules: Result<Vec<ListedRule>, String>) -> Self {
        let shapes = |rules: Vec<ListedRule>| {
            rules.into_iter().filter(|rule| rule.is_enabled).map(|rule| rule.name.shape).collect()
        };
        Self { at, shapes: rules.map(shapes), standing: BTreeMap::new() }
    }

    /// The same with what the store knows of the rules.
    #[must_use]
    pub fn noted(mut self, entries: Vec<RuleEntry>) -> Self {
        let since = |entry: RuleEntry| Some((entry.shape, entry.stands_since?));
        self.standing = entries.into_iter().filter_map(since).collect();
        self
    }

    /// Remark on the rule that `paused` needs. Nothing of a pause that began a moment before the look, or after it: its
    /// rule may be made just now.
    pub(super) fn remark_on(&self, paused: &PausedInvocation) -> Option<Observation> {
        let RuleNeed::Shape(shape) = RuleNeed::of(paused) else { return None };
        match &self.shapes {
            Ok(shapes) if shapes.contains(&shape) => {
                let stands_since = *self.standing.get(&shape).filter(|since| **since > paused.suspended_at)?;
                let sentence = format!(
                    "the rule for the event that it waits for stands since {stands_since}, and it has slept since {}: an \
                     event that came in between was matched by no rule; have it sent again, or send the signal",
                    paused.suspended_at
                );
                Some(remark(Finding::RuleLate, sentence))
            }
            Ok(_) if since(paused.suspended_at, self.at) < LATE => None,
            Ok(_) => {
                let sentence = "the event bus has no enabled rule that would carry the event it waits for";
                Some(remark(Finding::RuleMissing, sentence.to_owned()))
            }
            Err(reason) => {
                let sentence = format!(
                    "whether the event bus has a rule for the event it waits for cannot be seen from here: {reason}"
                );
                Some(remark(Finding::RuleUnseen, sentence))
            }
        }
    }
}
