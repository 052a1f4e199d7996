//! Personas: each graph that is offered is one, which is part of the server and cannot be written. A tenant can make
//! others of the same graphs. An agent that the files of a workspace declare is one in that workspace alone.
//!
//! A persona that a tenant made promises how freely it acts. The promise is kept: where its graph acts more freely than
//! its tier allows, it cannot be made, and a task for it is refused.

mod chosen;

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_engine::CompiledGraph;
use dormouse_ports::{Category, Journal, Records};
use dormouse_protocol::envelope::List;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::{PersonaId, WorkspaceId};
use dormouse_protocol::resource::{
    AutonomyTier, CreatePersonaRequest, Persona, ReceiptPolicy, UpdatePersonaRequest, Workspace,
};
use dormouse_protocol::{Envelope, ErrorCode, Map, ProtocolError};
use jiff::Timestamp;
use serde_json::Value;

use crate::agents::{AgentMeans, AgentSource, CatalogLine, OwnAgents, WorkspaceAgents};
use crate::api::{Api, Change, found, json};
use crate::documents::Stored;
use crate::refusal::{agents_away, check_length, check_line, internal, store};
use crate::runtime::{ToolInfo, tool_id};
use crate::skills::read_id;
use crate::{Actor, Call, CallAnswer};

pub(crate) use chosen::ChosenPersona;

/// Characters of the longest name and version, and of the longest description, of a persona that a client makes.
const LONGEST_NAME: usize = 128;
const LONGEST_DESCRIPTION: usize = 4096;

/// A graph that clients can have work done by.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonaSpec {
    /// The name of the graph.
    pub graph: String,
    /// The version of the graph, where it is one of a workspace or of a source: the one that was current when it was asked.
    pub version: Option<String>,
    /// Responsibility of the persona.
    pub description: String,
    /// Degree to which it acts without asking a person.
    pub autonomy_tier: AutonomyTier,
    /// Tools that it may call, with all that lists of tools tell of them.
    pub tools: Vec<ToolInfo>,
    /// What it may use besides.
    pub means: Arc<AgentMeans>,
    /// Policy for receipts of its tasks. Where it is optional, a server that can issue them does.
    pub receipts: ReceiptPolicy,
    /// True if no list shows it.
    pub hidden: bool,
    /// True if it works for the tenant [at home](AgentSource::home) alone, and for keys that are bound to no workspace:
    /// nobody else finds it.
    pub at_home: bool,
}

impl PersonaSpec {
    /// The persona that works by `graph`.
    pub fn new(graph: impl Into<String>, description: impl Into<String>, autonomy_tier: AutonomyTier) -> Self {
        let receipts = ReceiptPolicy::Optional;
        let (graph, description) = (graph.into(), description.into());
        let (tools, means) = (Vec::new(), Arc::default());
        Self { graph, version: None, description, autonomy_tier, tools, means, receipts, hidden: false, at_home: false }
    }

    /// The same by `version` of its graph.
    #[must_use]
    pub fn of_version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// The same with another policy for receipts.
    #[must_use]
    pub fn with_receipts(self, receipts: ReceiptPolicy) -> Self {
        Self { receipts, ..self }
    }

    /// The persona that works by `graph`, without a description.
    pub(crate) fn undescribed(graph: &str) -> Self {
        Self::new(graph, format!("Runs the graph {graph}."), AutonomyTier::ActAuto)
    }

    /// The id of the persona.
    pub fn persona_id(&self) -> PersonaId {
        PersonaId::new(format!("persona_{}", self.graph))
    }

    /// The ids of its tools, each once, as lists of tools have them.
    fn tool_ids(&self) -> Vec<String> {
        let names = self.tools.iter().map(|tool| &tool.name).chain(&self.means.tools);
        let ids: BTreeSet<String> = names.map(|name| tool_id(name).to_string()).collect();
        ids.into_iter().collect()
    }

    /// As clients see it. It comes with the server, so it is as old as time.
    fn persona(&self, graph: &CompiledGraph, issues: bool) -> Persona {
        let means = &self.means;
        let model = means.model.iter().map(|model| ("model".to_owned(), Value::from(model.as_str())));
        Persona {
            envelope: Envelope::new(self.persona_id(), Timestamp::UNIX_EPOCH),
            name: self.graph.clone(),
            version: graph.schema().version().to_owned(),
            entry_workflow: self.graph.clone(),
            description: self.description.clone(),
            autonomy_tier: self.autonomy_tier,
            receipt_policy: if issues { self.receipts } else { ReceiptPolicy::Disabled },
            tools: self.tool_ids(),
            capabilities: means.skills.iter().map(|skill| read_id(skill).to_string()).collect(),
            triggers: Vec::new(),
            schedules: Vec::new(),
            handoffs: means.agents.clone(),
            context_packs: Vec::new(),
            evals: Vec::new(),
            owner: None,
            model_policy: model.collect(),
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
    own: Option<Arc<dyn WorkspaceAgents>>,
}

impl From<Vec<PersonaSpec>> for Personas {
    fn from(linked: Vec<PersonaSpec>) -> Self {
        Self { linked, source: None, own: None }
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

    /// Also, in each workspace, the agents of `own`.
    #[must_use]
    pub fn with_own(self, own: Arc<dyn WorkspaceAgents>) -> Self {
        Self { own: Some(own), ..self }
    }

    /// The source of the agents that workspaces alone have, where there is one.
    pub fn own(&self) -> Option<&Arc<dyn WorkspaceAgents>> {
        self.own.as_ref()
    }

    /// The agents that `workspace` of `tenant` alone has. There they come before those of the server.
    ///
    /// # Errors
    /// A sentence where they cannot be had.
    pub async fn own_of(&self, tenant: &str, workspace: &WorkspaceId) -> Result<OwnAgents, String> {
        match &self.own {
            Some(own) => own.of(tenant, workspace).await,
            None => Ok(OwnAgents::default()),
        }
    }

    /// True if `workspace` of `tenant` is a `chat` workspace: by its files, and where they declare nothing, as the agents of
    /// the source that work in it only talk.
    ///
    /// # Errors
    /// A sentence where it cannot be known.
    pub async fn only_talk_in(&self, tenant: &str, workspace: &WorkspaceId) -> Result<bool, String> {
        let said = match &self.own {
            Some(own) => own.only_talks(tenant, workspace).await?,
            None => None,
        };
        match said {
            Some(said) => Ok(said),
            None => Ok(self.served_only_talk().await? && !self.own_of(tenant, workspace).await?.declares()),
        }
    }

    /// True if the agents of the source only talk.
    pub(crate) async fn served_only_talk(&self) -> Result<bool, String> {
        match &self.source {
            Some(source) => source.only_talks().await,
            None => Ok(false),
        }
    }

    /// Those of the linked agents.
    pub fn linked(&self) -> &[PersonaSpec] {
        &self.linked
    }

    /// True if `actor` finds all of them: the source is at home with its tenant, or nowhere, and its key is bound to no
    /// workspace.
    pub fn is_at_home(&self, actor: &Actor) -> bool {
        let home = self.source.as_ref().and_then(|source| source.home());
        home.is_none_or(|home| actor.tenant == home && actor.workspaces.is_none())
    }

    /// True if `tenant` does not find the persona that works by `graph`.
    ///
    /// # Errors
    /// A sentence where the source does not tell its own.
    pub async fn keep_from(&self, tenant: &str, graph: &str) -> Result<bool, String> {
        if self.source.as_ref().and_then(|source| source.home()).is_none_or(|home| home == tenant) {
            return Ok(false);
        }
        Ok(self.all().await?.iter().any(|spec| spec.at_home && spec.graph == graph))
    }

    /// Those that `actor` finds.
    ///
    /// # Errors
    /// A sentence where the source does not tell its own.
    pub async fn found_by(&self, actor: &Actor) -> Result<Vec<PersonaSpec>, String> {
        self.found(Some(actor)).await
    }

    /// Those that `actor` finds, or everybody.
    async fn found(&self, actor: Option<&Actor>) -> Result<Vec<PersonaSpec>, String> {
        let is_at_home = actor.is_some_and(|actor| self.is_at_home(actor));
        Ok(self.all().await?.into_iter().filter(|spec| is_at_home || !spec.at_home).collect())
    }

    /// All of them; of two with one name that of the source.
    ///
    /// # Errors
    /// A sentence where the source does not tell its own.
    async fn all(&self) -> Result<Vec<PersonaSpec>, String> {
        let Some(source) = &self.source else { return Ok(self.linked.clone()) };
        let mut all = source.personas().await?;
        let is_new = |spec: &&PersonaSpec| all.iter().all(|known| known.graph != spec.graph);
        let others: Vec<_> = self.linked.iter().filter(is_new).cloned().collect();
        all.extend(others);
        Ok(all)
    }

    /// Those that lists show: to `actor`, or to everybody.
    ///
    /// # Errors
    /// A sentence where the source does not tell its own.
    pub async fn shown_to(&self, actor: Option<&Actor>) -> Result<Vec<PersonaSpec>, String> {
        Ok(self.found(actor).await?.into_iter().filter(|spec| !spec.hidden).collect())
    }

    /// What is declared with the agents of the source, without those that `actor` does not find.
    ///
    /// # Errors
    /// A sentence where the source does not tell it.
    pub async fn catalog_for(&self, actor: &Actor) -> Result<Vec<CatalogLine>, String> {
        match &self.source {
            Some(source) => source.catalog(self.is_at_home(actor)).await,
            None => Ok(Vec::new()),
        }
    }
}

impl Api {
    pub(crate) async fn list_personas(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let mut specs = self.shown_personas(call).await?;
        let own = self.own_agents(call, self.place_of(call).await?.as_ref()).await?.personas;
        specs.retain(|spec| own.iter().all(|own| own.graph != spec.graph));
        specs.extend(own.into_iter().filter(|spec| !spec.hidden));
        let names: Vec<&str> = specs.iter().map(|spec| spec.graph.as_str()).collect();
        let (mut shown, fixed) = self.lists.page_and_fixed::<Persona>(call, &names).await?;
        for spec in specs.get(fixed.range).unwrap_or_default() {
            shown.push(json(&self.persona(spec).await?)?);
        }
        found(&List::page(shown, fixed.next))
    }

    pub(crate) async fn get_persona(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let id = PersonaId::from(call.params.get("persona_id"));
        let own = self.own_agents(call, self.place_of(call).await?.as_ref()).await?.personas;
        let of_server = self.all_personas(call).await?;
        if let Some(spec) = own.iter().chain(&of_server).find(|spec| spec.persona_id() == id) {
            return found(&self.persona(spec).await?);
        }
        found(&self.stored_persona(call, &id).await?.kept.resource)
    }

    /// The persona `id` of the caller's tenant.
    ///
    /// # Errors
    /// `resource_not_found`; that it is busy where it may be one of a workspace that cannot be loaded at the moment.
    async fn stored_persona(&self, call: &Call, id: &PersonaId) -> Result<Stored<Persona>, ProtocolError> {
        let found = self.reads.see::<Persona>(call, id).await;
        if found.as_ref().is_err_and(|refusal| refusal.code() == ErrorCode::ResourceNotFound) {
            self.refused_of_server(call, agent_of(id)).await?;
        }
        found
    }

    /// The workspace that the query names, if it names one.
    ///
    /// # Errors
    /// `resource_not_found` for one that the caller does not see.
    pub(crate) async fn place_of(&self, call: &Call) -> Result<Option<WorkspaceId>, ProtocolError> {
        let Some(id) = call.query.get("workspace_id").map(|id| WorkspaceId::from(id.to_owned())) else {
            return Ok(None);
        };
        Ok(Some(self.reads.see::<Workspace>(call, &id).await?.kept.resource.envelope.id))
    }

    /// The agents that `workspace`, which the caller sees, alone has.
    async fn own_agents(&self, call: &Call, workspace: Option<&WorkspaceId>) -> Result<OwnAgents, ProtocolError> {
        let Some(workspace) = workspace else { return Ok(OwnAgents::default()) };
        let own = self.parts().personas.own_of(&call.actor.tenant, workspace).await;
        own.map_err(|reason| agents_away(&reason))
    }

    /// Makes a persona of a graph of the server.
    pub(crate) async fn create_persona(&self, call: &Call) -> Result<Change, ProtocolError> {
        self.reads.check_place(call, None).await?;
        let request: CreatePersonaRequest = call.body.clone().decode()?;
        check_line("name", &request.name, LONGEST_NAME)?;
        check_line("version", &request.version, LONGEST_NAME)?;
        check_length("description", &request.description, LONGEST_DESCRIPTION)?;
        let specs = self.all_personas(call).await?;
        let Some(spec) = specs.into_iter().find(|spec| spec.graph == request.entry_workflow) else {
            // It may be one of a workspace that cannot be loaded at the moment.
            self.refused_of_server(call, &request.entry_workflow).await?;
            return Err(ProtocolError::invalid(
                "entry_workflow",
                "expected the name of a workflow of this server, as GET /v1/personas tells",
            ));
        };
        check_tier(&spec, request.autonomy_tier)?;
        let id: PersonaId = self.fresh(call.now);
        let mut metadata = redact::object(request.metadata);
        if let Some(module) = request.module_ref {
            metadata.entry("module_ref").or_insert(module.into());
        }
        let persona = Persona {
            envelope: Envelope::new(id, call.now).with_metadata(metadata),
            name: request.name,
            version: request.version,
            entry_workflow: request.entry_workflow,
            description: request.description,
            autonomy_tier: request.autonomy_tier,
            receipt_policy: request.receipt_policy,
            owner: Some(call.actor.name.clone()),
            ..self.persona(&spec).await?
        };
        let stored = Stored::new(&call.actor.tenant, None, persona, ());
        Change::new(Journal::new(vec![stored.write()?], Vec::new()), 201, &stored.kept.resource)
    }

    pub(crate) async fn update_persona(&self, call: &Call) -> Result<Change, ProtocolError> {
        self.reads.check_place(call, None).await?;
        let request: UpdatePersonaRequest = call.body.clone().decode()?;
        check_length("description", request.description.as_deref().unwrap_or_default(), LONGEST_DESCRIPTION)?;
        let id = PersonaId::from(call.params.get("persona_id"));
        if self.all_personas(call).await?.iter().any(|spec| spec.persona_id() == id) {
            let message = "the persona is part of the server; make another one of its workflow";
            return Err(ProtocolError::new(ErrorCode::PermissionDenied, message));
        }
        let mut stored = self.stored_persona(call, &id).await?;
        self.reads.check_counting(call, request.quota_id.as_ref()).await?;
        let persona = &mut stored.kept.resource;
        persona.description = request.description.unwrap_or_else(|| std::mem::take(&mut persona.description));
        persona.receipt_policy = request.receipt_policy.unwrap_or(persona.receipt_policy);
        persona.quota_id = request.quota_id.unwrap_or_else(|| persona.quota_id.take());
        let metadata = request.metadata.map(redact::object);
        persona.envelope.metadata = metadata.unwrap_or_else(|| std::mem::take(&mut persona.envelope.metadata));
        persona.envelope.updated_at = call.now;
        Change::new(Journal::new(vec![stored.write()?], Vec::new()), 200, &stored.kept.resource)
    }

    async fn persona(&self, spec: &PersonaSpec) -> Result<Persona, ProtocolError> {
        let issues = self.parts().receipts.is_some() || spec.receipts == ReceiptPolicy::Required;
        Ok(spec.persona(&*self.graph(spec).await?, issues))
    }

    /// The personas that the caller finds.
    pub(crate) async fn all_personas(&self, call: &Call) -> Result<Vec<PersonaSpec>, ProtocolError> {
        self.parts().personas.found_by(&call.actor).await.map_err(|reason| agents_away(&reason))
    }

    /// Those of them that lists show.
    pub(crate) async fn shown_personas(&self, call: &Call) -> Result<Vec<PersonaSpec>, ProtocolError> {
        self.parts().personas.shown_to(Some(&call.actor)).await.map_err(|reason| agents_away(&reason))
    }

    /// The graph of `offer`.
    ///
    /// # Errors
    /// `internal_error` when the server offers what it has not; that it is busy when a source of agents is.
    pub(crate) async fn graph(&self, spec: &PersonaSpec) -> Result<Arc<CompiledGraph>, ProtocolError> {
        let found = self.parts().harness.graphs().begun(&spec.graph, spec.version.as_deref()).await;
        found.map(|found| found.graph).map_err(|error| match *error.category() == Category::GraphUnknown {
            true => internal(&error),
            false => agents_away(&error),
        })
    }
}

/// The name of the agent whose own persona would be called `id`; empty where none could be.
fn agent_of(id: &PersonaId) -> &str {
    id.as_str().strip_prefix("persona_").unwrap_or_default()
}

/// Checks that the graph of `spec` acts no more freely than `tier`.
///
/// # Errors
/// `policy_violation`.
fn check_tier(spec: &PersonaSpec, tier: AutonomyTier) -> Result<(), ProtocolError> {
    if freedom(spec.autonomy_tier) <= freedom(tier) {
        return Ok(());
    }
    let message = "the workflow acts more freely than the autonomy tier of the persona allows";
    Err(ProtocolError::new(ErrorCode::PolicyViolation, message).with_detail("param", "autonomy_tier"))
}

/// Orders tiers by how freely they let an agent act.
fn freedom(tier: AutonomyTier) -> u8 {
    match tier {
        AutonomyTier::Shadow => 0,
        AutonomyTier::Suggest => 1,
        AutonomyTier::ActWithApproval => 2,
        AutonomyTier::ActAuto => 3,
    }
}

/// What stands in the catalog of `workspace`, beside its agents that run: what its files declare alone, and what of that is
/// refused with its reasons.
///
/// # Errors
/// `resource_not_found` for a workspace that `actor` does not see; that it is busy when it cannot be known.
pub async fn catalog_of(
    personas: &Personas,
    records: &dyn Records,
    (actor, now): (&Actor, Timestamp),
    workspace: &WorkspaceId,
) -> Result<Vec<CatalogLine>, ProtocolError> {
    let found = Stored::<Workspace>::load(records, workspace, now).await.map_err(store)?;
    if !found.is_some_and(|found| found.is_seen_by(actor)) {
        return Err(ProtocolError::not_found("workspace"));
    }
    let own = personas.own_of(&actor.tenant, workspace).await.map_err(|reason| agents_away(&reason))?;
    Ok(own.catalog)
}
