//! The model that an agent asks.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::model::RuntimeConfig;

use super::Workspace;
use super::agent::{AgentDefinition, AgentMode, ModelChoice};
use super::load::MODELS;
use super::model::ModelDefinition;
use super::problem::{DefinitionKind, DefinitionName, Problem, Severity};
use crate::names::nearest;

/// What is said of an agent of which nobody knows which model it is to ask.
pub(super) const SEVERAL: &str =
    "it names no model, and there are several: set `model`, or the alias `default` in the settings";

/// The most names that are told where none is like the one that was written.
const MOST_NAMED: usize = 5;

/// The most agents that are looked at to find the model of one that names none: whoever writes them may write thousands that ask
/// each other.
const MOST_LOOKED_AT: usize = 200;

/// A model, and the sampling with which an agent asks it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedModel {
    /// Reference: `workspace/NAME` or `platform/NAME`.
    pub reference: String,
    /// Sampling: that of the alias, and over it that of the agent.
    pub config: RuntimeConfig,
}

impl Workspace {
    /// The model that `agent` asks: its own, or the alias `default`, or the only one that there is, or that of the agents that
    /// ask it, where they have one in common. Where there is none of these, the first alias stands in, which is a mistake that
    /// a check names.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn model_of(&self, agent: &AgentDefinition) -> Result<ResolvedModel, String> {
        let model = match self.chosen(agent) {
            Err(missing) => match self.stand_in(agent) {
                Some((_, choice)) => self.resolve(choice)?,
                None => return Err(missing),
            },
            Ok(model) => model,
        };
        Ok(ResolvedModel { config: model.config.overridden_by(&agent.sampling), ..model })
    }

    /// The first alias, where `agent` names no model and nothing says which one is meant: agents that ran with it go on.
    pub(super) fn stand_in(&self, agent: &AgentDefinition) -> Option<(&str, &ModelChoice)> {
        let is_open = agent.model.is_none() && self.default_alias().is_none();
        let first = self.settings.models.iter().next().filter(|_| is_open);
        let (name, choice) = first.filter(|_| self.chosen(agent).is_err())?;
        Some((name, choice))
    }

    /// The alias of agents that name no model: `default`, or the only one.
    fn default_alias(&self) -> Option<&ModelChoice> {
        self.named_default_alias().map(|(_, choice)| choice)
    }

    fn named_default_alias(&self) -> Option<(&String, &ModelChoice)> {
        let aliases = &self.settings.models;
        aliases.get_key_value("default").or_else(|| aliases.iter().next().filter(|_| aliases.len() == 1))
    }

    /// The alias that stands for the model of `agent`, by which it is named or because none is.
    pub(super) fn alias_of(&self, agent: &AgentDefinition) -> Option<(&String, &ModelChoice)> {
        match &agent.model {
            Some(choice) => self.settings.models.get_key_value(&choice.reference),
            None => self.named_default_alias(),
        }
    }

    /// The same without the sampling of the agent.
    fn chosen(&self, agent: &AgentDefinition) -> Result<ResolvedModel, String> {
        match &agent.model {
            Some(choice) => self.resolve(choice),
            None => self.default_model().or_else(|missing| self.inherited.get(&agent.name).cloned().ok_or(missing)),
        }
    }

    /// The models of agents that name none, where the agents that ask them have one in common.
    pub(super) fn models_of_askers(&self) -> BTreeMap<String, ResolvedModel> {
        let mut askers: BTreeMap<&str, Vec<&AgentDefinition>> = BTreeMap::new();
        if self.default_model().is_ok() {
            return BTreeMap::new();
        }
        for agent in self.agents.values() {
            for asked in agent.subagents.iter().collect::<BTreeSet<_>>() {
                askers.entry(asked).or_default().push(agent);
            }
        }
        let open = self.agents.values().filter(|agent| agent.model.is_none());
        let found = open.filter_map(|agent| {
            let search =
                AskerSearch { workspace: self, askers: &askers, known: BTreeSet::new(), left: Some(MOST_LOOKED_AT) };
            Some((agent.name.clone(), search.model_for(agent)?))
        });
        found.collect()
    }

    fn default_model(&self) -> Result<ResolvedModel, String> {
        if let Some(choice) = self.default_alias() {
            return self.resolve(choice);
        }
        if !self.settings.models.is_empty() {
            return Err(SEVERAL.to_owned());
        }
        let own = self.models.keys().map(|name| format!("workspace/{name}"));
        let others = self.platform_models.keys().filter(|_| self.models.is_empty());
        let mut all = own.chain(others.map(|name| format!("platform/{name}")));
        match (all.next(), all.next()) {
            (Some(reference), None) => Ok(ResolvedModel { reference, config: RuntimeConfig::default() }),
            (Some(_), Some(_)) => Err(SEVERAL.to_owned()),
            (None, _) => Err(match self.unread_models() {
                Some(flaw) => format!("its model is not known: mend `{}` first ({})", flaw.file, flaw.message),
                None => {
                    "there is no model: declare one in `.openharness/models`, or name one of the platform".to_owned()
                }
            }),
        }
    }

    /// The error for which nothing of a file of models is known: it may have any of them.
    fn unread_models(&self) -> Option<&Problem> {
        self.problems.iter().find(|problem| is_of_all_models(problem))
    }

    pub(super) fn resolve(&self, choice: &ModelChoice) -> Result<ResolvedModel, String> {
        let name = &choice.reference;
        if name.starts_with("workspace/") || name.starts_with("platform/") {
            return Ok(ResolvedModel { reference: name.clone(), config: choice.config.clone() });
        }
        if let Some(alias) = self.settings.models.get(name) {
            let reference = &alias.reference;
            if !reference.contains('/') {
                let instead = self.instead_of(reference, std::iter::empty());
                return Err(format!("`{reference}` is no reference to a model{instead}"));
            }
            let config = alias.config.overridden_by(&choice.config);
            return Ok(ResolvedModel { reference: reference.clone(), config });
        }
        if self.models.contains_key(name) {
            return Err(format!("there is no alias `{name}`; the model of that name is `workspace/{name}`"));
        }
        let aliases = self.settings.models.keys();
        let guess = nearest(name, aliases.clone().map(String::as_str));
        let guess = guess.map(|name| format!(": did you mean `{name}`?"));
        let guess = guess.unwrap_or_else(|| self.instead_of(name, aliases.cloned()));
        Err(format!("there is no model `{name}`{guess}"))
    }

    /// What can be written in the place of `name`, by which no model is asked: the one that its provider calls so, or one of
    /// `aliases` and references that there are.
    fn instead_of(&self, name: &str, aliases: impl Iterator<Item = String>) -> String {
        if let Some(model) = self.models.values().find(|model| model.name == name || model.model == name) {
            return format!(": did you mean `workspace/{}`?", model.name);
        }
        let own = self.models.keys().map(|name| format!("workspace/{name}"));
        let lent = self.platform_models.keys().map(|name| format!("platform/{name}"));
        let all: Vec<String> = aliases.chain(own).chain(lent).take(MOST_NAMED).collect();
        if all.is_empty() { String::new() } else { format!("; name one of `{}`", all.join("`, `")) }
    }

    /// The definition of `workspace/NAME` or `platform/NAME`, if it is enabled.
    pub fn model(&self, reference: &str) -> Option<&ModelDefinition> {
        let model = match reference.strip_prefix("platform/") {
            Some(name) => self.platform_models.get(name)?,
            None => self.models.get(reference.strip_prefix("workspace/")?)?,
        };
        (!self.disabled.contains(&DefinitionName::new(DefinitionKind::Model, &model.name))).then_some(model)
    }
}

/// True for an error of a file of models itself.
pub(super) fn is_of_all_models(problem: &Problem) -> bool {
    problem.severity == Severity::Error && problem.disables.is_none() && problem.file.starts_with(MODELS)
}

/// The search for the model of an agent that names none.
struct AskerSearch<'w> {
    workspace: &'w Workspace,
    /// The agents that ask each.
    askers: &'w BTreeMap<&'w str, Vec<&'w AgentDefinition>>,
    /// Names of those that were looked at.
    known: BTreeSet<&'w str>,
    /// Number of those that may be looked at still; `None` once it was not enough.
    left: Option<usize>,
}

impl<'w> AskerSearch<'w> {
    fn model_for(mut self, agent: &'w AgentDefinition) -> Option<ResolvedModel> {
        let found = self.inherited(agent);
        self.left.and(found)
    }

    /// The model of the agents that ask `agent`; `None` where these differ.
    fn inherited(&mut self, agent: &'w AgentDefinition) -> Option<ResolvedModel> {
        if agent.mode == AgentMode::Primary || !self.known.insert(&agent.name) {
            return None;
        }
        let askers = self.askers.get(agent.name.as_str())?;
        self.left = self.left.and_then(|left| left.checked_sub(askers.len()));
        self.left?;
        let mut common: Option<ResolvedModel> = None;
        for asker in askers {
            let chosen = match &asker.model {
                Some(choice) => self.workspace.resolve(choice).ok(),
                None => self.inherited(asker),
            };
            let Some(chosen) = chosen else { continue };
            if common.as_ref().is_some_and(|first| *first != chosen) {
                return None;
            }
            common = Some(chosen);
        }
        common
    }
}
