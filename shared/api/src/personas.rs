//! Personas: each graph that is offered is one. They are part of the server and cannot be written.

use std::sync::Arc;

use dormouse_engine::CompiledGraph;
use dormouse_ports::Category;
use dormouse_protocol::envelope::List;
use dormouse_protocol::id::PersonaId;
use dormouse_protocol::request::ListQuery;
use dormouse_protocol::resource::{AutonomyTier, Persona, ReceiptPolicy};
use dormouse_protocol::{Envelope, Map, ProtocolError};
use jiff::Timestamp;

use crate::agents::AgentSource;
use crate::api::{Api, found};
use crate::page::scope;
use crate::refusal::{agents_away, internal};
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

/// The personas of a server: of the agents that are linked into it, and of a source.
#[derive(Clone, Debug, Default)]
pub struct Personas {
    linked: Vec<PersonaSpec>,
    source: Option<Arc<dyn AgentSource>>,
}

impl From<Vec<PersonaSpec>> for Personas {
    fn from(linked: Vec<PersonaSpec>) -> Self {
        Self { linked, source: None }
    }
}

impl Personas {
    /// Also those of `source`, which come before the others.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn AgentSource>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// The source, where there is one.
    pub fn source(&self) -> Option<&Arc<dyn AgentSource>> {
        self.source.as_ref()
    }

    /// Those of the linked agents.
    pub fn linked(&self) -> &[PersonaSpec] {
        &self.linked
    }

    /// All of them; of two with one name that of the source.
    ///
    /// # Errors
    /// A sentence where the source does not tell its own.
    pub async fn all(&self) -> Result<Vec<PersonaSpec>, String> {
        let Some(source) = &self.source else { return Ok(self.linked.clone()) };
        let mut all = source.personas().await?;
        let is_new = |spec: &&PersonaSpec| all.iter().all(|known| known.graph != spec.graph);
        let others: Vec<_> = self.linked.iter().filter(is_new).cloned().collect();
        all.extend(others);
        Ok(all)
    }
}

impl Api {
    pub(crate) async fn list_personas(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let query = ListQuery::read(&call.query)?;
        let scope = scope(call, "personas");
        let after = self.position(call, &scope, query.cursor.as_deref())?.into_iter().next();
        let personas = self.all_personas().await?;
        let start = after.map_or(0, |after| {
            personas.iter().position(|spec| spec.graph == after).map_or(personas.len(), |position| position + 1)
        });
        let mut shown: Vec<Persona> = Vec::new();
        for spec in personas.iter().skip(start).take(query.limit) {
            shown.push(self.persona(spec).await?);
        }
        let next = shown.last().filter(|_| start + shown.len() < personas.len());
        let next = next.map(|last| self.cursor(call, &scope, std::slice::from_ref(&last.name))).transpose()?;
        found(&List::page(shown, next))
    }

    pub(crate) async fn get_persona(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let spec = self.persona_spec(Some(&PersonaId::from(call.params.get("persona_id")))).await?;
        found(&self.persona(&spec).await?)
    }

    async fn persona(&self, spec: &PersonaSpec) -> Result<Persona, ProtocolError> {
        Ok(spec.persona(&*self.graph(spec).await?))
    }

    async fn all_personas(&self) -> Result<Vec<PersonaSpec>, ProtocolError> {
        self.parts().personas.all().await.map_err(|reason| agents_away(&reason))
    }

    /// Offer of `persona`; without one, that of the persona that works where a request names none.
    ///
    /// # Errors
    /// `resource_not_found` when there is no such persona; that it is busy when it cannot be known.
    pub(crate) async fn persona_spec(&self, persona: Option<&PersonaId>) -> Result<PersonaSpec, ProtocolError> {
        let mut personas = self.all_personas().await?.into_iter();
        let spec = personas.find(|spec| persona.is_none_or(|persona| spec.persona_id() == *persona));
        spec.ok_or_else(|| ProtocolError::not_found("persona"))
    }

    /// The graph of `offer`.
    ///
    /// # Errors
    /// `internal_error` when the server offers what it has not; that it is busy when a source of agents is.
    pub(crate) async fn graph(&self, spec: &PersonaSpec) -> Result<Arc<CompiledGraph>, ProtocolError> {
        let found = self.parts().harness.graphs().current(&spec.graph).await;
        found.map(|found| found.graph).map_err(|error| match *error.category() == Category::GraphUnknown {
            true => internal(&error),
            false => agents_away(&error),
        })
    }
}
