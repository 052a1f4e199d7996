//! What the names of predicates say about an event.

use dormouse_engine::{NodeEvent, Phase};
use serde_json::{Value, json};

/// A field of an event that a name may mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    FanOutIndex,
    BranchName,
    AttemptIndex,
    FanOutIndexChain,
    BranchNameChain,
    Phase,
    NodeName,
    Namespace,
    Step,
    Descriptor,
    Error,
    ErrorCategory,
}

impl Field {
    const NAMES: &[(&str, &str, Self)] = &[
        ("fan_out_index", "fan_out_indices", Self::FanOutIndex),
        ("branch_name", "branch_names", Self::BranchName),
        ("attempt_index", "attempt_indices", Self::AttemptIndex),
        ("fan_out_index_chain", "fan_out_index_chains", Self::FanOutIndexChain),
        ("branch_name_chain", "branch_name_chains", Self::BranchNameChain),
        ("phase", "phases", Self::Phase),
        ("node_name", "node_names", Self::NodeName),
        ("namespace", "namespaces", Self::Namespace),
        ("step", "steps", Self::Step),
        ("descriptor", "descriptors", Self::Descriptor),
        ("error", "errors", Self::Error),
        ("error_category", "error_categories", Self::ErrorCategory),
    ];

    /// The field of that name; `scalar_` may stand before those that have a chain beside them.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = Self::bare(name);
        Self::NAMES.iter().find(|(one, _, _)| *one == name).map(|(_, _, field)| *field)
    }

    /// The field whose values are called that.
    pub(super) fn of_many(name: &str) -> Option<Self> {
        let name = Self::bare(name);
        Self::NAMES.iter().find(|(_, many, _)| *many == name).map(|(_, _, field)| *field)
    }

    fn bare(name: &str) -> &str {
        match name.strip_prefix("scalar_") {
            Some(bare) if ["fan_out_ind", "branch_name"].iter().any(|start| bare.starts_with(start)) => bare,
            Some(_) | None => name,
        }
    }

    /// Its value, null where the event has none.
    pub(super) fn of(self, event: &NodeEvent) -> Value {
        let branch = |name: &std::sync::Arc<str>| Value::from(&**name);
        match self {
            Self::FanOutIndex => json!(event.fan_out_index),
            Self::BranchName => event.branch_name.as_ref().map_or(Value::Null, branch),
            Self::AttemptIndex => event.attempt_index.into(),
            Self::FanOutIndexChain => json!(event.fan_out_index_chain),
            Self::BranchNameChain => {
                event.branch_name_chain.iter().map(|name| name.as_ref().map_or(Value::Null, branch)).collect()
            }
            Self::Phase => event.phase.as_str().into(),
            Self::NodeName => branch(&event.node_name),
            Self::Namespace => event.namespace.iter().map(branch).collect(),
            Self::Step => event.step.into(),
            Self::Descriptor => json!(event.descriptor),
            Self::Error => event.error.as_ref().map_or(Value::Null, |error| json!(error.category)),
            Self::ErrorCategory => event.error.as_ref().map_or(Value::Null, |error| json!(error.derived_category)),
        }
    }

    /// Whether the event has it.
    pub(super) fn is_in(self, event: &NodeEvent) -> bool {
        !self.of(event).is_null()
    }

    /// The chain that a scalar is the innermost element of.
    pub(super) fn chain(self) -> Option<Self> {
        match self {
            Self::FanOutIndex => Some(Self::FanOutIndexChain),
            Self::BranchName => Some(Self::BranchNameChain),
            Self::AttemptIndex
            | Self::FanOutIndexChain
            | Self::BranchNameChain
            | Self::Phase
            | Self::NodeName
            | Self::Namespace
            | Self::Step
            | Self::Descriptor
            | Self::Error
            | Self::ErrorCategory => None,
        }
    }
}

/// The phase that a name mentions.
pub(super) fn phase(name: &str) -> Option<Phase> {
    [Phase::Started, Phase::Completed, Phase::Suspended].into_iter().find(|phase| phase.as_str() == name)
}
