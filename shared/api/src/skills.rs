//! Skills: what the agents of the server can be asked to do, one for each.

use dormouse_engine::CompiledGraph;
use dormouse_protocol::envelope::List;
use dormouse_protocol::id::SkillId;
use dormouse_protocol::resource::{AutonomyTier, Skill};
use dormouse_protocol::{Envelope, ProtocolError, Scope};
use jiff::Timestamp;

use crate::api::{Api, found};
use crate::personas::PersonaSpec;
use crate::{Call, CallAnswer};

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

impl Api {
    pub(crate) async fn list_skills(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let specs = self.all_personas().await?;
        let names: Vec<&str> = specs.iter().map(|spec| spec.graph.as_str()).collect();
        let shown = self.lists.fixed_page(call, "skills", &names)?;
        let mut skills = Vec::new();
        for spec in specs.get(shown.range).unwrap_or_default() {
            skills.push(spec.skill(&*self.graph(spec).await?));
        }
        found(&List::page(skills, shown.next))
    }

    pub(crate) async fn get_skill(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let spec = self.skill_spec(&SkillId::from(call.params.get("skill_id"))).await?;
        found(&spec.skill(&*self.graph(&spec).await?))
    }

    /// The offer that the skill `id` is.
    ///
    /// # Errors
    /// `resource_not_found`; that it is busy when it cannot be known.
    pub(crate) async fn skill_spec(&self, id: &SkillId) -> Result<PersonaSpec, ProtocolError> {
        let spec = self.all_personas().await?.into_iter().find(|spec| spec.skill_id() == *id);
        spec.ok_or_else(|| ProtocolError::not_found("skill"))
    }
}
