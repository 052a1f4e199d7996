//! Skills: what the agents of the server can be asked to do, one for each, and the skills that agents read (`SKILL.md`).

use std::collections::BTreeSet;

use dormouse_engine::CompiledGraph;
use dormouse_protocol::envelope::List;
use dormouse_protocol::id::SkillId;
use dormouse_protocol::resource::{AutonomyTier, Skill};
use dormouse_protocol::{Envelope, ProtocolError, Scope};
use jiff::Timestamp;

use crate::agents::CatalogLine;
use crate::api::{Api, found};
use crate::personas::PersonaSpec;
use crate::refusal::agents_away;
use crate::runtime::plain;
use crate::{Call, CallAnswer};

/// What is listed as a skill.
enum Offer {
    /// Work that an agent does.
    Agent(PersonaSpec),
    /// Instructions that agents read.
    Read(CatalogLine),
}

impl PersonaSpec {
    /// The id of the skill that its graph is.
    pub fn skill_id(&self) -> SkillId {
        SkillId::new(format!("skill_{}", self.graph))
    }

    fn skill(&self, graph: &CompiledGraph) -> Skill {
        Skill {
            envelope: Envelope::new(self.skill_id(), Timestamp::UNIX_EPOCH),
            name: self.graph.clone(),
            description: self.description.clone(),
            input_schema: None,
            output_schema: None,
            source: Some("graph".to_owned()),
            version: Some(graph.schema().version().to_owned()),
            capabilities: vec![Scope::TasksWrite.as_str().to_owned()],
            requires_approval: self.autonomy_tier == AutonomyTier::ActWithApproval,
            deprecated: false,
        }
    }
}

impl Offer {
    /// No graph has a dot in its name: no two ids are the same.
    fn id(&self) -> SkillId {
        match self {
            Self::Agent(spec) => spec.skill_id(),
            Self::Read(line) => read_id(&line.name),
        }
    }
}

/// The id of the skill `name` that agents read.
pub(crate) fn read_id(name: &str) -> SkillId {
    SkillId::new(format!("skill_{}.md", plain(name)))
}

/// The skill that agents read.
fn read(id: SkillId, line: &CatalogLine) -> Skill {
    Skill {
        envelope: Envelope::new(id, Timestamp::UNIX_EPOCH),
        name: line.name.clone(),
        description: line.description.clone(),
        input_schema: None,
        output_schema: None,
        source: Some("SKILL.md".to_owned()),
        version: None,
        capabilities: Vec::new(),
        requires_approval: false,
        deprecated: false,
    }
}

impl Api {
    pub(crate) async fn list_skills(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let offers = self.skills(call).await?;
        let ids: Vec<SkillId> = offers.iter().map(Offer::id).collect();
        let names: Vec<&str> = ids.iter().map(SkillId::as_str).collect();
        let shown = self.lists.fixed_page(call, "skills", &names)?;
        let mut skills = Vec::new();
        for offer in offers.get(shown.range).unwrap_or_default() {
            skills.push(self.skill(offer).await?);
        }
        found(&List::page(skills, shown.next))
    }

    pub(crate) async fn get_skill(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.skill_called(call, &SkillId::from(call.params.get("skill_id"))).await?)
    }

    /// The skill `id`.
    ///
    /// # Errors
    /// `resource_not_found`; that it is busy when it cannot be known.
    pub(crate) async fn skill_called(&self, call: &Call, id: &SkillId) -> Result<Skill, ProtocolError> {
        let offer = self.skills(call).await?.into_iter().find(|offer| offer.id() == *id);
        self.skill(&offer.ok_or_else(|| ProtocolError::not_found("skill"))?).await
    }

    /// All skills that are shown, those of agents first.
    async fn skills(&self, call: &Call) -> Result<Vec<Offer>, ProtocolError> {
        let agents = self.shown_personas(call).await?.into_iter().map(Offer::Agent);
        let declared = self.parts().personas.catalog_for(&call.actor).await.map_err(|reason| agents_away(&reason))?;
        let read = declared.into_iter().filter(|line| line.kind == "skill" && line.enabled).map(Offer::Read);
        let mut offers: Vec<Offer> = agents.chain(read).collect();
        let mut ids = BTreeSet::new();
        // Two workspaces may have a skill of one name: the first one counts.
        offers.retain(|offer| ids.insert(offer.id()));
        Ok(offers)
    }

    async fn skill(&self, offer: &Offer) -> Result<Skill, ProtocolError> {
        Ok(match offer {
            Offer::Agent(spec) => spec.skill(&*self.graph(spec).await?),
            Offer::Read(line) => read(offer.id(), line),
        })
    }
}
