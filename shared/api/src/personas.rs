//! Personas: each graph that is offered is one. They are part of the server and cannot be written.

use std::sync::Arc;

use dormouse_engine::CompiledGraph;
use dormouse_protocol::envelope::List;
use dormouse_protocol::id::PersonaId;
use dormouse_protocol::request::ListQuery;
use dormouse_protocol::resource::{AutonomyTier, Persona, ReceiptPolicy};
use dormouse_protocol::{Envelope, Map, ProtocolError};
use jiff::Timestamp;

use crate::api::{Api, found};
use crate::page::scope;
use crate::refusal::internal;
use crate::{Call, CallAnswer};

/// A graph that clients can have work done by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonaSpec {
    /// The name of the graph.
    pub graph: String,
    /// Responsibility of the persona.
    pub description: String,
    /// Degree to which it acts without asking a person.
    pub autonomy_tier: AutonomyTier,
}

impl PersonaSpec {
    /// The persona that works by `graph`.
    pub fn new(graph: impl Into<String>, description: impl Into<String>, autonomy_tier: AutonomyTier) -> Self {
        Self { graph: graph.into(), description: description.into(), autonomy_tier }
    }

    /// The persona that works by `graph`, without a description.
    pub(crate) fn undescribed(graph: &str) -> Self {
        Self::new(graph, format!("Runs the graph {graph}."), AutonomyTier::ActAuto)
    }

    /// The id of the persona.
    pub fn persona_id(&self) -> PersonaId {
        PersonaId::new(format!("persona_{}", self.graph))
    }

    /// As clients see it. It comes with the server, so it is as old as time.
    fn persona(&self, graph: &CompiledGraph) -> Persona {
        Persona {
            envelope: Envelope::new(self.persona_id(), Timestamp::UNIX_EPOCH),
            name: self.graph.clone(),
            version: graph.schema().version().to_owned(),
            entry_workflow: self.graph.clone(),
            description: self.description.clone(),
            autonomy_tier: self.autonomy_tier,
            receipt_policy: ReceiptPolicy::Disabled,
            tools: Vec::new(),
            capabilities: Vec::new(),
            triggers: Vec::new(),
            schedules: Vec::new(),
            handoffs: Vec::new(),
            context_packs: Vec::new(),
            evals: Vec::new(),
            owner: None,
            model_policy: Map::new(),
            rollout_policy: Map::new(),
            quota_id: None,
        }
    }
}

impl Api {
    pub(crate) fn list_personas(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let query = ListQuery::read(&call.query)?;
        let scope = scope(call, "personas");
        let after = self.position(call, &scope, query.cursor.as_deref())?.into_iter().next();
        let personas = &self.parts().personas;
        let start = after.map_or(0, |after| {
            personas.iter().position(|spec| spec.graph == after).map_or(personas.len(), |position| position + 1)
        });
        let shown = personas.iter().skip(start).take(query.limit);
        let shown: Vec<Persona> = shown.map(|spec| self.persona(spec)).collect::<Result<_, _>>()?;
        let next = shown.last().filter(|_| start + shown.len() < personas.len());
        let next = next.map(|last| self.cursor(call, &scope, std::slice::from_ref(&last.name))).transpose()?;
        found(&List::page(shown, next))
    }

    pub(crate) fn get_persona(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let spec = self.persona_spec(Some(&PersonaId::from(call.params.get("persona_id"))))?;
        found(&self.persona(spec)?)
    }

    fn persona(&self, spec: &PersonaSpec) -> Result<Persona, ProtocolError> {
        self.graph(spec).map(|graph| spec.persona(graph))
    }

    /// Offer of `persona`; without one, that of the persona that works where a request names none.
    ///
    /// # Errors
    /// `resource_not_found` when there is no such persona.
    pub(crate) fn persona_spec(&self, persona: Option<&PersonaId>) -> Result<&PersonaSpec, ProtocolError> {
        let mut personas = self.parts().personas.iter();
        let spec = personas.find(|spec| persona.is_none_or(|persona| spec.persona_id() == *persona));
        spec.ok_or_else(|| ProtocolError::not_found("persona"))
    }

    /// The graph of `offer`.
    ///
    /// # Errors
    /// `internal_error` when the server offers what it has not.
    pub(crate) fn graph(&self, spec: &PersonaSpec) -> Result<&Arc<CompiledGraph>, ProtocolError> {
        self.parts().harness.graphs().get(&spec.graph).map_err(|error| internal(&error))
    }
}
