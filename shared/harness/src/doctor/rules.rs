//! Whether an event that somebody waits for would be carried to them.

use std::collections::BTreeSet;

use dormouse_ports::{ListedRule, PausedInvocation, RuleNeed, ShapeId};
use jiff::Timestamp;

use super::{Finding, LATE, Remark, remark};
use crate::Harness;
use crate::sweep::since;

/// Which rules were on the event bus when somebody looked.
#[derive(Clone, Debug)]
pub struct RulesSeen {
    at: Timestamp,
    /// Those of the enabled ones.
    shapes: Result<BTreeSet<ShapeId>, String>,
}

impl RulesSeen {
    /// What was seen at `at`: the rules, or why they cannot be seen.
    pub fn new(at: Timestamp, rules: Result<Vec<ListedRule>, String>) -> Self {
        let shapes = |rules: Vec<ListedRule>| {
            rules.into_iter().filter(|rule| rule.is_enabled).map(|rule| rule.name.shape).collect()
        };
        Self { at, shapes: rules.map(shapes) }
    }

    /// What is to be said of the rule that `paused` needs. Nothing of a pause that began a moment before the look, or after
    /// it: its rule may be made just now.
    pub(super) fn remark_on(&self, paused: &PausedInvocation) -> Option<Remark> {
        let RuleNeed::Shape(shape) = RuleNeed::of(paused) else { return None };
        match &self.shapes {
            Ok(shapes) if shapes.contains(&shape) || since(paused.suspended_at, self.at) < LATE => None,
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

impl Harness {
    /// Looks which rules the event bus has.
    pub async fn see_rules(&self) -> RulesSeen {
        let at = self.now();
        RulesSeen::new(at, self.subscriptions().list_rules().await.map_err(|error| error.to_string()))
    }
}
