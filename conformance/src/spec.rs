use dormouse_ports::Map;

use crate::Failure;
use crate::case::CaseSpec;
use crate::models::ModelCase;

/// A case, read in full.
pub(crate) enum Spec {
    /// It runs a graph.
    Graph(Box<CaseSpec>),
    /// It calls a model.
    Model(Box<ModelCase>),
}

impl Spec {
    /// Reads the case `map`, whose file's shared keys are in it already.
    pub(crate) fn read(map: &Map) -> Result<Self, Failure> {
        if ModelCase::is_one(map) {
            return Ok(Self::Model(Box::new(ModelCase::read(map)?)));
        }
        Ok(Self::Graph(Box::new(CaseSpec::read(map)?)))
    }

    /// The predicates that nobody checks.
    pub(crate) fn unchecked(&self) -> Vec<String> {
        match self {
            Self::Graph(case) => case.unchecked(),
            Self::Model(case) => case.unchecked(),
        }
    }
}
