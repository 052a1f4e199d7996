//! The persona that a task is for, and why there is none that may be.

use dormouse_protocol::id::{PersonaId, QuotaId, WorkspaceId};
use dormouse_protocol::request::nearest;
use dormouse_protocol::resource::{Persona, ReceiptPolicy};
use dormouse_protocol::{ErrorCode, ProtocolError};

use super::{PersonaSpec, agent_of, check_tier};
use crate::Call;
use crate::agents::{NotKept, OwnAgents};
use crate::api::Api;
use crate::refusal::agents_away;

/// The persona that a task is for.
pub(crate) struct ChosenPersona {
    /// Its id.
    pub(crate) id: PersonaId,
    /// The offer that does the work.
    pub(crate) spec: PersonaSpec,
    /// Quota that its tasks count against.
    pub(crate) quota: Option<QuotaId>,
}

impl ChosenPersona {
    /// That of `spec`, which counts against no quota of its own.
    fn of(spec: &PersonaSpec) -> Self {
        Self { id: spec.persona_id(), spec: spec.clone(), quota: None }
    }
}

/// The one of `specs` whose name without more is `id`, or that lists show and whose name is like it.
fn meant_by<'s>(id: &PersonaId, specs: impl Iterator<Item = &'s PersonaSpec> + Clone) -> Option<&'s PersonaSpec> {
    let name = id.as_str();
    specs.clone().find(|spec| spec.graph == name).or_else(|| {
        let name = name.strip_prefix("persona_").unwrap_or(name);
        let shown = specs.filter(|spec| !spec.hidden);
        let guess = nearest(name, shown.clone().map(|spec| spec.graph.as_str()))?;
        shown.clone().find(|spec| spec.graph == guess)
    })
}

impl Api {
    /// The persona that `persona` names, of the files of `workspace`, which the caller sees, of the server, or of the
    /// caller's tenant; without one, that which works where a request names none: the default agent of the files, or else of
    /// the server. Only one of the tenant is read from the store.
    ///
    /// # Errors
    /// `resource_not_found`; `policy_violation` where its workflow acts more freely than it may, or its definition is
    /// refused; that it is busy when it cannot be known.
    pub(crate) async fn chosen_persona(
        &self,
        call: &Call,
        workspace: Option<&WorkspaceId>,
        persona: Option<&PersonaId>,
    ) -> Result<ChosenPersona, ProtocolError> {
        let own = self.own_agents(call, workspace).await?;
        let chosen = match persona {
            Some(id) => self.named_persona(call, &own, id).await?,
            None => ChosenPersona::of(&self.default_persona(call, &own).await?),
        };
        self.check_place_of(&chosen.spec, &own).await?;
        Ok(chosen)
    }

    /// The persona that works where a request names none, in a workspace with `own` agents.
    async fn default_persona(&self, call: &Call, own: &OwnAgents) -> Result<PersonaSpec, ProtocolError> {
        if own.personas.is_empty() && !(own.refused.is_empty() && own.refused_whole.is_none()) {
            let reasons = own.refused.iter().map(|(name, reason)| format!("`{name}`: {reason}"));
            return Err(none_can(own.refused_whole.iter().cloned().chain(reasons)));
        }
        let not_there = |name: &str, reason: &str| {
            refused_definition(format!("the default agent `{name}` of the workspace cannot be addressed: {reason}"))
        };
        if let Some(name) = &own.default_agent
            && let Some(reason) = own.refusal_of(name)
        {
            return Err(not_there(name, reason));
        }
        let specs = self.all_personas(call).await?;
        if own.default_agent.is_none()
            && own.personas.is_empty()
            && let Some(refused) = self.refused_default(call, &specs).await?
        {
            return Err(refused);
        }
        let mut all = own.personas.iter().chain(&specs);
        let found = match &own.default_agent {
            None => all.next().ok_or_else(|| ProtocolError::not_found("persona"))?,
            Some(name) => {
                all.find(|spec| spec.graph == *name).ok_or_else(|| not_there(name, "there is no agent of that name"))?
            }
        };
        Ok(found.clone())
    }

    /// Why the agent that works where none is named cannot be addressed, where one is chosen and can be by nobody. Another in
    /// its place may do what it may not.
    async fn refused_default(
        &self,
        call: &Call,
        found: &[PersonaSpec],
    ) -> Result<Option<ProtocolError>, ProtocolError> {
        let personas = &self.parts().personas;
        let Some(source) = personas.source() else { return Ok(None) };
        let Some(name) = source.default_agent().await.map_err(|reason| agents_away(&reason))? else { return Ok(None) };
        if found.iter().any(|spec| spec.graph == name) {
            return Ok(None);
        }
        let is_served = source.personas().await.map_err(|reason| agents_away(&reason))?;
        if is_served.iter().any(|spec| spec.graph == name) {
            return Ok(None);
        }
        if let Some(refused) = self.refused_of_server(call, &name).await? {
            return Ok(Some(refused));
        }
        let message = match personas.is_at_home(&call.actor) {
            true => format!("the default agent `{name}` cannot be addressed: there is no agent of that name"),
            false => "the default agent cannot be addressed: name a persona".to_owned(),
        };
        Ok(Some(ProtocolError::new(ErrorCode::PolicyViolation, message)))
    }

    /// The persona `id`, in a workspace with `own` agents.
    async fn named_persona(
        &self,
        call: &Call,
        own: &OwnAgents,
        id: &PersonaId,
    ) -> Result<ChosenPersona, ProtocolError> {
        if let Some(spec) = own.personas.iter().find(|spec| spec.persona_id() == *id) {
            return Ok(ChosenPersona::of(spec));
        }
        let name = agent_of(id);
        if let Some(reason) = own.refusal_of(name) {
            return Err(refused_definition(format!(
                "the agent `{name}` of the workspace cannot be addressed: {reason}"
            )));
        }
        let specs = self.all_personas(call).await?;
        if let Some(spec) = specs.iter().find(|spec| spec.persona_id() == *id) {
            return Ok(ChosenPersona::of(spec));
        }
        let stored = match self.reads.see::<Persona>(call, id).await {
            Ok(stored) => stored.kept.resource,
            Err(refusal) if refusal.code() == ErrorCode::ResourceNotFound => {
                let meant = meant_by(id, own.personas.iter().chain(&specs));
                return Err(self.refused_of_server(call, name).await?.unwrap_or_else(|| self.none_so_called(meant)));
            }
            Err(refusal) => return Err(refusal),
        };
        let Some(spec) = specs.into_iter().find(|spec| spec.graph == stored.entry_workflow) else {
            // It may be one of a workspace that cannot be loaded at the moment.
            let refused = self.refused_of_server(call, &stored.entry_workflow).await?;
            let message = "the workflow of the persona is not offered any more";
            return Err(refused.unwrap_or_else(|| ProtocolError::new(ErrorCode::PolicyViolation, message)));
        };
        check_tier(&spec, stored.autonomy_tier)?;
        if stored.receipt_policy == ReceiptPolicy::Required && self.parts().receipts.is_none() {
            let message = "the persona requires receipts, which this server does not issue";
            return Err(ProtocolError::new(ErrorCode::PolicyViolation, message));
        }
        let spec = PersonaSpec { autonomy_tier: stored.autonomy_tier, receipts: stored.receipt_policy, ..spec };
        Ok(ChosenPersona { id: stored.envelope.id, spec, quota: stored.quota_id })
    }

    /// Tells whoever names a persona that is not there which there are, and the one that may be meant.
    fn none_so_called(&self, meant: Option<&PersonaSpec>) -> ProtocolError {
        let files = match self.parts().personas.own() {
            Some(_) => "with `?workspace_id=…` also those that the files of a workspace declare, which run there alone",
            None => {
                "files of a workspace add none on this server: agents are those of the folder that is served, or that was \
                 published (`dormouse workspace publish`)"
            }
        };
        let meant = meant.map(|spec| format!(", did you mean `{}`?", spec.persona_id().as_str())).unwrap_or_default();
        let message =
            format!("there is no such persona{meant}: `GET /v1/personas` lists those that there are; {files}");
        ProtocolError::new(ErrorCode::ResourceNotFound, message)
    }

    /// Why the agent `name` of the server, which is declared, cannot be addressed; to whoever might find it, that is said.
    ///
    /// # Errors
    /// That it is busy, to whom it may be, where `name` may be in a workspace that cannot be loaded at the moment.
    pub(super) async fn refused_of_server(
        &self,
        call: &Call,
        name: &str,
    ) -> Result<Option<ProtocolError>, ProtocolError> {
        let personas = &self.parts().personas;
        let Some(source) = personas.source() else { return Ok(None) };
        let reason = source.refusal_of(name).await.map_err(|reason| agents_away(&reason))?;
        Ok(reason.filter(|_| personas.is_at_home(&call.actor)).map(|reason| {
            let reason = ended(format!("the agent `{name}` cannot be addressed: {reason}"));
            let message = format!("{reason} `GET /v1/x-catalog` tells of all");
            ProtocolError::new(ErrorCode::PolicyViolation, message)
        }))
    }

    /// Checks that `spec` may work in a workspace with `own` agents: where these only talk, no agent that is declared for
    /// another place, with its tools.
    async fn check_place_of(&self, spec: &PersonaSpec, own: &OwnAgents) -> Result<(), ProtocolError> {
        let personas = &self.parts().personas;
        let is_linked = || personas.linked().iter().any(|linked| linked.graph == spec.graph);
        if !own.only_talks || own.personas.contains(spec) || is_linked() {
            return Ok(());
        }
        if personas.served_only_talk().await.map_err(|reason| agents_away(&reason))? {
            return Ok(());
        }
        let name = &spec.graph;
        Err(refused_definition(format!("in a `chat` workspace nothing acts, as the agent `{name}` of the server does")))
    }

    /// Keeps the definitions of `spec` for a run in `workspace` that is about to begin, where it is one of that workspace
    /// alone.
    ///
    /// # Errors
    /// `policy_violation` where they are refused meanwhile; that it is busy when they cannot be kept now.
    pub(crate) async fn keep_definitions(
        &self,
        call: &Call,
        workspace: &WorkspaceId,
        spec: &PersonaSpec,
    ) -> Result<(), ProtocolError> {
        let (Some(own), Some(version)) = (self.parts().personas.own(), &spec.version) else { return Ok(()) };
        if !own.has(version) {
            return Ok(());
        }
        match own.keep(&call.actor.tenant, workspace, version).await {
            Ok(()) => Ok(()),
            Err(NotKept::Refused(reason)) => Err(refused_definition(reason)),
            Err(NotKept::Away(reason)) => Err(agents_away(&reason)),
        }
    }
}

/// The files of the workspace declare an agent that may not run.
fn refused_definition(message: String) -> ProtocolError {
    let message =
        format!("{} `GET /v1/x-catalog?workspace_id=…` tells of everything that its files declare", ended(message));
    ProtocolError::new(ErrorCode::PolicyViolation, message)
}

/// The files of the workspace declare agents, and none may run, for these `reasons`.
fn none_can(reasons: impl Iterator<Item = String>) -> ProtocolError {
    let reasons = reasons.map(ended).collect::<Vec<_>>().join(" ");
    refused_definition(format!("no agent of the workspace can be addressed: {reasons}"))
}

/// `message` as a sentence of its own: what it asks ends it already, as a full stop does.
fn ended(message: String) -> String {
    if message.ends_with(['?', '.']) { message } else { message + "." }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_which_no_agent_can_be_addressed_ends_once() {
        let reasons = ["`a`: did you mean `b`?", "`c`: it has no text", "`d`: is it `e`?"];
        let told = none_can(reasons.into_iter().map(str::to_owned)).to_string();
        assert!(told.contains("addressed: `a`: did you mean `b`? `c`: it has no text. `d`: is it `e`? `GET"), "{told}");
        let told = none_can(std::iter::once("`a`: it has no text".to_owned())).to_string();
        assert!(told.contains("`a`: it has no text. `GET"), "{told}");
    }
}
